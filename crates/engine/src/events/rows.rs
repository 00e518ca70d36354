//! Rows of a task in the order of their times.
//!
//! # Algorithm
//!
//! Each part of a split is sorted by time; rows of one time keep the order of the part. The edges
//! of a type without a split are sorted as a whole, and divided into shares. A record has all
//! columns of its row, which are read in the order of storage, so a sort in files
//! ([`SortedArray`]) reads and writes nothing at random. Rows that are stored in the order of their
//! times are not sorted.
//!
//! # Source
//!
//! That of [`graphmill_data::external`]; the columns are this project's.
//!
//! # Cost
//!
//! O(V + E log E); one pass over the rows that are in order.
//!
//! # Memory
//!
//! 48 bytes per event, 24 of which are returned; in files the budget.

use std::ops::Range;

use graphmill_core::{Buffer, NodeId, maps};
use graphmill_data::{
    external::SortedArray,
    typed::{EdgeData, Seeds, Task, TypedDataset},
};

use super::{
    choice::{Chosen, PARTS, times},
    destinations::{self, Destinations},
    opening::{Column, Opening, RUN, Record, divided, joined, of_time, share, to_time},
};
use crate::{Error, Result};

/// Rows of a task by part, with their ends and times.
pub(super) struct Rows {
    /// Number of each row in the task.
    pub(super) row: Buffer<u32>,
    /// Number of each row in its part.
    pub(super) at: Buffer<u32>,
    pub(super) source: Buffer<NodeId>,
    pub(super) destination: Buffer<NodeId>,
    pub(super) time: Buffer<i64>,
    pub(super) parts: [Range<usize>; 3],
}

/// Columns of the rows that are sorted.
struct Columns {
    row: Column<u32>,
    at: Column<u32>,
    source: Column<NodeId>,
    destination: Column<NodeId>,
    time: Column<i64>,
    len: usize,
    /// Time of the last row.
    last: i64,
}

/// Columns of rows in the order of storage. The numbers of nodes of the destinations begin at
/// `first`.
#[derive(Clone, Copy)]
struct Stored<'d> {
    edges: &'d EdgeData,
    pairs: Option<&'d [NodeId]>,
    time: &'d [i64],
    first: NodeId,
}

impl Rows {
    /// Reads the rows of a task. Destinations begin at `first`.
    ///
    /// # Errors
    /// They have no times, the parts are not in the order of their times, or memory or disk space
    /// is exhausted.
    pub(super) fn new(
        data: &TypedDataset,
        chosen: &Chosen,
        edges: &EdgeData,
        first: usize,
        opening: Option<&Opening>,
    ) -> Result<Self> {
        let task = &*chosen.task;
        let Some(time) = times(data, task) else {
            let message =
                format!("the rows of task '{}' have no times, which models of events need", task.name);
            return Err(Error::dataset(
                &data.name,
                format!("{message}; import them, or use --model sage --task link"),
            ));
        };
        let pairs = match &task.seeds {
            Some(Seeds::Pairs(pairs)) => Some(&pairs[..]),
            _ => None,
        };
        let stored = Stored { edges, pairs, time, first: first as NodeId };
        let count = chosen.count(data, edges)?;
        let mut all = Columns::new(opening, count)?;
        if chosen.shares.is_some() {
            all.extend(stored.records(chosen.edges(edges)), count, opening)?;
            stored.release();
            return all.finish(chosen.cut(count));
        }
        let mut parts = [const { 0..0 }; 3];
        for (number, (_, ids)) in task.split.parts().into_iter().enumerate() {
            let (start, last) = (all.len, all.last);
            all.extend(stored.records(ids.iter().map(|&row| row as usize)), ids.len(), opening)?;
            parts[number] = start..all.len;
            let begin = all.time.values_mut().get(start).copied();
            if let Some(time) = begin.filter(|&time| start > 0 && last > time) {
                return Err(not_in_order(data, task, &parts, [(start - 1, last), (start, time)]));
            }
            maps::release(ids);
        }
        stored.release();
        all.finish(parts)
    }

    /// Takes rows in files out of the memory of the process, until they are used again.
    pub(super) fn release(&self) {
        [&self.row, &self.at, &self.source, &self.destination].into_iter().for_each(|ids| maps::release(ids));
        maps::release(&self.time);
    }
}

