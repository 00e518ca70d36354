//! Edges from tables of pairs, in chunks: a text table of two columns, or an array with a row of
//! sources and a row of destinations (`[2, E]`, as PyG's `edge_index`), or one with an edge per row
//! (`[E, 2]`).

use std::path::Path;

use graphmill_core::{
    NodeId, Result, csc::is_no_weight, location::Location, progress::Unit, search::position,
};

use super::{
    edges::{
        ends,
        weights::{Weights, no_weight},
    },
    feature_rows::file_name,
};
use crate::{
    external::{Edges, Needs, Scratch},
    npy::{CHUNK_LEN, Header, NpyFile, Pieces},
    npz::Npz,
};

/// Destination of the edges, and the limit of their node ids.
pub(super) struct Sink<'a> {
    pub(super) edges: &'a mut Edges,
    pub(super) nodes: usize,
    pub(super) scratch: &'a Scratch,
}

/// Layout of an edge array.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Shape {
    /// `[2, E]`.
    TwoRows,
    /// `[E, 2]`.
    TwoColumns,
}

impl Sink<'_> {
    /// Reports the expected size: the number of edges, and the bytes of the features.
    ///
    /// # Errors
    /// The disk has too little free space.
    pub(super) fn expect(&self, edges: Needs, features: u64) -> Result<()> {
        let stored = edges.edges.saturating_mul(self.edges.directions());
        self.scratch.expect(&Needs { nodes: self.nodes as u64, edges: stored, features, ..edges })
    }

    fn begin(&self, at: &Location, total: Option<u64>) {
        self.scratch.stage(&format!("edges of {}", file_name(at)), total, Unit::Edges);
    }

    /// Adds edges with the next values of `weights`.
    fn extend(
        &mut self,
        src: &[NodeId],
        dst: &[NodeId],
        weights: &mut Option<Pieces<f32>>,
        at: &Location,
    ) -> Result<()> {
        for ends in [src, dst] {
            if let Some(i) = position(ends, |&v| v as usize >= self.nodes) {
                let edge = self.edges.len() + i as u64;
                return Err(at.error(format!(
                    "edge {edge} names node {}, but there are {} nodes",
                    ends[i], self.nodes
                )));
            }
        }
        let weight = next_weights(weights, src.len(), self.edges.len())?;
        self.edges.extend_weighted(src, dst, weight)?;
        self.scratch.done(self.edges.len());
        Ok(())
    }

    /// Adds the edges of a text table: source, destination; their weights are a separate array.
    ///
    /// # Errors
    /// The file cannot be read, or a line is not an edge between two of the nodes.
    pub(super) fn text(&mut self, path: &Path, weights: Option<&NpyFile>) -> Result<()> {
        if self.edges.take_up_all() {
            return Ok(());
        }
        let mut weights = weights.map(|weights| weights.pieces(0));
        let (edges, nodes) = (&mut self.edges, Some(self.nodes));
        ends::read::<NodeId>(path, nodes, &Weights::None, self.scratch, &mut |src, dst, _| {
            let weight = next_weights(&mut weights, src.len(), edges.len())?;
            edges.extend_weighted(src, dst, weight)
        })?;
        check_weights(&weights, self.edges.len() as usize)
    }

    /// Adds the edges of an array with their weights (`[E]`).
    ///
    /// # Errors
    /// The array has another shape, cannot be read, or contains an invalid node id.
    pub(super) fn npy(&mut self, array: &NpyFile, shape: Shape, weights: Option<&NpyFile>) -> Result<()> {
        let first = array.pieces(0);
        if self.edges.take_up_all() {
            return Ok(());
        }
        let (edges, halves) = count(first.header(), shape, first.at())?;
        let weights = weights.map(|weights| weights.pieces(0));
        check_weights(&weights, edges)?;
        match halves {
            true => self.halves(first, array.pieces(edges), weights),
            false => self.interleaved(first, weights),
        }
    }

    /// Adds the edges of the member `name` of an archive, with the weights of the member `weights`.
    ///
    /// # Errors
    /// As for [`Sink::npy`].
    pub(super) fn npz(
        &mut self,
        npz: &mut Npz,
        name: &str,
        shape: Shape,
        weights: Option<&str>,
    ) -> Result<()> {
        if self.edges.take_up_all() {
            return Ok(());
        }
        let path = npz.path().to_path_buf();
        let first = npz.pieces(name)?;
        let (edges, halves) = count(first.header(), shape, first.at())?;
        let mut beside = Npz::open(&path)?;
        let weights = weights.map(|name| beside.pieces(name)).transpose()?;
        check_weights(&weights, edges)?;
        match halves {
            true => {
                // The two ends of an edge are far apart, so a second reader reads the destinations.
                let mut ahead = Npz::open(&path)?;
                let mut second = ahead.pieces(name)?;
                second.skip(edges)?;
                self.halves(first, second, weights)
            }
            false => self.interleaved(first, weights),
        }
    }

    /// Adds edges stored as all sources followed by all destinations.
    fn halves(
        &mut self,
        mut src: Pieces<NodeId>,
        mut dst: Pieces<NodeId>,
        mut weights: Option<Pieces<f32>>,
    ) -> Result<()> {
        let mut left = src.header().len() / 2;
        self.begin(src.at(), Some(left as u64));
        let mut from = Vec::with_capacity(CHUNK_LEN.min(left));
        loop {
            // The last chunk of sources is read even if it is empty, because the checksum is
            // verified at the end of a member, and only the second reader gets there.
            let most = CHUNK_LEN.min(left);
            from.clear();
            from.extend_from_slice(src.next(most)?);
            let to = dst.next(CHUNK_LEN)?;
            if to.is_empty() {
                return Ok(());
            }
            self.extend(&from, to, &mut weights, src.at())?;
            left -= most;
        }
    }

    /// Adds edges stored as alternating source and destination.
    fn interleaved(&mut self, mut pairs: Pieces<NodeId>, mut weights: Option<Pieces<f32>>) -> Result<()> {
        self.begin(pairs.at(), Some(pairs.header().len() as u64 / 2));
        loop {
            let piece = pairs.next(CHUNK_LEN)?;
            if piece.is_empty() {
                return Ok(());
            }
            let (src, dst): (Vec<_>, Vec<_>) = piece.chunks_exact(2).map(|pair| (pair[0], pair[1])).unzip();
            self.extend(&src, &dst, &mut weights, pairs.at())?;
        }
    }
}

