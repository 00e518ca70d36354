//! Reader of Python pickles that executes no code: the opcodes of protocols 2 to 5 that data needs,
//! and a fixed list of classes (dictionaries, lists, NumPy arrays, SciPy CSR matrices, PyTorch
//! tensors).
//!
//! A pickle is a program for a stack machine (`Lib/pickletools.py` of CPython documents every
//! opcode); in Python, `GLOBAL` and `REDUCE` call any function by name. Here a global outside the
//! list is an error, a call of a listed class creates a plain value, and all values live in one
//! arena bounded by the length of the file, so neither cycles nor deep nesting are harmful.

mod item;
mod keyed;
mod memo;
#[cfg(test)]
pub(crate) mod testing;
mod value;

pub(crate) use item::{Item, TensorRef};
use memo::Memo;
pub(crate) use value::Pickle;
use value::{Class, Object, TensorParts, Value};

/// Runs the program of `data`.
///
/// # Errors
/// A message with the byte offset: a truncated file, an unsupported opcode, a global outside the
/// list, or an inconsistent stack.
pub(crate) fn read(data: &[u8]) -> Result<Pickle<'_>, (usize, String)> {
    read_first(data).map(|(pickle, _)| pickle)
}

/// Runs the first program of `data` as [`read`] does; returns also its length in bytes.
///
/// # Errors
/// As for [`read`].
pub(crate) fn read_first(data: &[u8]) -> Result<(Pickle<'_>, usize), (usize, String)> {
    let mut machine = Machine {
        data,
        position: 0,
        stack: Vec::new(),
        marks: Vec::new(),
        memo: Memo::default(),
        objects: Vec::new(),
        copied: 0,
    };
    loop {
        let start = machine.position;
        match machine.step() {
            Ok(None) => {}
            Ok(Some(root)) => {
                let length = machine.position;
                return Ok((Pickle { data, objects: machine.objects, root }, length));
            }
            Err(message) => return Err((start, message)),
        }
    }
}

struct Machine<'a> {
    data: &'a [u8],
    position: usize,
    stack: Vec<Value>,
    /// Stack heights at the open marks.
    marks: Vec<usize>,
    memo: Memo,
    objects: Vec<Object>,
    /// Number of bytes and entries copied so far; bounded by the file's length.
    copied: usize,
}

type Step<T = ()> = Result<T, String>;

