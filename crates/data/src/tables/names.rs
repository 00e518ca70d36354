//! Types of new tables: `account=new.csv`, or `new.csv` for the type that the context implies.

use std::{collections::BTreeMap, path::Path};

use graphmill_core::{Error, Result};

use super::{memory::MemoryTable, preprocessing::Preprocessing, schema::Names};
use crate::typed::{EdgeData, EdgeType, TypedDataset};

/// Files of new nodes by node type and of new edges by edge type, in the order of the dataset.
#[derive(Clone, Debug)]
pub struct TypeTables {
    /// Files of each node type.
    pub nodes: Vec<Names>,
    /// Files of each edge type.
    pub edges: Vec<Names>,
}

impl TypeTables {
    /// Assigns tables of nodes and of edges to the types of `data`, which `preprocessing` encodes.
    /// Nodes without a type are of the type number `target`; edges without a type are of the only
    /// edge table. `memory` has the tables in memory.
    ///
    /// # Errors
    /// A type is unknown or ambiguous, or its edges come from other tables.
    pub fn new(
        (data, preprocessing): (&TypedDataset, &Preprocessing),
        target: Option<usize>,
        (nodes, edges): (&Names, &Names),
        memory: &BTreeMap<String, MemoryTable>,
    ) -> Result<Self> {
        let mut of_nodes = vec![Vec::<String>::new(); data.nodes.len()];
        for given in nodes.list() {
            let of_type = |name: &str| data.nodes.iter().position(|nodes| nodes.name == name);
            match given.split_once('=').and_then(|(name, file)| Some((of_type(name)?, file))) {
                Some((t, file)) => of_nodes[t].push(file.into()),
                None => {
                    let known: Vec<&str> = data.nodes.iter().map(|nodes| &nodes.name[..]).collect();
                    refuse_misspelled((&given, memory), "node type", data, &known)?;
                    let Some(t) = target.or((known.len() == 1).then_some(0)) else {
                        return Err(Error::invalid(format!(
                            "nodes '{given}': {} has several node types; name one of them before the \
                             table, as in '{}={given}': {}",
                            data.name,
                            known[0],
                            known.join(", ")
                        )));
                    };
                    of_nodes[t].push(given);
                }
            }
        }
        let mut of_edges = vec![Vec::<String>::new(); data.edges.len()];
        for given in edges.list() {
            let typed = match given.split_once('=') {
                Some((name, file)) => edge_type(data, preprocessing, name)?.map(|e| (e, file.to_string())),
                None => None,
            };
            let (e, file) = match typed {
                Some(typed) => typed,
                None => (only_edge_table(data, preprocessing, (&given, memory))?, given),
            };
            of_edges[e].push(file);
        }
        let lists = |lists: Vec<Vec<String>>| lists.into_iter().map(Names::from).collect();
        Ok(Self { nodes: lists(of_nodes), edges: lists(of_edges) })
    }

    /// Names of the files of the node type number `t`, for messages.
    pub fn source(&self, t: usize) -> String {
        self.nodes[t].list().join(", ")
    }
}

/// Tables in memory by name.
type InMemory = BTreeMap<String, MemoryTable>;

/// Name of an edge type before a table: `account__transfer__account`.
fn named(edges: &EdgeData) -> String {
    let EdgeType { source, name, destination } = &edges.edge_type;
    format!("{source}__{name}__{destination}")
}

/// Number of the edge type of the table `given`, which names no type.
///
/// # Errors
/// There is not one edge table, or the name of the type is misspelled.
fn only_edge_table(
    data: &TypedDataset,
    preprocessing: &Preprocessing,
    (given, memory): (&str, &InMemory),
) -> Result<usize> {
    let is_table = |edges: &&EdgeData| preprocessing.edge_table(&edges.edge_type.to_string()).is_some();
    let tables: Vec<String> = data.edges.iter().filter(is_table).map(named).collect();
    let known: Vec<&str> = tables.iter().map(String::as_str).collect();
    refuse_misspelled((given, memory), "edge type", data, &known)?;
    match &tables[..] {
        [_] => Ok(data.edges.iter().position(|edges| is_table(&edges)).unwrap_or_default()),
        [] => Err(Error::invalid(format!(
            "edges '{given}': {} has no edge table, only foreign keys, whose edges come from the columns of \
             the new nodes; leave the table out",
            data.name
        ))),
        [first, ..] => Err(Error::invalid(format!(
            "edges '{given}': {} has several edge tables; name one of them before the table, as in \
             '{first}={given}': {}",
            data.name,
            tables.join(", ")
        ))),
    }
}

/// Number of the edge type called `name`: `account__transfer__account`, `account:transfer:account`
/// or `transfer`. `None` if there is none.
///
/// # Errors
/// Several have this name.
pub fn find_edge_type(data: &TypedDataset, name: &str) -> Result<Option<usize>> {
    let is_called = |edges: &EdgeData| {
        name == edges.edge_type.name || name == named(edges) || name == edges.edge_type.to_string()
    };
    let found: Vec<usize> = (0..data.edges.len()).filter(|&e| is_called(&data.edges[e])).collect();
    match found[..] {
        [] => Ok(None),
        [e] => Ok(Some(e)),
        _ => {
            let names: Vec<String> = found.iter().map(|&e| named(&data.edges[e])).collect();
            Err(Error::invalid(format!(
                "edges '{name}': several edge types of {} have this name; use {}",
                data.name,
                names.join(" or ")
            )))
        }
    }
}

/// Number of the edge type called `name`, as of [`find_edge_type`], whose edges come from a table.
fn edge_type(data: &TypedDataset, preprocessing: &Preprocessing, name: &str) -> Result<Option<usize>> {
    let Some(e) = find_edge_type(data, name)? else { return Ok(None) };
    let of = &data.edges[e];
    let text = of.edge_type.to_string();
    if preprocessing.edge_table(&text).is_some() {
        return Ok(Some(e));
    }
    let why = if preprocessing.foreign_key(&text).is_some() {
        format!("its edges come from a column of the nodes '{}'; leave the table out", of.edge_type.source)
    } else if let Some(reverse) = &of.reverse {
        format!("its edges are the reverse of '{reverse}', and are made with them; pass a table of these")
    } else {
        "no table gave its edges; leave the table out".into()
    };
    Err(Error::invalid(format!("edges '{text}': {why}")))
}

/// Refuses `wrong=table.csv` if only `table.csv` is a file or a table in memory: the type is
/// misspelled.
fn refuse_misspelled(
    (given, memory): (&str, &InMemory),
    what: &str,
    data: &TypedDataset,
    known: &[&str],
) -> Result<()> {
    let exists = |name: &str| memory.contains_key(name) || Path::new(name).exists();
    match given.split_once('=') {
        Some((name, file)) if !exists(given) && exists(file) => Err(Error::invalid(format!(
            "'{given}': '{name}' is not the {what} of a table of {}; use one of: {}",
            data.name,
            known.join(", ")
        ))),
        _ => Ok(()),
    }
}
