//! A typed graph whose edges and nodes have times.

use std::path::Path;

use graphmill_core::{
    Buffer, Error, Graph, Result, maps,
    typed::{NodeType, Relation, Schema, TypedGraph},
};

use super::TimeIndex;

/// The graph with one node type and one relation.
fn of_one_type(graph: Graph) -> Result<TypedGraph> {
    let types = vec![NodeType::new("node", graph.num_nodes())];
    TypedGraph::new(Schema::new(types, vec![Relation::new(0, "edge", 0)])?, vec![graph])
}

/// A typed graph whose edges and nodes have times.
#[derive(Clone, Debug)]
pub struct TimedGraph {
    graph: TypedGraph,
    index: Vec<TimeIndex>,
    node_time: Vec<Option<Buffer<i64>>>,
}

impl TimedGraph {
    /// Sorts the edges of a typed graph. `of_edges` has the times of each relation's edges (`R`),
    /// `of_nodes` those of each type's nodes (`T`); `None`: all always existed.
    ///
    /// # Errors
    /// There are fewer or more columns than relations or types, or as for [`TimeIndex::new`].
    pub fn new(
        graph: TypedGraph,
        of_edges: &[Option<Buffer<i64>>],
        of_nodes: Vec<Option<Buffer<i64>>>,
    ) -> Result<Self> {
        let schema = graph.schema();
        if (of_edges.len(), of_nodes.len()) != (schema.num_relations(), schema.num_types()) {
            return Err(Error::invalid(format!(
                "timed graph: times of {} relations and {} node types for {} and {}; pass one column or none \
                 for each",
                of_edges.len(),
                of_nodes.len(),
                schema.num_relations(),
                schema.num_types()
            )));
        }
        for (node, time) in schema.types().iter().zip(&of_nodes) {
            if let Some(time) = time.as_ref().filter(|time| time.len() != node.count) {
                return Err(Error::invalid(format!(
                    "timed graph: {} times for {} nodes of type '{}'; pass one for each",
                    time.len(),
                    node.count,
                    node.name
                )));
            }
        }
        let index = (0..schema.num_relations())
            .map(|r| {
                let sources = of_nodes[schema.relations()[r].src].as_deref();
                TimeIndex::new(graph.relation(r), of_edges[r].as_ref(), sources)
                    .map_err(|e| Error::invalid(format!("relation {}: {e}", schema.relation_name(r))))
            })
            .collect::<Result<_>>()?;
        Ok(Self { graph, index, node_time: of_nodes })
    }

    /// Creates the graph of one type whose rows are in the order of their times and may be in files
    /// that are larger than memory, without reading their times: `time` has that of each edge
    /// (`E`), `last` that of the last edge of each row (`N`, [`i64::MIN`] for an empty row), and
    /// `sample` times that are distributed as all are, ascending. Tables for draws by recency are
    /// in files without names in the directory `dir`. Draws from rows in another order are wrong.
    ///
    /// # Errors
    /// There are fewer or more times than edges or rows, or a source is not a node.
    pub fn of_ordered_rows(
        graph: Graph,
        [time, last]: [Buffer<i64>; 2],
        sample: &[i64],
        dir: &Path,
    ) -> Result<Self> {
        if (time.len(), last.len()) != (graph.num_edges(), graph.num_nodes()) {
            return Err(Error::invalid(format!(
                "timed graph: {} times of {} edges, and {} times of {} rows; pass one for each",
                time.len(),
                graph.num_edges(),
                last.len(),
                graph.num_nodes()
            )));
        }
        let index = vec![TimeIndex::of_ordered_rows(time, last, sample, dir)];
        Ok(Self { graph: of_one_type(graph)?, index, node_time: vec![None] })
    }

    /// Takes rows in mapped files out of the memory of the process, until they are used again.
    pub fn release(&self) {
        for relation in self.graph.relations() {
            maps::release(relation.indptr());
            maps::release(relation.indices());
        }
        self.index.iter().for_each(TimeIndex::release);
    }

