//! Full ranking: every candidate of every query is scored, in bounded memory.
//!
//! # Algorithm
//!
//! A block of queries is scored against all candidates by one dense product, if the decoder's score
//! is a product of a row of the query and a row of the candidate ([`Decoder::query_rows`]); by
//! distances of such rows, if it is a distance; else pair by pair. Each row of scores is then read
//! while it is in the cache: it counts the candidates that are larger than a target and those that
//! are equal to it. Candidates that a query leaves out, such as other true edges, get NaN, which is
//! neither. Scores pair by pair cost a pass of the decoder for each candidate of each query.
//!
//! # Source
//!
//! Ranks against all candidates without other true edges: Bordes et al., *Translating embeddings
//! for modeling multi-relational data*, NeurIPS 2013, section 4.2. Ties as in the evaluators of OGB
//! (Hu et al., NeurIPS 2020).
//!
//! # Cost
//!
//! O(Q C F) for the products and O(T C) for the counts, with `T` targets.
//!
//! # Memory
//!
//! A block of scores: 64 MiB, or 16 rows of `C` scores if that is more.
//!
//! ```
//! use graphmill_nn::{
//!     Matrix, Pass,
//!     backend::Cpu,
//!     link::{
//!         decoder::{DecoderConfig, TABLE},
//!         rank::full::{FullRanking, Lists},
//!     },
//! };
//!
//! let decoder = (TABLE.find("dot")?.make.make)(&DecoderConfig { dim: 1, ..DecoderConfig::default() })?;
//! let backend = Cpu::default();
//! let query = Matrix::from_slice(1, 1, &[1.0]);
//! let candidates = Matrix::from_slice(4, 1, &[4.0, 3.0, 2.0, 2.0]);
//! let ranking = FullRanking {
//!     decoder: &*decoder,
//!     pass: Pass { backend: &backend, training: false, key: 0 },
//!     end: graphmill_core::End::Destination,
//!     queries: query.view(),
//!     relation: &[],
//!     candidates: candidates.view(),
//!     excluded: Lists::new(&[0, 1], &[0]),
//!     nodes: [&[], &[]],
//! };
//! // candidate 3 is tied with candidate 2 behind candidate 1; candidate 0 is left out
//! assert_eq!(ranking.ranks(&Lists::new(&[0, 1], &[3])), [2.5]);
//! assert_eq!(ranking.top(2), [[(1, 3.0), (2, 2.0)]]);
//! # Ok::<(), graphmill_nn::Error>(())
//! ```

use std::{
    iter::repeat_n,
    sync::{
        OnceLock,
        atomic::{AtomicU32, AtomicU64, Ordering::Relaxed},
    },
};

use graphmill_core::{End, NodeId};
use rayon::prelude::*;

use crate::{
    Matrix, Pass, Saved, View,
    backend::{Side, ops::Gemm},
    link::{
        decoder::{Decoder, Pairs, Queries},
        kernel::Kernel,
    },
};

/// Bytes of a block of scores.
const BLOCK_BYTES: usize = 64 << 20;
/// Least and most queries of a block.
const BLOCK_ROWS: (usize, usize) = (16, 768);

/// A list of candidates for each query.
#[derive(Clone, Copy, Debug)]
pub struct Lists<'a> {
    indptr: &'a [usize],
    ids: &'a [u32],
}

impl<'a> Lists<'a> {
    /// Creates the lists `ids[indptr[q]..indptr[q + 1]]`.
    ///
    /// # Panics
    /// The boundaries do not ascend from 0 to the number of ids: a bug in the caller.
    pub fn new(indptr: &'a [usize], ids: &'a [u32]) -> Self {
        assert!(indptr.first() == Some(&0) && indptr.last() == Some(&ids.len()) && indptr.is_sorted());
        Self { indptr, ids }
    }

    /// Candidates of a query, and the position of the first among all.
    pub(super) fn of(&self, query: usize) -> (usize, &'a [u32]) {
        let (start, end) = (self.indptr[query], self.indptr[query + 1]);
        (start, &self.ids[start..end])
    }
}

