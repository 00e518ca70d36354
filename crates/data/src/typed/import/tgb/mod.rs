//! Import of a directory of the Temporal Graph Benchmark, with its split and its negatives
//! (`tgb/linkproppred/dataset.py`, `tgb/utils/pre_process.py`):
//!
//! - `tgbl-NAME_edgelist.csv`, in one of the layouts of [`SETS`];
//! - `tgbl-NAME_val_ns.pkl` and `tgbl-NAME_test_ns.pkl`: a pickled dictionary from source,
//!   destination and time of each event to the destinations that it is ranked against;
//! - of `tgbl-flight`, `airport_node_feat.csv`.
//!
//! Names may end with a version, such as `_v2`; the newest is read. Code in a pickle is not
//! executed. Times are whole seconds, cut off as TGB does. Their quantiles 0.7 and 0.85 divide the
//! events: up to the first train, up to the second validate, and later ones test.
//!
//! # Memory
//!
//! A file of negatives is held as a whole while it is read, with about 1.6 KB for each event.

mod columns;
mod negatives;
#[cfg(test)]
mod tests;

use std::path::Path;

use graphmill_core::{Result, memory};

use self::{
    columns::{Columns, airports},
    negatives::Given,
};
use super::{
    TypedOptions, events,
    files::Files,
    ids::Ids,
    lines::wrong,
    raw::RawTyped,
    streams::{self, Ends, Events, Numbering},
    times::MICROS,
};
use crate::typed::FeatureTable;

/// Columns of an edge list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Layout {
    /// User, item, time, label and features, as in [`events`]. TGB numbers items behind users.
    Log,
    /// Time, source, destination, and further columns. TGB numbers nodes by their first occurrence.
    Named(Columns),
}

/// Sets of links and the layouts of their edge lists.
const SETS: [(&str, Layout); 7] = [
    ("tgbl-wiki", Layout::Log),
    ("tgbl-subreddit", Layout::Log),
    ("tgbl-lastfm", Layout::Log),
    ("tgbl-review", Layout::Named(Columns::Weight)),
    ("tgbl-coin", Layout::Named(Columns::Weight)),
    ("tgbl-comment", Layout::Named(Columns::Comment)),
    ("tgbl-flight", Layout::Named(Columns::Flight)),
];

/// Reasons to refuse other sets, by the beginnings of their names.
const REFUSED: [(&str, &str); 3] = [
    (
        "tgbn-",
        "it predicts distributions over other nodes at times, and no task of a dataset is one of these",
    ),
    ("tkgl-", "its events have relations, which models of events do not read"),
    ("thgl-", "its nodes and events have types, which models of events do not read"),
];

/// Edge list of a set.
struct EdgeList<'f> {
    /// Path of the file.
    path: &'f str,
    /// Directory of the file, with its `/`, or empty.
    folder: &'f str,
    /// Name of the set.
    set: &'f str,
    /// End of the names of its files, such as `_v2`, or empty.
    version: &'f str,
}

impl<'f> EdgeList<'f> {
    /// The edge list in a file of this path, if it is one.
    fn of(path: &'f str) -> Option<Self> {
        let start = path.rfind('/').map_or(0, |at| at + 1);
        let stem = path[start..].trim_end_matches(".gz").strip_suffix(".csv")?;
        let (set, version) = stem.split_once("_edgelist")?;
        Some(Self { path, folder: &path[..start], set, version })
    }

    /// Number of the version; 1 without one.
    fn number(&self) -> u32 {
        self.version.strip_prefix("_v").and_then(|number| number.parse().ok()).unwrap_or(1)
    }

    /// Path of another file of the same version.
    fn beside(&self, name: &str, ending: &str) -> String {
        format!("{}{name}{}{ending}", self.folder, self.version)
    }

    /// The newest edge list of a source.
    fn find(files: &'f Files) -> Result<Self> {
        let lists = || files.names().iter().filter_map(|path| Self::of(path));
        if let Some(refused) = lists().find(|list| list.refusal().is_some()) {
            return Ok(refused); // with its reason, below
        }
        let Some(newest) = lists().max_by_key(Self::number) else {
            let path = files.required("tgbl-NAME_edgelist.csv")?;
            return Err(wrong(files, path, "not an edge list"));
        };
        if let Some(other) = lists().find(|other| (other.set, other.folder) != (newest.set, newest.folder)) {
            let message = format!("another set beside {}; name the directory of one", newest.path);
            return Err(wrong(files, other.path, message));
        }
        Ok(newest)
    }

