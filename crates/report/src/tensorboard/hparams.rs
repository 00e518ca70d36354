//! Hyperparameters for TensorBoard's plugin `hparams`, which compares runs by them. It finds the
//! metrics among the scalars of the runs itself.

use std::collections::BTreeMap;

use graphmill_engine::options::{changed, word};
use prost::Message;
use serde_json::Value as Json;

use super::message::{Hparam, HparamKind, Hparams, Metadata, PluginData, Value};

/// Name of the plugin.
const PLUGIN: &str = "hparams";
/// Tag of the beginning of a run.
pub(super) const START: &str = "_hparams_/session_start_info";
/// Tag of the end of a run.
pub(super) const END: &str = "_hparams_/session_end_info";

/// Options that are shown even with their defaults, so that runs are comparable.
const ALWAYS: [&str; 8] = ["model", "layers", "hidden", "lr", "dropout", "batch_size", "seed", "optimizer"];

/// Hyperparameters of a run: the dataset, the most common options, and those that differ from their
/// defaults.
pub(super) fn of(options: &Json) -> BTreeMap<String, Hparam> {
    let Some(options) = options.as_object() else { return BTreeMap::new() };
    let names = ALWAYS.iter().copied().chain(["dataset"]);
    let common = names.filter_map(|name| Some((name.to_string(), options.get(name)?.clone())));
    let others = changed(options).into_iter().map(|option| (option.name, option.value));
    let unshown = ["tensorboard", "trace"];
    let shown = common.chain(others).filter(|(name, _)| !unshown.contains(&&name[..]));
    shown.map(|(name, value)| (name, hparam(&value))).collect()
}

fn hparam(value: &Json) -> Hparam {
    let kind = match value {
        Json::Bool(value) => HparamKind::Switch(*value),
        Json::Number(number) => HparamKind::Number(number.as_f64().unwrap_or(f64::NAN)),
        other => HparamKind::Text(word(other)),
    };
    Hparam { kind: Some(kind) }
}

/// Value of an event with data of the plugin.
pub(super) fn value(tag: &str, data: &Hparams) -> Value {
    let plugin_data = PluginData { plugin_name: PLUGIN.into(), content: data.encode_to_vec() };
    let metadata = Some(Metadata { plugin_data: Some(plugin_data) });
    Value { tag: tag.into(), simple_value: None, metadata }
}
