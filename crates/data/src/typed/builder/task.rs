//! Task under construction.

use std::collections::BTreeMap;

use graphmill_core::{Buffer, ClassColumn, Error, Labels, NodeId, Result, Split, memory};

use crate::typed::{EdgeType, Negatives, Seeds, Targets, Task, TaskOn, csc::Order, values::gather};

/// Task of a dataset, described call by call; a later call replaces an earlier one.
#[derive(Debug)]
pub struct TaskBuilder {
    task: Task,
    /// True once the type of the seeds is set.
    has_type: bool,
}

impl TaskBuilder {
    pub(super) fn new(name: String) -> Self {
        Self { task: Task::new(name, TaskOn::Nodes(String::new())), has_type: false }
    }

    pub(super) fn name(&self) -> &str {
        &self.task.name
    }

    /// Returns true if rows of the task are the edges of this type.
    pub(super) fn is_on(&self, edge_type: &EdgeType) -> bool {
        matches!(&self.task.on, TaskOn::Edges(on) if on == edge_type) && self.task.seeds.is_none()
    }

    /// Sets the rows to the nodes of a type.
    pub fn on_nodes(&mut self, node_type: impl Into<String>) -> &mut Self {
        (self.task.on, self.has_type) = (TaskOn::Nodes(node_type.into()), true);
        self
    }

    /// Sets the rows to the edges of a type. Targets and the split follow the order in which the
    /// builder got the edges.
    pub fn on_edges(&mut self, edge_type: EdgeType) -> &mut Self {
        (self.task.on, self.has_type) = (TaskOn::Edges(edge_type), true);
        self
    }

    /// Sets the rows to these nodes of the type; a node may occur several times.
    pub fn node_seeds(&mut self, nodes: impl Into<Buffer<NodeId>>) -> &mut Self {
        self.task.seeds = Some(Seeds::Nodes(nodes.into()));
        self
    }

    /// Sets the rows to pairs of a source and a destination of the edge type, `R x 2`. They need
    /// not be edges of the graph.
    pub fn pair_seeds(&mut self, pairs: impl Into<Buffer<NodeId>>) -> &mut Self {
        self.task.seeds = Some(Seeds::Pairs(pairs.into()));
        self
    }

    /// Sets rows and split of a link prediction task: the pairs that train, validate and test.
    pub fn positives(&mut self, parts: [Vec<NodeId>; 3]) -> &mut Self {
        let mut next = 0;
        let [train, valid, test] = [0, 1, 2].map(|i| {
            let first = next;
            next += (parts[i].len() / 2) as NodeId;
            (first..next).collect::<Vec<_>>().into()
        });
        self.task.split = Split { train, valid, test };
        self.pair_seeds(parts.concat())
    }

    /// Sets the negatives of the parts that train, validate and test.
    pub fn negatives(&mut self, parts: [Option<Negatives>; 3]) -> &mut Self {
        self.task.negatives = parts;
        self
    }

    /// Sets the time of each row.
    pub fn time(&mut self, time: impl Into<Buffer<i64>>) -> &mut Self {
        self.task.time = Some(time.into());
        self
    }

    /// Sets a class of `0..classes` per row, -1 if unknown.
    pub fn classes(&mut self, classes: usize, class: impl Into<Buffer<i32>>) -> &mut Self {
        self.targets(Targets::Classes(Labels::Single { class: class.into(), classes }))
    }

    /// Sets a set of classes per row: `classes` zeros and ones, row by row.
    pub fn class_sets(&mut self, classes: usize, member: impl Into<Buffer<u8>>) -> &mut Self {
        self.targets(Targets::Classes(Labels::Multi { member: member.into(), classes }))
    }

    /// Sets a class per row in each of the `columns`, row by row; -1 if unknown.
    pub fn class_columns(&mut self, columns: Vec<ClassColumn>, class: impl Into<Buffer<i32>>) -> &mut Self {
        self.targets(Targets::Classes(Labels::Columns { class: class.into(), columns }))
    }

    /// Sets `width` values per row, row by row; NaN if unknown.
    pub fn values(&mut self, width: usize, values: impl Into<Buffer<f32>>) -> &mut Self {
        self.targets(Targets::Values { width, values: values.into() })
    }