/// Queries and the candidates that are ranked for each of them.
#[derive(Clone, Copy)]
pub struct FullRanking<'a> {
    /// Score of an edge.
    pub decoder: &'a dyn Decoder,
    /// The backend; embeddings are in the memory of the host.
    pub pass: Pass<'a>,
    /// End that the candidates are.
    pub end: End,
    /// Embedding of each query's other end, `Q x F`.
    pub queries: View<'a>,
    /// Relation of each query, or empty: relation 0.
    pub relation: &'a [u32],
    /// Embedding of each candidate, `C x F`.
    pub candidates: View<'a>,
    /// Candidates that each query leaves out.
    pub excluded: Lists<'a>,
    /// Numbers of the nodes of the queries, `Q`, and of the candidates, `C`, for decoders that read
    /// the graph around pairs ([`DecoderKind::reads_structure`]); else they may be empty.
    ///
    /// [`DecoderKind::reads_structure`]: super::super::decoder::DecoderKind::reads_structure
    pub nodes: [&'a [NodeId]; 2],
}

impl FullRanking<'_> {
    /// Ranks of the targets of each query among the candidates that it does not leave out, in the
    /// order of the targets: `1 + #(larger) + #(equal others) / 2`. A target that is left out
    /// itself is ranked as if it alone were not. A NaN score ranks last.
    ///
    /// # Panics
    /// A candidate is not below `C`, or shapes disagree: a bug in the caller.
    pub fn ranks(&self, targets: &Lists) -> Vec<f64> {
        let ranks: Vec<AtomicU64> = targets.ids.iter().map(|_| AtomicU64::default()).collect();
        self.score(&|query, scores| {
            let (first, targets) = targets.of(query);
            let own: Vec<f32> = targets.iter().map(|&target| scores[target as usize]).collect();
            let excluded = self.excluded.of(query).1;
            let left = scores.len() - excluded.len();
            excluded.iter().for_each(|&i| scores[i as usize] = f32::NAN);
            for (i, (&score, &target)) in own.iter().zip(targets).enumerate() {
                let (larger, equal) = count(scores, score);
                let counted = u64::from(!scores[target as usize].is_nan());
                let rank = if score.is_nan() {
                    (left + usize::from(excluded.contains(&target))) as f64
                } else {
                    1.0 + larger as f64 + (equal - counted) as f64 / 2.0
                };
                ranks[first + i].store(rank.to_bits(), Relaxed);
            }
        });
        ranks.into_iter().map(|rank| f64::from_bits(rank.into_inner())).collect()
    }

    /// The `k` candidates with the largest scores of each query, without those that it leaves out:
    /// the largest first, ties by ascending number. Candidates with a NaN score come before all
    /// others, so that a caller that checks the scores finds them.
    ///
    /// # Panics
    /// As [`FullRanking::ranks`].
    pub fn top(&self, k: usize) -> Vec<Vec<(u32, f32)>> {
        let best: Vec<OnceLock<Vec<(u32, f32)>>> = vec![OnceLock::new(); self.queries.num_rows()];
        self.score(&|query, scores| {
            let excluded = self.excluded.of(query).1;
            let faulty = (0..).zip(&*scores).filter(|(i, score)| score.is_nan() && !excluded.contains(i));
            let faulty: Vec<(u32, f32)> = faulty.map(|(i, &score)| (i, score)).take(k).collect();
            excluded.iter().for_each(|&i| scores[i as usize] = f32::NAN);
            let all = scores.iter().enumerate().filter(|(_, score)| !score.is_nan());
            let mut all: Vec<(u32, f32)> = all.map(|(i, &score)| (i as u32, score)).collect();
            let order = |a: &(u32, f32), b: &(u32, f32)| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0));
            if k < all.len() {
                all.select_nth_unstable_by(k, order);
                all.truncate(k);
            }
            all.sort_unstable_by(order);
            all.splice(0..0, faulty);
            all.truncate(k);
            best[query].get_or_init(|| all);
        });
        best.into_iter().map(|best| best.into_inner().unwrap_or_default()).collect()
    }

    /// Scores of the targets of each query, in the order of the targets. A score has the bits that
    /// [`FullRanking::top`] gives it among any other candidates, if there are at least two here or
    /// one in all: a product with a single candidate is summed in another order.
    ///
    /// # Panics
    /// As [`FullRanking::ranks`].
    pub fn scores(&self, targets: &Lists) -> Vec<f32> {
        let found: Vec<AtomicU32> = targets.ids.iter().map(|_| AtomicU32::default()).collect();
        self.score(&|query, scores| {
            let (first, targets) = targets.of(query);
            for (to, &target) in found[first..].iter().zip(targets) {
                to.store(scores[target as usize].to_bits(), Relaxed);
            }
        });
        found.into_iter().map(|score| f32::from_bits(score.into_inner())).collect()
    }

    /// Calls `row` with each query and the scores of all candidates.
    pub(super) fn score(&self, row: &(dyn Fn(usize, &mut [f32]) + Sync)) {
        let (queries, candidates) = (self.queries.num_rows(), self.candidates.num_rows());
        assert!(self.relation.is_empty() || self.relation.len() == queries, "relations of queries");
        if queries == 0 || candidates == 0 {
            return;
        }
        let fixed = Queries { end: self.end, rows: self.queries, relation: self.relation };
        let mut rows = Matrix::default();
        if !self.decoder.query_rows(&fixed, &mut rows) {
            return self.score_pairs(row);
        }
        let mut normalized = Matrix::default();
        let prepared = self.decoder.candidate_rows(self.candidates, &mut normalized);
        let factor = if prepared { normalized.view() } else { self.candidates };
        let len = (BLOCK_BYTES / (4 * candidates)).clamp(BLOCK_ROWS.0, BLOCK_ROWS.1);
        let mut scores = Matrix::default();
        for block in 0..queries.div_ceil(len) {
            let count = len.min(queries - block * len);
            scores.resize(count, candidates);
            let queries = rows.view().rows(block * len..block * len + count);
            match self.decoder.kernel() {
                Kernel::Product => {
                    let (a, c) = ((queries, Side::Plain), scores.view_mut());
                    let product = Gemm { a, b: (factor, Side::Transposed), beta: 0.0, c };
                    product.run(self.pass.backend);
                }
                kernel => distances(kernel, queries, factor, &mut scores),
            }
            let lines = scores.view_mut().host().par_chunks_mut(candidates).enumerate();
            lines.for_each(|(i, scores)| row(block * len + i, scores));
        }
    }

    /// [`FullRanking::score`] of a decoder that has no product.
    fn score_pairs(&self, row: &(dyn Fn(usize, &mut [f32]) + Sync)) {
        let (count, dim) = (self.candidates.num_rows(), self.candidates.num_cols());
        let (mut fixed, mut scores, mut saved) = (Matrix::default(), Matrix::default(), Saved::default());
        fixed.resize(count, dim);
        let (mut relation, mut node) = (Vec::new(), Vec::new());
        let [queries, candidates] = self.nodes;
        for (query, values) in self.queries.host().chunks(dim).enumerate() {
            fixed.view_mut().host().par_chunks_mut(dim).for_each(|row| row.copy_from_slice(values));
            relation.clear();
            relation.extend(self.relation.get(query).into_iter().flat_map(|&r| repeat_n(r, count)));
            node.clear();
            node.extend(queries.get(query).into_iter().flat_map(|&v| repeat_n(v, count)));
            let (source, destination, nodes) = match self.end {
                End::Destination => (fixed.view(), self.candidates, [&node[..], candidates]),
                End::Source => (self.candidates, fixed.view(), [candidates, &node[..]]),
            };
            let pairs = Pairs { source, destination, relation: &relation, nodes };
            self.decoder.forward(&self.pass, &pairs, &mut saved, &mut scores);
            row(query, scores.view_mut().host());
        }
    }
}

