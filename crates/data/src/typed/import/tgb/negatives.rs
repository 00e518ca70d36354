//! Given negatives of events: pickled dictionaries from source, destination and time to nodes.

use std::collections::HashMap;

use graphmill_core::{Result, memory};

use super::super::{files::Files, ids::Ids, lines::wrong, streams::Numbering};
use crate::{
    dataset::import::pickle,
    typed::{CandidateLists, Negatives, Seeds, Task},
};

/// Maximum length of a file.
const MAX_LENGTH: u64 = 1 << 36;
/// Number of times that events may repeat a negative on average, beyond [`MIN_REPEATED`] in all: a
/// small file must not take all memory.
const MAX_REPEATS: usize = 16;
/// Number of negatives that events may always repeat.
const MIN_REPEATED: usize = 1 << 20;

/// Destinations of events, as preliminary ids.
pub(super) struct Given {
    /// Position of the list of each source, destination and time.
    lists: HashMap<(u32, u32, i64), usize>,
    /// Start of each list among the nodes, and the number of nodes.
    starts: Vec<usize>,
    nodes: Vec<u32>,
}

impl Given {
    /// Reads the file `name`. Its numbers are those of TGB: by the first occurrence of an id or, if
    /// `first_item` is the number of the first item, ids themselves, which become known.
    ///
    /// # Errors
    /// The file cannot be read, is not a pickle of such a dictionary, or has unknown nodes.
    pub(super) fn read(files: &Files, name: &str, first_item: Option<i64>, ids: &mut Ids) -> Result<Self> {
        let bytes = files.bytes(name, MAX_LENGTH)?;
        let pickle =
            pickle::read(&bytes).map_err(|(at, message)| files.error(name, format!("byte {at}"), message))?;
        let mut given = Self { lists: HashMap::new(), starts: vec![0], nodes: Vec::new() };
        let mut id = |number: i64| -> Result<u32, String> {
            match first_item {
                Some(_) if number >= 0 => ids.id(&number.to_string()),
                None if (0..ids.len() as i64).contains(&number) => Ok(number as u32),
                _ => Err(format!("{number} is not the number of a node")),
            }
        };
        let each = |[source, destination, time]: [i64; 3], list: &[i64]| {
            let key = (id(source)?, id(destination)?, time);
            for &node in list {
                if first_item.is_some_and(|first| node < first) {
                    return Err(format!("{node} is not the number of an item"));
                }
                given.nodes.push(id(node)?);
            }
            given.lists.insert(key, given.starts.len() - 1);
            given.starts.push(given.nodes.len());
            Ok(())
        };
        pickle.keyed_lists(each).map_err(|e| wrong(files, name, e))?;
        Ok(given)
    }

    /// Sets the negatives of a part of `task`. Returns the number of lists that no event has.
    ///
    /// # Errors
    /// A message: events of the part have no list, or a node is not a destination.
    pub(super) fn attach(self, numbering: &Numbering, task: &mut Task, part: usize) -> Result<u64, String> {
        let lists: HashMap<(u32, u32, i64), usize> = self
            .lists
            .iter()
            .filter_map(|(&(source, destination, time), &at)| {
                Some(((numbering.source(source)?, numbering.destination(destination)?, time), at))
            })
            .collect();
        let (Some(Seeds::Pairs(pairs)), Some(times)) = (&task.seeds, &task.time) else {
            return Err("the task lists no events".into());
        };
        let (name, rows) = task.split.parts()[part];
        let (mut found, mut missing, mut is_used) = (Vec::new(), Vec::new(), vec![false; self.starts.len()]);
        for &row in rows.iter() {
            let row = row as usize;
            let event = (pairs[2 * row], pairs[2 * row + 1], times[row]);
            match lists.get(&event) {
                Some(&at) => {
                    is_used[at] = true;
                    found.push(at);
                }
                None => missing.push(event),
            }
        }
        if let Some((source, destination, time)) = missing.first() {
            return Err(format!(
                "{} of {} events of '{name}' have no negatives, such as that of node {source} and node \
                 {destination} at time {time}; the file belongs to another version of the edge list: \
                 download both again",
                missing.len(),
                rows.len()
            ));
        }
        let mut nodes = memory::reserve(self.nodes.len()).map_err(|e| e.to_string())?;
        for &id in &self.nodes {
            nodes.push(numbering.destination(id).ok_or("a negative is not a destination")?);
        }
        let lengths = found.iter().map(|&at| self.starts[at + 1] - self.starts[at]);
        let total = lengths.fold(0, usize::saturating_add);
        if total > nodes.len().saturating_mul(MAX_REPEATS).saturating_add(MIN_REPEATED) {
            return Err(format!(
                "the events of '{name}' repeat so often that their negatives are {total} nodes, of {}; the \
                 file belongs to another edge list: download both again",
                nodes.len()
            ));
        }
        let list = |&at: &usize| nodes[self.starts[at]..self.starts[at + 1]].iter().copied();
        let lists = CandidateLists::new(found.iter().map(list));
        task.negatives[part] = Some(match lists.each() {
            Some(each) if each > 0 => Negatives::Destinations { each, nodes: lists.nodes },
            _ => Negatives::Lists(lists),
        });
        let distinct = self.lists.len() as u64;
        let used = is_used.iter().filter(|used| **used).count() as u64;
        Ok(distinct - used)
    }
}
