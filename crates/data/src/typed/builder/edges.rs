//! Edges of an edge type under construction, with their columns.

use std::collections::BTreeMap;

use graphmill_core::{Buffer, Error, NodeId, Result};

use crate::typed::{
    EdgeData, EdgeType, FeatureTable, SortedEdges, Values,
    csc::{self, Order},
    values::gather,
};

/// Edges of an edge type and their columns, set one by one; a later call replaces an earlier one.
#[derive(Debug)]
pub struct EdgeBuilder {
    pub(super) edge_type: EdgeType,
    reverse: Option<String>,
    adds_reverse: bool,
    topology: Topology,
    columns: Columns,
}

/// Source of the edges.
#[derive(Debug)]
enum Topology {
    /// Sources and destinations, in any order.
    Pairs(Buffer<NodeId>, Buffer<NodeId>),
    /// Row starts and sources, in CSC order.
    Csc(Buffer<u64>, Buffer<NodeId>),
}

/// Columns of edges.
#[derive(Clone, Debug, Default)]
struct Columns {
    weights: Option<Buffer<f32>>,
    time: Option<Buffer<i64>>,
    features: Option<FeatureTable>,
}

/// Finished edge type.
pub(super) struct Built {
    pub(super) data: EdgeData,
    /// Reverse edge type, if it was asked for.
    pub(super) reverse: Option<EdgeData>,
    /// Order of the edges, unless they were given in CSC order.
    pub(super) order: Option<Order>,
}

impl EdgeBuilder {
    pub(super) fn new(edge_type: EdgeType) -> Self {
        let topology = Topology::Pairs(Buffer::default(), Buffer::default());
        Self { edge_type, reverse: None, adds_reverse: false, topology, columns: Columns::default() }
    }

    /// Sets the edges from each `sources[i]` to `destinations[i]`, local ids. Parallel edges are
    /// kept.
    pub fn edges(
        &mut self,
        sources: impl Into<Buffer<NodeId>>,
        destinations: impl Into<Buffer<NodeId>>,
    ) -> &mut Self {
        self.topology = Topology::Pairs(sources.into(), destinations.into());
        self
    }

    /// Sets edges that are in CSC order already, and so are their columns: row starts by
    /// destination, and sources.
    pub fn csc(&mut self, indptr: impl Into<Buffer<u64>>, indices: impl Into<Buffer<NodeId>>) -> &mut Self {
        self.topology = Topology::Csc(indptr.into(), indices.into());
        self
    }

    /// Sets edges and columns that an [`EdgeSorter`](crate::typed::EdgeSorter) has sorted.
    pub fn sorted(&mut self, edges: SortedEdges) -> &mut Self {
        self.topology = Topology::Csc(edges.indptr, edges.indices);
        self.columns = Columns { weights: edges.weights, time: edges.time, features: edges.features };
        self
    }

    /// Sets weights, finite and not negative.
    pub fn weights(&mut self, weights: impl Into<Buffer<f32>>) -> &mut Self {
        self.columns.weights = Some(weights.into());
        self
    }

    /// Sets the time from which each edge exists.
    pub fn time(&mut self, time: impl Into<Buffer<i64>>) -> &mut Self {
        self.columns.time = Some(time.into());
        self
    }

    /// Sets feature rows of `width` values of any number type, row by row.
    pub fn features(&mut self, width: usize, values: impl Into<Values>) -> &mut Self {
        self.feature_table(FeatureTable::dense(width, values))
    }

    /// Sets feature rows, dense or sparse, with the names of their columns.
    pub fn feature_table(&mut self, table: FeatureTable) -> &mut Self {
        self.columns.features = Some(table);
        self
    }

    /// Names the edge type that holds the reverse of every edge, and is added too. An undirected
    /// edge type names itself.
    pub fn reverse_of(&mut self, name: impl Into<String>) -> &mut Self {
        (self.reverse, self.adds_reverse) = (Some(name.into()), false);
        self
    }

    /// Adds the edge type `name` with the reverse of every edge and the same columns.
    pub fn with_reverse(&mut self, name: impl Into<String>) -> &mut Self {
        (self.reverse, self.adds_reverse) = (Some(name.into()), true);
        self
    }

