//! The graph of a dataset with new nodes and their edges.

use graphmill_core::{End, Graph, NodeId};
use graphmill_data::{external::Scratch, typed::EdgeData};

use crate::{Error, Result};

/// Ids that are written at a time.
const CHUNK_LEN: usize = 1 << 16;

/// Ids of the nodes of a type in the dataset with new nodes.
#[derive(Clone, Copy)]
pub(crate) struct NodeIds<'a> {
    /// Number of nodes of the dataset.
    pub(crate) known: usize,
    /// Number of new nodes, which are the first ones of the imported tables. Their ids follow those
    /// of the known nodes.
    pub(crate) new: usize,
    /// Ids of the other nodes of the imported tables, which only edges name.
    pub(crate) places: &'a [NodeId],
}

impl NodeIds<'_> {
    /// Id of node `v` of the imported tables.
    fn of(&self, v: NodeId) -> NodeId {
        match self.places.get((v as usize).wrapping_sub(self.new)) {
            Some(&place) => place,
            None => self.known as NodeId + v,
        }
    }

    fn is_known(&self, v: NodeId) -> bool {
        v as usize >= self.new
    }

    /// Number of nodes with the new ones.
    pub(crate) fn total(&self) -> usize {
        self.known + self.new
    }
}

/// A new edge.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct NewEdge {
    pub(crate) dst: NodeId,
    pub(crate) src: NodeId,
    pub(crate) weight: f32,
    /// Its number in the imported tables, or in the list.
    pub(crate) row: u32,
}

/// New edges of a graph, by destination and source.
pub(crate) struct NewEdges {
    edges: Vec<NewEdge>,
    /// Number of edges between known nodes, which are left out.
    pub(crate) between_known: u64,
}

impl NewEdge {
    fn ends(&self) -> (NodeId, NodeId) {
        (self.dst, self.src)
    }

    fn reversed(self) -> Self {
        Self { dst: self.src, src: self.dst, ..self }
    }

    /// Row of the edge behind those of the `known` edges, if all rows have 32-bit numbers.
    pub(super) fn row_behind(&self, known: &Graph) -> NodeId {
        (known.num_edges() as NodeId).wrapping_add(self.row)
    }
}

impl NewEdges {
    /// Takes the edges of imported tables, from nodes `src` to nodes `dst`.
    pub(crate) fn of(imported: Option<&EdgeData>, src: NodeIds, dst: NodeIds) -> Self {
        let mut found = Self { edges: Vec::new(), between_known: 0 };
        let Some(imported) = imported else { return found };
        for v in 0..(imported.indptr.len() - 1) as NodeId {
            for e in imported.row(v) {
                let u = imported.indices[e];
                if src.is_known(u) && dst.is_known(v) {
                    found.between_known += 1;
                    continue;
                }
                let weight = imported.weights.as_ref().map_or(1.0, |weights| weights[e]);
                found.edges.push(NewEdge { dst: dst.of(v), src: src.of(u), weight, row: e as u32 });
            }
        }
        // Parallel edges stay in the order of the table.
        found.edges.sort_by_key(NewEdge::ends);
        found
    }

    /// Takes listed edges between nodes of the types `src` and `dst`, which differ by their numbers
    /// of known and new nodes. Messages name the edges `what`.
    ///
    /// # Errors
    /// An edge names a node that is neither known nor new, occurs twice, or has a weight that is
    /// negative or not finite.
    pub(crate) fn listed(
        what: &str,
        edges: impl Iterator<Item = (NodeId, NodeId, f32)>,
        [src, dst]: [NodeIds; 2],
    ) -> Result<Self> {
        let mut found = Self { edges: Vec::new(), between_known: 0 };
        for (number, (u, v, weight)) in edges.enumerate() {
            let refuse = |why: String| Err(Error::usage(format!("{what}: edge {number} {why}")));
            let outside = [(u, src), (v, dst)].into_iter().find(|(v, ids)| *v as usize >= ids.total());
            if let Some((end, ids)) = outside {
                let known = ids.known;
                let others = match ids.new {
                    0 => "and no node is new".into(),
                    _ => format!("and new ones those up to {}", ids.total() - 1),
                };
                return refuse(format!("names node {end}; known nodes have ids below {known}, {others}"));
            }
            if !(weight >= 0.0 && weight.is_finite()) {
                return refuse(format!("has the weight {weight}; pass a finite number from 0 on"));
            }
            if (u as usize) < src.known && (v as usize) < dst.known {
                found.between_known += 1;
                continue;
            }
            found.edges.push(NewEdge { dst: v, src: u, weight, row: number as u32 });
        }
        found.sorted(what)
    }