/// Weights of the next `count` edges after the first `before`; empty for unweighted edges.
fn next_weights<'w>(weights: &'w mut Option<Pieces<f32>>, count: usize, before: u64) -> Result<&'w [f32]> {
    let Some(weights) = weights else { return Ok(&[]) };
    let at = weights.at().clone();
    let weight = weights.next(count)?;
    if let Some(i) = position(weight, is_no_weight) {
        return Err(at.error(format!("element {}: {}", before + i as u64, no_weight(weight[i]))));
    }
    if weight.len() < count {
        let given = before + weight.len() as u64;
        return Err(at.error(format!("{given} weights, but there are more edges")));
    }
    Ok(weight)
}

/// Checks that there is one weight per edge.
fn check_weights(weights: &Option<Pieces<f32>>, edges: usize) -> Result<()> {
    let Some(weights) = weights else { return Ok(()) };
    let shape = &weights.header().shape[..];
    if shape == [edges] || shape == [edges, 1] {
        return Ok(());
    }
    Err(weights.at().error(format!("shape [{edges}] expected, a weight per edge; {shape:?} found")))
}

/// Number of edges, and whether all sources precede all destinations in the file.
fn count(header: &Header, shape: Shape, at: &Location) -> Result<(usize, bool)> {
    match (shape, &header.shape[..]) {
        (Shape::TwoRows, &[2, edges]) => Ok((edges, !header.fortran_order)),
        (Shape::TwoColumns, &[edges, 2]) => Ok((edges, header.fortran_order)),
        (Shape::TwoRows, other) => Err(at.error(format!("shape [2, edges] expected, {other:?} found"))),
        (Shape::TwoColumns, other) => Err(at.error(format!("shape [edges, 2] expected, {other:?} found"))),
    }
}

#[cfg(test)]
mod tests {
    use graphmill_core::EdgeOptions;

    use super::*;
    use crate::{
        npy::{self, Dtype},
        npz::testing::{archive, member},
    };

    const COUNT: usize = 2 * CHUNK_LEN + 77;

    fn expected() -> (Vec<u32>, Vec<u32>) {
        ((0..COUNT as u32).map(|i| i % 1000).collect(), (0..COUNT as u32).map(|i| i * 7 % 999).collect())
    }