    /// Builds the edge type between node types of these `counts`.
    pub(super) fn build(self, counts: &BTreeMap<String, usize>) -> Result<Built> {
        let Self { edge_type, reverse, adds_reverse, topology, columns } = self;
        let count = |name: &str| match counts.get(name) {
            Some(&count) if count <= NodeId::MAX as usize => Ok(count),
            Some(count) => Err(Error::invalid(format!(
                "{count} nodes of type '{name}': node ids are 32-bit, at most {} nodes fit; divide the graph",
                NodeId::MAX
            ))),
            None => {
                let known = counts.keys().map(String::as_str).collect::<Vec<_>>().join(", ");
                Err(Error::invalid(format!("'{name}' is not a node type; the node types are: {known}")))
            }
        };
        let (sources, destinations) = (count(&edge_type.source)?, count(&edge_type.destination)?);
        let (indptr, indices, columns, order) = match topology {
            Topology::Csc(indptr, indices) => (indptr, indices, columns, None),
            Topology::Pairs(src, dst) => {
                if src.len() != dst.len() {
                    let message = format!("{} edge sources for {} destinations", src.len(), dst.len());
                    return Err(Error::invalid(message));
                }
                columns.check(src.len())?;
                csc::check_ids(&src, sources, "source", &edge_type.source)?;
                csc::check_ids(&dst, destinations, "destination", &edge_type.destination)?;
                let mut sorted = csc::order(&dst, destinations)?;
                let columns = columns.gather(&sorted.order)?;
                let indices = gather(&src, 1, &sorted.order)?;
                let indptr = std::mem::take(&mut sorted.indptr);
                (indptr.into(), indices.into(), columns, Some(sorted))
            }
        };
        let Columns { weights, time, features } = columns.clone();
        let data = EdgeData { edge_type, reverse, indptr, indices, weights, time, features };
        let reverse = match &data.reverse {
            Some(name) if adds_reverse => Some(reversed(&data, name, columns, [sources, destinations])?),
            _ => None,
        };
        Ok(Built { data, reverse, order })
    }
}

impl Columns {
    /// Checks that every column has `number` rows.
    fn check(&self, number: usize) -> Result<()> {
        let lengths = [
            self.weights.as_ref().map(|weights| ("weights", weights.len())),
            self.time.as_ref().map(|time| ("times", time.len())),
        ];
        if let Some((what, length)) = lengths.into_iter().flatten().find(|(_, length)| *length != number) {
            return Err(Error::invalid(format!("{length} {what} for {number} edges")));
        }
        match self.features.as_ref().and_then(|table| table.fault(number, false)) {
            Some(fault) => Err(Error::invalid(format!("features: {fault}"))),
            None => Ok(()),
        }
    }

    /// Rows `order` of every column, in that order.
    fn gather(&self, order: &[u64]) -> Result<Self> {
        Ok(Self {
            weights: self.weights.as_ref().map(|all| gather(all, 1, order)).transpose()?.map(Into::into),
            time: self.time.as_ref().map(|all| gather(all, 1, order)).transpose()?.map(Into::into),
            features: self.features.as_ref().map(|table| table.gather(order)).transpose()?,
        })
    }
}

/// Reverse of an edge type, called `name`, with the same columns.
fn reversed(edges: &EdgeData, name: &str, columns: Columns, counts: [usize; 2]) -> Result<EdgeData> {
    let [sources, destinations] = counts;
    let number = edges.num_edges();
    columns.check(number)?;
    csc::check_ids(&edges.indices, sources, "source", &edges.edge_type.source)?;
    let indptr = &edges.indptr;
    let runs = indptr.len() == destinations + 1 && indptr.is_sorted();
    if !runs || indptr[0] != 0 || indptr[destinations] != number as u64 {
        return Err(Error::invalid(format!(
            "indptr must have {} ascending entries from 0 to {number}",
            destinations + 1
        )));
    }
    let sources_of_reverse = csc::destinations(indptr);
    let sorted = csc::order(&edges.indices, sources)?;
    let Columns { weights, time, features } = columns.gather(&sorted.order)?;
    Ok(EdgeData {
        edge_type: edges.edge_type.reversed(name),
        reverse: Some(edges.edge_type.name.clone()),
        indptr: sorted.indptr.into(),
        indices: gather(&sources_of_reverse, 1, &sorted.order)?.into(),
        weights,
        time,
        features,
    })
}
