//! Options as the command line and the files see them: names and help texts.

use std::sync::LazyLock;

use graphmill_core::options::{self, Fault, OptionGroup, Values, one_of};
use serde_json::Value as Json;

use super::{AXES, groups};
use crate::{TrainConfig, cache_kind, config::FREE};

/// One option, as the command line and the files see it.
#[derive(Clone, Debug)]
pub struct Key {
    /// Its name in files; the flag is the same with dashes.
    pub name: &'static str,
    /// The placeholder of its value in help texts: `N`, `NAME`, ...; `BOOL` may be left out on the
    /// command line.
    pub value: &'static str,
    /// The heading that it stands under: for an algorithm's option, the flags that choose its
    /// algorithms.
    pub heading: String,
    /// Whether the short help shows it.
    pub is_common: bool,
    /// Whether a resumed run may change it: the results do not depend on it.
    pub free: bool,
    /// The group that it belongs to, if an algorithm owns it.
    pub group: Option<OptionGroup>,
    /// Its declaration.
    declared: &'static options::Key,
}

/// The general options.
pub(super) static GENERAL: LazyLock<Vec<options::Key>> = LazyLock::new(options::keys::<TrainConfig>);

/// Every option, in the order of help and files: general ones, then those of algorithms, also of
/// those that other crates have registered by now. [`TrainConfig::check`] refuses two options of
/// the same name.
pub fn keys() -> Vec<Key> {
    let mut all: Vec<Key> = GENERAL.iter().map(general).collect();
    for group in groups() {
        let heading = heading(group);
        for declared in group.keys() {
            if all.iter().all(|key| key.name != declared.name) {
                let free = group.is_free(&declared.name);
                let own = Key {
                    heading: heading.clone(),
                    is_common: false,
                    free,
                    group: Some(group),
                    ..general(declared)
                };
                all.push(own);
            }
        }
    }
    all
}

/// A general option.
fn general(declared: &'static options::Key) -> Key {
    Key {
        name: &declared.name,
        value: &declared.value,
        heading: declared.heading.clone().unwrap_or_else(|| "Options".into()),
        is_common: declared.is_common,
        free: FREE.contains(&declared.name.as_str()),
        group: None,
        declared,
    }
}

/// The heading over a group: `Options of --sampler weighted or labor`.
pub(super) fn heading(group: OptionGroup) -> String {
    let of = |(flag, names): (&str, Vec<&str>)| format!("--{flag} {}", one_of(&names));
    let axes = AXES.iter().map(|axis| (axis.flag, axis.readers(group)));
    let readers: Vec<String> = axes.filter(|(_, names)| !names.is_empty()).map(of).collect();
    format!("Options of {}", readers.join("; "))
}

impl Key {
    /// The flag, without the dashes in front: `batch-size`.
    pub fn flag(&self) -> String {
        self.name.replace('_', "-")
    }

    /// Earlier names, with underscores, which files, the command line and Python still accept.
    pub fn former(&self) -> &[String] {
        &self.declared.former
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
        let mut values = match self.group {
            Some(group) => config.own.write(group),
            None => options::write(config),
        };
        values.remove(self.name).unwrap_or_default()
    }

    /// The names that this option chooses from, if its help text does not list them.
    fn known(&self) -> Option<String> {
        if let Some(axis) = AXES.iter().find(|axis| axis.flag == self.name) {
            let names: Vec<&str> = (axis.rows)().into_iter().map(|(name, _)| name).collect();
            return Some(names.join(", "));
        }
        match self.name {
            "cache" => Some(cache_kind::known()),
            "metric" => Some(graphmill_nn::metric::TABLE.names()),
            _ => None,
        }
    }

    /// The short help text, with the default.
    pub fn help(&self) -> String {
        let text = self.declared.help.trim_end_matches('.');
        let default = shown(&self.write(&TrainConfig::default()));
        if default.is_empty() { text.into() } else { format!("{text} [default: {default}]") }
    }

    /// The whole help text, with the known names and the default.
    pub fn long_help(&self) -> String {
        let mut text = self.declared.help.trim_end_matches('.').to_string();
        if let Some(known) = self.known() {
            text += &format!(": {known}");
        }
        if !self.declared.details.is_empty() {
            text += &format!(". {}", self.declared.details.trim_end_matches('.'));
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

/// The message of a fault, by the flag of its option.
pub fn by_flag(fault: &Fault) -> String {
    let Some(option) = &fault.option else { return fault.message.clone() };
    let flag = option.replace('_', "-");
    match fault.message.strip_prefix('\'').and_then(|rest| rest.split_once("': ")) {
        Some((word, reason)) => format!("--{flag} {word}: {reason}"),
        None => format!("--{flag}: {}", fault.message),
    }
}

/// Option of a name or an earlier name, written with dashes or underscores.
pub fn key(name: &str) -> Option<Key> {
    let name = name.replace('-', "_");
    let keys = keys();
    let by_former = || keys.iter().find(|key| key.former().contains(&name));
    keys.iter().find(|key| key.name == name).or_else(by_former).cloned()
}

/// The end of a message that no option is called `name`: the one that was probably meant.
pub fn suggestion(name: &str, known: &[&str]) -> String {
    let nearest = options::nearest(&name.replace('-', "_"), known.iter().copied());
    nearest.map_or_else(String::new, |nearest| format!("; did you mean '{nearest}'?"))
}

/// The names of all options but the dataset, which every command takes as an argument.
pub fn names() -> Vec<&'static str> {
    keys().iter().map(|key| key.name).filter(|&name| name != "dataset").collect()
}
