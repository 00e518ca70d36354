//! Columns of an exported table.

use std::{
    collections::BTreeSet,
    fmt::{Display, Write},
};

use graphmill_core::{ClassColumn, Labels};

use crate::typed::{FeatureTable, Keys, TableData, Targets, Task, unique_name};

/// Writes the value of a row.
type WriteValue<'a> = Box<dyn Fn(usize, &mut String) + 'a>;

/// Columns with unique names.
#[derive(Default)]
pub(super) struct Columns<'a> {
    names: Vec<String>,
    taken: BTreeSet<String>,
    values: Vec<WriteValue<'a>>,
}

/// Writes a value.
pub(super) fn write_value(value: &dyn Display, out: &mut String) {
    // Writing to a string does not fail.
    let _ = write!(out, "{value}");
}

/// Writes the key of node `v`, or its number.
pub(super) fn write_key(keys: Option<&Keys>, v: usize, out: &mut String) {
    match keys {
        Some(keys) => write_value(&keys.get(v), out),
        None => write_value(&v, out),
    }
}

impl<'a> Columns<'a> {
    /// Adds a column; a name that is taken gets a number.
    pub(super) fn add(&mut self, name: &str, value: impl Fn(usize, &mut String) + 'a) {
        self.names.push(unique_name(name.into(), &mut self.taken));
        self.values.push(Box::new(value));
    }

    /// Adds a column for each dense feature.
    pub(super) fn add_features(&mut self, table: Option<&'a FeatureTable>) {
        let Some(table) = table else { return };
        let TableData::Dense(values) = &table.data else { return };
        for j in 0..table.width {
            let name = table.names.get(j).cloned().unwrap_or_else(|| format!("feature_{j}"));
            self.add(&name, move |i, out| values.write(i * table.width + j, out));
        }
    }

    /// Adds the targets of a task, called after `prefix`, and its split.
    pub(super) fn add_task(&mut self, task: &'a Task, prefix: &str) {
        let named = |j: usize| task.names.get(j).cloned().unwrap_or_else(|| j.to_string());
        match &task.targets {
            Targets::None => {}
            Targets::Classes(Labels::Single { class, .. }) => self.add(prefix, move |i, out| {
                if let Ok(class) = usize::try_from(class[i]) {
                    match task.names.get(class) {
                        Some(name) => out.push_str(name),
                        None => write_value(&class, out),
                    }
                }
            }),
            Targets::Classes(Labels::Multi { member, classes }) => {
                for j in 0..*classes {
                    self.add(&format!("{prefix}_{}", named(j)), move |i, out| {
                        write_value(&member[i * classes + j], out);
                    });
                }
            }
            Targets::Classes(Labels::Columns { class, columns }) => {
                for (k, range) in ClassColumn::ranges(columns).enumerate() {
                    self.add(&format!("{prefix}_{}", columns[k].name), move |i, out| {
                        if let Ok(class) = usize::try_from(class[i * columns.len() + k]) {
                            match task.names.get(range.start + class) {
                                Some(name) => out.push_str(name),
                                None => write_value(&class, out),
                            }
                        }
                    });
                }
            }
            Targets::Values { width, values } | Targets::Classes(Labels::Values { width, values }) => {
                for j in 0..*width {
                    let name = if *width == 1 { prefix.into() } else { format!("{prefix}_{}", named(j)) };
                    self.add(&name, move |i, out| {
                        let value = values[i * width + j];
                        if !value.is_nan() {
                            write_value(&value, out);
                        }
                    });
                }
            }
        }
        let parts = task.split.parts();
        self.add(&format!("{prefix}_split"), move |i, out| {
            let part = parts.iter().find(|(_, rows)| rows.binary_search(&(i as u32)).is_ok());
            out.push_str(part.map_or("", |(part, _)| part));
        });
    }

    /// Names of the columns.
    pub(super) fn names(&self) -> &[String] {
        &self.names
    }

    /// Writes row `i` to `fields`, which are empty.
    pub(super) fn write(&self, i: usize, fields: &mut [String]) {
        fields.iter_mut().zip(&self.values).for_each(|(field, value)| value(i, field));
    }
}