    /// Sets the targets.
    pub fn targets(&mut self, targets: Targets) -> &mut Self {
        self.task.targets = targets;
        self
    }

    /// Sets the names of the classes, or of the values.
    pub fn names<S: Into<String>>(&mut self, names: impl IntoIterator<Item = S>) -> &mut Self {
        self.task.names = names.into_iter().map(Into::into).collect();
        self
    }

    /// Sets the rows that train, validate and test, in any order.
    pub fn split(
        &mut self,
        train: impl Into<Vec<NodeId>>,
        valid: impl Into<Vec<NodeId>>,
        test: impl Into<Vec<NodeId>>,
    ) -> &mut Self {
        let [train, valid, test] = [train.into(), valid.into(), test.into()].map(|mut rows: Vec<NodeId>| {
            rows.sort_unstable();
            rows.into()
        });
        self.task.split = Split { train, valid, test };
        self
    }

    /// Sets the customary metric.
    pub fn metric(&mut self, metric: impl Into<String>) -> &mut Self {
        self.task.metric = Some(metric.into());
        self
    }

    /// Builds the task; `orders` holds the order of the edges that were sorted.
    pub(super) fn build(self, orders: &BTreeMap<EdgeType, Order>) -> Result<Task> {
        let Self { mut task, has_type } = self;
        if !has_type {
            return Err(Error::invalid("it has no type; call on_nodes or on_edges"));
        }
        let order = match &task.on {
            TaskOn::Edges(edge_type) if task.seeds.is_none() => orders.get(edge_type),
            _ => None,
        };
        let Some(Order { order, .. }) = order else { return Ok(task) };
        let rows = order.len();
        let complete = |length: usize, width: usize| {
            if Some(length) == rows.checked_mul(width) {
                return Ok(());
            }
            Err(Error::invalid(format!("{length} targets for {rows} edges x {width}")))
        };
        task.targets = match task.targets {
            Targets::None => Targets::None,
            Targets::Classes(Labels::Single { class, classes }) => {
                complete(class.len(), 1)?;
                Targets::Classes(Labels::Single { class: gather(&class, 1, order)?.into(), classes })
            }
            Targets::Classes(Labels::Multi { member, classes }) => {
                complete(member.len(), classes)?;
                Targets::Classes(Labels::Multi { member: gather(&member, classes, order)?.into(), classes })
            }
            Targets::Classes(Labels::Columns { class, columns }) => {
                complete(class.len(), columns.len())?;
                let class = gather(&class, columns.len(), order)?.into();
                Targets::Classes(Labels::Columns { class, columns })
            }
            Targets::Values { width, values } | Targets::Classes(Labels::Values { width, values }) => {
                complete(values.len(), width)?;
                Targets::Values { width, values: gather(&values, width, order)?.into() }
            }
        };
        if let Some(time) = &task.time {
            complete(time.len(), 1)?;
            task.time = Some(gather(time, 1, order)?.into());
        }
        task.split = moved(&task.split, order)?;
        Ok(task)
    }
}

/// Split of rows that moved: row `order[i]` is now row `i`.
fn moved(split: &Split, order: &[u64]) -> Result<Split> {
    if split.parts().iter().all(|(_, ids)| ids.is_empty()) {
        return Ok(Split::default());
    }
    if order.len() > NodeId::MAX as usize {
        let message = format!("{} rows: rows are numbered by 32 bits; list the rows as seeds", order.len());
        return Err(Error::invalid(message));
    }
    let mut place: Vec<NodeId> = memory::zeroed(order.len())?;
    order.iter().enumerate().for_each(|(i, &row)| place[row as usize] = i as NodeId);
    let part = |name: &str, ids: &[NodeId]| -> Result<Buffer<NodeId>> {
        if let Some(row) = ids.iter().find(|row| **row as usize >= order.len()) {
            return Err(Error::invalid(format!(
                "{name} holds row {row}, but there are {} rows",
                order.len()
            )));
        }
        let mut rows: Vec<NodeId> = ids.iter().map(|&row| place[row as usize]).collect();
        rows.sort_unstable();
        Ok(rows.into())
    };
    let Split { train, valid, test } = split;
    Ok(Split { train: part("train", train)?, valid: part("valid", valid)?, test: part("test", test)? })
}