    /// The same times on `graph`: this graph with further relations at the end, which have no
    /// edges.
    ///
    /// # Errors
    /// The graph lacks relations, or others have edges.
    pub fn with_relations(self, graph: TypedGraph) -> Result<Self> {
        let known = self.index.len();
        let added = graph.relations().get(known..);
        if added.is_none_or(|added| added.iter().any(|relation| relation.num_edges() > 0)) {
            return Err(Error::invalid(format!(
                "timed graph: {} relations for {known}, and those added have no times; add relations without \
                 edges",
                graph.relations().len()
            )));
        }
        let mut index = self.index;
        index.resize(graph.relations().len(), TimeIndex::default());
        Ok(Self { graph, index, ..self })
    }

    /// Creates a graph of one node type, `node`, and one relation, `edge`.
    ///
    /// # Errors
    /// As for [`TimedGraph::new`].
    pub fn of_one_type(
        graph: Graph,
        of_edges: Option<Buffer<i64>>,
        of_nodes: Option<Buffer<i64>>,
    ) -> Result<Self> {
        Self::new(of_one_type(graph)?, &[of_edges], vec![of_nodes])
    }

    /// Node types and relations.
    pub fn schema(&self) -> &Schema {
        self.graph.schema()
    }

    /// The graph without its times.
    pub fn graph(&self) -> &TypedGraph {
        &self.graph
    }

    /// Bytes that the orders by time allocated beyond the columns of the dataset, with the tables
    /// of draws by recency that were made.
    pub fn index_bytes(&self) -> u64 {
        self.index.iter().map(|index| index.bytes() as u64).sum()
    }

    /// Order by time of the edges of relation `r`.
    pub fn time_index(&self, r: usize) -> &TimeIndex {
        &self.index[r]
    }

    /// Times of the nodes of type `t`.
    pub fn node_time(&self, t: usize) -> Option<&Buffer<i64>> {
        self.node_time[t].as_ref()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wrong_columns_are_rejected_with_the_reason() {
        let graph = Graph::new(vec![0, 1, 1].into(), vec![1].into()).unwrap();
        let fault = |edges: Option<Vec<i64>>, nodes: Option<Vec<i64>>| {
            TimedGraph::of_one_type(graph.clone(), edges.map(Into::into), nodes.map(Into::into))
                .unwrap_err()
                .to_string()
        };
        assert!(fault(Some(vec![1, 2]), None).contains("node:edge:node: 2 times for 1 edges"));
        assert!(fault(None, Some(vec![1])).contains("1 times for 2 nodes of type 'node'"));
        let error = TimeIndex::new(&graph, None, Some(&[0])).unwrap_err().to_string();
        assert!(error.contains("an edge comes from node 1"), "{error}");
        let error = TimedGraph::new(
            TypedGraph::new(Schema::new(vec![NodeType::new("a", 1)], vec![]).unwrap(), vec![]).unwrap(),
            &[],
            vec![],
        );
        assert!(error.unwrap_err().to_string().contains("times of 0 relations and 0 node types"));
    }

    #[test]
    fn rows_that_are_ordered_already_need_as_many_times() {
        let graph = Graph::new(vec![0, 2, 2].into(), vec![1, 0].into()).unwrap();
        let of = |time: Vec<i64>, last: Vec<i64>| {
            let columns = [time.into(), last.into()];
            TimedGraph::of_ordered_rows(graph.clone(), columns, &[3, 5], Path::new("run"))
        };
        let found = of(vec![3, 5], vec![5, i64::MIN]).unwrap();
        let plain = TimedGraph::of_one_type(graph.clone(), Some(vec![3, 5].into()), None).unwrap();
        for time in 2..7 {
            let [a, b] = [&found, &plain].map(|of| of.time_index(0).admitted(&graph, 0, None, time));
            assert_eq!(a, b, "{time}");
        }
        let message = of(vec![3], vec![5, i64::MIN]).unwrap_err().to_string();
        assert!(message.contains("1 times of 2 edges, and 2 times of 2 rows"), "{message}");
        assert!(of(vec![3, 5], vec![5]).is_err());
    }
}
