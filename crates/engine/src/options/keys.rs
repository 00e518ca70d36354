//! Options as the command line and files present them: names, headings and help texts.

use std::sync::{Arc, LazyLock};

use graphmill_core::options::{self, Fault, Kind, OptionGroup, Values, one_of};
use graphmill_loader::link;
use graphmill_nn::{
    link::{decoder, table::regularizer},
    optim::rows,
};
use serde_json::Value as Json;

use super::{AXES, command::word, derived::Derived, groups};
use crate::{
    TrainConfig, cache_kind,
    config::{FREE, losses},
};

/// One option of the command line and of files.
#[derive(Clone, Debug)]
pub struct Key {
    /// Name in files. The flag is the name with dashes.
    pub name: &'static str,
    /// Placeholder of the value in help texts: `N`, `NAME`, ... A `BOOL` may be left out on the
    /// command line.
    pub value: &'static str,
    /// True if the short help shows the option.
    pub is_common: bool,
    /// True if a resumed run may change the option, because results do not depend on it.
    pub free: bool,
    /// Group of the option, if it belongs to an algorithm.
    pub group: Option<OptionGroup>,
    /// Declaration in the struct.
    declared: &'static options::Key,
    heading: Arc<str>,
}

/// General options.
pub(super) static GENERAL: LazyLock<Vec<options::Key>> = LazyLock::new(options::keys::<TrainConfig>);

/// All options in the order of help and files: general options, then those of algorithms, including
/// algorithms that other crates have registered before the call. [`TrainConfig::check`] refuses two
/// options of the same name.
pub fn keys() -> Vec<Key> {
    static KEYS: Derived<Vec<Key>> = Derived::new(all_keys);
    KEYS.get()
}

fn all_keys() -> Vec<Key> {
    let mut all: Vec<Key> = GENERAL.iter().map(general).collect();
    for group in groups() {
        let heading: Arc<str> = heading(group).into();
        for declared in group.keys() {
            if all.iter().all(|key| key.name != declared.name) {
                let free = group.is_free(&declared.name);
                let heading = heading.clone();
                let own = Key { is_common: false, free, group: Some(group), heading, ..general(declared) };
                all.push(own);
            }
        }
    }
    all
}

/// Key of a general option.
fn general(declared: &'static options::Key) -> Key {
    Key {
        name: &declared.name,
        value: &declared.value,
        is_common: declared.is_common,
        free: FREE.contains(&declared.name.as_str()),
        group: None,
        declared,
        heading: declared.heading.as_deref().unwrap_or("Options").into(),
    }
}

/// Heading of a group, such as `Options of --sampler weighted or labor`.
pub(super) fn heading(group: OptionGroup) -> String {
    let of = |(flag, names): (&str, Vec<&str>)| format!("--{flag} {}", one_of(&names));
    let axes = AXES.iter().map(|axis| (axis.flag, axis.readers(group)));
    let readers: Vec<String> = axes.filter(|(_, names)| !names.is_empty()).map(of).collect();
    format!("Options of {}", readers.join("; "))
}

impl Key {
    /// Flag without the leading dashes, such as `batch-size`.
    pub fn flag(&self) -> String {
        self.name.replace('_', "-")
    }

    /// Heading in help texts and files. For an algorithm's option, it lists the flags that choose
    /// the algorithm.
    pub fn heading(&self) -> String {
        self.heading.to_string()
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

    /// Value of the option in `config`, as files store it.
    pub fn write(&self, config: &TrainConfig) -> Json {
        let mut values = match self.group {
            Some(group) => config.own.write(group),
            None => config.general_values(),
        };
        values.remove(self.name).unwrap_or_default()
    }

    /// Value of the option in `config`, as the command line spells it.
    pub fn word(&self, config: &TrainConfig) -> String {
        word(&self.write(config))
    }

    /// Kind of value.
    pub fn kind(&self) -> Kind {
        self.declared.kind
    }

    /// Names that the option accepts, if it accepts no other values.
    pub fn choices(&self) -> Option<Vec<&'static str>> {
        if let Kind::Choice(names) = self.kind() {
            return Some(names.to_vec());
        }
        match self.name {
            // a task may have any name
            "task" => None,
            "loss" => Some(losses()),
            "decoder" => Some(decoder::TABLE.iter().map(|row| row.name).collect()),
            "negatives" => Some(link::TABLE.iter().map(|row| row.name).collect()),
            "row_optimizer" => Some(rows::TABLE.iter().map(|row| row.name).collect()),
            "regularizer" => Some(regularizer::TABLE.iter().map(|row| row.name).collect()),
            name => {
                let axis = AXES.iter().find(|axis| axis.flag == name)?;
                Some((axis.rows)().into_iter().map(|(name, _)| name).collect())
            }
        }
    }

    /// Names that this option accepts, if its help text does not list them.
    fn known(&self) -> Option<String> {
        // a task may have any name, which the details say
        if let Some(axis) = AXES.iter().find(|axis| axis.flag == self.name && axis.flag != "task") {
            let names: Vec<&str> = (axis.rows)().into_iter().map(|(name, _)| name).collect();
            return Some(names.join(", "));
        }
        match self.name {
            "cache" => Some(cache_kind::known()),
            "metric" => {
                let values = graphmill_nn::metric::values::TABLE.names();
                Some(format!("{}; of values {values}", graphmill_nn::metric::TABLE.names()))
            }
            _ => None,
        }
    }

    /// Short help text with the default.
    pub fn help(&self) -> String {
        let text = self.declared.help.trim_end_matches('.');
        let default = self.word(&TrainConfig::default());
        if default.is_empty() { text.into() } else { format!("{text} [default: {default}]") }
    }

    /// Long help text with the known names, the details and the default.
    pub fn long_help(&self) -> String {
        let mut text = self.declared.help.trim_end_matches('.').to_string();
        if let Some(known) = self.known() {
            text += &format!(": {known}");
        }
        if !self.declared.details.is_empty() {
            text += &format!(". {}", self.declared.details.trim_end_matches('.'));
        }
        let default = self.word(&TrainConfig::default());
        if default.is_empty() { text } else { format!("{text} [default: {default}]") }
    }
}

/// Message of a fault that names the option's flag.
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

/// The suffix `; did you mean 'X'?` of a message about the unknown option `name`; empty if no name
/// in `known` is close.
pub fn suggestion(name: &str, known: &[&str]) -> String {
    options::suggestion(&name.replace('-', "_"), known)
}

/// Names of all options except the dataset, which every command takes as an argument.
pub fn names() -> Vec<&'static str> {
    keys().iter().map(|key| key.name).filter(|&name| name != "dataset").collect()
}
