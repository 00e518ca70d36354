//! Streams of timed edges, from which the importers `temporal` and `events` make a dataset: node
//! types, edges ordered by time, and a link prediction task with a chronological split.
//!
//! The times of all events have two quantiles, 0.7 and 0.85 unless the options `valid-fraction` and
//! `test-fraction` say otherwise: events up to the first train, those up to the second validate,
//! and later ones test (Yu et al., Towards better dynamic graph learning, NeurIPS 2023: DyGLib).

use graphmill_core::{Labels, Result};

use super::{
    TypedOptions,
    ids::{Ids, renumber},
    raw::{RawEdges, RawTyped, split},
    times::{quantile, to_unit},
};
use crate::typed::{EdgeType, FeatureTable, Keys, Seeds, Targets, Task, TaskOn};

/// Events of an edge type, in the order of the source.
#[derive(Debug, Default)]
pub(super) struct Events {
    /// Name of the edge type.
    pub(super) name: String,
    pub(super) src: Vec<u32>,
    pub(super) dst: Vec<u32>,
    /// Times in microseconds.
    pub(super) time: Vec<i64>,
    /// Rating of each event, or empty.
    pub(super) ratings: Vec<f32>,
    /// Class of each event, or empty.
    pub(super) labels: Vec<i32>,
    pub(super) features: Option<FeatureTable>,
    /// Node types of the ends; those of several edge types are always nodes of one.
    pub(super) ends: Ends,
}

/// Node types of the ends of events.
#[derive(Debug, Default)]
pub(super) enum Ends {
    /// Users and items if the ids of all sources are smaller integers than those of all
    /// destinations, else nodes of one type.
    #[default]
    ByIds,
    /// Nodes of one type.
    Nodes,
    /// Users, and items whose ids are integers from this one on.
    Items(i64),
}

/// Numbers that [`add`] gave to the preliminary ids.
pub(super) struct Numbering {
    /// Number of each id among all nodes.
    number: Vec<u32>,
    /// Number of users, behind which items are numbered from 0 again.
    users: Option<u32>,
}

impl Numbering {
    /// Number of a source among the nodes of its type; `None` if it is an item.
    pub(super) fn source(&self, id: u32) -> Option<u32> {
        let number = self.number[id as usize];
        self.users.is_none_or(|users| number < users).then_some(number)
    }

    /// Number of a destination among the nodes of its type; `None` if it is a user.
    pub(super) fn destination(&self, id: u32) -> Option<u32> {
        self.number[id as usize].checked_sub(self.users.unwrap_or(0))
    }
}

/// Adds node types, edge types and tasks of these events to `raw`, and returns the numbers of the
/// nodes. Ids of sources and destinations share `ids`.
///
/// # Errors
/// A message: the fractions leave no training events.
pub(super) fn add(
    raw: &mut RawTyped,
    ids: Ids,
    mut all: Vec<Events>,
    options: &TypedOptions,
) -> Result<Numbering> {
    to_unit(all.iter_mut().map(|events| &mut events.time), &mut raw.report);
    for events in &all {
        let late = events.time.windows(2).filter(|pair| pair[0] > pair[1]).count() as u64;
        raw.report.count(&format!("{}: events before an earlier line, put in order", events.name), late);
    }
    let count = ids.len();
    let (keys, number) = ids.finish()?;
    for events in &mut all {
        renumber(&mut events.src, &number);
        renumber(&mut events.dst, &number);
    }
    let ends = match &mut all[..] {
        [events] => users_and_items(events, &keys),
        _ => None,
    };
    let [source, destination] = match ends {
        Some(users) => {
            let Keys::Integers(keys) = keys else { unreachable!("users and items have integer ids") };
            raw.add_nodes("user", users, Some(Keys::Integers(keys[..users].to_vec().into())));
            raw.add_nodes("item", count - users, Some(Keys::Integers(keys[users..].to_vec().into())));
            ["user", "item"]
        }
        None => {
            raw.add_nodes("node", count, Some(keys));
            ["node"; 2]
        }
    };
    let mut sorted: Vec<i64> = all.iter().flat_map(|events| events.time.iter().copied()).collect();
    sorted.sort_unstable();
    let (valid, test) = (options.valid_fraction.unwrap_or(0.15), options.test_fraction.unwrap_or(0.15));
    if valid + test >= 1.0 {
        return Err(graphmill_core::Error::invalid(format!(
            "valid-fraction {valid} and test-fraction {test} leave no events to train on; their sum must be \
                below 1"
        )));
    }
    let bounds = [quantile(&sorted, 1.0 - valid - test), quantile(&sorted, 1.0 - test)];
    for events in all {
        let edge_type = EdgeType::new(source, events.name.clone(), destination);
        add_tasks(raw, &edge_type, &events, bounds);
        let Events { src, dst, time, ratings, features, .. } = events;
        let features = match features {
            None if !ratings.is_empty() => {
                let mut table = FeatureTable::dense(1, ratings);
                table.names = vec!["rating".into()];
                Some(table)
            }
            features => features,
        };
        raw.edges.push(RawEdges { src, dst, time: Some(time), features, ..RawEdges::new(edge_type) });
    }
    Ok(Numbering { number, users: ends.map(|users| users as u32) })
}