/// Scores of all candidates by their distances from the queries.
fn distances(kernel: Kernel, queries: View, candidates: View, scores: &mut Matrix) {
    let (dim, count) = (queries.num_cols(), candidates.num_rows());
    let lines = scores.view_mut().host().par_chunks_mut(count).zip(queries.host().par_chunks(dim));
    lines.for_each(|(line, query)| {
        let rows = candidates.host().chunks_exact(dim);
        line.iter_mut().zip(rows).for_each(|(score, row)| *score = kernel.score(query, row));
    });
}

/// Number of scores that are larger than `score`, and of those that are equal.
pub(super) fn count(scores: &[f32], score: f32) -> (u64, u64) {
    let (mut larger, mut equal) = (0, 0);
    // sums of 32 bits, which vectors hold, over runs that they can count
    for run in scores.chunks(1 << 20) {
        let mut of_run = (0u32, 0u32);
        for &x in run {
            of_run.0 += u32::from(x > score);
            of_run.1 += u32::from(x == score);
        }
        larger += u64::from(of_run.0);
        equal += u64::from(of_run.1);
    }
    (larger, equal)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use graphmill_core::{
        Graph,
        keyed::{Stream, key},
    };

    use super::*;
    use crate::{
        backend::{Cpu, Precision},
        link::{
            decoder::{DecoderConfig, TABLE},
            rank::Query,
            structure::PairStructure,
        },
    };

    const DIM: usize = 8;
    const RELATIONS: usize = 3;

    /// Rows of small integers, many of them equal: products are exact and often tied.
    fn rows(count: usize, seed: u64) -> Matrix {
        let mut stream = Stream::new(key(&[seed]));
        let values: Vec<f32> = (0..count * DIM).map(|_| stream.below(3) as f32 - 1.0).collect();
        Matrix::from_slice(count, DIM, &values)
    }

    /// A random graph, whose structure decoders read.
    fn structure(nodes: u64) -> Arc<PairStructure> {
        let mut stream = Stream::new(key(&[6]));
        let indptr: Vec<u64> = (0..=nodes).map(|v| 4 * v).collect();
        let indices: Vec<u32> = (0..4 * nodes).map(|_| stream.below(nodes) as u32).collect();
        Arc::new(PairStructure::new(&Graph::new(indptr.into(), indices.into()).unwrap()).unwrap())
    }

    fn lists(queries: usize, candidates: u64, each: u64, seed: u64) -> (Vec<usize>, Vec<u32>) {
        let mut stream = Stream::new(key(&[seed]));
        let (mut indptr, mut ids) = (vec![0], Vec::new());
        for _ in 0..queries {
            let mut own: Vec<u32> =
                (0..stream.below(each + 1)).map(|_| stream.below(candidates) as u32).collect();
            own.sort_unstable();
            own.dedup();
            ids.extend(own);
            indptr.push(ids.len());
        }
        (indptr, ids)
    }

    #[test]
    fn a_candidate_with_a_score_of_nan_comes_first_unless_it_is_left_out() {
        let (queries, mut candidates) = (rows(2, 1), rows(90, 2));
        candidates.view_mut().host()[7 * DIM] = f32::NAN;
        let backend = Cpu::default();
        let config = DecoderConfig { dim: DIM, relations: 1, key: 5, ..DecoderConfig::default() };
        let decoder = (TABLE.iter().find(|entry| entry.name == "dot").unwrap().make.make)(&config).unwrap();
        let ranking = FullRanking {
            decoder: &*decoder,
            pass: Pass { backend: &backend, training: false, key: 0 },
            end: End::Destination,
            queries: queries.view(),
            relation: &[],
            candidates: candidates.view(),
            excluded: Lists::new(&[0, 1, 1], &[7]),
            nodes: [&[], &[]],
        };
        let top = ranking.top(3);
        assert!(top[0].len() == 3 && top[0].iter().all(|&(v, score)| v != 7 && score.is_finite()));
        assert!(top[1].len() == 3 && top[1][0].0 == 7 && top[1][0].1.is_nan());
        assert!(top[1][1..].iter().all(|&(v, score)| v != 7 && score.is_finite()));
    }

    #[test]
    fn ranks_and_best_candidates_are_those_of_single_pairs() {
        let (queries, candidates) = (rows(40, 1), rows(90, 2));
        let relation: Vec<u32> = (0..40).map(|q| q % RELATIONS as u32).collect();
        let (excluded_ptr, excluded) = lists(40, 90, 12, 3);
        let (target_ptr, target) = lists(40, 90, 4, 4);
        let (excluded, targets) = (Lists::new(&excluded_ptr, &excluded), Lists::new(&target_ptr, &target));
        let backend = Cpu::default();
        let pass = Pass { backend: &backend, training: false, key: 0 };
        let (graph, nodes) = (structure(130), (0..130).collect::<Vec<u32>>());
        let nodes = [&nodes[..40], &nodes[40..]];
        for (entry, end) in TABLE.iter().flat_map(|e| [(e, End::Source), (e, End::Destination)]) {
            let graph = Some(&graph);
            let config =
                DecoderConfig { dim: DIM, relations: RELATIONS, key: 5, graph, ..DecoderConfig::default() };
            let decoder = (entry.make.make)(&config).unwrap();
            let relation = if entry.make.knows_relations { &relation[..] } else { &[] };
            let ranking = FullRanking {
                decoder: &*decoder,
                pass,
                end,
                queries: queries.view(),
                relation,
                candidates: candidates.view(),
                excluded,
                nodes,
            };
            // products and single pairs differ in the last digits, so only exact ones are compared
            let exact = ["dot"].contains(&entry.name);
            let (ranks, top) = (ranking.ranks(&targets), ranking.top(5));
            for len in [2, 7, 64, 89, 200] {
                assert_eq!(ranking.ranks_by_blocks(&targets, len), ranks, "{} {end:?} {len}", entry.name);
            }
            for (q, best) in top.iter().enumerate() {
                let mut saved = Saved::default();
                let mut scores = Matrix::default();
                let fixed: Vec<f32> = queries.view().host()[q * DIM..][..DIM].repeat(90);
                let fixed = Matrix::from_slice(90, DIM, &fixed);
                let of_all: Vec<u32> = relation.get(q).into_iter().flat_map(|&r| vec![r; 90]).collect();
                let node = [nodes[0][q]; 90];
                let (source, destination, nodes) = match end {
                    End::Destination => (fixed.view(), candidates.view(), [&node, nodes[1]]),
                    End::Source => (candidates.view(), fixed.view(), [nodes[1], &node]),
                };
                let pairs = Pairs { source, destination, relation: &of_all, nodes };
                decoder.forward(&pass, &pairs, &mut saved, &mut scores);
                let scores = scores.view().host();
                let (first, own) = targets.of(q);
                for (i, &target) in own.iter().enumerate() {
                    let out = excluded.of(q).1;
                    let kept = |i: &usize| !out.contains(&(*i as u32)) || *i == target as usize;
                    let left: Vec<usize> = (0..90).filter(kept).collect();
                    let at = left.iter().position(|&i| i == target as usize).unwrap() as u32;
                    let left: Vec<f32> = left.iter().map(|&i| scores[i]).collect();
                    let expected = Query { scores: &left, relevant: &[at] }.ranks()[0];
                    let found = ranks[first + i];
                    if exact {
                        assert_eq!(found, expected, "{} {end:?} query {q}", entry.name);
                    } else {
                        let score = scores[target as usize];
                        let near = left.iter().filter(|&&x| (x - score).abs() < 1e-4).count() as f64;
                        assert!((found - expected).abs() <= near, "{} {end:?} query {q}", entry.name);
                    }
                }
                assert_eq!(best.len(), 5);
                assert!(best.is_sorted_by(|a, b| a.1 > b.1 || (a.1 == b.1 && a.0 < b.0)));
                for &(i, score) in best {
                    assert!(!excluded.of(q).1.contains(&i));
                    assert!((score - scores[i as usize]).abs() < 1e-4, "{} {end:?}", entry.name);
                }
            }
        }
    }

    #[test]
    fn scores_have_their_bits_among_any_other_candidates() {
        // widths around the length up to which products are summed in one piece
        for dim in [6, 40, 600] {
            let mut stream = Stream::new(key(&[9, dim as u64]));
            let mut rows = |count: usize| {
                let values: Vec<f32> =
                    (0..count * dim).map(|_| stream.below(1 << 16) as f32 / 65536.0 - 0.5).collect();
                Matrix::from_slice(count, dim, &values)
            };
            let (queries, all) = (rows(12), rows(120));
            let relation: Vec<u32> = (0..12).map(|q| q % RELATIONS as u32).collect();
            let none = vec![0; 13];
            let (graph, nodes) = (structure(132), (0..132).collect::<Vec<u32>>());
            let nodes = [&nodes[..12], &nodes[12..]];
            let precisions = [Precision::F32, Precision::Bf16, Precision::Tf32];
            for (entry, precision) in TABLE.iter().flat_map(|entry| precisions.map(|of| (entry, of))) {
                let graph = Some(&graph);
                let config =
                    DecoderConfig { dim, relations: RELATIONS, key: 5, graph, ..DecoderConfig::default() };
                let decoder = (entry.make.make)(&config).unwrap();
                let backend = Cpu { precision };
                let whole = FullRanking {
                    decoder: &*decoder,
                    pass: Pass { backend: &backend, training: false, key: 0 },
                    end: End::Destination,
                    queries: queries.view(),
                    relation: &relation,
                    candidates: all.view(),
                    excluded: Lists::new(&none, &[]),
                    nodes,
                };
                let top = whole.top(120);
                for (first, count, query, queries) in [(17, 2, 3, 1), (50, 65, 5, 1), (40, 7, 0, 11)] {
                    let ids: Vec<u32> = (0..count as u32).collect();
                    let (targets, none) =
                        ((0..=queries).map(|q| q * count).collect::<Vec<_>>(), vec![0; queries + 1]);
                    let ranking = FullRanking {
                        queries: whole.queries.rows(query..query + queries),
                        relation: &relation[query..query + queries],
                        candidates: all.rows(first..first + count),
                        nodes: [&nodes[0][query..query + queries], &nodes[1][first..first + count]],
                        excluded: Lists::new(&none, &[]),
                        ..whole
                    };
                    let scores = ranking.scores(&Lists::new(&targets, &ids.repeat(queries)));
                    for (q, own) in scores.chunks(count).enumerate() {
                        for (i, score) in own.iter().enumerate() {
                            let among = top[query + q].iter().find(|(id, _)| *id as usize == first + i);
                            let among = among.unwrap().1;
                            assert_eq!(
                                among.to_bits(),
                                score.to_bits(),
                                "{} {dim} {precision:?}",
                                entry.name
                            );
                        }
                    }
                }
            }
        }
    }

    #[test]
    fn equal_rows_are_tied_wherever_they_are() {
        // more candidates than a kernel's tile, in several blocks of queries
        let mut values = vec![0.3_f32; 1003 * DIM];
        values[500 * DIM] = 0.5;
        let (candidates, queries) = (Matrix::from_slice(1003, DIM, &values), rows(0, 1));
        assert_eq!(queries.num_rows(), 0);
        let fixed: Vec<f32> = (0..70 * DIM).map(|i| 0.1 + 0.01 * (i % 7) as f32).collect();
        let queries = Matrix::from_slice(70, DIM, &fixed);
        let decoder =
            (TABLE.find("dot").unwrap().make.make)(&DecoderConfig { dim: DIM, ..DecoderConfig::default() });
        let decoder = decoder.unwrap();
        let backend = Cpu::default();
        let none = vec![0; 71];
        let ranking = FullRanking {
            decoder: &*decoder,
            pass: Pass { backend: &backend, training: false, key: 0 },
            end: End::Destination,
            queries: queries.view(),
            relation: &[],
            candidates: candidates.view(),
            excluded: Lists::new(&none, &[]),
            nodes: [&[], &[]],
        };
        let indptr: Vec<usize> = (0..=70).map(|q| q * 4).collect();
        let targets = [0, 499, 1002, 500].repeat(70);
        let ranks = ranking.ranks(&Lists::new(&indptr, &targets));
        // one is larger; the mean of the ranks 2 to 1003
        for ranks in ranks.chunks(4) {
            assert_eq!(ranks, [502.5, 502.5, 502.5, 1.0]);
        }
        for threads in [1, 3] {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
            assert_eq!(pool.install(|| ranking.ranks(&Lists::new(&indptr, &targets))), ranks);
        }
    }
}
