//! Tasks of a dataset, followed by the rows of new tables.

use std::collections::BTreeMap;

use graphmill_core::{Buffer, Error, Labels, NodeId, Result, Split, memory};

use super::{
    changed::ChangedTargets,
    parts::{TargetPart, TaskPart},
    preprocessing::Appended,
    removals::Removals,
};
use crate::{
    external::Scratch,
    npy::Element,
    typed::{Seeds, Targets, Task, TypedDataset},
};

/// Values that are copied at a time.
const CHUNK_LEN: usize = 1 << 16;

/// Dataset that tables extend, and what they change of it.
#[derive(Default)]
pub(super) struct Extended {
    /// The dataset without the rows that end.
    pub(super) reduced: TypedDataset,
    /// Rows that end.
    pub(super) removals: Removals,
    /// Targets of nodes that rows change.
    pub(super) changed: Vec<ChangedTargets>,
}

/// The tasks of `before`, with `changed` targets, each followed by its rows among `more`. Tasks on
/// all nodes of a type have a row for each of those in `data`.
///
/// # Errors
/// A scratch cannot be written, rows are too many, or targets are of another kind.
pub(super) fn tasks(
    before: &TypedDataset,
    (more, changed): (Vec<TaskPart>, &[ChangedTargets]),
    data: &TypedDataset,
    scratch: &Scratch,
) -> Result<Vec<Task>> {
    let mut more: BTreeMap<String, TaskPart> =
        more.into_iter().map(|task| (task.name.clone(), task)).collect();
    let tasks = before.tasks.iter().enumerate();
    tasks
        .map(|(number, task)| {
            let rows = [before, data].map(|data| data.rows_of(task));
            let mut now = task.clone();
            let mut changed = changed.iter().filter(|changed| changed.task == task.name);
            changed.try_for_each(|changed| changed.apply(&mut now))?;
            joined(&now, more.remove(&task.name), rows, (scratch, &format!("task-{number}")))
        })
        .collect()
}

/// The task, whose number of rows was `before`, followed by the rows of `more`. A task on all nodes
/// has `after` rows, the last of which may have no target.
fn joined(
    task: &Task,
    more: Option<TaskPart>,
    [before, after]: [usize; 2],
    (scratch, name): (&Scratch, &str),
) -> Result<Task> {
    let mut task = task.clone();
    let (targets, split) = match more {
        Some(TaskPart { seeds, time, targets, split, .. }) => {
            match (&mut task.seeds, seeds) {
                (Some(Seeds::Nodes(ids)), Some(Seeds::Nodes(more)))
                | (Some(Seeds::Pairs(ids)), Some(Seeds::Pairs(more))) => {
                    *ids = followed(ids, &more, scratch, &format!("{name}-all-seeds"))?;
                }
                _ => {}
            }
            if let (Some(times), Some(more)) = (&mut task.time, time) {
                *times = followed(times, &more, scratch, &format!("{name}-all-times"))?;
            }
            (targets, split)
        }
        None if task.seeds.is_none() => (unknown(&task, after - before)?, Default::default()),
        None => return Ok(task),
    };
    let differs =
        || Error::invalid(format!("task '{}': the new rows have targets of another kind", task.name));
    match (&mut task.targets, targets) {
        (
            Targets::Classes(Labels::Single { class, .. } | Labels::Columns { class, .. }),
            TargetPart::Classes(more, _),
        ) => *class = [&class[..], &more].concat().into(),
        (Targets::Values { values, .. }, TargetPart::Values(more, _)) => {
            *values = [&values[..], &more].concat().into();
        }
        _ => return Err(differs()),
    }
    if before + split.iter().flatten().max().map_or(0, |&row| row as usize) >= NodeId::MAX as usize {
        let message = format!("task '{}': rows are numbered by 32 bits, and there are more", task.name);
        return Err(Error::invalid(message));
    }
    let Split { train, valid, test } = &task.split;
    let [of_train, of_valid, of_test] =
        split.map(|rows| rows.into_iter().map(|row| before as NodeId + row).collect::<Vec<_>>());
    let part = |known: &[NodeId], more: Vec<NodeId>| [known, &more].concat().into();
    task.split =
        Split { train: part(train, of_train), valid: part(valid, of_valid), test: part(test, of_test) };
    Ok(task)
}

/// Targets of `rows` rows of a task that have none.
fn unknown(task: &Task, rows: usize) -> Result<TargetPart> {
    Ok(match &task.targets {
        Targets::Values { width, .. } => {
            TargetPart::Values(memory::filled(f32::NAN, rows * width)?, Vec::new())
        }
        _ => TargetPart::Classes(memory::filled(-1, rows * task.columns().len().max(1))?, Vec::new()),
    })
}

/// A column of values followed by others; `name` is unique within the scratch.
fn followed<T: Element>(known: &[T], more: &[T], scratch: &Scratch, name: &str) -> Result<Buffer<T>> {
    let mut rows = scratch.column(name)?;
    known.chunks(CHUNK_LEN).chain(more.chunks(CHUNK_LEN)).try_for_each(|chunk| rows.extend(chunk))?;
    rows.finish()
}

/// Record of the rows of `data` that were appended to `before`, and that ended or changed.
///
/// # Errors
/// The checksum of `before` cannot be computed.
pub(super) fn record(
    before: &TypedDataset,
    Extended { reduced, removals, .. }: &Extended,
    data: &TypedDataset,
) -> Result<Appended> {
    let rows = |task: &Task| task.split.parts().iter().map(|(_, rows)| rows.len()).sum::<usize>();
    let nodes = before.nodes.iter().zip(&data.nodes);
    let edges = before.edges.iter().zip(&reduced.edges).zip(&data.edges);
    let tasks = before.tasks.iter().zip(&reduced.tasks).zip(&data.tasks);
    let some = |(name, count): (String, usize)| (count > 0).then_some((name, count as u64));
    let of_nodes = |lists: &[Vec<NodeId>]| {
        let lists = before.nodes.iter().zip(lists);
        lists.filter_map(|(nodes, list)| some((nodes.name.clone(), list.len()))).collect()
    };
    let ended = before.edges.iter().zip(&reduced.edges);
    let ended = ended.map(|(then, left)| (then.edge_type.to_string(), then.num_edges() - left.num_edges()));
    Ok(Appended {
        base: before.name.clone(),
        checksum: before.identity()?,
        nodes: nodes
            .map(|(then, now)| (then.name.clone(), counts(then.count, now.count - then.count)))
            .collect(),
        edges: edges
            .map(|((then, left), now)| {
                let new = now.num_edges() - left.num_edges();
                (then.edge_type.to_string(), counts(then.num_edges(), new))
            })
            .collect(),
        tasks: tasks
            .map(|((then, left), now)| (then.name.clone(), counts(rows(then), rows(now) - rows(left))))
            .collect(),
        changed: of_nodes(&removals.changed),
        ended_nodes: of_nodes(&removals.nodes),
        ended_edges: ended.filter_map(some).collect(),
    })
}

/// Number before, and number of new ones.
fn counts(before: usize, new: usize) -> [u64; 2] {
    [before as u64, new as u64]
}
