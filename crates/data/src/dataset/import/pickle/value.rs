//! Values of a pickle, and the extraction of arrays and matrices.

use graphmill_core::location::Location;

use super::super::csr::Csr;
use crate::npy::{Dtype, Element, convert};

/// Classes and functions that a data pickle may name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Class {
    /// `scipy.sparse.csr_matrix`.
    CsrMatrix,
    /// NumPy's constructor of empty arrays.
    Reconstruct,
    /// `numpy.ndarray`, which occurs only as an argument.
    Ndarray,
    /// `numpy.dtype`.
    Dtype,
    /// `collections.defaultdict`.
    DefaultDict,
    /// `collections.OrderedDict`.
    OrderedDict,
    /// `list`, which occurs only as a default factory.
    List,
    /// `_codecs.encode`: Python 3's encoding of bytes in protocol 2.
    Encode,
    /// `bytes`: Python 3's encoding of empty bytes.
    NoBytes,
    /// NumPy's constructor of single numbers.
    Scalar,
    /// NumPy's constructor of arrays over bytes.
    FromBuffer,
    /// PyTorch's constructor of a tensor over a storage.
    Tensor,
    /// PyTorch's constructor of a parameter over a tensor.
    Parameter,
    /// `torch.Size`.
    Size,
    /// Element type of a storage or a tensor.
    Elements(&'static str),
}

/// Modules and names of the classes in Python 2 and 3, and in old and new NumPy and SciPy.
const CLASSES: &[(&str, &str, Class)] = &[
    ("scipy.sparse.csr", "csr_matrix", Class::CsrMatrix),
    ("scipy.sparse._csr", "csr_matrix", Class::CsrMatrix),
    ("scipy.sparse", "csr_matrix", Class::CsrMatrix),
    ("numpy.core.multiarray", "_reconstruct", Class::Reconstruct),
    ("numpy._core.multiarray", "_reconstruct", Class::Reconstruct),
    ("numpy", "ndarray", Class::Ndarray),
    ("numpy", "dtype", Class::Dtype),
    ("collections", "defaultdict", Class::DefaultDict),
    ("collections", "OrderedDict", Class::OrderedDict),
    ("__builtin__", "list", Class::List),
    ("builtins", "list", Class::List),
    ("_codecs", "encode", Class::Encode),
    ("__builtin__", "bytes", Class::NoBytes),
    ("numpy.core.multiarray", "scalar", Class::Scalar),
    ("numpy._core.multiarray", "scalar", Class::Scalar),
    ("numpy.core.numeric", "_frombuffer", Class::FromBuffer),
    ("numpy._core.numeric", "_frombuffer", Class::FromBuffer),
    ("torch._utils", "_rebuild_tensor", Class::Tensor),
    ("torch._utils", "_rebuild_tensor_v2", Class::Tensor),
    ("torch._utils", "_rebuild_tensor_v3", Class::Tensor),
    ("torch._utils", "_rebuild_parameter", Class::Parameter),
    ("torch", "Size", Class::Size),
    ("torch", "FloatStorage", Class::Elements("<f4")),
    ("torch", "DoubleStorage", Class::Elements("<f8")),
    ("torch", "HalfStorage", Class::Elements("<f2")),
    ("torch", "BFloat16Storage", Class::Elements(BFLOAT16)),
    ("torch", "LongStorage", Class::Elements("<i8")),
    ("torch", "IntStorage", Class::Elements("<i4")),
    ("torch", "ShortStorage", Class::Elements("<i2")),
    ("torch", "CharStorage", Class::Elements("|i1")),
    ("torch", "ByteStorage", Class::Elements("|u1")),
    ("torch", "BoolStorage", Class::Elements("|b1")),
    ("torch.storage", "UntypedStorage", Class::Elements("|u1")),
    ("torch", "uint16", Class::Elements("<u2")),
    ("torch", "uint32", Class::Elements("<u4")),
    ("torch", "uint64", Class::Elements("<u8")),
];

/// Name of PyTorch's 16-bit type with the range of 32 bits, which NumPy lacks.
pub(super) const BFLOAT16: &str = "bfloat16";

