//! Consistency of a typed dataset: all faults at once.

use graphmill_core::{
    Error, Graph, Result,
    csc::is_no_weight,
    search::{pair_position, position},
};

use super::{EdgeData, EdgeType, NodeData, Schema, TypedDataset, csc, task_check::check_task};
use crate::dataset::validate_graphs;

impl TypedDataset {
    /// Checks consistency and lists all faults, at most one for each column: names, lengths, ids in
    /// range, weights, finite features, unique keys, reverse edge types, targets and splits.
    /// O(V log V + E), parallel.
    ///
    /// # Errors
    /// All faults, one per line.
    pub fn validate(&self) -> Result<()> {
        let faults = self.faults(true);
        if faults.is_empty() { Ok(()) } else { Err(Error::invalid(faults.join("\n"))) }
    }

    /// Lists the faults of [`TypedDataset::validate`]. Values of feature rows are read only if
    /// `read` is set.
    pub(super) fn faults(&self, read: bool) -> Vec<String> {
        let nodes: Vec<_> = self.nodes.iter().map(|nodes| (nodes.name.clone(), nodes.count)).collect();
        let edges = self.edges.iter().map(|edges| edges.edge_type.clone()).collect();
        let (schema, mut faults) = Schema::with_faults(nodes, edges);
        if !faults.is_empty() {
            return faults;
        }
        for nodes in &self.nodes {
            node_faults(nodes, read, &mut |fault| {
                faults.push(format!("node type '{}': {fault}", nodes.name));
            });
        }
        let before = faults.len();
        for (e, edges) in self.edges.iter().enumerate() {
            let (source, destination) = schema.ends(e);
            let counts = [source, destination].map(|t| self.nodes[t].count);
            edge_faults(edges, counts, read, &mut |fault| {
                faults.push(format!("edge type {}: {fault}", edges.edge_type));
            });
        }
        if faults.len() == before {
            for edges in &self.edges {
                if let Some(fault) = self.reverse_fault(edges) {
                    faults.push(format!("edge type {}: {fault}", edges.edge_type));
                }
            }
        }
        for (i, task) in self.tasks.iter().enumerate() {
            if self.tasks[..i].iter().any(|earlier| earlier.name == task.name) {
                faults.push(format!("two tasks are called '{}'; names are unique", task.name));
            }
            check_task(self, task, &mut |fault| faults.push(format!("task '{}': {fault}", task.name)));
        }
        if self.nodes.iter().any(|nodes| !nodes.graphs.is_empty())
            && (self.nodes.len(), self.edges.len()) != (1, 1)
        {
            faults.push("named graphs belong to datasets of one node type and one edge type".into());
        }
        if let ([NodeData { graphs, .. }], [edges], true) =
            (&self.nodes[..], &self.edges[..], faults.is_empty())
        {
            let graph = Graph::sorted(edges.indptr.clone(), edges.indices.clone(), None);
            if let Err(error) = validate_graphs(graphs, &graph) {
                faults.push(format!("graphs: {error}"));
            }
        }
        if let Some(fault) = self.preprocessing_fault() {
            faults.push(fault);
        }
        faults
    }

    /// Fault of the preprocessing document.
    fn preprocessing_fault(&self) -> Option<String> {
        let document = self.preprocessing.as_ref()?;
        let has_version = document.get("version").is_some_and(serde_json::Value::is_u64);
        (!has_version).then(|| "preprocessing: it must be an object with an integer field 'version'".into())
    }

    /// Fault of the reverse edge type of `edges`.
    fn reverse_fault(&self, edges: &EdgeData) -> Option<String> {
        let name = edges.reverse.as_ref()?;
        let edge_type = edges.edge_type.reversed(name);
        let Some(reverse) = self.edges.iter().find(|other| other.edge_type == edge_type) else {
            return Some(format!("its reverse {edge_type} is not an edge type of the dataset"));
        };
        if reverse.reverse.as_ref() != Some(&edges.edge_type.name) {
            return Some(format!(
                "its reverse is {edge_type}, whose reverse is {}; each is the reverse of the other",
                reverse.reverse.as_deref().unwrap_or("not set")
            ));
        }
        if edges.num_edges() != reverse.num_edges() {
            return Some(format!(
                "it has {} edges, but its reverse {edge_type} has {}",
                edges.num_edges(),
                reverse.num_edges()
            ));
        }
        (edges.checksum_of_edges(false) != reverse.checksum_of_edges(true))
            .then(|| format!("its edges are not those of its reverse {edge_type} with the ends exchanged"))
    }
}

/// Passes the faults of a node type's columns to `report`.
fn node_faults(nodes: &NodeData, read: bool, report: &mut dyn FnMut(String)) {
    let count = nodes.count;
    if let Some(table) = &nodes.features
        && let Some(fault) = table.fault(count, read)
    {
        report(format!("features: {fault}"));
    }
    if let Some(normalization) = &nodes.normalization {
        match normalization.validate(nodes.features.as_ref().map_or(0, |table| table.width)) {
            Err(error) => report(error.to_string()),
            Ok(()) if nodes.features.is_none() => report("a normalization without features".into()),
            Ok(()) => {}
        }
    }
    if let Some(Err(error)) = nodes.keys.as_ref().map(|keys| keys.validate(count)) {
        report(error.to_string());
    }
    if let Some(time) = nodes.time.as_ref().filter(|time| time.len() != count) {
        report(format!("{} times for {count} nodes", time.len()));
    }
    if let Some(ids) = &nodes.original_ids {
        if ids.len() != count {
            report(format!("{} original ids for {count} nodes", ids.len()));
        } else if let Err(error) = graphmill_core::node_order::inverse(ids) {
            report(format!("original ids: {error}"));
        }
    }
}

/// Passes the faults of an edge type's columns to `report`.
fn edge_faults(edges: &EdgeData, counts: [usize; 2], read: bool, report: &mut dyn FnMut(String)) {
    let [sources, destinations] = counts;
    let number = edges.num_edges();
    let EdgeType { source, destination, .. } = &edges.edge_type;
    let indptr = &edges.indptr;
    if indptr.len() != destinations + 1 {
        report(format!(
            "indptr has {} entries, but {destinations} nodes of type '{destination}' need one more",
            indptr.len()
        ));
    } else if indptr[0] != 0 || indptr[destinations] != number as u64 {
        report(format!(
            "indptr runs from {} to {}, but must run from 0 to the number of edges, {number}",
            indptr[0], indptr[destinations]
        ));
    } else if let Some(v) = pair_position(indptr, |start, end| start > end) {
        report(format!("indptr decreases after destination {v}: {} to {}", indptr[v], indptr[v + 1]));
    }
    if let Err(error) = csc::check_ids(&edges.indices, sources, "source", source) {
        report(error.to_string());
    }
    if let Some(weights) = &edges.weights {
        if weights.len() != number {
            report(format!("{} weights for {number} edges", weights.len()));
        } else if let Some(e) = position(weights, is_no_weight) {
            report(format!("edge {e} weighs {}: weights are finite and at least 0", weights[e]));
        }
    }
    if let Some(time) = edges.time.as_ref().filter(|time| time.len() != number) {
        report(format!("{} times for {number} edges", time.len()));
    }
    if let Some(table) = &edges.features
        && let Some(fault) = table.fault(number, read)
    {
        report(format!("features: {fault}"));
    }
}
