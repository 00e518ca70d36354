//! Typed graph: a CSC graph for each relation.

use super::{Relation, Schema};
use crate::{EdgeOptions, Error, Graph, NodeId, Result, build, build_weighted, memory, search::position};

/// Directed typed graph.
///
/// The graph of a relation holds the in-neighbours of each node of its destination type, so
/// [`Graph::num_nodes`] is the number of destinations; its indices are local ids of the source
/// type.
#[derive(Clone, Debug)]
pub struct TypedGraph {
    schema: Schema,
    relations: Vec<Graph>,
}

impl TypedGraph {
    /// Creates a typed graph from a graph for each relation of the schema, after checking their
    /// sizes and ids. O(E), parallel.
    ///
    /// # Errors
    /// The number of graphs differs from that of the relations, a graph has another number of rows
    /// than its destination type has nodes, or an id is not below the number of source nodes.
    pub fn new(schema: Schema, relations: Vec<Graph>) -> Result<Self> {
        if relations.len() != schema.num_relations() {
            return Err(Error::invalid(format!(
                "typed graph: {} graphs for {} relations; pass one for each",
                relations.len(),
                schema.num_relations()
            )));
        }
        for (r, graph) in relations.iter().enumerate() {
            let &Relation { src, dst, .. } = &schema.relations()[r];
            let [sources, destinations] = [src, dst].map(|t| schema.types()[t].count);
            let name = || schema.relation_name(r);
            if graph.num_nodes() != destinations {
                return Err(Error::invalid(format!(
                    "relation {}: the graph has {} rows, but type '{}' has {destinations} nodes; pass a row \
                     for each destination",
                    name(),
                    graph.num_nodes(),
                    schema.types()[dst].name
                )));
            }
            if let Some(e) = position(graph.indices(), |&u| u as usize >= sources) {
                return Err(Error::invalid(format!(
                    "relation {}: indices[{e}] is node {}, but type '{}' has {sources} nodes; use ids local \
                     to the type",
                    name(),
                    graph.indices()[e],
                    schema.types()[src].name
                )));
            }
        }
        Ok(Self { schema, relations })
    }

    /// The same graph with further relations, which have no edges.
    ///
    /// # Errors
    /// A relation names an unknown type, or has the name and types of another.
    pub fn with_empty(self, added: Vec<Relation>) -> Result<Self> {
        let Self { schema, mut relations } = self;
        let mut all = schema.relations().to_vec();
        for relation in &added {
            let rows = schema.types().get(relation.dst).map_or(0, |node| node.count);
            relations.push(Graph::new(memory::zeroed(rows + 1)?.into(), Vec::new().into())?);
        }
        all.extend(added);
        Ok(Self { schema: Schema::new(schema.types().to_vec(), all)?, relations })
    }

    /// Node types and relations.
    pub fn schema(&self) -> &Schema {
        &self.schema
    }

    /// Graph of relation `r`.
    pub fn relation(&self, r: usize) -> &Graph {
        &self.relations[r]
    }

    /// Graphs of all relations, `R`.
    pub fn relations(&self) -> &[Graph] {
        &self.relations
    }

    /// Number of nodes of all types.
    pub fn num_nodes(&self) -> usize {
        self.schema.num_nodes()
    }

    /// Number of edges of all relations.
    pub fn num_edges(&self) -> usize {
        self.relations.iter().map(Graph::num_edges).sum()
    }

    /// The graph over global ids with the edges of all relations: a row lists the in-neighbours by
    /// one relation after the other. Weights and types of edges are dropped. O(V + E).
    ///
    /// # Errors
    /// Memory runs out.
    pub fn union(&self) -> Result<Graph> {
        let schema = &self.schema;
        let mut indptr = memory::reserve(self.num_nodes() + 1)?;
        let mut indices = memory::reserve(self.num_edges())?;
        indptr.push(0u64);
        for t in 0..schema.num_types() {
            let into: Vec<usize> = schema.into_type(t).collect();
            for v in 0..schema.types()[t].count as NodeId {
                for &r in &into {
                    let first = schema.range(schema.relations()[r].src).start;
                    indices.extend(self.relations[r].in_neighbors(v).iter().map(|u| first + u));
                }
                indptr.push(indices.len() as u64);
            }
        }
        Graph::new(indptr.into(), indices.into())
    }
}

/// Builds the graph of a relation from its edges, as [`build`] does: rows are sorted by source, and
/// duplicates are merged. `src[i]` is below `num_src` and `dst[i]` below `num_dst`, both local ids.
///
/// # Errors
/// The two lists differ in length, or an id is not below the number of its type's nodes.
pub fn bipartite(num_src: usize, num_dst: usize, src: &[NodeId], dst: &[NodeId]) -> Result<Graph> {
    check(num_src, num_dst, src, dst)?;
    rows(build(num_src.max(num_dst), src, dst, EdgeOptions::DIRECTED)?, num_dst)
}

/// Builds the graph of a relation with a weight for each edge; weights of merged duplicates are
/// added.
///
/// # Errors
/// As for [`bipartite`] and [`build_weighted`].
pub fn bipartite_weighted(
    num_src: usize,
    num_dst: usize,
    src: &[NodeId],
    dst: &[NodeId],
    weight: &[f32],
) -> Result<Graph> {
    check(num_src, num_dst, src, dst)?;
    rows(build_weighted(num_src.max(num_dst), src, dst, weight, EdgeOptions::DIRECTED)?, num_dst)
}

