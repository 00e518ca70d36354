//! The dataset that new nodes are added to.

use std::{collections::HashMap, path::PathBuf};

use graphmill_core::NodeId;
use graphmill_data::{
    Dataset,
    tables::{Dangling, EdgeTable, NodeTable, Preprocessing, TableSchema},
    typed::{self, KEY_SEPARATOR, Keys, TypedDataset, Verify},
};

use super::{NewTables, source};
use crate::{Error, Result};

/// Number of keys that a message lists.
const EXAMPLES: usize = 5;

/// Encodings and types of a dataset that was imported from tables.
pub(super) struct Known {
    typed: TypedDataset,
    pub(super) preprocessing: Preprocessing,
}

impl Known {
    /// Reads the encodings of `data`.
    ///
    /// # Errors
    /// It was not imported from tables.
    pub(super) fn of(data: &Dataset) -> Result<Self> {
        let Some(dir) = &data.directory else {
            let message = "it is in memory, without the encodings of its columns; new rows need a dataset \
                           that 'graphmill import tables' wrote";
            return Err(Error::dataset(&data.name, message));
        };
        let preprocessing = Preprocessing::read(dir)?;
        Ok(Self { typed: typed::open(dir, Verify::Once)?, preprocessing })
    }

    /// Schema of new tables. Nodes that only edges name are added: they are looked up among the
    /// known ones.
    pub(super) fn schema(&self, new: &NewTables) -> TableSchema {
        let kind = self.typed.nodes.first().map(|nodes| nodes.name.clone()).unwrap_or_default();
        let key = self.preprocessing.key_columns(&kind).unwrap_or_default().to_vec();
        let nodes = NodeTable { kind, files: new.nodes.clone(), id: key.into(), ..NodeTable::default() };
        let edges = self.typed.edges.first().filter(|_| !new.edges.is_empty()).map(|known| {
            let name = known.edge_type.to_string();
            let table = self.preprocessing.edge_table(&name).unwrap_or_default();
            EdgeTable {
                kind: known.edge_type.name.clone(),
                files: new.edges.clone(),
                undirected: known.reverse.as_ref() == Some(&known.edge_type.name),
                ..table
            }
        });
        TableSchema {
            nodes: vec![nodes],
            edges: edges.into_iter().collect(),
            dangling: Dangling::Add,
            base: PathBuf::new(),
            memory: new.memory.clone(),
            ..TableSchema::default()
        }
    }

    /// Ids in the dataset of the nodes that edges name beside the new ones. `keys` are those of the
    /// `count` new nodes, followed by those of these nodes.
    ///
    /// # Errors
    /// A new node is known, or another one is not.
    pub(super) fn places(
        &self,
        data: &Dataset,
        keys: &Keys,
        count: usize,
        new: &NewTables,
    ) -> Result<Vec<NodeId>> {
        let texts: Vec<String> = (0..keys.len()).map(|v| keys.get(v).to_string()).collect();
        let mut ids: HashMap<&str, Option<NodeId>> = texts.iter().map(|key| (key.as_str(), None)).collect();
        for v in 0..data.keys.as_ref().map_or(0, Keys::len) {
            let key = data.keys.as_ref().map(|keys| keys.get(v).to_string()).unwrap_or_default();
            if let Some(id) = ids.get_mut(key.as_str()) {
                *id = Some(v as NodeId);
            }
        }
        let place = |key: &String| ids.get(key.as_str()).copied().flatten();
        let (new_keys, others) = texts.split_at(count);
        let known: Vec<&String> = new_keys.iter().filter(|key| place(key).is_some()).collect();
        if !known.is_empty() {
            return Err(Error::usage(format!(
                "{}: {} of {count} rows have a key that is in {} already: {}; remove them, or predict them \
                 with --keys",
                source(&new.nodes),
                known.len(),
                data.name,
                examples(&known)
            )));
        }
        let unknown: Vec<&String> = others.iter().filter(|key| place(key).is_none()).collect();
        if !unknown.is_empty() {
            return Err(Error::usage(format!(
                "{}: {} of the keys that edges name are neither in {} nor in {}: {}; add rows for them, or \
                 remove the edges",
                source(&new.edges),
                unknown.len(),
                source(&new.nodes),
                data.name,
                examples(&unknown)
            )));
        }
        Ok(others.iter().filter_map(place).collect())
    }
}

/// First keys of a list, for a message.
fn examples(keys: &[&String]) -> String {
    let shown = keys.iter().take(EXAMPLES).map(|key| format!("'{}'", key.replace(KEY_SEPARATOR, ", ")));
    shown.collect::<Vec<_>>().join(", ")
}
