//! Rows of known nodes: rows of a table whose keys the dataset that it extends has.
//!
//! Under [`Changed::Replace`] the first row of a node replaces its columns: features, the time, and
//! the nodes of its foreign keys. A label of the row replaces that of the node, and an empty one
//! keeps it. The node stays in its part of the split, unless the row has a label, and a column or
//! masks that name another part. A labelled node without a part gets one by the rule of the split.

use std::{collections::BTreeMap, str::FromStr};

use graphmill_core::{Error, Labels, NodeId, Result};
use serde::{Deserialize, Serialize};

use super::{
    encoding::EncodedColumn,
    faults::Faults,
    kept::{Kept, KeptColumn},
    node_rows::NodeRows,
    parts::{FeaturePart, KeptTargets, TargetPart, keep_split, restore_split},
    rows::Encoder,
    source::Table,
    times::{self, TimeUnit},
};
use crate::{
    external::Scratch,
    typed::{Targets, Task},
};

/// Treatment of rows whose keys the dataset that they extend has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Changed {
    /// Rejects them.
    #[default]
    Fail,
    /// Replaces the columns of the nodes.
    Replace,
    /// Keeps the nodes as they are.
    Keep,
}

impl FromStr for Changed {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        match text {
            "fail" => Ok(Self::Fail),
            "replace" => Ok(Self::Replace),
            "keep" => Ok(Self::Keep),
            _ => Err(Error::Unknown {
                axis: "treatment",
                name: text.into(),
                known: "fail, replace, keep".into(),
            }),
        }
    }
}

/// Rows that change nodes, ascending by row, and the nodes: of `known` rows, the first of each
/// node.
pub(super) fn first_rows(known: &[(u64, NodeId)]) -> Vec<(u64, NodeId)> {
    let mut first = known.to_vec();
    first.sort_unstable_by_key(|&(row, v)| (v, row));
    first.dedup_by_key(|(_, v)| *v);
    first.sort_unstable();
    first
}

/// Changed nodes in ascending order, each with the position of its row among the rows that change
/// nodes.
fn by_node(changed: &[(u64, NodeId)]) -> Vec<(NodeId, usize)> {
    let mut nodes: Vec<(NodeId, usize)> = changed.iter().enumerate().map(|(i, &(_, v))| (v, i)).collect();
    nodes.sort_unstable();
    nodes
}

/// Columns of the rows that change nodes, in the order of the rows.
#[derive(Default)]
pub(super) struct ChangedColumns {
    /// Changed nodes in ascending order, each with the position of its row.
    pub(super) nodes: Vec<(NodeId, usize)>,
    /// Features.
    pub(super) features: Option<FeaturePart>,
    /// Times; empty without a column of times.
    pub(super) times: Vec<i64>,
    /// Number of values of each column that its encoding does not know.
    pub(super) unknown: Vec<u64>,
}

impl ChangedColumns {
    /// Reads the rows of `table` that change nodes; `columns` are the encodings of its features,
    /// and `name` is unique within the scratch.
    pub(super) fn read(
        table: &Table,
        rows: &NodeRows,
        columns: &[(usize, EncodedColumn)],
        time: Option<(usize, TimeUnit)>,
        (scratch, name): (&Scratch, &str),
        faults: &mut Faults,
    ) -> Result<Self> {
        if rows.changed.is_empty() {
            return Ok(Self::default());
        }
        let mut encoder = Encoder::new(scratch, name, columns)?;
        let mut times = Vec::new();
        let is_changed = |row: u64| rows.changed(row).is_some();
        table.scan(&vec![true; table.columns.len()], faults, |batch, faults| {
            let changed = (0..batch.rows).filter(|&row| is_changed(batch.first + row as u64));
            for (row, column) in changed.filter_map(|row| Some((row, time?))) {
                times.push(times::read(column, table, batch, row, faults).unwrap_or(i64::MIN));
            }
            encoder.push(table, batch, faults, is_changed)
        })?;
        let unknown = encoder.unknown.clone();
        Ok(Self { nodes: by_node(&rows.changed), features: encoder.finish()?, times, unknown })
    }
}

/// Targets of the rows that change nodes.
pub(super) struct ChangedTargets {
    /// Name of the task.
    pub(super) task: String,
    /// Node of each row.
    pub(super) nodes: Vec<NodeId>,
    /// Target of each row.
    pub(super) targets: TargetPart,
    /// Rows that train, validate and test.
    pub(super) split: [Vec<NodeId>; 3],
    /// True if the rows name their part of the split, by a column or masks.
    pub(super) is_named: bool,
}

