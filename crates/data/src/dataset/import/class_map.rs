//! `class_map.json` of GraphSAINT and GraphSAGE: maps a node id to a class, or to a list of zeros
//! and ones. A node is unlabelled if it is missing or has `null`, -1 or a list of only those.

use std::{borrow::Cow, fmt, path::Path};

use graphmill_core::{Labels, Result, location::Location, memory};
use serde::{
    Deserialize,
    de::{self, DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor},
};

use super::{
    claims, json,
    labels::{self, MISSING},
};
use crate::npy;

/// Reads the labels of `nodes` nodes from the map at `path`; `number` converts a key to a node, or
/// to `None` to skip the entry.
///
/// # Errors
/// The map is damaged, a key is invalid or occurs twice, lists have different lengths, or lists and
/// classes are mixed.
pub(super) fn read(
    path: &Path,
    nodes: usize,
    number: impl Fn(&str) -> Result<Option<usize>, String>,
) -> Result<Labels> {
    let text = json::map(path)?;
    let (seen, bytes) = (memory::filled(false, nodes)?, text.len());
    let mut map = ClassMap { nodes, number, bytes, seen, class: Vec::new(), sets: None };
    let mut reader = serde_json::Deserializer::from_slice(&text);
    let at = Location::new(path, "class map");
    map.deserialize(&mut reader).and_then(|()| reader.end()).map_err(|e| json::error(path, &e))?;
    let Some((member, classes)) = map.sets else {
        memory::resize(&mut map.class, nodes, -1)?;
        return labels::single(&map.class, &at);
    };
    labels::multi(member, classes, &at)
}

/// Deserializer of the map, entry by entry into arrays by node, without a tree of JSON values.
struct ClassMap<N> {
    nodes: usize,
    number: N,
    /// Length of the file.
    bytes: usize,
    seen: Vec<bool>,
    class: Vec<i64>,
    /// `V x C` memberships and `C`, once the first list was read.
    sets: Option<(Vec<u8>, usize)>,
}

impl<'de, N: Fn(&str) -> Result<Option<usize>, String>> DeserializeSeed<'de> for &mut ClassMap<N> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, json: D) -> Result<(), D::Error> {
        json.deserialize_map(self)
    }
}

impl<'de, N: Fn(&str) -> Result<Option<usize>, String>> Visitor<'de> for &mut ClassMap<N> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a map from node ids to classes")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let wrong = |message: String| Err(de::Error::custom(message));
        while let Some(key) = map.next_key::<Cow<'de, str>>()? {
            let Some(v) = (self.number)(&key).map_err(de::Error::custom)? else {
                map.next_value::<de::IgnoredAny>()?;
                continue;
            };
            if std::mem::replace(&mut self.seen[v], true) {
                return wrong(format!("node {key} occurs twice"));
            }
            match (map.next_value::<Entry>()?, &mut self.sets) {
                (Entry::Missing, _) => {}
                (Entry::Class(-1), Some(_)) => {}
                (Entry::Class(class), None) => {
                    memory::resize(&mut self.class, self.nodes, -1).map_err(de::Error::custom)?;
                    self.class[v] = class;
                }
                (Entry::Set(set), None) if self.class.is_empty() => {
                    if !claims::is_dense(self.nodes, set.len(), self.bytes) {
                        return wrong(format!(
                            "lists of {} classes for {} nodes, in a file of {} bytes: is it damaged?",
                            set.len(),
                            self.nodes,
                            self.bytes
                        ));
                    }
                    let size = set.len().saturating_mul(self.nodes);
                    let mut member: Vec<u8> = match memory::reserve(size) {
                        Ok(member) => member,
                        Err(e) => return wrong(e.to_string()),
                    };
                    member.resize(size, MISSING);
                    member[v * set.len()..(v + 1) * set.len()].copy_from_slice(&set);
                    self.sets = Some((member, set.len()));
                }
                (Entry::Set(set), Some((member, classes))) if set.len() == *classes => {
                    member[v * *classes..(v + 1) * *classes].copy_from_slice(&set);
                }
                (Entry::Set(set), Some((_, classes))) => {
                    return wrong(format!("node {key} has a list of {}, the first has {classes}", set.len()));
                }
                _ => return wrong(format!("node {key}: classes and lists of classes are mixed")),
            }
        }
        Ok(())
    }
}

/// Class, or list of zeros and ones.
enum Entry {
    Missing,
    Class(i64),
    Set(Vec<u8>),
}

impl<'de> Deserialize<'de> for Entry {
    fn deserialize<D: Deserializer<'de>>(json: D) -> Result<Self, D::Error> {
        json.deserialize_any(EntryVisitor)
    }
}

struct EntryVisitor;

impl<'de> Visitor<'de> for EntryVisitor {
    type Value = Entry;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a class number or a list of zeros and ones")
    }

    fn visit_unit<E: de::Error>(self) -> Result<Entry, E> {
        Ok(Entry::Missing)
    }

    fn visit_i64<E: de::Error>(self, x: i64) -> Result<Entry, E> {
        Ok(Entry::Class(x))
    }

    fn visit_u64<E: de::Error>(self, x: u64) -> Result<Entry, E> {
        i64::try_from(x).map(Entry::Class).map_err(|_| E::custom(format!("{x} is not a class")))
    }

    fn visit_f64<E: de::Error>(self, x: f64) -> Result<Entry, E> {
        match <i64 as npy::Element>::from_number(npy::Number::Float(x)) {
            Some(class) => Ok(Entry::Class(class)),
            None => Err(E::custom(format!("{x} is not a whole number: labels are classes"))),
        }
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Entry, A::Error> {
        let (mut set, mut missing) = (Vec::new(), 0);
        while let Some(entry) = list.next_element::<Entry>()? {
            match entry {
                Entry::Missing | Entry::Class(-1) => missing += 1,
                Entry::Class(bit @ 0..=1) => set.push(bit as u8),
                Entry::Class(x) => return Err(de::Error::custom(format!("{x} in a list of zeros and ones"))),
                Entry::Set(_) => return Err(de::Error::custom("a list in a list")),
            }
        }
        match (missing, set.len()) {
            (0, _) => Ok(Entry::Set(set)),
            (_, 0) => Ok(Entry::Missing),
            _ => Err(de::Error::custom(format!(
                "{missing} values of a list of {} are missing: give all of them, or none for a node without \
                 a label",
                missing + set.len()
            ))),
        }
    }
}