    /// The same edges in both directions, of a graph whose nodes are those of both ends.
    ///
    /// # Errors
    /// Both directions were given.
    pub(crate) fn undirected(mut self, what: &str) -> Result<Self> {
        let back: Vec<_> = self.edges.iter().filter(|edge| edge.dst != edge.src).copied().collect();
        self.edges.extend(back.into_iter().map(NewEdge::reversed));
        self.sorted(what)
    }

    /// Known nodes that each new node has an edge to, as the other `end` of these edges: ascending,
    /// each once. The first new node of the one end has the id `new`, of which there are `count`,
    /// and nodes of the other are known below `known`.
    pub(crate) fn known_ends(
        &self,
        end: End,
        (new, count): (NodeId, usize),
        known: NodeId,
    ) -> Vec<Vec<NodeId>> {
        let mut found = vec![Vec::new(); count];
        for edge in &self.edges {
            let (own, other) = match end {
                End::Destination => (edge.src, edge.dst),
                End::Source => (edge.dst, edge.src),
            };
            if own >= new && other < known {
                found[(own - new) as usize].push(other);
            }
        }
        for ends in &mut found {
            ends.sort_unstable();
            ends.dedup();
        }
        found
    }

    /// The same edges from their destinations to their sources.
    pub(crate) fn reversed(&self) -> Self {
        let mut edges: Vec<_> = self.edges.iter().copied().map(NewEdge::reversed).collect();
        edges.sort_by_key(NewEdge::ends);
        Self { edges, between_known: self.between_known }
    }

    /// These edges and those of `other`.
    ///
    /// # Errors
    /// An edge is in both.
    pub(crate) fn and(mut self, other: Self, what: &str) -> Result<Self> {
        self.edges.extend(other.edges);
        self.between_known += other.between_known;
        self.sorted(what)
    }

    /// The edges in the order of their destinations.
    fn sorted(mut self, what: &str) -> Result<Self> {
        self.edges.sort_by_key(NewEdge::ends);
        if let Some(pair) = self.edges.windows(2).find(|pair| pair[0].ends() == pair[1].ends()) {
            let NewEdge { dst, src, .. } = pair[0];
            return Err(Error::usage(format!(
                "{what}: the edge from {src} to {dst} occurs twice; pass each once, and in one direction if \
                 they are undirected"
            )));
        }
        Ok(self)
    }

    /// Number of edges.
    pub(crate) fn len(&self) -> usize {
        self.edges.len()
    }

    /// The edges to `v`.
    pub(super) fn row(&self, v: NodeId) -> &[NewEdge] {
        let first = self.edges.partition_point(|edge| edge.dst < v);
        let count = self.edges[first..].partition_point(|edge| edge.dst == v);
        &self.edges[first..first + count]
    }

    /// Number of edges from each of `ids`, which are ascending.
    pub(super) fn out_degrees(&self, ids: &[NodeId]) -> Vec<u32> {
        let mut counts = vec![0; ids.len()];
        for edge in &self.edges {
            if let Ok(i) = ids.binary_search(&edge.src) {
                counts[i] += 1;
            }
        }
        counts
    }

    /// The graph `known` with `new` more destinations and these edges. Arrays beyond the memory
    /// budget of `scratch` are in its directory. O(V + E).
    ///
    /// # Errors
    /// Ids exceed 32 bits, or the scratch cannot be written.
    pub(crate) fn added_to(&self, known: &Graph, new: usize, scratch: &Scratch) -> Result<Graph> {
        self.added_with_rows(known, new, scratch, None)
    }

    /// [`NewEdges::added_to`], with the row of each edge among those of the known edges, followed
    /// by those of the new ones, added to `rows`.
    ///
    /// # Errors
    /// As for [`NewEdges::added_to`].
    pub(crate) fn added_with_rows(
        &self,
        known: &Graph,
        new: usize,
        scratch: &Scratch,
        mut rows: Option<&mut Vec<NodeId>>,
    ) -> Result<Graph> {
        let nodes = known.num_nodes();
        if new == 0 && self.edges.is_empty() {
            rows.iter_mut().for_each(|rows| rows.extend(0..known.num_edges() as NodeId));
            return Ok(known.clone());
        }
        check_ids(nodes, new)?;
        let mut indptr = scratch.column::<u64>("indptr")?;
        let mut indices = scratch.column::<NodeId>("indices")?;
        let mut weights = known.edge_weight().map(|_| scratch.column::<f32>("weights")).transpose()?;
        let mut ends = vec![0u64];
        let (mut rest, mut copied, mut end) = (&self.edges[..], 0usize, 0u64);
        for v in 0..nodes + new {
            let row = if v < nodes { known.indptr()[v + 1] as usize } else { known.num_edges() };
            let count = rest.iter().take_while(|edge| edge.dst as usize == v).count();
            let (added, others) = rest.split_at(count);
            rest = others;
            if count > 0 || v + 1 == nodes + new || row - copied >= CHUNK_LEN {
                indices.extend(&known.indices()[copied..row])?;
                indices.extend(&added.iter().map(|edge| edge.src).collect::<Vec<_>>())?;
                if let Some(rows) = &mut rows {
                    rows.extend(copied as NodeId..row as NodeId);
                    rows.extend(added.iter().map(|edge| edge.row_behind(known)));
                }
                if let (Some(weights), Some(known)) = (&mut weights, known.edge_weight()) {
                    weights.extend(&known[copied..row])?;
                    weights.extend(&added.iter().map(|edge| edge.weight).collect::<Vec<_>>())?;
                }
                end += (row - copied + count) as u64;
                copied = row;
            }
            ends.push(end + (row - copied) as u64);
            if ends.len() >= CHUNK_LEN {
                indptr.extend(&ends)?;
                ends.clear();
            }
        }
        indptr.extend(&ends)?;
        let weights = weights.map(|weights| weights.finish()).transpose()?;
        Ok(Graph::sorted(indptr.finish()?, indices.finish()?, weights))
    }
}

