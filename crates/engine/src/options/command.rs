//! Command line of a configuration.

use std::fmt::Write;

use serde_json::Value as Json;

use crate::TrainConfig;

/// An option that differs from its default.
#[derive(Clone, Debug, PartialEq)]
pub struct Changed {
    /// Name, with underscores.
    pub name: String,
    /// Value of the run.
    pub value: Json,
    /// Default value.
    pub default: Json,
}

/// Options among `options`, as [`TrainConfig::to_json`] writes them, that differ from their
/// defaults; the dataset is left out.
pub fn changed(options: &serde_json::Map<String, Json>) -> Vec<Changed> {
    let defaults = TrainConfig::default().to_json();
    let default = |name: &str| defaults.get(name).cloned().unwrap_or_default();
    options
        .iter()
        .filter(|(name, value)| *name != "dataset" && default(name) != **value)
        .map(|(name, value)| Changed { name: name.clone(), value: value.clone(), default: default(name) })
        .collect()
}

/// Command line that trains with `options`, as [`TrainConfig::to_json`] writes them, quoted for a
/// shell.
pub fn command_line(options: &serde_json::Map<String, Json>) -> String {
    let mut command = String::from("graphmill train");
    let dataset = options.get("dataset").and_then(Json::as_str).unwrap_or_default();
    if !dataset.is_empty() {
        let _ = write!(command, " {}", quoted(dataset));
    }
    for Changed { name, value, .. } in changed(options) {
        let flag = name.replace('_', "-");
        let _ = match value {
            Json::Bool(true) => write!(command, " --{flag}"),
            // a switch takes its value after an equals sign
            Json::Bool(false) => write!(command, " --{flag}=false"),
            value => write!(command, " --{flag} {}", quoted(&word(&value))),
        };
    }
    command
}

/// Value of an option as the command line spells it.
pub fn word(value: &Json) -> String {
    match value {
        Json::String(word) => word.clone(),
        Json::Array(items) => items.iter().map(word).collect::<Vec<_>>().join(","),
        other => other.to_string(),
    }
}

/// Word in quotes if a shell would split or change it.
pub fn quoted(word: &str) -> String {
    let is_plain = |c: char| c.is_alphanumeric() || "_-./,:=+@%".contains(c);
    if !word.is_empty() && word.chars().all(is_plain) {
        return word.to_string();
    }
    format!("'{}'", word.replace('\'', "'\\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_has_the_changed_options_alone() {
        let config = TrainConfig {
            dataset: "my data".into(),
            lr: 0.01,
            input_layer: true,
            fanout: "5,5".parse().unwrap(),
            ..TrainConfig::default()
        };
        let options = config.to_json();
        let line = command_line(options.as_object().unwrap());
        assert_eq!(line, "graphmill train 'my data' --fanout 5,5 --input-layer --lr 0.01");
        let plain = TrainConfig::default().to_json();
        assert_eq!(command_line(plain.as_object().unwrap()), "graphmill train");
    }

    #[test]
    fn words_are_quoted_for_a_shell() {
        let words = ["a/b-1.npy", "", "a b", "it's", "x;y"].map(quoted);
        assert_eq!(words, ["a/b-1.npy", "''", "'a b'", "'it'\\''s'", "'x;y'"]);
    }
}
