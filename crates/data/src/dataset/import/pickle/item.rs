//! Values of a pickle as a tree, for files whose structure is not known in advance.

use super::value::{BFLOAT16, Class, Object, Pickle, TensorParts, Value};
use crate::npy::{Dtype, Element, convert};

/// Maximum nesting of lists and dictionaries.
const MAX_DEPTH: usize = 64;

/// Value of a pickle. Tuples are lists.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Item<'p> {
    /// `None`.
    None,
    /// Truth value.
    Bool(bool),
    /// Integer of 64 bits.
    Int(i64),
    /// Floating-point number.
    Float(f64),
    /// Text or bytes.
    Bytes(&'p [u8]),
    /// List or tuple.
    List(Vec<Item<'p>>),
    /// Dictionary, in its order.
    Dict(Vec<(Item<'p>, Item<'p>)>),
    /// NumPy array or number in C order: its type, shape and bytes.
    Array(Dtype, Vec<usize>, &'p [u8]),
    /// PyTorch tensor, whose values are outside of the pickle.
    Tensor(TensorRef),
}

/// Part of a storage of PyTorch, in elements.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct TensorRef {
    /// Name of the storage.
    pub(crate) key: String,
    /// Elements of the storage.
    pub(crate) stored: usize,
    /// Element type of the storage; `None` if it is bfloat16.
    pub(crate) storage_type: Option<Dtype>,
    /// Element type of the tensor; `None` if it is bfloat16.
    pub(crate) dtype: Option<Dtype>,
    /// First element.
    pub(crate) offset: usize,
    /// Length of each axis.
    pub(crate) shape: Vec<usize>,
    /// Step of each axis.
    pub(crate) stride: Vec<usize>,
}

impl Item<'_> {
    /// Text of the value, if it is text.
    pub(crate) fn text(&self) -> Option<&str> {
        match self {
            Self::Bytes(bytes) => std::str::from_utf8(bytes).ok(),
            _ => None,
        }
    }

    /// Entry `name` of a dictionary.
    pub(crate) fn get(&self, name: &str) -> Option<&Self> {
        match self {
            Self::Dict(entries) => {
                entries.iter().rev().find(|(key, _)| key.text() == Some(name)).map(|(_, value)| value)
            }
            _ => None,
        }
    }

    /// Kind of the value in messages.
    pub(crate) fn kind(&self) -> &'static str {
        match self {
            Self::None => "None",
            Self::Bool(_) => "a truth value",
            Self::Int(_) | Self::Float(_) => "a number",
            Self::Bytes(_) => "a text",
            Self::List(_) => "a list",
            Self::Dict(_) => "a dictionary",
            Self::Array(..) => "a NumPy array",
            Self::Tensor(_) => "a tensor",
        }
    }

    /// Values and shape of a NumPy array or number; `None` for other kinds.
    ///
    /// # Errors
    /// A value does not fit `T`.
    pub(crate) fn array<T: Element>(&self) -> Option<Result<ValuesAndShape<T>, String>> {
        let Self::Array(dtype, shape, bytes) = self else { return None };
        let mut values = Vec::new();
        Some(convert(bytes, *dtype, 0, &mut values).map(|()| (values, shape.clone())))
    }
}

/// Values of an array, and its shape.
pub(crate) type ValuesAndShape<T> = (Vec<T>, Vec<usize>);

impl Pickle<'_> {
    /// Converts the root to a tree. Shared values are repeated, up to one value per byte of the
    /// file.
    ///
    /// # Errors
    /// A message: the values nest too deeply, repeat too often, or are not plain data.
    pub(crate) fn item(&self) -> Result<Item<'_>, String> {
        let mut budget = self.data.len() + 16;
        self.item_of(self.root, MAX_DEPTH, &mut budget)
    }

    fn item_of(&self, value: Value, depth: usize, budget: &mut usize) -> Result<Item<'_>, String> {
        *budget = budget.checked_sub(1).ok_or("the same values are repeated again and again")?;
        let depth = depth.checked_sub(1).ok_or("the values are nested too deeply")?;
        Ok(match value {
            Value::None => Item::None,
            Value::Bool(x) => Item::Bool(x),
            Value::Int(x) => Item::Int(x),
            Value::Float(x) => Item::Float(x),
            Value::Bytes { .. } => Item::Bytes(self.raw(value).unwrap_or_default()),
            Value::Class(_) => return Err("a class where data is expected".into()),
            Value::Object(_) => match self.object(value).ok_or("a value is missing")? {
                Object::Tuple(items) | Object::List(items) => {
                    let items = items.iter().map(|&item| self.item_of(item, depth, budget));
                    Item::List(items.collect::<Result<_, _>>()?)
                }
                Object::Dict(entries) => {
                    let entries = entries.iter().map(|&(key, value)| {
                        Ok((self.item_of(key, depth, budget)?, self.item_of(value, depth, budget)?))
                    });
                    Item::Dict(entries.collect::<Result<_, String>>()?)
                }
                Object::Decoded(bytes) => Item::Bytes(bytes),
                Object::Array(Some(state)) => {
                    let (dtype, shape, data) = self.array_state(*state)?;
                    Item::Array(dtype, shape, data)
                }
                Object::Scalar { dtype, data } => {
                    let dtype = self.dtype(*dtype)?;
                    let data = self.raw(*data).filter(|data| data.len() == dtype.size);
                    Item::Array(dtype, Vec::new(), data.ok_or("a number without its bytes")?)
                }
                Object::Tensor(parts) => Item::Tensor(self.tensor(parts)?),
                Object::Csr(_) => return Err("a SciPy matrix; save its arrays instead".into()),
                Object::Array(None) => return Err("an array without a state".into()),
                Object::Dtype { .. } => return Err("an element type where data is expected".into()),
                Object::Persistent(_) => return Err("a storage that is not part of a tensor".into()),
            },
        })
    }

    /// Parts of a tensor.
    fn tensor(&self, parts: &TensorParts) -> Result<TensorRef, String> {
        let &TensorParts { storage, offset, shape, stride, dtype } = parts;
        let Some(Object::Persistent(id)) = self.object(storage) else {
            return Err("a tensor without a storage".into());
        };
        let Some(&[tag, kind, key, _, stored, ..]) = self.items(*id) else {
            return Err("a storage without its five parts".into());
        };
        if self.raw(tag) != Some(b"storage") {
            return Err("a reference that is not a storage".into());
        }
        let key =
            self.raw(key).and_then(|key| std::str::from_utf8(key).ok()).ok_or("a storage without a key")?;
        let number = |value| match value {
            Value::Int(x) => usize::try_from(x).map_err(|_| format!("a tensor with the negative size {x}")),
            _ => Err("a tensor without its sizes".to_string()),
        };
        let elements = |value| match value {
            Value::Class(Class::Elements(BFLOAT16)) => Ok(None),
            Value::Class(Class::Elements(name)) => {
                Dtype::parse(name).map(Some).ok_or("a tensor without a type")
            }
            _ => Err("a tensor without a type"),
        };
        let storage_type = elements(kind)?;
        let shape = self.lengths(shape).ok_or("a tensor without a shape")?;
        let stride = self.lengths(stride).ok_or("a tensor without strides")?;
        if shape.len() != stride.len() {
            return Err(format!("a tensor of shape {shape:?} with {} strides", stride.len()));
        }
        Ok(TensorRef {
            key: key.into(),
            stored: number(stored)?,
            storage_type,
            dtype: dtype.map(elements).unwrap_or(Ok(storage_type))?,
            offset: number(offset)?,
            shape,
            stride,
        })
    }
}
