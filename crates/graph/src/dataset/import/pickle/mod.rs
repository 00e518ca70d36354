//! A reader of Python pickles that executes nothing: the opcodes of protocols 2 to 5 that data
//! needs, and a fixed list of classes (dictionaries, lists, NumPy arrays, SciPy CSR matrices).
//!
//! A pickle is a program for a stack machine (`Lib/pickletools.py` of CPython documents every
//! opcode); in Python, `GLOBAL` and `REDUCE` call any function by name. Here a global outside the
//! list is an error, "calling" one of the list makes a plain value, and everything made is kept in
//! one arena bounded by the length of the file, so neither cycles nor deep nesting can hurt.

#[cfg(test)]
pub(super) mod testing;
mod value;

use std::collections::HashMap;

pub(super) use value::Pickle;
use value::{Class, Object, Value};

/// Runs the program of `data`.
///
/// # Errors
/// A message with the byte offset: a truncated file, an opcode that data does not need, a global
/// outside the list, or a stack that does not fit.
pub(super) fn read(data: &[u8]) -> Result<Pickle<'_>, (usize, String)> {
    let mut machine = Machine {
        data,
        position: 0,
        stack: Vec::new(),
        marks: Vec::new(),
        memo: HashMap::new(),
        objects: Vec::new(),
        copied: 0,
    };
    loop {
        let start = machine.position;
        match machine.step() {
            Ok(None) => {}
            Ok(Some(root)) => return Ok(Pickle { data, objects: machine.objects, root }),
            Err(message) => return Err((start, message)),
        }
    }
}

struct Machine<'a> {
    data: &'a [u8],
    position: usize,
    stack: Vec<Value>,
    /// Heights of the stack at the open marks.
    marks: Vec<usize>,
    memo: HashMap<u32, Value>,
    objects: Vec<Object>,
    /// Bytes and entries copied so far; bounded by the file's length.
    copied: usize,
}

type Step<T = ()> = Result<T, String>;

