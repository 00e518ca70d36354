//! Consistency of a task: seeds, targets, split and negatives.

use graphmill_core::{
    ClassColumn, Labels, NodeId, parallel,
    search::{pair_position, position},
};

use super::{Negatives, Seeds, Targets, Task, TaskKind, TaskOn, TypedDataset};

/// Numbers of nodes that a task's seeds may name.
struct Ends {
    /// Number of sources of the edges, or of nodes.
    sources: usize,
    /// Number of destinations of the edges.
    destinations: usize,
}

/// Passes the faults of `task` to `report`.
pub(super) fn check_task(data: &TypedDataset, task: &Task, report: &mut dyn FnMut(String)) {
    if task.name.is_empty() {
        report("it has no name; name every task".into());
    }
    let found = match &task.on {
        TaskOn::Nodes(name) => {
            data.node_type(name).map(|nodes| (nodes.count, Ends { sources: nodes.count, destinations: 0 }))
        }
        TaskOn::Edges(edge_type) => {
            let count = |name: &str| data.node_type(name).map(|nodes| nodes.count);
            let ends = count(&edge_type.source)
                .and_then(|sources| Ok(Ends { sources, destinations: count(&edge_type.destination)? }));
            // pairs to predict need no edges
            let is_of_pairs = task.kind() == Some(TaskKind::LinkPrediction) && task.seeds.is_some();
            match is_of_pairs {
                true => ends.map(|ends| (0, ends)),
                false => data.edge_type(edge_type).and_then(|edges| Ok((edges.num_edges(), ends?))),
            }
        }
    };
    let (items, ends) = match found {
        Ok(found) => found,
        Err(error) => return report(error.to_string()),
    };
    if task.kind().is_none() {
        report(format!("a task on the nodes of '{}' needs targets: classes or values", task.on));
    }
    if let Some(fault) = seeds_fault(task, &ends) {
        report(fault);
    }
    let rows = task.seeds.as_ref().map_or(items, Seeds::len);
    if rows > NodeId::MAX as usize {
        report(format!("{rows} rows: rows are numbered by 32 bits; list the rows as seeds"));
    }
    if let Some(time) = task.time.as_ref().filter(|time| time.len() != rows) {
        report(format!("{} times for {rows} rows", time.len()));
    }
    let targets = targets_fault(&task.targets, rows);
    let is_sound = targets.is_none();
    if let Some(fault) = targets {
        report(fault);
    }
    if !task.names.is_empty() && task.names.len() != task.width() {
        report(format!("{} names for {} classes or values", task.names.len(), task.width()));
    }
    if let Some(fault) = split_fault(task, rows, is_sound) {
        report(fault);
    }
    for ((part, ids), negatives) in task.split.parts().into_iter().zip(&task.negatives) {
        if let Some(fault) =
            negatives.as_ref().and_then(|given| negatives_fault(task, given, ids.len(), &ends))
        {
            report(format!("negatives of '{part}': {fault}"));
        }
    }
}

/// First fault of pairs of a source and a destination.
fn pairs_fault(pairs: &[NodeId], ends: &Ends) -> Option<String> {
    if !pairs.len().is_multiple_of(2) {
        return Some(format!("{} ids are not pairs", pairs.len()));
    }
    let is_bad =
        |i: usize| pairs[2 * i] as usize >= ends.sources || pairs[2 * i + 1] as usize >= ends.destinations;
    let i = parallel::first_index(pairs.len() / 2, is_bad)?;
    Some(format!(
        "pair {i} is ({}, {}), but there are {} sources and {} destinations",
        pairs[2 * i],
        pairs[2 * i + 1],
        ends.sources,
        ends.destinations
    ))
}

/// First fault of the seeds.
fn seeds_fault(task: &Task, ends: &Ends) -> Option<String> {
    match (&task.on, task.seeds.as_ref()?) {
        (TaskOn::Nodes(name), Seeds::Nodes(ids)) => {
            let i = position(ids, |&v| v as usize >= ends.sources)?;
            Some(format!("seed {i} is node {}, but there are {} of type '{name}'", ids[i], ends.sources))
        }
        (TaskOn::Edges(_), Seeds::Pairs(pairs)) => Some(format!("seeds: {}", pairs_fault(pairs, ends)?)),
        (TaskOn::Nodes(_), Seeds::Pairs(_)) => Some("its seeds are pairs, but it is on nodes".into()),
        (TaskOn::Edges(_), Seeds::Nodes(_)) => Some("its seeds are nodes, but it is on edges".into()),
    }
}