/// Error of a later part, which has an earlier row.
fn not_in_order(
    data: &TypedDataset,
    task: &Task,
    parts: &[Range<usize>; 3],
    rows: [(usize, i64); 2],
) -> Error {
    let part = |i: usize| PARTS[parts.iter().position(|part| part.contains(&i)).unwrap_or(0)];
    let [(before, last), (after, time)] = rows.map(|(i, time)| (part(i), time));
    let message = format!(
        "task '{}' is not split by time: an event of '{before}' has time {last}, and one of '{after}' time \
         {time}; put earlier events into earlier parts",
        task.name
    );
    Error::dataset(&data.name, message)
}

impl Columns {
    fn new(opening: Option<&Opening>, count: usize) -> Result<Self> {
        let dir = opening.map(|opening| &*opening.dir);
        Ok(Self {
            row: Column::new(dir, count)?,
            at: Column::new(dir, count)?,
            source: Column::new(dir, count)?,
            destination: Column::new(dir, count)?,
            time: Column::new(dir, count)?,
            len: 0,
            last: i64::MIN,
        })
    }

    /// Sorts `count` records and adds their columns.
    fn extend(
        &mut self,
        records: impl Iterator<Item = Record> + Clone,
        count: usize,
        opening: Option<&Opening>,
    ) -> Result<()> {
        let mut sorted = SortedArray::new(records, count, share(opening, 1))?;
        while let Some([time, numbers, ends]) = sorted.take_next()? {
            let ([at, row], [source, destination]) = (divided(numbers), divided(ends));
            self.last = to_time(time);
            self.row.push(row);
            self.at.push(at);
            self.source.push(source);
            self.destination.push(destination);
            self.time.push(self.last);
            self.len += 1;
        }
        Ok(())
    }

    fn finish(self, parts: [Range<usize>; 3]) -> Result<Rows> {
        let [source, destination] = [self.source, self.destination].map(Column::finish);
        let [row, at] = [self.row, self.at].map(Column::finish);
        Ok(Rows {
            row: row?,
            at: at?,
            source: source?,
            destination: destination?,
            time: self.time.finish()?,
            parts,
        })
    }
}

impl Stored<'_> {
    /// Records of rows: time; place among `rows` and number; ends.
    fn records(self, rows: impl Iterator<Item = usize> + Clone) -> impl Iterator<Item = Record> + Clone {
        let mut destinations = Destinations::new(&self.edges.indptr);
        rows.enumerate().map(move |(at, row)| {
            if at % RUN == 0 {
                self.release();
            }
            let (source, destination) = match self.pairs {
                Some(pairs) => (pairs[2 * row], pairs[2 * row + 1]),
                None => (self.edges.indices[row], destinations.of(row)),
            };
            let numbers = joined(at as u32, row as u32);
            [of_time(self.time[row]), numbers, joined(source, destination + self.first)]
        })
    }

    /// Takes columns in the files of the dataset out of the memory of the process, until they are
    /// used again.
    fn release(&self) {
        maps::release(self.time);
        match self.pairs {
            Some(pairs) => maps::release(pairs),
            None => destinations::release(self.edges),
        }
    }
}

#[cfg(test)]
mod tests {
    use graphmill_core::keyed::{Stream, key};
    use graphmill_data::typed::{EdgeType, TaskOn, TypedBuilder};

    use super::{
        super::{
            choice::{SHARES, choose, tests::data},
            opening::least_to_open,
        },
        *,
    };

