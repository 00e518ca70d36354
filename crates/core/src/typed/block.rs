//! Message-flow graph of one layer of a typed graph.

use super::{Relation, Schema};
use crate::{Block, Error, Result, memory};

/// Message-flow graph of one layer: the sources and destinations of every node type, and the edges
/// of every relation.
///
/// The sources of each type are numbered within the minibatch, and its destinations are a prefix of
/// them. The slice of a relation is a local [`Block`] from the sources of its source type to the
/// destinations of its destination type. These are rows of different matrices, even if both types
/// are equal, so a slice has no own rows.
#[derive(Clone, Debug, Default)]
pub struct TypedBlock {
    /// Number of destinations of each type, `T`.
    pub num_dst: Vec<usize>,
    /// Number of sources of each type, `T`.
    pub num_src: Vec<usize>,
    /// Edges of each relation, `R`.
    pub relations: Vec<Block>,
    /// Position in its relation's graph of each edge, `R` lists in the order of the slices' edges;
    /// empty lists unless the sampler was asked to name the edges.
    pub positions: Vec<Vec<u64>>,
}

impl TypedBlock {
    /// Empties the block for a schema of that shape, and keeps its memory.
    pub fn clear(&mut self, schema: &Schema) {
        for count in [&mut self.num_dst, &mut self.num_src] {
            count.clear();
            count.resize(schema.num_types(), 0);
        }
        self.relations.resize_with(schema.num_relations(), Block::default);
        self.relations.iter_mut().for_each(Block::clear);
        self.positions.resize_with(schema.num_relations(), Vec::new);
        self.positions.iter_mut().for_each(Vec::clear);
    }

    /// Sets the sizes of every slice to those of its types, and gives a row to each destination of
    /// slices without edges. Call it when all sources are numbered.
    pub fn fit(&mut self, schema: &Schema) {
        for (block, relation) in self.relations.iter_mut().zip(schema.relations()) {
            block.num_dst = self.num_dst[relation.dst];
            block.num_src = self.num_src[relation.src];
            if block.indptr.is_empty() {
                memory::demand_len(&mut block.indptr, block.num_dst + 1, 0);
            }
        }
    }

    /// Number of edges of all relations.
    pub fn num_edges(&self) -> usize {
        self.relations.iter().map(Block::num_edges).sum()
    }

    /// Transposes every slice, on all threads of the pool if `parallel`.
    pub fn transpose(&mut self, parallel: bool) {
        for block in &mut self.relations {
            if parallel { block.par_transpose() } else { block.transpose() }
        }
    }

    /// Returns true if every slice is transposed.
    pub fn is_transposed(&self) -> bool {
        self.relations.iter().all(Block::is_transposed)
    }

    /// Number of sources of a [`TypedBlock::join`]: the destinations of type `t`, then the sources
    /// of each of the relations.
    pub fn num_joined(&self, schema: &Schema, t: usize, relations: &[usize]) -> usize {
        let sources = |&r: &usize| self.num_src[schema.relations()[r].src];
        self.num_dst[t] + relations.iter().map(sources).sum::<usize>()
    }

    /// Overwrites `block` by the edges of some relations into type `t`, for layers that normalize
    /// over all of them at once.
    ///
    /// Its sources are stacked: the `D` destinations of type `t` themselves, so that they are a
    /// prefix, then the sources of each of the relations. The edges of a destination are in that
    /// order too. Weights are dropped. O(D + E).
    ///
    /// # Errors
    /// The edges exceed a block's 32-bit positions.
    pub fn join(&self, schema: &Schema, t: usize, relations: &[usize], block: &mut Block) -> Result<()> {
        block.clear();
        block.num_dst = self.num_dst[t];
        block.num_src = self.num_joined(schema, t, relations);
        let edges: usize = relations.iter().map(|&r| self.relations[r].num_edges()).sum();
        if u32::try_from(edges).is_err() || u32::try_from(block.num_src).is_err() {
            return Err(Error::invalid(format!(
                "node type '{}': a minibatch needs {edges} edges and {} rows in one block, which holds at \
                 most {}; use a smaller batch or fanout",
                schema.types()[t].name,
                block.num_src,
                u32::MAX
            )));
        }
        let mut first = vec![block.num_dst as u32];
        for &r in relations {
            let Relation { src, .. } = schema.relations()[r];
            first.push(first[first.len() - 1] + self.num_src[src] as u32);
        }
        memory::demand(&mut block.indptr, block.num_dst + 1);
        memory::demand(&mut block.indices, edges);
        block.indptr.push(0);
        for v in 0..block.num_dst {
            for (&r, first) in relations.iter().zip(&first) {
                let slice = &self.relations[r];
                block.indices.extend(slice.indices[slice.edges(v)].iter().map(|u| first + u));
            }
            block.indptr.push(block.indices.len() as u32);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::{super::NodeType, *};

    #[test]
    fn joined_edges_read_stacked_sources() {
        let types = vec![NodeType::new("author", 4), NodeType::new("paper", 5)];
        let relations =
            vec![Relation::new(0, "writes", 1), Relation::new(1, "by", 0), Relation::new(1, "cites", 1)];
        let schema = Schema::new(types, relations).unwrap();
        let mut typed = TypedBlock::default();
        typed.clear(&schema);
        (typed.num_dst, typed.num_src) = (vec![0, 2], vec![3, 4]);
        let fill = |block: &mut Block, indptr: &[u32], indices: &[u32]| {
            block.indptr.extend_from_slice(indptr);
            block.indices.extend_from_slice(indices);
        };
        fill(&mut typed.relations[0], &[0, 2, 3], &[2, 0, 1]);
        fill(&mut typed.relations[2], &[0, 0, 2], &[3, 2]);
        typed.fit(&schema);
        assert_eq!((typed.relations[1].num_dst, typed.relations[1].num_src, typed.num_edges()), (0, 4, 5));
        typed.transpose(false);
        assert!(typed.is_transposed());

        let mut joined = Block::default();
        typed.join(&schema, 1, &[0, 2], &mut joined).unwrap();
        // two papers, three authors, four papers
        assert_eq!((joined.num_dst, joined.num_src, typed.num_joined(&schema, 1, &[0, 2])), (2, 9, 9));
        assert_eq!((&joined.indptr[..], &joined.indices[..]), (&[0, 2, 5][..], &[4, 2, 3, 8, 7][..]));
        typed.join(&schema, 0, &[1], &mut joined).unwrap();
        assert_eq!((joined.num_dst, joined.num_src, &joined.indptr[..]), (0, 4, &[0][..]));
    }
}
