//! From the nodes of a node-link graph to rows of the arrays beside it.

use std::{borrow::Cow, collections::HashMap, fmt, path::Path};

use graphmill_core::{NodeId, Result, place::At};
use serde::de::{self, DeserializeSeed, Deserializer, MapAccess, Visitor};

use super::super::json;

/// The row of a node that has none.
pub(super) const GONE: NodeId = NodeId::MAX;

/// The row of every node.
pub(super) struct Numbering {
    /// By place in the list of nodes.
    rows: Vec<NodeId>,
    /// By id, as maps of ids write it.
    of: HashMap<Box<str>, NodeId>,
    /// How many rows there are.
    len: usize,
}

impl Numbering {
    /// The rows are in the order of the nodes and begin with `first`; `keys` are the nodes' ids, as maps of ids write them.
    ///
    /// # Errors
    /// An id stands twice.
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

    /// The rows are those of the map from ids to rows at `path`; nodes that it leaves out are gone.
    ///
    /// # Errors
    /// The map is damaged, its rows are not 0, 1, 2, ... once each, or a node stands twice.
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
        let mut count = vec![0u32; len];
        for &row in map.of.values() {
            if let Some(count) = count.get_mut(row as usize) {
                *count += 1;
            }
        }
        // As many ids as rows: where each row below their number stands once, these are all.
        let wrong = map.of.iter().filter(|(_, row)| count.get(**row as usize) != Some(&1)).min();
        if let Some((key, row)) = wrong {
            return Err(At::new(path, "rows").error(format!(
                "'{}' has the row {row}: the rows of {len} ids are 0 to {} once each",
                key.escape_debug(),
                len - 1
            )));
        }
        let mut of = map.of;
        let mut met = vec![false; len];
        let mut rows = Vec::with_capacity(keys.len());
        for key in keys {
            let row = of.get(&*key).copied().unwrap_or(GONE);
            if row == GONE {
                of.insert(key.into(), GONE);
            } else if std::mem::replace(&mut met[row as usize], true) {
                return Err(twice(graph, &key));
            }
            rows.push(row);
        }
        Ok(Self { rows, of, len })
    }

    /// How many rows there are.
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// The row of the node at this place in the list.
    pub(super) fn at(&self, place: usize) -> Option<NodeId> {
        self.rows.get(place).copied()
    }

    /// The row of the node with this id.
    pub(super) fn of(&self, key: &str) -> Option<NodeId> {
        self.of.get(key).copied()
    }

    /// How many nodes have no row.
    pub(super) fn gone(&self) -> usize {
        self.rows.iter().filter(|&&row| row == GONE).count()
    }
}

fn twice(graph: &Path, key: &str) -> graphmill_core::Error {
    At::new(graph, "nodes").error(format!("node '{}' stands twice", key.escape_debug()))
}

/// A map from ids to rows.
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
                return Err(de::Error::custom(format!("'{}' stands twice", key.escape_debug())));
            }
        }
        Ok(())
    }
}