/// First fault of the targets of `rows` rows.
fn targets_fault(targets: &Targets, rows: usize) -> Option<String> {
    match targets {
        Targets::None => None,
        Targets::Classes(Labels::Single { class, .. }) if class.len() != rows => {
            Some(format!("{} classes for {rows} rows", class.len()))
        }
        Targets::Classes(Labels::Single { class, classes }) => {
            let i = position(class, |&c| c < -1 || i64::from(c) >= *classes as i64)?;
            Some(format!(
                "the class of row {i} is {}, outside the {classes} classes (-1 means unknown)",
                class[i]
            ))
        }
        Targets::Classes(Labels::Multi { member, classes }) => {
            if Some(member.len()) != rows.checked_mul(*classes) {
                return Some(format!("{} entries for {rows} rows x {classes} classes", member.len()));
            }
            let i = position(member, |&m| m > 1)?;
            Some(format!("entry {} of row {} is {}: it must be 0 or 1", i % classes, i / classes, member[i]))
        }
        Targets::Classes(Labels::Columns { class, columns }) => ClassColumn::fault(columns, class, rows),
        Targets::Classes(Labels::Values { width, values }) => {
            targets_fault(&Targets::Values { width: *width, values: values.clone() }, rows)
        }
        Targets::Values { width: 0, .. } => Some("its targets have no columns".into()),
        Targets::Values { width, values } if Some(values.len()) != rows.checked_mul(*width) => {
            Some(format!("{} values for {rows} rows x {width} columns", values.len()))
        }
        Targets::Values { width, values } => {
            let i = position(values, |x| x.is_infinite())?;
            Some(format!("value {} of row {} is infinite (NaN means unknown)", i % width, i / width))
        }
    }
}

/// First fault of the split: rows out of range or not ascending, in two parts, or without a target.
fn split_fault(task: &Task, rows: usize, is_sound: bool) -> Option<String> {
    let parts = task.split.parts();
    for (part, ids) in parts {
        if let Some(i) = position(ids, |&row| row as usize >= rows) {
            return Some(format!("{part}[{i}] is row {}, but there are {rows} rows", ids[i]));
        }
        if let Some(i) = pair_position(ids, |id, next| id >= next) {
            return Some(format!("{part}[{}] = {} does not ascend", i + 1, ids[i + 1]));
        }
        let unlabelled = |&row: &NodeId| match &task.targets {
            Targets::None => false,
            Targets::Classes(labels) => !labels.is_labelled(row),
            Targets::Values { width, values } => {
                values[row as usize * width..][..*width].iter().all(|x| x.is_nan())
            }
        };
        if is_sound && let Some(i) = position(ids, unlabelled) {
            return Some(format!(
                "row {} is in '{part}' but has no target; give it one or remove it from '{part}'",
                ids[i]
            ));
        }
    }
    for (i, (part, ids)) in parts.iter().enumerate() {
        for (other, others) in &parts[..i] {
            let (few, many) = if ids.len() < others.len() { (ids, others) } else { (others, ids) };
            if let Some(at) = position(few, |row| many.binary_search(row).is_ok()) {
                return Some(format!(
                    "row {} is in '{other}' and in '{part}': the parts of a split are disjoint",
                    few[at]
                ));
            }
        }
    }
    None
}

/// First fault of the negatives of a part with `positives` rows.
fn negatives_fault(task: &Task, negatives: &Negatives, positives: usize, ends: &Ends) -> Option<String> {
    if task.kind() != Some(TaskKind::LinkPrediction) {
        return Some("only link prediction has negatives".into());
    }
    let (each, nodes, count, what) = match negatives {
        Negatives::Pairs(pairs) => return pairs_fault(pairs, ends),
        Negatives::Destinations { each, nodes } => (each, nodes, ends.destinations, "destination"),
        Negatives::Sources { each, nodes } => (each, nodes, ends.sources, "source"),
        Negatives::Lists(lists) => return lists.fault(positives, ends.destinations),
    };
    if Some(nodes.len()) != positives.checked_mul(*each) {
        return Some(format!("{} nodes for {positives} positives x {each}", nodes.len()));
    }
    let i = position(nodes, |&v| v as usize >= count)?;
    Some(format!(
        "{what} {} of positive {} is {}, but there are {count}",
        i % each.max(&1),
        i / each.max(&1),
        nodes[i]
    ))
}