    fn run(read: impl FnOnce(&mut Sink, &Path) -> Result<()>) -> Result<graphmill_core::Graph, String> {
        let dir = tempfile::tempdir().unwrap();
        let scratch = Scratch::in_memory();
        let mut edges = scratch.edges(EdgeOptions { keep_duplicates: true, ..EdgeOptions::DIRECTED });
        let mut sink = Sink { edges: &mut edges, nodes: 1000, scratch: &scratch };
        read(&mut sink, &dir.path().join("edges")).and_then(|()| edges.build(1000)).map_err(|e| e.to_string())
    }

    fn check(read: impl FnOnce(&mut Sink, &Path) -> Result<()>) {
        let (src, dst) = expected();
        let options = EdgeOptions { keep_duplicates: true, ..EdgeOptions::DIRECTED };
        let graph = graphmill_core::build(1000, &src, &dst, options).unwrap();
        let found = run(read).unwrap();
        assert_eq!((found.indptr(), found.indices()), (graph.indptr(), graph.indices()));
    }

    #[test]
    fn every_layout_gives_the_same_edges() {
        let (src, dst) = expected();
        let halves: Vec<i64> = src.iter().chain(&dst).map(|&v| v.into()).collect();
        let mixed: Vec<i64> = src.iter().zip(&dst).flat_map(|(&u, &v)| [u.into(), v.into()]).collect();
        check(|sink, path| {
            let text: String = src.iter().zip(&dst).map(|(u, v)| format!("{u},{v}\n")).collect();
            std::fs::write(path, text).unwrap();
            sink.text(path, None)
        });
        for (data, shape, fortran) in [
            (&halves, Shape::TwoRows, false),
            (&mixed, Shape::TwoRows, true),
            (&mixed, Shape::TwoColumns, false),
            (&halves, Shape::TwoColumns, true),
        ] {
            let axes = if shape == Shape::TwoRows { vec![2, COUNT] } else { vec![COUNT, 2] };
            let header = Header { dtype: Dtype::parse("<i8").unwrap(), shape: axes, fortran_order: fortran };
            let bytes = [&header.to_bytes()[..], bytemuck::cast_slice(data)].concat();
            check(|sink, path| {
                std::fs::write(path, &bytes).unwrap();
                sink.npy(&npy::open(path)?, shape, None)
            });
            check(|sink, path| {
                std::fs::write(path, archive(&[("e.npy".into(), bytes.clone())], !fortran)).unwrap();
                sink.npz(&mut Npz::open(path)?, "e", shape, None)
            });
        }
    }

    #[test]
    fn errors_contain_the_edge() {
        let text = |text: &'static str| {
            run(move |sink, path| {
                std::fs::write(path, text).unwrap();
                sink.text(path, None)
            })
            .unwrap_err()
        };
        for bad in ["0,1\n0\n", "0,1\n0,1000\n", "0,1\n0,-1\n", "0,1\nx,1\n"] {
            assert!(text(bad).contains("edges: line 2: "), "{}", text(bad));
        }
        let array = |data: &'static [i64], axes: &'static [usize], shape| {
            run(move |sink, path| {
                npy::write(path, data, axes).unwrap();
                sink.npy(&npy::open(path)?, shape, None)
            })
        };
        let fails = |data, axes, shape, why: &str| {
            let error = array(data, axes, shape).unwrap_err();
            assert!(error.contains(why), "{error}");
        };
        fails(&[0, 1, 2, 1000], &[2, 2], Shape::TwoRows, "data: edge 1 names node 1000");
        fails(&[0, 1000, 2, 1], &[2, 2], Shape::TwoColumns, "data: edge 0 names node 1000");
        fails(&[0, 1, 2, -5], &[2, 2], Shape::TwoRows, "element 3 is -5");
        fails(&[0, 1, 2], &[1, 3], Shape::TwoRows, "shape [2, edges] expected, [1, 3]");
        fails(&[0, 1, 2], &[3, 1], Shape::TwoColumns, "shape [edges, 2] expected, [3, 1]");
        assert_eq!(array(&[], &[2, 0], Shape::TwoRows).unwrap().num_edges(), 0);
        // Damage in the second half is detected by its checksum.
        let mut bytes = archive(&[member("e", &[2, 2], &[0i64, 1, 2, 3])], false);
        let at = bytes.windows(8).rposition(|w| w == 3i64.to_le_bytes()).unwrap();
        bytes[at] ^= 1;
        let error = run(|sink, path| {
            std::fs::write(path, &bytes).unwrap();
            sink.npz(&mut Npz::open(path)?, "e", Shape::TwoRows, None)
        });
        assert!(error.unwrap_err().contains("damaged"));
    }
}
