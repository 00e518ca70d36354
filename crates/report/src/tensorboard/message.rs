//! Messages of an event file, limited to scalars: fields of TensorFlow's `event.proto` and
//! `summary.proto` by number.

use prost::Message;

/// Format version at the beginning of an event file.
pub(super) const VERSION: &str = "brain.Event:2";

/// Record of an event file. Exactly one of the last three fields is present.
#[derive(Clone, PartialEq, Message)]
pub(super) struct Event {
    /// Seconds since 1970.
    #[prost(double, tag = "1")]
    pub(super) wall_time: f64,
    #[prost(int64, tag = "2")]
    pub(super) step: i64,
    #[prost(string, optional, tag = "3")]
    pub(super) file_version: Option<String>,
    #[prost(message, optional, tag = "5")]
    pub(super) summary: Option<Summary>,
    #[prost(message, optional, tag = "7")]
    pub(super) session_log: Option<SessionLog>,
}

/// Values of a step.
#[derive(Clone, PartialEq, Message)]
pub(super) struct Summary {
    #[prost(message, repeated, tag = "1")]
    pub(super) value: Vec<Value>,
}

/// Scalar.
#[derive(Clone, PartialEq, Message)]
pub(super) struct Value {
    #[prost(string, tag = "1")]
    pub(super) tag: String,
    /// Optional, so that 0 is written too.
    #[prost(float, optional, tag = "2")]
    pub(super) simple_value: Option<f32>,
}

/// Beginning of a session: events of earlier files for this and later steps are void.
#[derive(Clone, PartialEq, Message)]
pub(super) struct SessionLog {
    #[prost(int32, tag = "1")]
    pub(super) status: i32,
}

impl SessionLog {
    /// `SessionLog.START`.
    pub(super) const START: i32 = 1;
}