/// Checks that `known` and `new` nodes of a type have ids.
///
/// # Errors
/// They are too many.
pub(crate) fn check_ids(known: usize, new: usize) -> Result<()> {
    if known + new <= NodeId::MAX as usize {
        return Ok(());
    }
    Err(Error::usage(format!(
        "--on: {known} known and {new} new nodes exceed {}, the number of node ids; predict fewer rows at a \
         time",
        NodeId::MAX
    )))
}

#[cfg(test)]
mod tests {
    use graphmill_core::{EdgeOptions, build_weighted};
    use graphmill_data::{TypedBuilder, typed::EdgeType};
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn rows_are_those_of_a_graph_of_all_edges(
            edges in prop::collection::vec((0u32..9, 0u32..9, 0u32..4), 0..60),
        ) {
            // Nodes 0..6 are known and 6..9 new. In the imported tables the known nodes are
            // reversed.
            let whole = |keep: &dyn Fn(u32, u32) -> bool, nodes: usize| {
                let kept: Vec<_> = edges.iter().filter(|&&(u, v, _)| keep(u, v)).collect();
                let src: Vec<u32> = kept.iter().map(|edge| edge.0).collect();
                let dst: Vec<u32> = kept.iter().map(|edge| edge.1).collect();
                let weight: Vec<f32> = kept.iter().map(|edge| edge.2 as f32).collect();
                let options =
                    EdgeOptions { undirected: false, drop_self_loops: false, keep_duplicates: false };
                build_weighted(nodes, &src, &dst, &weight, options).unwrap()
            };
            let known = whole(&|u, v| u < 6 && v < 6, 6);
            let expected = whole(&|_, _| true, 9);
            let local = |v: u32| if v >= 6 { v - 6 } else { 3 + (5 - v) };
            let mut builder = TypedBuilder::new("new");
            builder.node_type("node", 9);
            let merged = expected.indptr().windows(2).enumerate().flat_map(|(v, ends)| {
                let row = ends[0] as usize..ends[1] as usize;
                row.map(move |e| (e, v as u32))
            });
            let merged: Vec<(u32, u32, f32)> = merged
                .map(|(e, v)| (local(expected.indices()[e]), local(v), expected.edge_weight().unwrap()[e]))
                .collect();
            builder
                .edge_type("node", "edge", "node")
                .edges(
                    merged.iter().map(|e| e.0).collect::<Vec<_>>(),
                    merged.iter().map(|e| e.1).collect::<Vec<_>>(),
                )
                .weights(merged.iter().map(|e| e.2).collect::<Vec<_>>());
            let data = builder.build().unwrap();
            let imported = data.edge_type(&EdgeType::new("node", "edge", "node")).unwrap();
            let ids = NodeIds { known: 6, new: 3, places: &[5, 4, 3, 2, 1, 0] };
            let new = NewEdges::of(Some(imported), ids, ids);
            prop_assert_eq!(new.between_known as usize, known.num_edges());
            let mut rows = Vec::new();
            let scratch = Scratch::in_memory();
            let joined = new.added_with_rows(&known, 3, &scratch, Some(&mut rows)).unwrap();
            // the weights stand for features
            let all = [known.edge_weight().unwrap(), imported.weights.as_ref().unwrap()].concat();
            let by_row: Vec<f32> = rows.iter().map(|&row| all[row as usize]).collect();
            prop_assert_eq!(&by_row[..], joined.edge_weight().unwrap());
            prop_assert_eq!(joined.indptr(), expected.indptr());
            prop_assert_eq!(joined.indices(), expected.indices());
            prop_assert_eq!(joined.edge_weight(), expected.edge_weight());
        }
    }
}
