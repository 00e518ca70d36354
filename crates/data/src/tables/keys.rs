//! Keys of nodes: a dictionary while it fits the memory, sorted files beyond it.

use graphmill_core::{Buffer, Error, NodeId, Result};
use serde::{Deserialize, Serialize};

use super::{
    column::{Batch, Cell, integral},
    dictionary::Dictionary,
    kept::{Kept, KeptColumn, KeptRecords},
    node_rows::NodeRows,
    profile::{Profile, Shape},
};
use crate::{
    external::{RecordSorter, Rows, Scratch, SortedRecords},
    typed::{KEY_SEPARATOR, Key, Keys},
};

/// Id of an edge's end that names no node.
pub(super) const NONE: NodeId = NodeId::MAX;
/// Number of unknown keys that are kept as examples.
const EXAMPLES: usize = 5;
/// Ids that are added to their column at a time.
const BUFFER: usize = 4096;

/// Columns of a table that hold a key.
#[derive(Clone, Debug)]
pub(super) struct KeyColumns {
    /// Position of each column, and true if its numbers are integers written as floats.
    columns: Vec<(usize, bool)>,
}

impl KeyColumns {
    /// Creates the key of the columns `positions` with these profiles.
    pub(super) fn new(positions: &[usize], profiles: &[Profile]) -> Self {
        let as_integers = |c: usize| {
            let profile = &profiles[c];
            let is_number = profile.shape().is_some_and(|(shape, odd)| shape == Shape::Number && odd == 0);
            is_number && profile.has_floats && !profile.has_fractions
        };
        Self { columns: positions.iter().map(|&c| (c, as_integers(c))).collect() }
    }

    /// Writes the key of row `row` to `key`; false if a part is missing.
    pub(super) fn read(&self, batch: &Batch, row: usize, key: &mut String) -> bool {
        key.clear();
        for (i, &(c, as_integer)) in self.columns.iter().enumerate() {
            if i > 0 {
                key.push(KEY_SEPARATOR);
            }
            let cell = batch.columns[c].get(row);
            match cell {
                Cell::Missing => return false,
                Cell::Text(text) => {
                    let text = text.trim();
                    let number = as_integer.then(|| text.parse().ok().and_then(integral)).flatten();
                    match number {
                        Some(number) => key.push_str(&number.to_string()),
                        None if text.is_empty() => return false,
                        None => key.push_str(text),
                    }
                }
                other => key.push_str(&other.text()),
            }
        }
        true
    }
}

/// Key as a person reads it.
pub(super) fn shown(key: &str) -> String {
    key.replace(KEY_SEPARATOR, ", ")
}

/// Returns true for an integer of 64 bits as it is written: without a plus sign and leading zeros.
fn is_integer(key: &str) -> bool {
    let digits = key.strip_prefix('-').unwrap_or(key);
    let is_plain = !digits.starts_with('0') || key == "0";
    is_plain && digits.starts_with(|c: char| c.is_ascii_digit()) && key.parse::<i64>().is_ok()
}

/// Keys of a node type.
pub(super) struct NodeKeys {
    store: Store,
    /// Rows of the table.
    pub(super) rows: NodeRows,
    /// Rows whose key the dataset that the table extends has, ascending, and its nodes.
    pub(super) known: Vec<(u64, NodeId)>,
    /// Number of nodes that only edges name; their ids follow those of the rows.
    pub(super) added: u64,
    /// True if all keys are integers.
    pub(super) integers: bool,
    scratch: Scratch,
    name: String,
    budget: u64,
}

enum Store {
    Memory(Dictionary),
    /// Sorted by key, with the number of the node: first those of the dataset that the table
    /// extends, then those of the rows, then the added ones.
    Collecting(RecordSorter),
    Disk(SortedRecords),
}

/// Record of [`NodeKeys`].
#[derive(Serialize, Deserialize)]
pub(super) struct KeptKeys {
    store: KeptStore,
    base: u64,
    rows: u64,
    repeated: KeptColumn,
    /// Rows that change nodes, and the nodes.
    changed: [KeptColumn; 2],
    added: u64,
    integers: bool,
}

#[derive(Serialize, Deserialize)]
enum KeptStore {
    /// Bytes of all keys, and their ends.
    Memory(KeptColumn, KeptColumn),
    Disk(KeptRecords),
}