impl Machine<'_> {
    /// One opcode; the root value at `STOP`.
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
            b'R' => self.reduce()?,
            0x81 => self.new_object()?,
            b'b' => self.build()?,
            code => {
                return Err(format!(
                    "the opcode {code:#04x} is not needed for data of this format, and is not run"
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
        Ok(self.take(N)?.try_into().expect("as many bytes as asked for"))
    }

    fn byte(&mut self) -> Step<u8> {
        self.array().map(|[byte]| byte)
    }

    /// A name up to the end of its line.
    fn line(&mut self) -> Step<String> {
        let rest = &self.data[self.position..];
        let end = rest.iter().position(|&b| b == b'\n');
        let end = end.ok_or("a name does not end: the file is truncated")?;
        self.position += end + 1;
        Ok(String::from_utf8_lossy(&rest[..end]).into_owned())
    }

    /// A run of bytes or text, left where it lies in the file.
    fn bytes(&mut self, length: u64) -> Step {
        let start = self.position;
        let length = usize::try_from(length).unwrap_or(usize::MAX);
        self.take(length)?;
        self.stack.push(Value::Bytes { start, length });
        Ok(())
    }

    /// `LONG1`: a little-endian two's complement integer of up to 8 bytes.
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

    /// Values below the innermost mark belong to what is being built there.
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
        self.memo.insert(slot, top);
        Ok(())
    }

    fn recall(&mut self, slot: u32) -> Step {
        let value = *self.memo.get(&slot).ok_or_else(|| format!("nothing was remembered as {slot}"))?;
        self.stack.push(value);
        Ok(())
    }

    /// The bytes of a text or bytes value.
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
                _ => Err("something is appended to what is no list".into()),
            },
            _ => Err("something is appended to what is no list".into()),
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
                _ => Err("an entry is made in what is no dictionary".into()),
            },
            _ => Err("an entry is made in what is no dictionary".into()),
        }
    }

    /// `REDUCE`: where Python would call a function, a value of the class is made.
    fn reduce(&mut self) -> Step {
        let (arguments, callable) = (self.pop()?, self.pop()?);
        let Value::Class(class) = callable else {
            return Err("a call of what is no class of the list; nothing is run".into());
        };
        let arguments = self.tuple(arguments)?;
        if arguments.len() > 4 {
            return Err("a call with more arguments than data needs".into());
        }
        let arguments = arguments.to_vec();
        let object = match (class, &arguments[..]) {
            (Class::Reconstruct, _) => Object::Array(None),
            (Class::Dtype, [descr, ..]) => Object::Dtype { descr: *descr, state: None },
            // The default factory is a class of the list, and irrelevant: nothing looks up here.
            (Class::DefaultDict, _) | (Class::OrderedDict, []) => Object::Dict(Vec::new()),
            // Python 2 hands an OrderedDict its entries as a list of lists of two.
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
            _ => return Err(format!("a call of {class:?} that data does not need; nothing is run")),
        };
        if self.copied > self.data.len() {
            return Err("the same data is copied again and again".into());
        }
        self.make(object);
        Ok(())
    }

    /// `NEWOBJ`: an instance without state.
    fn new_object(&mut self) -> Step {
        let (_, class) = (self.pop()?, self.pop()?);
        match class {
            Value::Class(Class::CsrMatrix) => self.make(Object::Csr(None)),
            Value::Class(Class::OrderedDict | Class::DefaultDict) => self.make(Object::Dict(Vec::new())),
            _ => return Err("an instance of what is no data class; nothing is run".into()),
        }
        Ok(())
    }

    /// `BUILD`: the state of an array, a type or a matrix, kept to be read later.
    fn build(&mut self) -> Step {
        let value = self.pop()?;
        let Value::Object(i) = self.top()? else {
            return Err("a state for what is no object".into());
        };
        match &mut self.objects[i] {
            Object::Array(state) | Object::Csr(state) | Object::Dtype { state, .. } => {
                *state = Some(value);
                Ok(())
            }
            _ => Err("a state for what has none".into()),
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
mod tests {
    use std::path::Path;

    use super::{testing::*, *};
    use crate::place::At;

    fn error(data: &[u8]) -> String {
        let (at, message) = read(data).unwrap_err();
        format!("byte {at}: {message}")
    }

    #[test]
    fn arrays_matrices_and_lists() {
        let data = pickle(&array("i4", &[2, 2], bytemuck::cast_slice(&[1i32, 2, 3, 4])));
        assert_eq!(read(&data).unwrap().array::<i64>().unwrap(), (vec![1, 2, 3, 4], vec![2, 2]));
        let data = pickle(&csr(&[&[0., 2.], &[1., 0.]]));
        let matrix = read(&data).unwrap().csr(&At::new(Path::new("x"), "pickle")).unwrap();
        assert_eq!((matrix.rows, matrix.columns, matrix.indices), (2, 2, vec![1, 0]));
        let data = pickle(&lists(&[(0, &[1, 2]), (2, &[0])]));
        assert_eq!(read(&data).unwrap().adjacency().unwrap(), [(0, 1), (0, 2), (2, 0)]);
    }

    #[test]
    fn what_python_3_writes() {
        // pickle.dumps(collections.OrderedDict([(1, [2, 300])]), 4)
        let data = b"\x80\x04\x95\x2c\0\0\0\0\0\0\0\x8c\x0bcollections\x94\x8c\x0bOrderedDict\x94\x93\x94)R\x94K\x01]\x94(K\x02M\x2c\x01es.";
        assert_eq!(read(data).unwrap().adjacency().unwrap(), [(1, 2), (1, 300)]);
        // an array in protocol 2, whose bytes are text to be encoded
        let encoded = b"c_codecs\nencode\nX\x02\0\0\0\xc3\xbfU\x06latin1\x86R"; // U+00FF in UTF-8
        let mut data = pickle(&array("i1", &[1], b"?"));
        let place = data.windows(6).position(|w| w == b"T\x01\0\0\0?").unwrap();
        data.splice(place..place + 6, encoded.iter().copied());
        assert_eq!(read(&data).unwrap().array::<i64>().unwrap().0, [-1]);
        // no bytes at all are a call
        let mut data = pickle(&array("i1", &[0], b""));
        let place = data.windows(5).position(|w| w == b"T\0\0\0\0").unwrap();
        data.splice(place..place + 5, b"c__builtin__\nbytes\n)R".iter().copied());
        assert_eq!(read(&data).unwrap().array::<i64>().unwrap(), (vec![], vec![0]));
    }

    #[test]
    fn nothing_is_ever_run() {
        let attack = error(b"\x80\x02cos\nsystem\nU\x04true\x85R.");
        assert!(attack.contains("'os.system'") && attack.contains("nothing was run"), "{attack}");
        assert!(attack.starts_with("byte 2:"), "{attack}");
        let attack = error(b"\x80\x04\x8c\x02os\x8c\x06system\x93\x8c\x04true\x85R.");
        assert!(attack.contains("'os.system'"), "{attack}");
        for (attack, why) in [
            (&b"\x80\x02c__builtin__\neval\nU\x011\x85R."[..], "__builtin__.eval"),
            (b"\x80\x02c__builtin__\nlist\n)R.", "List"),
            (b"\x80\x02cnumpy\nndarray\n)\x81.", "nothing is run"),
            (b"\x80\x02(U\x04trueios\nsystem\n.", "0x69"),
            (b"\x80\x02U\x01x)R.", "no class"),
            (b"\x80\x02P1\n.", "0x50"),
        ] {
            let message = error(attack);
            assert!(message.contains(why), "{message}");
        }
    }

    #[test]
    fn broken_programs_are_errors() {
        for bad in [
            &b""[..],
            b"\x80",
            b"\x80\x09.",
            b"\x80\x02",
            b"\x80\x02.",
            b"(.",
            b"t.",
            b"\x85.",
            b"(K\x01(\x86.",
            b"]K\x01K\x02s.",
            b"}(K\x01u.",
            b"h\x05.",
            b"T\xff\xff\xff\xffab.",
            b"\x8e\xff\xff\xff\xff\xff\xff\xff\xff.",
            b"K\x01K\x02b.",
            b"\x8a\x09123456789.",
            b"K\x01(0.",
            b"cnumpy\ndtype",
        ] {
            error(bad);
        }
        // the program is fine, the value is not what it should be
        let pickle = read(b"\x80\x02]q\0h\0a.").unwrap(); // a list that holds itself
        assert!(pickle.adjacency().is_err() && pickle.array::<i64>().is_err());
    }

    #[test]
    fn small_files_cannot_grow_large() {
        // a list of 200 neighbours, shared by 1000 nodes
        let shared = [b"](".to_vec(), b"K\x01".repeat(200), b"eq\0".to_vec()].concat();
        let entries: Vec<u8> = (0..1000u16).flat_map(|v| [b'M', v as u8, (v >> 8) as u8, b'h', 0]).collect();
        let data = pickle(&[&shared[..], b"0}(", &entries, b"u"].concat());
        assert!(read(&data).unwrap().adjacency().unwrap_err().contains("more neighbours"));
        // a text decoded over and over
        let text = [&b"X\xc8\0\0\0"[..], &[b'a'; 200], b"q\x01c_codecs\nencode\nq\x02"].concat();
        let data = pickle(&[&text[..], &b"h\x02h\x01\x85R".repeat(100)].concat());
        assert!(error(&data).contains("again and again"));
        // deep nesting
        let data = pickle(&[b")".to_vec(), b"\x85".repeat(1_000_000)].concat());
        assert!(read(&data).unwrap().adjacency().is_err());
    }

    #[test]
    fn damage_is_an_error_or_harmless() {
        let at = At::new(Path::new("x"), "pickle");
        for good in [
            pickle(&array("i4", &[2, 2], &[1; 16])),
            pickle(&csr(&[&[0., 2.], &[1., 0.]])),
            pickle(&lists(&[(0, &[1, 2]), (2, &[0])])),
        ] {
            for length in 0..good.len() {
                assert!(read(&good[..length]).is_err());
            }
            for bit in 0..good.len() * 8 {
                let mut bad = good.clone();
                bad[bit / 8] ^= 1 << (bit % 8);
                if let Ok(pickle) = read(&bad) {
                    let _ = (pickle.array::<i32>(), pickle.csr(&at), pickle.adjacency()); // no panic
                }
            }
        }
    }
}