/// Record of [`ChangedTargets`].
#[derive(Serialize, Deserialize)]
pub(super) struct KeptChanged {
    task: String,
    nodes: KeptColumn,
    targets: KeptTargets,
    split: [KeptColumn; 3],
    is_named: bool,
}

impl ChangedTargets {
    pub(super) fn keep(&self, kept: &Kept, name: &str) -> Result<KeptChanged> {
        let name = format!("{name}-changed");
        Ok(KeptChanged {
            task: self.task.clone(),
            nodes: kept.values(&format!("{name}-nodes"), &self.nodes)?,
            targets: self.targets.keep(kept, &name)?,
            split: keep_split(&self.split, kept, &name)?,
            is_named: self.is_named,
        })
    }

    pub(super) fn restore(part: KeptChanged, kept: &Kept) -> Option<Self> {
        Some(Self {
            nodes: kept.open::<NodeId>(&part.nodes)?.to_vec(),
            targets: TargetPart::restore(part.targets, kept)?,
            split: restore_split(&part.split, kept)?,
            task: part.task,
            is_named: part.is_named,
        })
    }

    /// Writes the targets and the parts of the split to `task`, which has a row for each node.
    ///
    /// # Errors
    /// The task has targets of another kind.
    pub(super) fn apply(&self, task: &mut Task) -> Result<()> {
        let differs =
            || Error::invalid(format!("task '{}': the changed rows have targets of another kind", task.name));
        match (&mut task.targets, &self.targets) {
            (
                Targets::Classes(Labels::Single { class, .. } | Labels::Columns { class, .. }),
                TargetPart::Classes(new, columns),
            ) => {
                let mut all = class.to_vec();
                self.replace(&mut all, new, columns.len().max(1), |class| class >= 0);
                *class = all.into();
            }
            (Targets::Values { width, values }, TargetPart::Values(new, _)) => {
                let mut all = values.to_vec();
                self.replace(&mut all, new, *width, |value| !value.is_nan());
                *values = all.into();
            }
            _ => return Err(differs()),
        }
        let mut parts = [&task.split.train, &task.split.valid, &task.split.test].map(|part| part.to_vec());
        self.move_rows(&mut parts);
        let [train, valid, test] = parts.map(Into::into);
        (task.split.train, task.split.valid, task.split.test) = (train, valid, test);
        Ok(())
    }

    /// Writes the values of `new` that are known over those of the nodes; rows have `width` values.
    fn replace<T: Copy>(&self, all: &mut [T], new: &[T], width: usize, is_known: impl Fn(T) -> bool) {
        for (&v, row) in self.nodes.iter().zip(new.chunks_exact(width)) {
            let values = &mut all[v as usize * width..(v as usize + 1) * width];
            values.iter_mut().zip(row).filter(|(_, x)| is_known(**x)).for_each(|(value, &x)| *value = x);
        }
    }

    /// Moves nodes between the parts of the split, which ascend.
    fn move_rows(&self, parts: &mut [Vec<NodeId>; 3]) {
        let rows = self.split.iter().enumerate();
        let rows = rows.flat_map(|(part, rows)| rows.iter().map(move |&row| (row, part)));
        let mut moves: BTreeMap<NodeId, usize> =
            rows.map(|(row, part)| (self.nodes[row as usize], part)).collect();
        for (part, rows) in parts.iter_mut().enumerate() {
            rows.retain(|v| match moves.get(v) {
                Some(&to) if self.is_named && to != part => false,
                Some(_) => {
                    moves.remove(v);
                    true
                }
                None => true,
            });
        }
        moves.iter().for_each(|(&v, &part)| parts[part].push(v));
        parts.iter_mut().for_each(|part| part.sort_unstable());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_row_of_a_node_changes_it() {
        let rows = first_rows(&[(2, 7), (3, 1), (5, 7), (6, 4), (8, 1)]);
        assert_eq!(rows, [(2, 7), (3, 1), (6, 4)]);
        assert_eq!(by_node(&rows), [(1, 1), (4, 2), (7, 0)]);
    }

    #[test]
    fn nodes_keep_their_part_unless_rows_name_another() {
        let of = |is_named| ChangedTargets {
            task: "label".into(),
            nodes: vec![5, 2, 9],
            targets: TargetPart::Values(vec![1.0; 3], Vec::new()),
            split: [vec![0], vec![1], vec![2]],
            is_named,
        };
        let parts = || [vec![0, 2], vec![5], vec![7, 8]];
        let mut kept = parts();
        of(false).move_rows(&mut kept);
        assert_eq!(kept, [vec![0, 2], vec![5], vec![7, 8, 9]]);
        let mut named = parts();
        of(true).move_rows(&mut named);
        assert_eq!(named, [vec![0, 5], vec![2], vec![7, 8, 9]]);
    }
}