impl NodeKeys {
    /// Records the keys; `None` if they are sorted in memory.
    pub(super) fn keep(&self, kept: &Kept, name: &str) -> Result<Option<KeptKeys>> {
        let store = match &self.store {
            Store::Memory(dictionary) => {
                let (bytes, ends) = dictionary.parts();
                KeptStore::Memory(
                    kept.values(&format!("{name}-bytes"), bytes)?,
                    kept.values(&format!("{name}-ends"), ends)?,
                )
            }
            Store::Disk(records) => match kept.records(records)? {
                Some(records) => KeptStore::Disk(records),
                None => return Ok(None),
            },
            Store::Collecting(_) => return Ok(None),
        };
        let repeated = kept.values(&format!("{name}-repeated"), &self.rows.repeated)?;
        let (rows, nodes): (Vec<u64>, Vec<NodeId>) = self.rows.changed.iter().copied().unzip();
        let changed = [
            kept.values(&format!("{name}-changed-rows"), &rows)?,
            kept.values(&format!("{name}-changed-ids"), &nodes)?,
        ];
        let (added, integers) = (self.added, self.integers);
        let NodeRows { base, rows, .. } = self.rows;
        Ok(Some(KeptKeys { store, base, rows, repeated, changed, added, integers }))
    }

    /// Takes over recorded keys; `None` if a file is missing.
    pub(super) fn restore(part: KeptKeys, kept: &Kept, empty: Self) -> Option<Self> {
        let store = match &part.store {
            KeptStore::Memory(bytes, ends) => {
                let (bytes, ends) = (kept.open::<u8>(bytes)?, kept.open::<u64>(ends)?);
                Store::Memory(Dictionary::of(&bytes, &ends)?)
            }
            KeptStore::Disk(records) => Store::Disk(kept.open_records(records)?),
        };
        let repeated = kept.open::<u64>(&part.repeated)?.to_vec();
        let [rows, nodes] = &part.changed;
        let (rows, nodes) = (kept.open::<u64>(rows)?, kept.open::<NodeId>(nodes)?);
        let changed = rows.iter().copied().zip(nodes.iter().copied()).collect();
        let rows = NodeRows { base: part.base, rows: part.rows, repeated, changed };
        Some(Self { store, rows, added: part.added, integers: part.integers, ..empty })
    }

    /// Creates an empty collection that keeps at most `budget` bytes in memory.
    pub(super) fn new(scratch: &Scratch, name: &str, budget: u64) -> Self {
        Self {
            store: Store::Memory(Dictionary::default()),
            rows: NodeRows::default(),
            known: Vec::new(),
            added: 0,
            integers: true,
            scratch: scratch.clone(),
            name: name.into(),
            budget,
        }
    }

    /// Adds the keys of the dataset that the table extends, before all rows.
    pub(super) fn follow(&mut self, known: &Keys) -> Result<()> {
        self.integers = matches!(known, Keys::Integers(_));
        for id in 0..known.len() {
            self.rows.base += 1;
            match known.get(id) {
                Key::Integer(key) => self.insert(&key.to_string(), id as u64)?,
                Key::Text(key) => self.insert(&key, id as u64)?,
            }
        }
        Ok(())
    }

    /// Adds the `count` nodes of the dataset that the table extends, if their keys are their
    /// numbers, by which nothing names them.
    pub(super) fn follow_numbered(&mut self, count: u64) {
        self.rows.base = count;
    }

    /// Returns true if the row has the key of a node of the dataset that the table extends. Call it
    /// after [`NodeKeys::finish`].
    pub(super) fn is_known(&self, row: u64) -> bool {
        self.known.binary_search_by_key(&row, |of| of.0).is_ok()
    }

    /// Adds the key of the next row.
    pub(super) fn push(&mut self, key: &str) -> Result<()> {
        let number = self.next_row()?;
        self.integers = self.integers && is_integer(key);
        self.insert(key, number)
    }

    /// Adds the next row of a table without keys, in no memory.
    pub(super) fn push_numbered(&mut self) -> Result<()> {
        self.next_row().map(drop)
    }

    /// Number of the node of the next row.
    fn next_row(&mut self) -> Result<u64> {
        let number = self.rows.base + self.rows.rows;
        self.rows.rows += 1;
        if number >= u64::from(NONE) {
            return Err(Error::invalid(format!("the table has more than {NONE} rows; divide the graph")));
        }
        Ok(number)
    }

    /// Adds the key of the node with this number.
    fn insert(&mut self, key: &str, number: u64) -> Result<()> {
        match &mut self.store {
            Store::Memory(dictionary) => {
                if !dictionary.insert(key.as_bytes()) {
                    let row = number - self.rows.base;
                    self.rows.repeated.push(row);
                    let first = dictionary.get(key.as_bytes());
                    let first = first.filter(|id| u64::from(*id) < self.rows.base);
                    self.known.extend(first.map(|id| (row, id)));
                }
                if dictionary.memory() as u64 > self.budget { self.move_to_disk() } else { Ok(()) }
            }
            Store::Collecting(sorter) => sorter.push(key.as_bytes(), number),
            Store::Disk(_) => Err(Error::invalid("keys are added after they were sorted")),
        }
    }