impl Machine<'_> {
    /// Executes one opcode; returns the root value at `STOP`.
    // Reason for its length: one arm per opcode.
    fn step(&mut self) -> Step<Option<Value>> {
        match self.byte()? {
            0x80 => match self.byte()? {
                2..=5 => {}
                version => return Err(format!("pickle protocol {version}; known are 2 to 5")),
            },
            0x95 => drop(self.take(8)?), // FRAME: a hint for readers of streams
            b'.' => return self.pop().map(Some),
            b'(' => self.marks.push(self.stack.len()),
            b'0' => drop(self.pop()?),
            b'1' => drop(self.pop_mark()?),
            b'2' => {
                let top = self.top()?;
                self.stack.push(top);
            }
            b'N' => self.stack.push(Value::None),
            0x88 => self.stack.push(Value::Bool(true)),
            0x89 => self.stack.push(Value::Bool(false)),
            b'J' => {
                let x = i32::from_le_bytes(self.array()?);
                self.stack.push(Value::Int(x.into()));
            }
            b'K' => {
                let x = self.byte()?;
                self.stack.push(Value::Int(x.into()));
            }
            b'M' => {
                let x = u16::from_le_bytes(self.array()?);
                self.stack.push(Value::Int(x.into()));
            }
            0x8a => self.long()?,
            b'G' => {
                let x = f64::from_be_bytes(self.array()?);
                self.stack.push(Value::Float(x));
            }
            b'U' | b'C' | 0x8c => {
                let length = self.byte()?;
                self.bytes(length.into())?;
            }
            b'T' | b'X' | b'B' => {
                let length = u32::from_le_bytes(self.array()?);
                self.bytes(length.into())?;
            }
            0x8d | 0x8e | 0x96 => {
                let length = u64::from_le_bytes(self.array()?);
                self.bytes(length)?;
            }
            b')' => self.make(Object::Tuple(Vec::new())),
            b't' => {
                let items = self.pop_mark()?;
                self.make(Object::Tuple(items));
            }
            n @ 0x85..=0x87 => {
                let from =
                    self.stack.len().checked_sub(usize::from(n) - 0x84).ok_or("the stack is too short")?;
                self.above_mark(from)?;
                let items = self.stack.split_off(from);
                self.make(Object::Tuple(items));
            }
            b']' => self.make(Object::List(Vec::new())),
            b'}' => self.make(Object::Dict(Vec::new())),
            b'a' => {
                let item = self.pop()?;
                self.append(vec![item])?;
            }
            b'e' => {
                let items = self.pop_mark()?;
                self.append(items)?;
            }
            b's' => {
                let (value, key) = (self.pop()?, self.pop()?);
                self.set_items(vec![key, value])?;
            }
            b'u' => {
                let items = self.pop_mark()?;
                self.set_items(items)?;
            }
            b'q' => {
                let slot = self.byte()?;
                self.remember(slot.into())?;
            }
            b'r' => {
                let slot = u32::from_le_bytes(self.array()?);
                self.remember(slot)?;
            }
            0x94 => {
                let slot = self.memo.len() as u32; // fewer than the file has bytes
                self.remember(slot)?;
            }
            b'h' => {
                let slot = self.byte()?;
                self.recall(slot.into())?;
            }
            b'j' => {
                let slot = u32::from_le_bytes(self.array()?);
                self.recall(slot)?;
            }
            b'c' => {
                let (module, name) = (self.line()?, self.line()?);
                self.global(&module, &name)?;
            }
            0x93 => {
                let (name, module) = (self.pop()?, self.pop()?);
                let name = String::from_utf8_lossy(self.raw(name)?).into_owned();
                let module = String::from_utf8_lossy(self.raw(module)?).into_owned();
                self.global(&module, &name)?;
            }
            b'Q' => {
                let id = self.pop()?;
                self.make(Object::Persistent(id));
            }
            b'R' => self.reduce()?,
            0x81 => self.new_object()?,
            b'b' => self.build()?,
            code => {
                return Err(format!(
                    "the opcode {code:#04x} is not used by data of this format and was not run"
                ));
            }
        }
        Ok(None)
    }

    fn take(&mut self, length: usize) -> Step<&[u8]> {
        let end = self.position.checked_add(length).filter(|&end| end <= self.data.len());
        let end = end.ok_or("the pickle ends early: the file is truncated")?;
        let taken = &self.data[self.position..end];
        self.position = end;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Step<[u8; N]> {
        Ok(self.take(N)?.try_into().expect("as many bytes as requested"))
    }

    fn byte(&mut self) -> Step<u8> {
        self.array().map(|[byte]| byte)
    }

    /// Reads a name up to the end of its line.
    fn line(&mut self) -> Step<String> {
        let rest = &self.data[self.position..];
        let end = rest.iter().position(|&b| b == b'\n');
        let end = end.ok_or("a name does not end: the file is truncated")?;
        self.position += end + 1;
        Ok(String::from_utf8_lossy(&rest[..end]).into_owned())
    }

    /// Reads bytes or text without copying.
    fn bytes(&mut self, length: u64) -> Step {
        let start = self.position;
        let length = usize::try_from(length).unwrap_or(usize::MAX);
        self.take(length)?;
        self.stack.push(Value::Bytes { start, length });
        Ok(())
    }

    /// Reads `LONG1`: a little-endian two's complement integer of up to 8 bytes.
    fn long(&mut self) -> Step {
        let length = usize::from(self.byte()?);
        let raw = self.take(length)?;
        if length > 8 {
            return Err(format!("an integer of {length} bytes"));
        }
        let negative = raw.last().is_some_and(|&top| top >= 0x80);
        let mut wide = [if negative { 0xff } else { 0 }; 8];
        wide[..length].copy_from_slice(raw);
        self.stack.push(Value::Int(i64::from_le_bytes(wide)));
        Ok(())
    }

    fn make(&mut self, object: Object) {
        self.stack.push(Value::Object(self.objects.len()));
        self.objects.push(object);
    }

    /// Checks that no opcode reaches below the innermost mark.
    fn above_mark(&self, height: usize) -> Step {
        match self.marks.last() {
            Some(&mark) if height < mark => Err("an opcode reaches below a mark".into()),
            _ => Ok(()),
        }
    }

    fn pop(&mut self) -> Step<Value> {
        let top = self.top()?;
        self.stack.pop();
        Ok(top)
    }

    fn top(&self) -> Step<Value> {
        let top = *self.stack.last().ok_or("the stack is empty")?;
        self.above_mark(self.stack.len() - 1)?;
        Ok(top)
    }

    fn pop_mark(&mut self) -> Step<Vec<Value>> {
        let mark = self.marks.pop().ok_or("a mark is missing")?;
        Ok(self.stack.split_off(mark))
    }

    fn remember(&mut self, slot: u32) -> Step {
        let top = self.top()?;
        self.memo.set(slot, top);
        Ok(())
    }

    fn recall(&mut self, slot: u32) -> Step {
        let value = self.memo.get(slot).ok_or_else(|| format!("the memo slot {slot} is empty"))?;
        self.stack.push(value);
        Ok(())
    }

    /// Bytes of a text or bytes value.
    fn raw(&self, value: Value) -> Step<&[u8]> {
        match value {
            Value::Bytes { start, length } => Ok(&self.data[start..start + length]),
            Value::Object(i) => match &self.objects[i] {
                Object::Decoded(bytes) => Ok(bytes),
                _ => Err("text expected".into()),
            },
            _ => Err("text expected".into()),
        }
    }

    fn tuple(&self, value: Value) -> Step<&[Value]> {
        match value {
            Value::Object(i) => match &self.objects[i] {
                Object::Tuple(items) => Ok(items),
                _ => Err("a tuple expected".into()),
            },
            _ => Err("a tuple expected".into()),
        }
    }

    fn global(&mut self, module: &str, name: &str) -> Step {
        let class = Class::find(module, name).ok_or_else(|| refused(&format!("{module}.{name}")))?;
        self.stack.push(Value::Class(class));
        Ok(())
    }

    fn append(&mut self, items: Vec<Value>) -> Step {
        match self.top()? {
            Value::Object(i) => match &mut self.objects[i] {
                Object::List(list) => {
                    list.extend(items);
                    Ok(())
                }
                _ => Err("a value is appended to an object that is not a list".into()),
            },
            _ => Err("a value is appended to an object that is not a list".into()),
        }
    }

    fn set_items(&mut self, items: Vec<Value>) -> Step {
        if !items.len().is_multiple_of(2) {
            return Err("a key without a value".into());
        }
        match self.top()? {
            Value::Object(i) => match &mut self.objects[i] {
                Object::Dict(dict) => {
                    dict.extend(items.chunks_exact(2).map(|pair| (pair[0], pair[1])));
                    Ok(())
                }
                _ => Err("an entry is set in an object that is not a dictionary".into()),
            },
            _ => Err("an entry is set in an object that is not a dictionary".into()),
        }
    }

    /// Executes `REDUCE`: where Python would call a function, a value of the class is created.
    fn reduce(&mut self) -> Step {
        let (arguments, callable) = (self.pop()?, self.pop()?);
        let Value::Class(class) = callable else {
            return Err("a call of an object that is not a listed class; nothing was run".into());
        };
        let arguments = self.tuple(arguments)?;
        if arguments.len() > 7 {
            return Err("a call with more arguments than data uses".into());
        }
        let arguments = arguments.to_vec();
        let object = match (class, &arguments[..]) {
            (Class::Reconstruct, _) => Object::Array(None),
            (Class::Scalar, &[dtype, data]) => Object::Scalar { dtype, data },
            // NumPy's form of an array in protocol 5, converted to the state of the older form.
            (Class::FromBuffer, &[data, dtype, shape, order, ..]) => {
                let is_fortran = match self.raw(order)? {
                    b"C" => false,
                    b"F" => true,
                    _ => return Err("an array that is in neither C nor Fortran order".into()),
                };
                self.make(Object::Tuple(vec![Value::Int(1), shape, dtype, Value::Bool(is_fortran), data]));
                Object::Array(Some(self.pop()?))
            }
            // torch.Size and torch.nn.Parameter are their first argument.
            (Class::Size, &[first]) | (Class::Parameter, &[first, ..]) => {
                self.stack.push(first);
                return Ok(());
            }
            (Class::Tensor, &[storage, offset, shape, stride, ..]) => {
                let dtype = arguments.get(6).copied().filter(|last| matches!(last, Value::Class(_)));
                Object::Tensor(Box::new(TensorParts { storage, offset, shape, stride, dtype }))
            }
            (Class::Dtype, [descr, ..]) => Object::Dtype { descr: *descr, state: None },
            // The default factory is a listed class and irrelevant, because no lookups happen here.
            (Class::DefaultDict, _) | (Class::OrderedDict, []) => Object::Dict(Vec::new()),
            // Python 2 passes the entries of an OrderedDict as a list of lists of two.
            (Class::OrderedDict, &[Value::Object(i)]) => {
                let Object::List(pairs) = &self.objects[i] else {
                    return Err("a list of entries expected".into());
                };
                self.copied += pairs.len();
                let entries = pairs.iter().map(|&pair| match pair {
                    Value::Object(i) => match &self.objects[i] {
                        Object::List(pair) | Object::Tuple(pair) if pair.len() == 2 => Ok((pair[0], pair[1])),
                        _ => Err("an entry of a key and a value expected".to_string()),
                    },
                    _ => Err("an entry of a key and a value expected".to_string()),
                });
                Object::Dict(entries.collect::<Step<_>>()?)
            }
            // Python 3 writes bytes in protocol 2 as _codecs.encode(text, 'latin1').
            (Class::Encode, &[text, ..]) => {
                let text = std::str::from_utf8(self.raw(text)?).map_err(|_| "text that is not UTF-8")?;
                let bytes: Option<Vec<u8>> = text.chars().map(|c| u8::try_from(u32::from(c)).ok()).collect();
                let bytes = bytes.ok_or("text that is not Latin-1")?;
                self.copied += bytes.len();
                Object::Decoded(bytes)
            }
            (Class::NoBytes, []) => Object::Decoded(Vec::new()),
            _ => return Err(format!("a call of {class:?} that data does not use; nothing was run")),
        };
        if self.copied > self.data.len() {
            return Err("the same data is copied again and again".into());
        }
        self.make(object);
        Ok(())
    }

    /// Executes `NEWOBJ`: an instance without state.
    fn new_object(&mut self) -> Step {
        let (_, class) = (self.pop()?, self.pop()?);
        match class {
            Value::Class(Class::CsrMatrix) => self.make(Object::Csr(None)),
            Value::Class(Class::OrderedDict | Class::DefaultDict) => self.make(Object::Dict(Vec::new())),
            _ => return Err("an instance of a class that is not a data class; nothing was run".into()),
        }
        Ok(())
    }

    /// Executes `BUILD`: the state of an array, a type or a matrix, stored for later.
    fn build(&mut self) -> Step {
        let value = self.pop()?;
        let Value::Object(i) = self.top()? else {
            return Err("a state for a value that is not an object".into());
        };
        match &mut self.objects[i] {
            Object::Array(state) | Object::Csr(state) | Object::Dtype { state, .. } => {
                *state = Some(value);
                Ok(())
            }
            // Attributes of an OrderedDict, such as the versions that PyTorch notes beside weights.
            Object::Dict(_) => Ok(()),
            _ => Err("a state for an object without state".into()),
        }
    }
}

fn refused(name: &str) -> String {
    format!(
        "the pickle asks for '{}', which is not one of the data classes it may hold; nothing was run",
        name.escape_debug()
    )
}

#[cfg(test)]
mod tests;
