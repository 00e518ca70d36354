//! The messages of an event file, as far as scalars need them: TensorFlow's `event.proto` and `summary.proto`, whose fields
//! these are by number.

use prost::Message;

/// The version of the format that an event file opens with.
pub(super) const VERSION: &str = "brain.Event:2";

/// A record of an event file. Of the last three fields one is there.
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

/// A scalar.
#[derive(Clone, PartialEq, Message)]
pub(super) struct Value {
    #[prost(string, tag = "1")]
    pub(super) tag: String,
    /// Optional, so that 0 is written too.
    #[prost(float, optional, tag = "2")]
    pub(super) simple_value: Option<f32>,
}

/// A session's beginning: what earlier files tell of this step and of later ones is void.
#[derive(Clone, PartialEq, Message)]
pub(super) struct SessionLog {
    #[prost(int32, tag = "1")]
    pub(super) status: i32,
}

impl SessionLog {
    /// `SessionLog.START`.
    pub(super) const START: i32 = 1;
}