fn check(num_src: usize, num_dst: usize, src: &[NodeId], dst: &[NodeId]) -> Result<()> {
    for (end, ids, nodes) in [("source", src, num_src), ("destination", dst, num_dst)] {
        if let Some(e) = position(ids, |&id| id as usize >= nodes) {
            return Err(Error::invalid(format!(
                "edge {e}: its {end} is node {}, but that type has {nodes} nodes; use ids local to the type",
                ids[e]
            )));
        }
    }
    Ok(())
}

/// The first `num_dst` rows of a square graph whose other rows are empty.
fn rows(square: Graph, num_dst: usize) -> Result<Graph> {
    if square.num_nodes() == num_dst {
        return Ok(square);
    }
    let indptr = square.indptr()[..=num_dst].to_vec();
    let (_, indices) = square.buffers();
    Graph::of_sound_edges(indptr.into(), indices.clone(), square.weight_buffer().cloned())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{super::NodeType, *};

    /// Edges of a relation: number of the relation, source, destination.
    type Edge = (usize, NodeId, NodeId);

    /// A typed graph of three types and its distinct edges in order.
    fn typed_graphs() -> impl Strategy<Value = (TypedGraph, Vec<Edge>)> {
        let counts = prop::collection::vec(1usize..9, 3);
        let relations = prop::collection::vec((0usize..3, 0usize..3), 1..5);
        (counts, relations, prop::collection::vec((any::<u32>(), any::<u32>(), any::<u32>()), 0..60))
            .prop_map(|(counts, ends, draws)| {
                let types =
                    counts.iter().enumerate().map(|(t, &n)| NodeType::new(format!("t{t}"), n)).collect();
                let relations: Vec<Relation> = ends
                    .iter()
                    .enumerate()
                    .map(|(r, &(s, d))| Relation::new(s, format!("r{r}"), d))
                    .collect();
                let mut edges: Vec<Edge> = draws
                    .iter()
                    .map(|&(r, u, v)| {
                        let r = r as usize % relations.len();
                        let Relation { src, dst, .. } = relations[r];
                        (r, u % counts[src] as u32, v % counts[dst] as u32)
                    })
                    .collect();
                edges.sort_unstable_by_key(|&(r, u, v)| (r, v, u));
                edges.dedup();
                let graphs = relations.iter().enumerate().map(|(r, relation)| {
                    let of: Vec<&Edge> = edges.iter().filter(|edge| edge.0 == r).collect();
                    let (src, dst): (Vec<u32>, Vec<u32>) = of.iter().map(|edge| (edge.1, edge.2)).unzip();
                    bipartite(counts[relation.src], counts[relation.dst], &src, &dst).unwrap()
                });
                let graphs = graphs.collect();
                (TypedGraph::new(Schema::new(types, relations).unwrap(), graphs).unwrap(), edges)
            })
    }

    proptest! {
        #[test]
        fn the_union_holds_the_edges_of_all_relations((graph, edges) in typed_graphs()) {
            let (union, schema) = (graph.union().unwrap(), graph.schema());
            prop_assert_eq!((union.num_nodes(), union.num_edges()), (graph.num_nodes(), edges.len()));
            for v in 0..graph.num_nodes() as NodeId {
                let (t, local) = schema.local(v).unwrap();
                let ends = |r: usize| &schema.relations()[r];
                let into = edges.iter().filter(|&&(r, _, dst)| ends(r).dst == t && dst == local);
                let expected: Vec<u32> =
                    into.map(|&(r, u, _)| schema.global(schema.relations()[r].src, u)).collect();
                prop_assert_eq!(union.in_neighbors(v), expected);
            }
        }
    }

    #[test]
    fn wrong_sizes_and_ids_are_rejected() {
        let schema = Schema::new(
            vec![NodeType::new("author", 2), NodeType::new("paper", 3)],
            vec![Relation::new(0, "writes", 1)],
        )
        .unwrap();
        let of = |graphs| TypedGraph::new(schema.clone(), graphs).unwrap_err().to_string();
        assert!(of(vec![]).contains("0 graphs for 1 relations"));
        assert!(
            of(vec![bipartite(2, 2, &[], &[]).unwrap()])
                .contains("author:writes:paper: the graph has 2 rows")
        );
        let message = of(vec![bipartite(3, 3, &[2], &[0]).unwrap()]);
        assert!(message.contains("indices[0] is node 2, but type 'author' has 2 nodes"), "{message}");
        let message = bipartite(2, 3, &[0], &[3]).unwrap_err().to_string();
        assert!(message.contains("destination is node 3, but that type has 3 nodes"), "{message}");
    }

    #[test]
    fn duplicate_edges_add_their_weights() {
        let graph = bipartite_weighted(5, 2, &[4, 4, 1], &[1, 1, 0], &[1.0, 2.0, 0.5]).unwrap();
        assert_eq!((graph.in_neighbors(1), graph.edge_weight().unwrap()), (&[4][..], &[0.5, 3.0][..]));
    }
}
