//! Mapping from the nodes of a node-link graph to rows of the accompanying arrays.

use std::{borrow::Cow, collections::HashMap, fmt, path::Path};

use graphmill_core::{NodeId, Result, location::Location, memory};
use serde::de::{self, DeserializeSeed, Deserializer, MapAccess, Visitor};

use super::super::json;

/// Marks a node without a row.
pub(super) const NO_ROW: NodeId = NodeId::MAX;

/// Row of every node.
pub(super) struct Numbering {
    /// Row by index in the list of nodes.
    rows: Vec<NodeId>,
    /// Row by id, in the notation of id maps.
    of: HashMap<Box<str>, NodeId>,
    /// Number of rows.
    len: usize,
}

impl Numbering {
    /// Numbers the nodes in their order from `first` on; `keys` are the nodes' ids, in the notation
    /// of id maps.
    ///
    /// # Errors
    /// An id occurs twice.
    pub(super) fn by_place<'a>(
        graph: &Path,
        keys: impl ExactSizeIterator<Item = Cow<'a, str>>,
        first: NodeId,
    ) -> Result<Self> {
        let mut of = HashMap::with_capacity(keys.len());
        let rows: Vec<NodeId> = (first..).take(keys.len()).collect();
        for (key, &row) in keys.zip(&rows) {
            if of.insert(key.as_ref().into(), row).is_some() {
                return Err(twice(graph, &key));
            }
        }
        Ok(Self { len: rows.len(), rows, of })
    }

    /// Reads the map from ids to rows at `path`; nodes missing from it have no row.
    ///
    /// # Errors
    /// The map is damaged, its rows are not 0, 1, 2, ... once each, or a node occurs twice.
    pub(super) fn by_map<'a>(
        graph: &Path,
        keys: impl ExactSizeIterator<Item = Cow<'a, str>>,
        path: &Path,
    ) -> Result<Self> {
        let text = json::map(path)?;
        let mut map = IdMap::default();
        let mut reader = serde_json::Deserializer::from_slice(&text);
        map.deserialize(&mut reader).and_then(|()| reader.end()).map_err(|e| json::error(path, &e))?;
        let len = map.of.len();
        let mut count: Vec<u32> = memory::zeroed(len)?;
        for &row in map.of.values() {
            if let Some(count) = count.get_mut(row as usize) {
                *count += 1;
            }
        }
        // There are as many ids as rows, so if every row below their number occurs once, all rows
        // are covered.
        let wrong = map.of.iter().filter(|(_, row)| count.get(**row as usize) != Some(&1)).min();
        if let Some((key, row)) = wrong {
            return Err(Location::new(path, "rows").error(format!(
                "'{}' has the row {row}: the rows of {len} ids are 0 to {} once each",
                key.escape_debug(),
                len - 1
            )));
        }
        let mut of = map.of;
        let mut met = memory::filled(false, len)?;
        let mut rows = memory::reserve(keys.len())?;
        for key in keys {
            let row = of.get(&*key).copied().unwrap_or(NO_ROW);
            if row == NO_ROW {
                of.insert(key.into(), NO_ROW);
            } else if std::mem::replace(&mut met[row as usize], true) {
                return Err(twice(graph, &key));
            }
            rows.push(row);
        }
        Ok(Self { rows, of, len })
    }

    /// Number of rows.
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Row of the node at this index of the list.
    pub(super) fn at(&self, place: usize) -> Option<NodeId> {
        self.rows.get(place).copied()
    }

    /// Row of the node with this id.
    pub(super) fn of(&self, key: &str) -> Option<NodeId> {
        self.of.get(key).copied()
    }

    /// Number of nodes without a row.
    pub(super) fn num_without_row(&self) -> usize {
        self.rows.iter().filter(|&&row| row == NO_ROW).count()
    }
}

fn twice(graph: &Path, key: &str) -> graphmill_core::Error {
    Location::new(graph, "nodes").error(format!("node '{}' occurs twice", key.escape_debug()))
}

/// Map from ids to rows.
#[derive(Default)]
struct IdMap {
    of: HashMap<Box<str>, NodeId>,
}

impl<'de> DeserializeSeed<'de> for &mut IdMap {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, json: D) -> Result<(), D::Error> {
        json.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for &mut IdMap {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a map from ids to rows")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        while let Some((key, row)) = map.next_entry::<Cow<'de, str>, NodeId>()? {
            if self.of.insert(key.as_ref().into(), row).is_some() {
                return Err(de::Error::custom(format!("'{}' occurs twice", key.escape_debug())));
            }
        }
        Ok(())
    }
}
