//! Keys that edges of new tables name, and that neither these tables nor a dataset has.

use std::collections::HashSet;

use graphmill_core::Result;

use super::{
    edges::EdgePlan,
    ends::End,
    faults::Faults,
    keys::{distinct, shown},
    source::Table,
};
use crate::external::SortedRecords;

/// Number of rows that a message lists.
const EXAMPLES: usize = 5;

/// Lookup in a dataset: for the name of a node type and some keys, true for each key that the
/// dataset has.
pub type KnownKeys<'a> = dyn Fn(&str, &[String]) -> Vec<bool> + 'a;

/// Keys among `named`, which no new row of the node type `kind` has, that the dataset does not have
/// either.
pub(super) fn unknown(kind: &str, named: &SortedRecords, known: &KnownKeys) -> Result<HashSet<String>> {
    let mut keys = Vec::new();
    distinct(named, |key| {
        keys.push(String::from_utf8_lossy(key).into_owned());
        Ok(())
    })?;
    if keys.is_empty() {
        return Ok(HashSet::new());
    }
    let is_known = known(kind, &keys);
    Ok(keys.into_iter().zip(is_known).filter(|(_, is_known)| !is_known).map(|(key, _)| key).collect())
}

/// Adds a fault for each file of `table` whose edges have a node of `unknown` at the end number
/// `end`.
pub(super) fn refuse(
    plan: &EdgePlan,
    table: &Table,
    end: usize,
    unknown: &HashSet<String>,
    faults: &mut Faults,
) -> Result<()> {
    let End::Key(columns) = &plan.at[end] else { return Ok(()) };
    let mut files: Vec<(String, u64, Vec<String>)> = Vec::new();
    let mut key = String::new();
    table.scan(&vec![true; table.columns.len()], &mut Faults::default(), |batch, _| {
        let file = table.file(batch);
        for row in 0..batch.rows {
            if !columns.read(batch, row, &mut key) || !unknown.contains(&key) {
                continue;
            }
            if files.last().is_none_or(|(last, ..)| *last != file) {
                files.push((file.clone(), 0, Vec::new()));
            }
            if let Some((_, count, examples)) = files.last_mut() {
                *count += 1;
                if examples.len() < EXAMPLES {
                    examples.push(format!("{} '{}'", batch.places.of(row), shown(&key)));
                }
            }
        }
        Ok(())
    })?;
    let kind = &plan.edge_type[2 * end];
    for (file, count, examples) in files {
        faults.add_many(&file, count, || {
            let (rows, name) = if count == 1 { ("row", "names") } else { ("rows", "name") };
            format!(
                "column '{}': {count} {rows} {name} a node of '{kind}' that neither the new tables nor the \
                 dataset has: {}; add rows for the missing nodes, or remove these edges",
                plan.keys[end].join(", "),
                examples.join(", ")
            )
        });
    }
    Ok(())
}