    /// Moves the dictionary to a sorter.
    fn move_to_disk(&mut self) -> Result<()> {
        let mut sorter = RecordSorter::new(&self.scratch, &format!("keys-{}", self.name), self.budget);
        if let Store::Memory(dictionary) = &self.store {
            let NodeRows { base, rows, .. } = self.rows;
            let numbers = (0..base).map(|id| (id, id as NodeId));
            let rows = (0..rows).filter_map(|row| Some((base + row, self.rows.id(row)?)));
            for (number, id) in numbers.chain(rows) {
                sorter.push(dictionary.key(id), number)?;
            }
        }
        self.store = Store::Collecting(sorter);
        Ok(())
    }

    /// Ends the collection of the table's keys, and finds the repeated ones.
    pub(super) fn finish(&mut self) -> Result<()> {
        let store = std::mem::replace(&mut self.store, Store::Memory(Dictionary::default()));
        self.store = match store {
            Store::Collecting(sorter) => {
                let sorted = sorter.finish()?;
                let (mut previous, mut first, base) = (None::<Vec<u8>>, 0, self.rows.base);
                let (repeated, known) = (&mut self.rows.repeated, &mut self.known);
                sorted.for_each(|key, number| {
                    if previous.as_deref() != Some(key) {
                        (previous, first) = (Some(key.into()), number);
                        return Ok(());
                    }
                    repeated.push(number - base);
                    if first < base {
                        known.push((number - base, first as NodeId));
                    }
                    Ok(())
                })?;
                repeated.sort_unstable();
                known.sort_unstable();
                Store::Disk(sorted)
            }
            other => other,
        };
        Ok(())
    }

    /// Adds the keys that only edges name, in ascending order.
    pub(super) fn add(&mut self, unknown: &SortedRecords) -> Result<()> {
        let name = format!("added-{}", self.name);
        let mut sorter = match &self.store {
            Store::Disk(sorted) => {
                let mut sorter = RecordSorter::new(&self.scratch, &name, self.budget);
                sorted.for_each(|key, row| sorter.push(key, row))?;
                Some(sorter)
            }
            _ => None,
        };
        distinct(unknown, |key| {
            let number = self.rows.base + self.rows.rows + self.added;
            self.added += 1;
            let text = String::from_utf8_lossy(key);
            self.integers = self.integers && is_integer(&text);
            match (&mut sorter, &mut self.store) {
                (Some(sorter), _) => sorter.push(key, number),
                (None, Store::Memory(dictionary)) => {
                    dictionary.insert(key);
                    Ok(())
                }
                _ => Ok(()),
            }
        })?;
        if let Some(sorter) = sorter {
            self.store = Store::Disk(sorter.finish()?);
        }
        Ok(())
    }

    /// Number of nodes.
    pub(super) fn count(&self) -> u64 {
        self.rows.count() + self.added
    }

    /// Empty column of ids in the same scratch.
    pub(super) fn column(&self, name: &str) -> Result<Rows<NodeId>> {
        self.scratch.column(name)
    }

    /// Id of the node with this number: rows that repeat a key have numbers, but no ids.
    fn id(&self, number: u64) -> NodeId {
        let NodeRows { base, rows, repeated, .. } = &self.rows;
        match number.checked_sub(*base) {
            None => number as NodeId,
            Some(row) if row >= *rows => (number - repeated.len() as u64) as NodeId,
            Some(row) => self.rows.id(row).unwrap_or(NONE),
        }
    }
}

/// Passes each key of sorted records to `each`, once.
pub(super) fn distinct(records: &SortedRecords, mut each: impl FnMut(&[u8]) -> Result<()>) -> Result<()> {
    let mut previous: Option<Vec<u8>> = None;
    records.for_each(|key, _| {
        if previous.as_deref() == Some(key) {
            return Ok(());
        }
        previous = Some(key.into());
        each(key)
    })
}

/// Keys that edges name and no table has.
#[derive(Default)]
pub(super) struct Unknown {
    /// Number of ends.
    pub(super) count: u64,
    /// First rows, with their keys.
    pub(super) examples: Vec<(u64, String)>,
    /// All keys, if they are added.
    pub(super) all: Option<RecordSorter>,
}