impl Class {
    /// Class of this name, if it is listed.
    pub(super) fn find(module: &str, name: &str) -> Option<Self> {
        CLASSES.iter().find(|(m, n, _)| *m == module && *n == name).map(|(.., class)| *class)
    }
}

/// Small value, copied freely; compound values live in the arena.
#[derive(Clone, Copy, Debug)]
pub(super) enum Value {
    None,
    Bool(bool),
    Int(i64),
    Float(f64),
    /// Text or bytes, as a range of the file.
    Bytes {
        start: usize,
        length: usize,
    },
    Class(Class),
    /// Index in the arena.
    Object(usize),
}

/// Compound value.
#[derive(Debug)]
pub(super) enum Object {
    Tuple(Vec<Value>),
    List(Vec<Value>),
    Dict(Vec<(Value, Value)>),
    /// NumPy type: its letters and size, and the state that holds the byte order.
    Dtype {
        descr: Value,
        state: Option<Value>,
    },
    /// NumPy array with its state `(version, shape, dtype, fortran, data)`.
    Array(Option<Value>),
    /// SciPy CSR matrix with its state, a dictionary of its fields.
    Csr(Option<Value>),
    /// Bytes that were decoded.
    Decoded(Vec<u8>),
    /// Single number of NumPy.
    Scalar {
        dtype: Value,
        data: Value,
    },
    /// Reference to data outside of the pickle: PyTorch's storages.
    Persistent(Value),
    /// Part of a storage.
    Tensor(Box<TensorParts>),
}

/// Part of a storage of PyTorch.
#[derive(Debug)]
pub(super) struct TensorParts {
    pub(super) storage: Value,
    pub(super) offset: Value,
    pub(super) shape: Value,
    pub(super) stride: Value,
    /// Element type, if it is not that of the storage.
    pub(super) dtype: Option<Value>,
}

/// Parsed pickle.
#[derive(Debug)]
pub(crate) struct Pickle<'a> {
    pub(super) data: &'a [u8],
    pub(super) objects: Vec<Object>,
    pub(super) root: Value,
}

type Taken<T> = Result<T, String>;