    /// Reason to refuse the set, if there is one.
    fn refusal(&self) -> Option<&'static str> {
        REFUSED.iter().find(|(start, _)| self.set.starts_with(start)).map(|(_, reason)| *reason)
    }

    /// Layout of the set.
    ///
    /// # Errors
    /// The set is not imported, with the reason.
    fn layout(&self, files: &Files) -> Result<Layout> {
        if let Some((_, layout)) = SETS.iter().find(|(name, _)| *name == self.set) {
            return Ok(*layout);
        }
        let known: Vec<&str> = SETS.iter().map(|(name, _)| *name).collect();
        let reason = match self.refusal() {
            Some(reason) => format!("'{}' is not imported: {reason}", self.set),
            None => format!("the set '{}' is not known", self.set),
        };
        let message = format!("{reason}; sets that are imported: {}", known.join(", "));
        Err(wrong(files, self.path, message))
    }
}

/// Reads the directory or archive `src`.
pub(super) fn read(src: &Path, options: &TypedOptions) -> Result<RawTyped> {
    let files = Files::open(src)?;
    let list = EdgeList::find(&files)?;
    let layout = list.layout(&files)?;
    let mut raw = RawTyped { name: list.set.to_string(), ..RawTyped::default() };
    let mut ids = Ids::default();
    let (mut events, first_item) = match layout {
        Layout::Log => read_log(&files, &list, &mut ids, &mut raw)?,
        Layout::Named(columns) => (columns.read(&files, list.path, &mut ids, &mut raw.report)?, None),
    };
    if events.src.is_empty() {
        return Err(wrong(&files, list.path, "there are no events"));
    }
    events.ends = first_item.map_or(Ends::Nodes, Ends::Items);
    let (mut read, mut given) = (vec![list.path.to_string()], Vec::new());
    for (part, name) in [(1, "val_ns"), (2, "test_ns")] {
        let wanted = list.beside(&format!("{}_{name}", list.set), ".pkl");
        match files.find(&wanted) {
            Some(path) => {
                given.push((part, path.to_string(), Given::read(&files, path, first_item, &mut ids)?));
                read.push(path.to_string());
            }
            None => raw.report.note(format!(
                "there is no {wanted}: its events are compared with one random destination each"
            )),
        }
    }
    let mut airport_rows = Vec::new();
    if layout == Layout::Named(Columns::Flight) {
        let wanted = list.beside("airport_node_feat", ".csv");
        match files.find(&wanted) {
            Some(path) => {
                airport_rows = airports(&files, path, &ids)?;
                read.push(path.to_string());
            }
            None => raw.report.note(format!("there is no {wanted}: the nodes have no features")),
        }
    }
    let numbering = streams::add(&mut raw, ids, vec![events], options)?;
    for (part, path, given) in given {
        let unused =
            given.attach(&numbering, &mut raw.tasks[0], part).map_err(|e| wrong(&files, &path, e))?;
        raw.report.count("negatives of events that are not in their part", unused);
    }
    if raw.tasks[0].negatives.iter().any(Option::is_some) {
        raw.tasks[0].metric = Some("mrr".into());
    }
    add_features(&mut raw, &numbering, &airport_rows)?;
    if let Some(first) = first_item {
        events::separate_keys(&mut raw, first as u64);
    }
    raw.report.ignore_unread(files.names(), |name| read.iter().any(|known| known == name));
    Ok(raw)
}

/// Adds feature rows, each with its preliminary id, to the nodes; the other rows are zeros.
fn add_features(raw: &mut RawTyped, numbering: &Numbering, rows: &[(u32, Vec<f32>)]) -> Result<()> {
    let (Some((_, first)), Some(nodes)) = (rows.first(), raw.nodes.first_mut()) else { return Ok(()) };
    let width = first.len();
    let mut table: Vec<f32> = memory::zeroed(nodes.count.saturating_mul(width))?;
    let mut has_row = memory::filled(false, nodes.count)?;
    for (id, row) in rows {
        let Some(node) = numbering.source(*id).map(|node| node as usize) else { continue };
        table[node * width..][..width].copy_from_slice(row);
        has_row[node] = true;
    }
    nodes.features = Some(FeatureTable::dense(width, table));
    let missing = has_row.iter().filter(|has_row| !**has_row).count() as u64;
    raw.report.count("nodes without a row of features, which have zeros", missing);
    Ok(())
}

/// Reads a log of users and items, and returns the id of the first item.
fn read_log(
    files: &Files,
    list: &EdgeList,
    ids: &mut Ids,
    raw: &mut RawTyped,
) -> Result<(Events, Option<i64>)> {
    let mut log = events::Log::read(files, list.path)?;
    let first_item = log.number(ids).map_err(|e| wrong(files, list.path, e))?;
    let mut events = log.events;
    if events.labels.iter().any(|&class| class != 0) {
        raw.report.ignore("column state_label, as TGB leaves it out");
    }
    events.labels.clear();
    let fractions = events.time.iter().filter(|time| **time % MICROS != 0).count() as u64;
    raw.report.count("times with fractions of a second, cut off as TGB does", fractions);
    events.time.iter_mut().for_each(|time| *time -= *time % MICROS);
    Ok((events, Some(first_item as i64)))
}