impl Unknown {
    fn add(&mut self, row: u64, key: &[u8]) -> Result<()> {
        self.count += 1;
        self.examples.push((row, String::from_utf8_lossy(key).into_owned()));
        if self.examples.len() > 1000 {
            self.trim();
        }
        self.all.as_mut().map_or(Ok(()), |all| all.push(key, 0))
    }

    /// Keeps the first rows.
    pub(super) fn trim(&mut self) {
        self.examples.sort_unstable();
        self.examples.truncate(EXAMPLES);
    }
}

/// Ends of edges as ids, row by row.
pub(super) struct Ends<'a> {
    keys: &'a NodeKeys,
    /// Ids in the order of the rows, if the keys are in memory.
    ids: Rows<NodeId>,
    /// Ids that are not yet added to them.
    buffer: Vec<NodeId>,
    /// Keys to join, if the keys are on disk.
    joined: Option<RecordSorter>,
    unknown: Unknown,
    name: String,
}

impl<'a> Ends<'a> {
    /// Creates an empty column; `name` is unique within the scratch. The keys without a node are
    /// collected if `collect` is set.
    pub(super) fn new(keys: &'a NodeKeys, name: &str, collect: bool) -> Result<Self> {
        let sorter =
            |suffix: &str| RecordSorter::new(&keys.scratch, &format!("{name}-{suffix}"), keys.budget);
        let joined = matches!(keys.store, Store::Disk(_)).then(|| sorter("ends"));
        let unknown = Unknown { all: collect.then(|| sorter("unknown")), ..Unknown::default() };
        let (ids, buffer) = (keys.scratch.column(name)?, Vec::new());
        Ok(Self { keys, ids, buffer, joined, unknown, name: name.into() })
    }

    /// Adds the end of edge `row`, the next one; `None` if it has none.
    pub(super) fn push(&mut self, row: u64, key: Option<&str>) -> Result<()> {
        match (&mut self.joined, key) {
            (Some(joined), Some(key)) => joined.push(key.as_bytes(), row),
            (Some(_), None) => Ok(()),
            (None, None) => self.add(NONE),
            (None, Some(key)) => {
                let Store::Memory(dictionary) = &self.keys.store else { return self.add(NONE) };
                let id = dictionary.get(key.as_bytes());
                if id.is_none() {
                    self.unknown.add(row, key.as_bytes())?;
                }
                self.add(id.unwrap_or(NONE))
            }
        }
    }

    fn add(&mut self, id: NodeId) -> Result<()> {
        self.buffer.push(id);
        if self.buffer.len() < BUFFER { Ok(()) } else { self.flush() }
    }

    fn flush(&mut self) -> Result<()> {
        self.ids.extend(&self.buffer)?;
        self.buffer.clear();
        Ok(())
    }

    /// Id of each of the `rows` ends, [`NONE`] if there is no node.
    pub(super) fn finish(mut self, rows: u64) -> Result<(Buffer<NodeId>, Unknown)> {
        self.flush()?;
        if let (Some(joined), Store::Disk(known)) = (self.joined.take(), &self.keys.store) {
            let name = format!("{}-rows", self.name);
            let mut by_row = RecordSorter::new(&self.keys.scratch, &name, self.keys.budget);
            let mut known = known.cursor()?;
            let mut current = known.next()?.map(|(key, row)| (key.to_vec(), row));
            let (keys, unknown) = (self.keys, &mut self.unknown);
            joined.finish()?.for_each(|key, row| {
                while current.as_ref().is_some_and(|(known, _)| known.as_slice() < key) {
                    current = known.next()?.map(|(key, row)| (key.to_vec(), row));
                }
                match current.as_ref().filter(|(known, _)| known == key) {
                    Some(&(_, known_row)) => by_row.push(&row.to_be_bytes(), keys.id(known_row).into()),
                    None => unknown.add(row, key),
                }
            })?;
            let mut next = 0u64;
            let ids = &mut self.ids;
            by_row.finish()?.for_each(|row, id| {
                let row = u64::from_be_bytes(row.try_into().unwrap_or_default());
                while next < row {
                    ids.extend(&[NONE])?;
                    next += 1;
                }
                next = row + 1;
                ids.extend(&[id as NodeId])
            })?;
            while next < rows {
                self.ids.extend(&[NONE])?;
                next += 1;
            }
        }
        self.unknown.trim();
        Ok((self.ids.finish()?, self.unknown))
    }
}

#[cfg(test)]
mod tests {
    use graphmill_core::progress::Quiet;
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn integers_are_recognized_as_they_are_written() {
        for key in ["0", "7", "-12", "9223372036854775807", "-9223372036854775808"] {
            assert!(is_integer(key), "{key}");
        }
        for key in ["", "-", "-0", "+1", "01", "-01", "1a", "1.0", " 1", "9223372036854775808", "--1"] {
            assert!(!is_integer(key), "{key}");
        }
    }

