//! Reads and writes all options of a run.

use std::path::Path;

use graphmill_core::options::{Fault, Values, read, write};
use serde_json::Value as Json;

use super::{
    fanout::{self, FANOUT, FANOUT_BY_NAME},
    groups,
    keys::{Key, key, keys, suggestion},
};
use crate::{Error, Result, TrainConfig};

impl TrainConfig {
    /// Reads options from a TOML file over the current values, and returns the names that it set.
    ///
    /// # Errors
    /// The file cannot be read or parsed, or holds an unknown option or an impossible value.
    pub fn read_file(&mut self, path: &Path) -> Result<Vec<&'static str>> {
        let text = std::fs::read_to_string(path).map_err(|e| Error::io(path, "read", e))?;
        self.read_text(&text, path)
    }

    /// [`TrainConfig::read_file`] of the `text` of `path`, which error messages name.
    ///
    /// # Errors
    /// As [`TrainConfig::read_file`].
    pub fn read_text(&mut self, text: &str, path: &Path) -> Result<Vec<&'static str>> {
        let table: toml::Table = text.parse().map_err(|e: toml::de::Error| {
            let message = format!("{}; write TOML, such as epochs = 10", e.message());
            Error::format(path, place(text, &e), message)
        })?;
        let mut values = Values::new();
        let mut set = Vec::new();
        for (name, value) in table {
            let Some(key) = key(&name).map(|key| key.name) else {
                let known: Vec<&str> = keys().iter().map(|key| key.name).collect();
                let message = format!("no such option{}", suggestion(&name, &known));
                return Err(Error::format(path, name, message));
            };
            if set.contains(&key) {
                let message = format!("the file sets {key} twice; remove one of its names");
                return Err(Error::format(path, name, message));
            }
            let value = serde_json::to_value(&value).map_err(|e| Error::format(path, key, e.to_string()))?;
            values.insert(key.into(), value);
            set.push(key);
        }
        self.set(&values)
            .map_err(|Fault { option, message }| Error::format(path, option.unwrap_or_default(), message))?;
        Ok(set)
    }

    /// Sets options by name, for files, the command line and Python.
    ///
    /// # Errors
    /// The first value that its option cannot have. In this case no option is set.
    pub fn set(&mut self, values: &Values) -> Result<(), Fault> {
        let mut all = write(self);
        if let Some(fanout) = values.get(FANOUT) {
            let (fanout, by_name) = fanout::split(fanout)?;
            all.insert(FANOUT_BY_NAME.into(), by_name.into());
            all.insert(FANOUT.into(), fanout);
        }
        let others = values.iter().filter(|(name, _)| *name != FANOUT);
        all.extend(others.map(|(name, value)| (name.clone(), value.clone())));
        let mut changed = Self { own: self.own.clone(), ..read(&all)? };
        for group in groups() {
            changed.own.read(group, values)?;
        }
        *self = changed;
        Ok(())
    }

    /// Values of all options by name, in the order of [`keys`].
    pub(super) fn values(&self) -> Values {
        let mut values = self.general_values();
        for (name, value) in groups().into_iter().flat_map(|group| self.own.write(group)) {
            values.entry(name).or_insert(value);
        }
        values
    }

    /// Values of the options that a resumed run cannot change, by name.
    pub(crate) fn bound_values(&self) -> Values {
        let mut values = self.values();
        keys().iter().filter(|key| key.free).for_each(|key| drop(values.remove(key.name)));
        values
    }

    /// Values of the general options by name.
    pub(super) fn general_values(&self) -> Values {
        let mut values = write(self);
        if let Some(by_name) = values.remove(FANOUT_BY_NAME) {
            let fanout = fanout::join(&self.fanout, by_name.as_str().unwrap_or_default());
            values.insert(FANOUT.into(), fanout.into());
        }
        values
    }

    /// All options as a JSON object.
    pub fn to_json(&self) -> Json {
        Json::Object(self.values())
    }

    /// All options as TOML with comments, reusable with `--config`.
    pub fn to_toml(&self) -> String {
        let mut text = String::from(match self.is_in_memory() {
            false => "# Every option of this run; reuse it with: graphmill train --config FILE\n",
            true => {
                "# Every option of this run, whose dataset was in memory; reuse it with: \
                 graphmill train DATASET --config FILE\n"
            }
        });
        let mut heading = String::new();
        let values = self.values();
        for key in keys() {
            let own = key.heading();
            if own != heading {
                heading = own;
                text += &format!("\n# {heading}\n");
            }
            let value = &values[key.name];
            let value = toml::Value::try_from(value).map_or_else(|_| value.to_string(), |v| v.to_string());
            text += &format!("{} = {value}\n", key.name);
        }
        text
    }

    /// Refuses changes to the options of the run `before` that would change the results of the
    /// resumed run.
    ///
    /// # Errors
    /// Wrong usage: the first such option with both values.
    pub fn check_resumed(&self, before: &Self) -> Result<()> {
        let (before, now) = (before.values(), self.values());
        let differs = |key: &Key| !key.free && before[key.name] != now[key.name];
        match keys().into_iter().find(differs) {
            None => Ok(()),
            Some(key) => Err(Error::usage(format!(
                "--{} is {} in the run to resume and cannot become {}; leave it out, or start another run",
                key.flag(),
                before[key.name],
                now[key.name]
            ))),
        }
    }
}

/// Line and column of a TOML error in the parsed `text`.
pub fn place(text: &str, error: &toml::de::Error) -> String {
    let at = error.span().map_or(0, |span| span.start.min(text.len()));
    let before = &text.as_bytes()[..at];
    let line = before.iter().filter(|&&b| b == b'\n').count() + 1;
    let column = at - before.iter().rposition(|&b| b == b'\n').map_or(0, |i| i + 1) + 1;
    format!("line {line}, column {column}")
}
