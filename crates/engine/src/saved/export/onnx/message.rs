//! Messages of an ONNX file: the fields of `onnx.proto` that a model of ours needs, by number.
//! Optional fields are written also if they are 0.

use prost::Message;

/// A model with the operators that it needs.
#[derive(Clone, PartialEq, Message)]
pub(super) struct Model {
    #[prost(int64, tag = "1")]
    pub(super) ir_version: i64,
    #[prost(string, tag = "2")]
    pub(super) producer_name: String,
    #[prost(string, tag = "3")]
    pub(super) producer_version: String,
    #[prost(message, optional, tag = "7")]
    pub(super) graph: Option<GraphProto>,
    #[prost(message, repeated, tag = "8")]
    pub(super) opset_import: Vec<OperatorSet>,
    #[prost(message, repeated, tag = "14")]
    pub(super) metadata_props: Vec<Property>,
}

/// Version of the standard operators.
#[derive(Clone, PartialEq, Message)]
pub(super) struct OperatorSet {
    #[prost(string, tag = "1")]
    pub(super) domain: String,
    #[prost(int64, tag = "2")]
    pub(super) version: i64,
}

/// A named text beside the model.
#[derive(Clone, PartialEq, Message)]
pub(super) struct Property {
    #[prost(string, tag = "1")]
    pub(super) key: String,
    #[prost(string, tag = "2")]
    pub(super) value: String,
}

/// Operations in order, constants, inputs and outputs.
#[derive(Clone, PartialEq, Message)]
pub(super) struct GraphProto {
    #[prost(message, repeated, tag = "1")]
    pub(super) node: Vec<Node>,
    #[prost(string, tag = "2")]
    pub(super) name: String,
    #[prost(message, repeated, tag = "5")]
    pub(super) initializer: Vec<TensorProto>,
    #[prost(message, repeated, tag = "11")]
    pub(super) input: Vec<ValueInfo>,
    #[prost(message, repeated, tag = "12")]
    pub(super) output: Vec<ValueInfo>,
}

/// One operation.
#[derive(Clone, PartialEq, Message)]
pub(super) struct Node {
    #[prost(string, repeated, tag = "1")]
    pub(super) input: Vec<String>,
    #[prost(string, repeated, tag = "2")]
    pub(super) output: Vec<String>,
    #[prost(string, tag = "3")]
    pub(super) name: String,
    #[prost(string, tag = "4")]
    pub(super) op_type: String,
    #[prost(message, repeated, tag = "5")]
    pub(super) attribute: Vec<Attribute>,
}

/// Attribute of an operation, of the kind that `kind` says.
#[derive(Clone, PartialEq, Message)]
pub(super) struct Attribute {
    #[prost(string, tag = "1")]
    pub(super) name: String,
    #[prost(float, optional, tag = "2")]
    pub(super) float_value: Option<f32>,
    #[prost(int64, optional, tag = "3")]
    pub(super) int_value: Option<i64>,
    #[prost(bytes = "vec", optional, tag = "4")]
    pub(super) text_value: Option<Vec<u8>>,
    #[prost(int32, tag = "20")]
    pub(super) kind: i32,
}

impl Attribute {
    /// An attribute that is a number.
    pub(super) fn float(name: &str, value: f32) -> Self {
        Self { name: name.into(), float_value: Some(value), kind: 1, ..Self::default() }
    }

    /// An attribute that is a whole number.
    pub(super) fn int(name: &str, value: i64) -> Self {
        Self { name: name.into(), int_value: Some(value), kind: 2, ..Self::default() }
    }

    /// An attribute that is a word.
    pub(super) fn text(name: &str, value: &str) -> Self {
        Self { name: name.into(), text_value: Some(value.into()), kind: 3, ..Self::default() }
    }
}

/// Constant.
#[derive(Clone, PartialEq, Message)]
pub(super) struct TensorProto {
    #[prost(int64, repeated, tag = "1")]
    pub(super) dims: Vec<i64>,
    #[prost(int32, tag = "2")]
    pub(super) data_type: i32,
    #[prost(string, tag = "8")]
    pub(super) name: String,
    /// Little-endian values.
    #[prost(bytes = "vec", tag = "9")]
    pub(super) raw_data: Vec<u8>,
}

/// `TensorProto.FLOAT`.
pub(super) const FLOAT: i32 = 1;
/// `TensorProto.INT64`.
pub(super) const INT64: i32 = 7;

/// Name and type of an input or output.
#[derive(Clone, PartialEq, Message)]
pub(super) struct ValueInfo {
    #[prost(string, tag = "1")]
    pub(super) name: String,
    #[prost(message, optional, tag = "2")]
    pub(super) kind: Option<Type>,
    #[prost(string, tag = "3")]
    pub(super) doc_string: String,
}

/// Type of a value: always a tensor.
#[derive(Clone, PartialEq, Message)]
pub(super) struct Type {
    #[prost(message, optional, tag = "1")]
    pub(super) tensor: Option<TensorType>,
}

/// Type of a tensor.
#[derive(Clone, PartialEq, Message)]
pub(super) struct TensorType {
    #[prost(int32, tag = "1")]
    pub(super) elem_type: i32,
    #[prost(message, optional, tag = "2")]
    pub(super) shape: Option<Shape>,
}

/// Shape of a tensor.
#[derive(Clone, PartialEq, Message)]
pub(super) struct Shape {
    #[prost(message, repeated, tag = "1")]
    pub(super) dim: Vec<Dim>,
}

/// A length, or the name of one that is known when the model runs.
#[derive(Clone, PartialEq, Message)]
pub(super) struct Dim {
    #[prost(int64, optional, tag = "1")]
    pub(super) value: Option<i64>,
    #[prost(string, optional, tag = "2")]
    pub(super) param: Option<String>,
}

impl Dim {
    /// A known length.
    pub(super) fn known(value: usize) -> Self {
        Self { value: Some(value as i64), param: None }
    }

    /// A named length.
    pub(super) fn named(name: impl Into<String>) -> Self {
        Self { value: None, param: Some(name.into()) }
    }
}