    /// Ids of the ends, unknown examples, and repeated rows.
    type Found = (Vec<NodeId>, Vec<(u64, String)>, Vec<u64>, u64);

    fn resolve(nodes: &[String], ends: &[Option<String>], add: bool, budget: u64) -> Found {
        let dir = tempfile::tempdir().unwrap();
        let scratch = Scratch::open(&dir.path().join("work"), "keys", 0, Box::new(Quiet)).unwrap();
        let mut keys = NodeKeys::new(&scratch, "n", budget);
        nodes.iter().for_each(|key| keys.push(key).unwrap());
        keys.finish().unwrap();
        let read = |keys: &NodeKeys, name: &str, collect: bool| {
            let mut column = Ends::new(keys, name, collect).unwrap();
            let rows = ends.iter().enumerate();
            rows.for_each(|(row, key)| column.push(row as u64, key.as_deref()).unwrap());
            column.finish(ends.len() as u64).unwrap()
        };
        let (mut ids, mut unknown) = read(&keys, "first", add);
        let examples = std::mem::take(&mut unknown.examples);
        if let Some(all) = unknown.all {
            keys.add(&all.finish().unwrap()).unwrap();
            ids = read(&keys, "second", false).0;
        }
        (ids.to_vec(), examples, keys.rows.repeated.clone(), keys.count())
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(32))]
        #[test]
        fn rows_of_a_longer_table_have_the_ids_of_one_table(
            nodes in prop::collection::btree_set("[ab]{1,3}", 0..30),
            more in prop::collection::vec("[ab]{1,3}", 0..30),
            budget in 0u64..1500,
        ) {
            let nodes: Vec<String> = nodes.into_iter().rev().collect();
            let dir = tempfile::tempdir().unwrap();
            let scratch = Scratch::open(&dir.path().join("work"), "keys", 0, Box::new(Quiet)).unwrap();
            let (mut whole, mut longer) =
                (NodeKeys::new(&scratch, "whole", u64::MAX), NodeKeys::new(&scratch, "longer", budget));
            nodes.iter().chain(&more).for_each(|key| whole.push(key).unwrap());
            longer.follow(&Keys::texts(&nodes)).unwrap();
            more.iter().for_each(|key| longer.push(key).unwrap());
            whole.finish().unwrap();
            longer.finish().unwrap();
            prop_assert_eq!(longer.count(), whole.count());
            for &(row, v) in &longer.known {
                prop_assert_eq!(&nodes[v as usize], &more[row as usize]);
            }
            for row in 0..more.len() as u64 {
                prop_assert_eq!(longer.rows.id(row), whole.rows.id(row + nodes.len() as u64));
                prop_assert_eq!(
                    longer.known.iter().any(|known| known.0 == row),
                    nodes.contains(&more[row as usize])
                );
            }
            let ids = |keys: &NodeKeys, name: &str| {
                let mut ends = Ends::new(keys, name, false).unwrap();
                let all = nodes.iter().chain(&more).enumerate();
                all.for_each(|(row, key)| ends.push(row as u64, Some(key)).unwrap());
                ends.finish((nodes.len() + more.len()) as u64).unwrap().0.to_vec()
            };
            prop_assert_eq!(ids(&longer, "longer"), ids(&whole, "whole"));
        }

        #[test]
        fn ids_do_not_depend_on_the_memory(
            nodes in prop::collection::vec("[ab]{1,3}", 0..60),
            ends in prop::collection::vec(prop::option::of("[ab]{1,3}"), 0..60),
            add in any::<bool>(),
            budget in 0u64..3000,
        ) {
            let expected = resolve(&nodes, &ends, add, u64::MAX);
            prop_assert_eq!(resolve(&nodes, &ends, add, budget), expected.clone());
            let (ids, _, repeated, count) = expected;
            prop_assert!(ids.iter().all(|&id| id == NONE || u64::from(id) < count));
            for (id, key) in ids.iter().zip(&ends) {
                let row = nodes.iter().position(|node| Some(node) == key.as_ref());
                let (rows, repeated) = (nodes.len() as u64, repeated.clone());
                let rows = NodeRows { rows, repeated, ..NodeRows::default() };
                match row {
                    Some(row) => prop_assert_eq!(Some(*id), rows.id(row as u64)),
                    None => prop_assert_eq!(*id == NONE, !add || key.is_none()),
                }
            }
        }
    }
}