impl Pickle<'_> {
    pub(super) fn object(&self, value: Value) -> Option<&Object> {
        match value {
            Value::Object(i) => self.objects.get(i),
            _ => None,
        }
    }

    pub(super) fn raw(&self, value: Value) -> Option<&[u8]> {
        match value {
            Value::Bytes { start, length } => self.data.get(start..start + length),
            _ => match self.object(value)? {
                Object::Decoded(bytes) => Some(bytes),
                _ => None,
            },
        }
    }

    pub(super) fn items(&self, value: Value) -> Option<&[Value]> {
        match self.object(value)? {
            Object::Tuple(items) | Object::List(items) => Some(items),
            _ => None,
        }
    }

    fn field(&self, dict: &[(Value, Value)], name: &str) -> Option<Value> {
        dict.iter().rev().find(|(key, _)| self.raw(*key) == Some(name.as_bytes())).map(|(_, value)| *value)
    }

    pub(super) fn lengths(&self, value: Value) -> Option<Vec<usize>> {
        let length = |item: &Value| match *item {
            Value::Int(n) => usize::try_from(n).ok(),
            _ => None,
        };
        self.items(value)?.iter().map(length).collect()
    }

    pub(super) fn dtype(&self, value: Value) -> Taken<Dtype> {
        let Some(Object::Dtype { descr, state: Some(state) }) = self.object(value) else {
            return Err("an array without a type".into());
        };
        let descr = String::from_utf8_lossy(self.raw(*descr).unwrap_or_default()).into_owned();
        let order = match self.items(*state) {
            Some([_, order, ..]) => {
                String::from_utf8_lossy(self.raw(*order).unwrap_or_default()).into_owned()
            }
            _ => return Err("a type without a byte order".into()),
        };
        let text = format!("{order}{descr}");
        Dtype::parse(&text).ok_or_else(|| format!("arrays of type '{}' are not read", text.escape_debug()))
    }

    /// Type, shape and bytes of an array with this state, which is in C order.
    pub(super) fn array_state(&self, state: Value) -> Taken<(Dtype, Vec<usize>, &[u8])> {
        let Some(&[_, shape, dtype, fortran, data]) = self.items(state) else {
            return Err("an array whose state does not have five parts".into());
        };
        let shape = self.lengths(shape).ok_or("an array without a shape")?;
        let dtype = self.dtype(dtype)?;
        let fortran = matches!(fortran, Value::Bool(true) | Value::Int(1));
        if fortran && shape.len() > 1 {
            return Err("an array in Fortran order".into());
        }
        let data = self.raw(data).ok_or("an array without data")?;
        let size = shape.iter().try_fold(dtype.size, |size, &n| size.checked_mul(n));
        if size != Some(data.len()) {
            return Err(format!(
                "an array of shape {shape:?} and type {dtype} with {} bytes of data",
                data.len()
            ));
        }
        Ok((dtype, shape, data))
    }

    /// Extracts the array `value`, in C order, with its shape.
    fn array_at<T: Element>(&self, value: Value) -> Taken<(Vec<T>, Vec<usize>)> {
        let Some(Object::Array(Some(state))) = self.object(value) else {
            return Err("a NumPy array expected".into());
        };
        let (dtype, shape, data) = self.array_state(*state)?;
        let mut values = Vec::new();
        convert(data, dtype, 0, &mut values)?;
        Ok((values, shape))
    }

    /// Extracts the root as an array.
    pub(crate) fn array<T: Element>(&self) -> Taken<(Vec<T>, Vec<usize>)> {
        self.array_at(self.root)
    }

    /// Extracts the root as a sparse matrix, and checks it.
    pub(crate) fn csr(&self, at: &Location) -> graphmill_core::Result<Csr> {
        let parts = || -> Taken<Csr> {
            let Some(Object::Csr(Some(state))) = self.object(self.root) else {
                return Err("a SciPy CSR matrix expected".into());
            };
            let Some(Object::Dict(state)) = self.object(*state) else {
                return Err("a matrix without fields".into());
            };
            let field = |name: &str| self.field(state, name).ok_or(format!("a matrix without '{name}'"));
            let shape = self.lengths(field("_shape").or_else(|_| field("shape"))?);
            let Some(&[rows, columns]) = shape.as_deref() else {
                return Err("a matrix without a shape of two numbers".into());
            };
            Ok(Csr {
                rows,
                columns,
                indptr: self.array_at(field("indptr")?).map_err(|e| format!("indptr: {e}"))?.0,
                indices: self.array_at(field("indices")?).map_err(|e| format!("indices: {e}"))?.0,
                data: self.array_at(field("data")?).map_err(|e| format!("data: {e}"))?.0,
            })
        };
        let csr = parts().map_err(|e| at.error(e))?;
        csr.check(at, at)?;
        if csr.data.len() != csr.indices.len() {
            return Err(at.error(format!("{} values for {} entries", csr.data.len(), csr.indices.len())));
        }
        Ok(csr)
    }

    /// Extracts the root as a dictionary from node ids to lists of node ids, as pairs.
    pub(crate) fn adjacency(&self) -> Taken<Vec<(u64, u64)>> {
        let Some(Object::Dict(entries)) = self.object(self.root) else {
            return Err("a dictionary of neighbour lists expected".into());
        };
        let id = |value: &Value| match *value {
            Value::Int(v) => u64::try_from(v).map_err(|_| format!("the node id {v} is negative")),
            _ => Err("a node id that is not an integer".to_string()),
        };
        let mut pairs = Vec::new();
        for (key, list) in entries {
            let from = id(key)?;
            let list = self.items(*list).ok_or_else(|| format!("node {from} has no list of neighbours"))?;
            // Lists may be shared, so the sum of their lengths could far exceed the file.
            if pairs.len() + list.len() > self.data.len() {
                return Err("more neighbours than the file has bytes".into());
            }
            for to in list {
                pairs.push((from, id(to)?));
            }
        }
        Ok(pairs)
    }
}