/// Tasks on the events: links, and ratings or classes if they have some.
fn add_tasks(raw: &mut RawTyped, edge_type: &EdgeType, events: &Events, bounds: [f64; 2]) {
    let mut order: Vec<u32> = (0..events.time.len() as u32).collect();
    order.sort_by_key(|&e| events.time[e as usize]); // stable: equal times keep their order
    let time: Vec<i64> = order.iter().map(|&e| events.time[e as usize]).collect();
    let pairs: Vec<u32> =
        order.iter().flat_map(|&e| [events.src[e as usize], events.dst[e as usize]]).collect();
    let end = |bound: f64| time.partition_point(|&t| t as f64 <= bound) as u32;
    let [first, second] = bounds.map(end);
    let rows = || [(0..first).collect(), (first..second).collect(), (second..time.len() as u32).collect()];
    let base = Task {
        seeds: Some(Seeds::Pairs(pairs.into())),
        time: Some(time.clone().into()),
        split: split(rows()),
        ..Task::new(&edge_type.name, TaskOn::Edges(edge_type.clone()))
    };
    if !events.ratings.is_empty() {
        let values = order.iter().map(|&e| events.ratings[e as usize]).collect::<Vec<_>>();
        raw.tasks.push(Task {
            name: format!("{}-rating", edge_type.name),
            targets: Targets::Values { width: 1, values: values.into() },
            names: vec!["rating".into()],
            metric: Some("rmse".into()),
            ..base.clone()
        });
    }
    if !events.labels.is_empty() {
        let class: Vec<i32> = order.iter().map(|&e| events.labels[e as usize]).collect();
        let classes = class.iter().max().map_or(0, |most| *most as usize + 1);
        raw.tasks.push(Task {
            name: format!("{}-label", edge_type.name),
            targets: Targets::Classes(Labels::Single { class: class.into(), classes }),
            metric: Some("roc-auc".into()),
            ..base.clone()
        });
    }
    raw.tasks.insert(0, Task { metric: Some("average-precision".into()), ..base });
}

/// Number of users, if destinations are items ([`Ends`]): users and items share an id space then.
/// Destinations are renumbered from 0.
fn users_and_items(events: &mut Events, keys: &Keys) -> Option<usize> {
    let Keys::Integers(keys) = keys else { return None };
    let (last, least) = (*events.src.iter().max()?, *events.dst.iter().min()?);
    let first = match events.ends {
        Ends::ByIds => least,
        Ends::Nodes => return None,
        Ends::Items(first) => keys.partition_point(|&key| key < first) as u32,
    };
    if last >= first || least < first {
        return None;
    }
    events.dst.iter_mut().for_each(|v| *v -= first);
    Some(first as usize)
}
