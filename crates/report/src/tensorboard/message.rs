//! Messages of an event file, limited to scalars and hyperparameters: fields of TensorFlow's
//! `event.proto` and `summary.proto`, of TensorBoard's `plugin_data.proto` of the plugin `hparams`,
//! and of `struct.proto`, by number.

use std::collections::BTreeMap;

use prost::{Message, Oneof};

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

/// Scalar, or data of a plugin.
#[derive(Clone, PartialEq, Message)]
pub(super) struct Value {
    #[prost(string, tag = "1")]
    pub(super) tag: String,
    /// Optional, so that 0 is written too.
    #[prost(float, optional, tag = "2")]
    pub(super) simple_value: Option<f32>,
    #[prost(message, optional, tag = "9")]
    pub(super) metadata: Option<Metadata>,
}

/// Metadata of a value.
#[derive(Clone, PartialEq, Message)]
pub(super) struct Metadata {
    #[prost(message, optional, tag = "1")]
    pub(super) plugin_data: Option<PluginData>,
}

/// Data of a plugin of TensorBoard.
#[derive(Clone, PartialEq, Message)]
pub(super) struct PluginData {
    #[prost(string, tag = "1")]
    pub(super) plugin_name: String,
    /// Encoded message of the plugin.
    #[prost(bytes = "vec", tag = "2")]
    pub(super) content: Vec<u8>,
}

/// Data of the plugin `hparams`.
#[derive(Clone, PartialEq, Message)]
pub(super) struct Hparams {
    #[prost(int32, tag = "1")]
    pub(super) version: i32,
    #[prost(message, optional, tag = "3")]
    pub(super) start: Option<HparamsStart>,
    #[prost(message, optional, tag = "4")]
    pub(super) end: Option<HparamsEnd>,
}

/// Beginning of a run, with its hyperparameters by name.
#[derive(Clone, PartialEq, Message)]
pub(super) struct HparamsStart {
    #[prost(btree_map = "string, message", tag = "1")]
    pub(super) hparams: BTreeMap<String, Hparam>,
    /// Seconds since 1970.
    #[prost(double, tag = "5")]
    pub(super) start_time: f64,
}

/// End of a run.
#[derive(Clone, PartialEq, Message)]
pub(super) struct HparamsEnd {
    #[prost(int32, tag = "1")]
    pub(super) status: i32,
    /// Seconds since 1970.
    #[prost(double, tag = "2")]
    pub(super) end_time: f64,
}

impl HparamsEnd {
    /// `Status.STATUS_SUCCESS`.
    pub(super) const SUCCESS: i32 = 1;
}

/// Value of a hyperparameter.
#[derive(Clone, PartialEq, Message)]
pub(super) struct Hparam {
    #[prost(oneof = "HparamKind", tags = "2, 3, 4")]
    pub(super) kind: Option<HparamKind>,
}

/// Kind of a hyperparameter's value.
#[derive(Clone, PartialEq, Oneof)]
pub(super) enum HparamKind {
    #[prost(double, tag = "2")]
    Number(f64),
    #[prost(string, tag = "3")]
    Text(String),
    #[prost(bool, tag = "4")]
    Switch(bool),
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