    /// Rows of the task or edge type `name` of a dataset, sorted within these bytes of memory.
    fn rows(data: &TypedDataset, (name, shares): (&str, [f64; 3]), memory: Option<usize>) -> Result<Rows> {
        let dir = tempfile::tempdir().unwrap();
        let opening = memory.map(|memory| Opening { dir: dir.path().to_path_buf(), memory });
        let chosen = choose(data, name, shares)?;
        let TaskOn::Edges(on) = &chosen.task.on else { unreachable!() };
        let found = Rows::new(data, &chosen, data.edge_type(on).unwrap(), 100, opening.as_ref());
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0, "no file has a name");
        found
    }

    /// Times of the parts.
    fn parts(rows: &Rows) -> Vec<Vec<i64>> {
        rows.parts.iter().map(|part| rows.time[part.clone()].to_vec()).collect()
    }

    #[test]
    fn edges_with_times_are_divided_by_time() {
        let data = data(false);
        for memory in [None, Some(200)] {
            let of = |name: &str, shares: [f64; 3]| parts(&rows(&data, (name, shares), memory).unwrap());
            let expected: [Vec<i64>; 3] = [(0..28).collect(), (28..34).collect(), (34..40).collect()];
            assert_eq!(of("", SHARES), expected);
            let reverse = of("shop:visited-by:user", SHARES);
            assert_eq!(reverse[2], (34..40).collect::<Vec<_>>(), "the reverses, if they are named");
            let expected: [Vec<i64>; 3] = [(0..20).collect(), (20..30).collect(), (30..40).collect()];
            assert_eq!(of("", [2.0, 1.0, 1.0]), expected, "in shares");
        }
    }

    #[test]
    fn an_undirected_edge_is_one_event() {
        for memory in [None, Some(200)] {
            let found = rows(&data(true), ("user:calls:user", SHARES), memory).unwrap();
            assert_eq!(parts(&found).concat(), [2, 4, 7]);
        }
    }

    /// A task on `count` random pairs, many of one time, of which the parts are in the order of
    /// their times; the rows of a part are if `ordered`.
    fn pairs(count: usize, ordered: bool) -> TypedDataset {
        let mut builder = TypedBuilder::new("pairs");
        builder.node_type("user", 20);
        let mut draws = Stream::new(key(&[count as u64, ordered.into()]));
        let mut node = || draws.below(20) as NodeId;
        let pairs: Vec<NodeId> = (0..2 * count).map(|_| node()).collect();
        let third = count / 3;
        let time = |row: usize| {
            let place = if ordered { row } else { row / third.max(1) * third + row * 7919 % third.max(1) };
            place as i64 / 4 - 30
        };
        let (source, destination): (Vec<NodeId>, Vec<NodeId>) = (0..20).map(|v| (v, (v + 1) % 20)).unzip();
        builder.edge_type("user", "calls", "user").edges(source, destination).time(vec![0i64; 20]);
        let part = |range: Range<usize>| range.map(|row| row as u32).collect::<Vec<u32>>();
        let task = builder.task("calls").on_edges(EdgeType::new("user", "calls", "user"));
        let task = task.pair_seeds(pairs).time((0..count).map(time).collect::<Vec<i64>>());
        task.split(part(0..third), part(third..2 * third), part(2 * third..3 * third));
        builder.build().unwrap()
    }

    #[test]
    fn rows_have_the_order_of_a_stable_sort_for_any_memory() {
        for (count, ordered) in [(3, false), (90, true), (900, false)] {
            let data = pairs(count, ordered);
            let task = data.task("calls").unwrap();
            let (Some(Seeds::Pairs(pairs)), Some(time)) = (&task.seeds, &task.time) else { unreachable!() };
            let mut expected: Vec<[usize; 2]> = Vec::new();
            for (_, ids) in task.split.parts() {
                let mut part: Vec<_> = ids.iter().enumerate().map(|(at, &row)| [row as usize, at]).collect();
                part.sort_by_key(|&[row, _]| time[row]);
                expected.extend(part);
            }
            let is_stored = expected.iter().map(|[row, _]| row).is_sorted();
            assert!(is_stored == (ordered || count < 9), "{count}");
            for memory in [None, Some(0), Some(least_to_open(count)), Some(5000), Some(1 << 20)] {
                let rows = rows(&data, ("calls", SHARES), memory).unwrap();
                assert_eq!(rows.time.is_mapped(), memory.is_some());
                for (i, &[row, at]) in expected.iter().enumerate() {
                    let found = (rows.row[i], rows.at[i], rows.time[i]);
                    assert_eq!(found, (row as u32, at as u32, time[row]), "{count} in {memory:?}: {i}");
                    let ends = [rows.source[i], rows.destination[i]];
                    assert_eq!(ends, [pairs[2 * row], pairs[2 * row + 1] + 100]);
                }
                assert_eq!(rows.parts.clone().map(|part| part.len()), [count / 3; 3]);
            }
        }
    }
}
