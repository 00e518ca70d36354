//! Options as the command line and the files see them: names and help texts.

use std::sync::LazyLock;

use graphmill_core::options::{self, Fault, Values};
use serde_json::Value as Json;

use super::options::TrainConfig;

/// Options that a resumed run may change: they do not touch the numbers.
const FREE: &[&str] = &[
    "dataset",
    "epochs",
    "patience",
    "host_budget",
    "device_budget",
    "cache_ratio",
    "cache",
    "host_cache",
    "placement",
    "allocation",
    "queue",
    "num_samplers",
    "switching",
    "link",
    "cuda_graphs",
    "devices",
    "threads",
    "peer_timeout",
    "checkpoint_batches",
    "checkpoint_seconds",
    "trace",
    "tensorboard",
];

/// One option, as the command line and the files see it.
pub struct Key {
    /// Its name in files; the flag is the same with dashes.
    pub name: &'static str,
    /// The placeholder of its value in help texts: `N`, `NAME`, ...; `BOOL` may be left out on the command line.
    pub value: &'static str,
    /// The heading that it stands under.
    pub group: &'static str,
    /// The doc comment of its field.
    text: &'static str,
    /// Whether a resumed run may change it: it does not touch the numbers.
    pub free: bool,
}

/// Every option, in the order of help and files.
pub static KEYS: LazyLock<Vec<Key>> = LazyLock::new(|| {
    let text = |text: String| -> &'static str { text.leak() };
    let key = |key: options::Key| {
        let name = text(key.name);
        Key {
            name,
            value: text(key.value),
            group: text(key.group),
            text: text(key.help),
            free: FREE.contains(&name),
        }
    };
    options::keys::<TrainConfig>().into_iter().map(key).collect()
});

impl Key {
    /// The flag, without the dashes in front: `batch-size`.
    pub fn flag(&self) -> String {
        self.name.replace('_', "-")
    }

    /// Sets the option from a word.
    ///
    /// # Errors
    /// The option cannot have that value.
    pub fn parse(&self, config: &mut TrainConfig, word: &str) -> Result<(), String> {
        self.read(config, &Json::from(word))
    }

    /// Sets the option from a file's value.
    ///
    /// # Errors
    /// The option cannot have that value.
    pub fn read(&self, config: &mut TrainConfig, value: &Json) -> Result<(), String> {
        let values = Values::from_iter([(self.name.to_string(), value.clone())]);
        config.set(&values).map_err(|fault| fault.message)
    }

    /// The option's value, for files.
    pub fn write(&self, config: &TrainConfig) -> Json {
        options::write(config).remove(self.name).unwrap_or_default()
    }

    /// The names of the table that this option chooses from, if its help text does not list them.
    fn known(&self) -> Option<String> {
        match self.name {
            "sampler" => Some(graphmill_loader::sampler::TABLE.names()),
            "order" => Some(graphmill_loader::order::TABLE.names()),
            "model" => Some(graphmill_nn::layer::TABLE.names()),
            "strategy" => Some(crate::strategy::TABLE.names()),
            "cache" => Some(crate::cache_kind::known()),
            _ => None,
        }
    }

    /// The help text with the known names and the default.
    pub fn help(&self) -> String {
        let mut text = self.text.trim_end_matches('.').to_string();
        if let Some(known) = self.known() {
            text += &format!(": {known}");
        }
        let default = shown(&self.write(&TrainConfig::default()));
        if default.is_empty() { text } else { format!("{text} [default: {default}]") }
    }
}

/// A value as a word.
pub(super) fn shown(value: &Json) -> String {
    match value {
        Json::String(word) => word.clone(),
        Json::Array(hops) => hops.iter().map(Json::to_string).collect::<Vec<_>>().join(","),
        other => other.to_string(),
    }
}

/// The message that `fault` was found in these `values` of the command line.
pub fn by_flag(values: &Values, fault: &Fault) -> String {
    let Some(option) = &fault.option else { return fault.message.clone() };
    let (flag, word) = (option.replace('_', "-"), values.get(option).map(shown).unwrap_or_default());
    match fault.message.strip_prefix(&format!("'{word}': ")) {
        Some(reason) => format!("--{flag} {word}: {reason}"),
        None => format!("--{flag}: {}", fault.message),
    }
}

/// The option of that name, written with dashes or underscores.
pub fn key(name: &str) -> Option<&'static Key> {
    let name = name.replace('-', "_");
    KEYS.iter().find(|key| key.name == name)
}

/// The end of a message that no option is called `name`: the one that was probably meant.
pub fn suggestion(name: &str, known: &[&str]) -> String {
    let nearest = options::nearest(&name.replace('-', "_"), known.iter().copied());
    nearest.map_or_else(String::new, |nearest| format!("; did you mean '{nearest}'?"))
}

/// The names of all options but the dataset, which every command takes as an argument.
pub fn names() -> Vec<&'static str> {
    KEYS.iter().map(|key| key.name).filter(|&name| name != "dataset").collect()
}
