//! `golden.toml`: the rows, and the fields that are not compared.

use std::{
    cell::RefCell,
    collections::{BTreeMap, BTreeSet},
};

use anyhow::{Result, bail, ensure};
use serde::Deserialize;

/// `golden.toml`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Spec {
    /// Threads of each command.
    pub(super) threads: usize,
    /// Texts that stand for `{NAME}` in commands.
    pub(super) words: BTreeMap<String, String>,
    /// Texts of files that rows read.
    pub(super) files: BTreeMap<String, String>,
    /// Words appended to each command, by subcommand.
    pub(super) append: BTreeMap<String, String>,
    /// Commands that follow a row with `train`, unless it has `follow = false`.
    pub(super) follow: Vec<String>,
    ignore: Vec<Ignore>,
    pub(super) row: Vec<Row>,
    /// Patterns in `ignore` that some field matched.
    #[serde(skip)]
    matched: RefCell<BTreeSet<String>>,
}

/// Fields that are not compared.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Ignore {
    /// Patterns of field paths: `*` stands for one segment, `**` for any number of segments.
    fields: Vec<String>,
    /// Rows that the patterns apply to; all if empty.
    #[serde(default)]
    rows: Vec<String>,
    /// Rows that the patterns do not apply to.
    #[serde(default)]
    except: Vec<String>,
    /// Reason.
    why: String,
}

/// One configuration.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Row {
    pub(super) name: String,
    pub(super) commands: Vec<String>,
    /// Processes of `train`, started by `mpirun`; 0 starts `graphmill` itself.
    #[serde(default)]
    pub(super) ranks: usize,
    #[serde(default = "yes")]
    pub(super) follow: bool,
}

fn yes() -> bool {
    true
}

impl Spec {
    /// Fails if rows or patterns contradict each other.
    pub(super) fn validate(&self) -> Result<()> {
        let mut names = BTreeSet::new();
        for row in &self.row {
            ensure!(names.insert(row.name.as_str()), "golden.toml: two rows are named {}", row.name);
        }
        for ignore in &self.ignore {
            let fields = ignore.fields.join(", ");
            ensure!(!ignore.why.is_empty(), "golden.toml: {fields} are ignored without a reason");
            let unknown =
                ignore.rows.iter().chain(&ignore.except).find(|name| !names.contains(name.as_str()));
            if let Some(name) = unknown {
                bail!("golden.toml: {fields} are ignored in {name}, which is not a row");
            }
        }
        Ok(())
    }

    /// The rows of these names and the rows that their commands read from, in the order of the
    /// file.
    pub(super) fn select(&self, names: &[&str]) -> Result<Vec<&Row>> {
        let mut wanted: BTreeSet<&str> = names.iter().copied().collect();
        for name in names {
            ensure!(self.row.iter().any(|row| row.name == *name), "golden.toml has no row {name}");
        }
        // a row reads only from rows above it
        for row in self.row.iter().rev().filter(|_| !names.is_empty()) {
            if wanted.contains(row.name.as_str()) {
                let words = row.commands.iter().flat_map(|command| command.split(' '));
                wanted.extend(words.filter_map(|word| word.strip_prefix("../")?.split('/').next()));
            }
        }
        Ok(self.row.iter().filter(|row| names.is_empty() || wanted.contains(row.name.as_str())).collect())
    }

    /// Reports whether a field of a row is not compared.
    pub(super) fn is_ignored(&self, row: &str, path: &str) -> bool {
        let path: Vec<&str> = path.split('.').collect();
        let holds = |names: &[String]| names.iter().any(|name| name == row);
        let applies =
            |ignore: &&Ignore| (ignore.rows.is_empty() || holds(&ignore.rows)) && !holds(&ignore.except);
        let mut fields = self.ignore.iter().filter(applies).flat_map(|ignore| &ignore.fields);
        let found = fields.find(|field| matches(&field.split('.').collect::<Vec<_>>(), &path));
        found.is_some_and(|field| {
            self.matched.borrow_mut().insert(field.clone());
            true
        })
    }

    /// Prints the patterns that no field matched in a run of all rows.
    pub(super) fn note_unmatched(&self) {
        let matched = self.matched.borrow();
        for field in self.ignore.iter().flat_map(|ignore| &ignore.fields) {
            if !matched.contains(field) {
                eprintln!("note: golden.toml: no field matches the ignored {field}; remove it");
            }
        }
    }
}

/// Matches a pattern with the segments of a path or of one above it.
fn matches(pattern: &[&str], path: &[&str]) -> bool {
    match (pattern, path) {
        ([], _) => true,
        (["**", rest @ ..], _) => (0..=path.len()).any(|skipped| matches(rest, &path[skipped..])),
        ([first, rest @ ..], [segment, others @ ..]) => {
            (*first == "*" || first == segment) && matches(rest, others)
        }
        (_, []) => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_match(pattern: &str, path: &str) -> bool {
        matches(&pattern.split('.').collect::<Vec<_>>(), &path.split('.').collect::<Vec<_>>())
    }

    #[test]
    fn patterns_match_whole_segments_and_all_below() {
        assert!(is_match("**.seconds", "train.epochs.0.seconds"));
        assert!(is_match("*.config", "train.config.lr"));
        assert!(is_match("**.devices.*.batches", "files.run/metrics.jsonl.0.devices.1.batches"));
        assert!(!is_match("**.seconds", "train.epochs.0.eval_seconds"));
        assert!(!is_match("*.config", "train.best.config"));
        assert!(!is_match("**.devices.*.batches", "train.config.devices"));
    }
}
