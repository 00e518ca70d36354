//! Columns of nodes that determine the label of a table of targets.
//!
//! # Algorithm
//! The rows of each table of targets are ordered by their nodes. One pass over the table of the
//! nodes then joins each of its rows to the targets of the node, for all tables of targets of the
//! type, and counts them as [`super::leaks`] does. A value, a class and a whole column need 10, 10
//! and 30 nodes instead of rows.
//!
//! # Source
//! Own, as the search of [`super::leaks`].
//!
//! # Cost
//! A sort of the rows by node, a pass over the features and foreign keys of the nodes, and a hash
//! of each value of a node with a target.
//!
//! # Memory
//! Four bytes for each row of a table of targets, and the pairs of [`super::leaks`], which all
//! tables of targets of a node type share.
#![forbid(unsafe_code)]

use std::ops::Range;

use graphmill_core::{NodeId, Result};

use super::{
    column::Cell,
    faults::Faults,
    keys::NodeKeys,
    leak::Leak,
    leaks::LeakSearch,
    nodes::NodePlan,
    parts::{TargetPart, TaskPart},
    source::Table,
    targets::Label,
    times::TimeUnit,
};
use crate::typed::Seeds;

/// Leaks among the columns of `plan`, whose nodes are those of `keys`, for each of `tasks`, which
/// have rows of these nodes with a time of this unit.
///
/// # Errors
/// The table of the nodes cannot be read.
pub(super) fn find(
    plan: &NodePlan,
    keys: &NodeKeys,
    tasks: &[(&TaskPart, Option<TimeUnit>)],
) -> Result<Vec<Vec<Leak>>> {
    let Some(table) = &plan.table else { return Ok(vec![Vec::new(); tasks.len()]) };
    let columns = plan.examined(table, &format!(" of nodes '{}'", plan.spec.kind));
    let all = tasks.iter().map(|(task, _)| labels(&task.targets).len()).sum();
    let found = tasks.iter().map(|&(task, unit)| {
        let Some(Seeds::Nodes(ids)) = &task.seeds else { return None };
        let search = LeakSearch::new(table, columns.iter().cloned(), labels(&task.targets), None, all)?;
        Some(TaskSearch::new(search, task, ids, unit))
    });
    let mut found: Vec<Option<TaskSearch>> = found.collect();
    let mut searches: Vec<&mut TaskSearch> = found.iter_mut().flatten().collect();
    if !searches.is_empty() {
        read(table, keys, &columns, &mut searches)?;
    }
    Ok(found.into_iter().map(|of| of.map(|of| of.search.finish()).unwrap_or_default()).collect())
}

/// Passes the rows of the nodes to `searches`.
fn read(
    table: &Table,
    keys: &NodeKeys,
    columns: &[(usize, String)],
    searches: &mut [&mut TaskSearch],
) -> Result<()> {
    let wanted = table.only(columns.iter().map(|(c, _)| *c));
    // the rows were read before, with their faults
    table.scan(&wanted, &mut Faults::default(), |batch, _| {
        let nodes = (0..batch.rows).filter_map(|row| Some((row, keys.rows.id(batch.first + row as u64)?)));
        let nodes: Vec<(usize, NodeId)> = nodes.collect();
        searches.iter_mut().for_each(|of| of.add(&nodes, |c, row| batch.columns[c].get(row)));
        Ok(())
    })?;
    // nodes that only edges name have no values
    for of in searches {
        let nodes = of.rest();
        of.add(&nodes, |_, _| Cell::Missing);
    }
    Ok(())
}

/// Labels of a target, with their numbers of classes.
fn labels(targets: &TargetPart) -> Vec<(String, Option<usize>)> {
    match targets {
        TargetPart::Classes(_, columns) => {
            columns.iter().map(|column| (column.column.clone(), Some(column.classes.len()))).collect()
        }
        TargetPart::Values(_, names) => names.iter().map(|name| (name.clone(), None)).collect(),
        TargetPart::None { .. } => Vec::new(),
    }
}

/// Search for the labels of a task.
struct TaskSearch<'a> {
    search: LeakSearch,
    task: &'a TaskPart,
    unit: Option<TimeUnit>,
    /// Node of each row of the task.
    ids: &'a [NodeId],
    /// Rows of the task, by node.
    order: Vec<u32>,
    /// Number of these that are read.
    read: usize,
}

impl<'a> TaskSearch<'a> {
    fn new(search: LeakSearch, task: &'a TaskPart, ids: &'a [NodeId], unit: Option<TimeUnit>) -> Self {
        let mut order: Vec<u32> = (0..ids.len() as u32).collect();
        order.sort_by_key(|&row| ids[row as usize]);
        Self { search, task, unit, ids, order, read: 0 }
    }

    /// Node of the next row that is not read yet.
    fn next(&self) -> Option<NodeId> {
        self.order.get(self.read).map(|&row| self.ids[row as usize])
    }

    /// Nodes of the rows that are not read yet, ascending.
    fn rest(&self) -> Vec<(usize, NodeId)> {
        let mut nodes: Vec<NodeId> =
            self.order[self.read..].iter().map(|&row| self.ids[row as usize]).collect();
        nodes.dedup();
        nodes.into_iter().map(|node| (0, node)).collect()
    }

    /// Adds the rows of `nodes`, which have a row of their table each and ascend, with the values
    /// of `cell`.
    fn add<'b>(&mut self, nodes: &[(usize, NodeId)], cell: impl Fn(usize, usize) -> Cell<'b> + Sync) {
        let mut subjects: Vec<(usize, Range<usize>)> = Vec::new();
        for &(row, node) in nodes {
            while self.next().is_some_and(|next| next < node) {
                self.read += 1;
            }
            let start = self.read;
            while self.next() == Some(node) {
                self.read += 1;
            }
            if self.read > start {
                subjects.push((row, start..self.read));
            }
        }
        let numbers: Vec<usize> = (0..subjects.len()).collect();
        let Self { search, task, unit, order, .. } = self;
        let (task, unit) = (*task, *unit);
        search.add_subjects(
            &numbers,
            |c, i| cell(c, subjects[i].0),
            |i| order[subjects[i].1.clone()].iter().map(|&row| row as usize),
            |row, k| label(&task.targets, row, k),
            |_, row| micros(task.time.as_ref()?[row], unit?),
        );
    }
}

/// Label number `k` of a row; `None` if it is missing.
fn label(targets: &TargetPart, row: usize, k: usize) -> Option<Label> {
    match targets {
        TargetPart::Classes(class, columns) => {
            Some(class[row * columns.len() + k]).filter(|&class| class >= 0).map(Label::Class)
        }
        TargetPart::Values(values, names) => {
            Some(values[row * names.len() + k]).filter(|x| !x.is_nan()).map(|x| Label::Value(x.into()))
        }
        TargetPart::None { .. } => None,
    }
}

/// Microseconds since 1970 of a time; `None` for integers.
fn micros(time: i64, unit: TimeUnit) -> Option<i64> {
    match unit {
        TimeUnit::Integer => None,
        TimeUnit::Seconds => time.checked_mul(1_000_000),
        TimeUnit::Microseconds => Some(time),
    }
}
