//! From a spill to CSC: parts are sorted each by itself, several at a time, and written in their order.

use rayon::prelude::*;
use serde::{Deserialize, Serialize};

use super::{
    Rows, Scratch, Unit,
    spill::{Part, Parts, Spill},
};
use crate::{
    EdgeOptions, Error, Graph, NodeId, Result,
    builder::item::{Item, settle},
};

/// Edges between two points that a killed import can go on from.
const SYNC: u64 = 1 << 28;

/// Bytes that a key takes: it, its place while the part is sorted, and a source, a row and perhaps a weight, which are
/// kept while they are written and the next parts are sorted.
const fn bytes<I: Item>() -> u64 {
    2 * size_of::<I>() as u64 + 2 * (4 + 16 + if I::WEIGHTED { 4 } else { 0 })
}

/// How far the graph is on the disk.
#[derive(Default, Serialize, Deserialize)]
struct State {
    /// Parts written.
    parts: usize,
    /// Entries of `indices`.
    edges: u64,
    /// Entries of `indptr`: rows that are closed, and the leading zero.
    rows: u64,
}

/// Builds the graph of `num_nodes` nodes, all ids of which are below that.
///
/// O(E) work on all cores, which sort some parts while those before them are written; memory: half of the scratch's
/// budget (a part that is larger is cut again on the disk).
pub(super) fn build<I: Item>(
    scratch: &Scratch,
    spill: Spill<I>,
    num_nodes: usize,
    options: EdgeOptions,
) -> Result<Graph> {
    let parts = spill.into_parts()?;
    let total: u64 = parts.parts.iter().map(|part| part.keys).sum();
    scratch.stage("sorting edges", Some(total), Unit::Edges);
    let mut csc = Csc::resume(scratch, num_nodes, I::WEIGHTED)?;
    let first = csc.parts;
    if first > parts.parts.len() {
        return Err(damaged());
    }
    let mut sorted: u64 = parts.parts[..first].iter().map(|part| part.keys).sum();
    let most = (scratch.memory() / 2 / bytes::<I>()).max(1 << 16);
    let mut at = first;
    let mut ready: Vec<Run> = Vec::new();
    loop {
        let mut room = most;
        let fits = parts.parts[at..].iter().take(rayon::current_num_threads()).take_while(|part| {
            let fits = part.keys <= room;
            room = room.saturating_sub(part.keys);
            fits
        });
        let group = &parts.parts[at..at + fits.count()];
        let (written, runs) = rayon::join(
            || ready.iter().try_for_each(|run| csc.extend(run)),
            || group.par_iter().map(|part| Run::new(parts.read(part)?, options.keep_duplicates)).collect(),
        );
        written?;
        csc.parts = at;
        csc.sync_if_due()?;
        scratch.check()?;
        scratch.done(sorted);
        if at == parts.parts.len() {
            break;
        }
        let runs: Result<Vec<Run>> = runs;
        ready = runs?;
        sorted += group.iter().map(|part| part.keys).sum::<u64>();
        at += group.len();
        if group.is_empty() {
            let part = &parts.parts[at];
            large(scratch, &parts, part, options.keep_duplicates, most, 0, &mut csc)?;
            sorted += part.keys;
            at += 1;
        }
    }
    let graph = csc.finish()?;
    parts.remove()?;
    Ok(graph)
}

/// Sorts a part that does not fit memory, by cutting it into smaller ones.
fn large<I: Item>(
    scratch: &Scratch,
    of: &Parts<I>,
    part: &Part,
    keep_duplicates: bool,
    most: u64,
    depth: usize,
    csc: &mut Csc,
) -> Result<()> {
    if part.keys <= most {
        return csc.extend(&Run::new(of.read(part)?, keep_duplicates)?);
    }
    if let Some(key) = of.only_key(part)? {
        if I::WEIGHTED {
            // The weights of a single edge, more than fit the budget: they are to be put in order all the same.
            return csc.extend(&Run::new(of.read(part)?, keep_duplicates)?);
        }
        let copies = if keep_duplicates { part.keys } else { 1 };
        return csc.repeat(key, copies);
    }
    let cut = (part.keys / most * 2).clamp(2, 256) as usize;
    let parts = of.split(scratch, part, &format!("edges-{depth}"), cut)?;
    for smaller in &parts.parts {
        large(scratch, &parts, smaller, keep_duplicates, most, depth + 1, csc)?;
    }
    parts.remove()
}

/// A sorted part.
struct Run {
    /// Sources, row by row.
    sources: Vec<NodeId>,
    /// Destinations that have sources here, ascending, and how many.
    rows: Vec<(NodeId, u64)>,
    /// A weight per source, where there are weights.
    weights: Vec<f32>,
}

impl Run {
    fn new<I: Item>(mut keys: Vec<I>, keep_duplicates: bool) -> Result<Self> {
        settle(&mut keys, keep_duplicates)?;
        let sources = keys.iter().map(|item| item.key() as NodeId).collect();
        let weights = if I::WEIGHTED { keys.iter().map(|item| item.weight()).collect() } else { Vec::new() };
        let rows = keys.chunk_by(|a, b| a.key() >> 32 == b.key() >> 32);
        let rows = rows.map(|row| ((row[0].key() >> 32) as NodeId, row.len() as u64)).collect();
        Ok(Self { sources, rows, weights })
    }
}

/// A graph that is written from its first row to its last.
struct Csc {
    scratch: Scratch,
    indptr: Rows<u64>,
    indices: Rows<NodeId>,
    weights: Option<Rows<f32>>,
    /// Edges so far, and how many of them are on the disk for sure.
    edges: u64,
    synced: u64,
    /// The row that the next edges may still belong to.
    row: u64,
    /// Parts written.
    parts: usize,
    /// Rows that the graph will have; there is no edge beyond.
    nodes: u64,
    /// Whether an earlier process wrote some of it.
    resumed: bool,
    starts: Vec<u64>,
}

/// What an earlier process left is not what it wrote: its parts are not in order, or name nodes that there are not.
fn damaged() -> Error {
    Error::invalid("what a stopped import left is damaged; remove its directory (.importing) and start again")
}

impl Csc {
    fn resume(scratch: &Scratch, num_nodes: usize, weighted: bool) -> Result<Self> {
        let (mut indptr, mut indices) = (scratch.column("indptr")?, scratch.column("indices")?);
        let column = || weighted.then(|| scratch.column("edge-weight")).transpose();
        let mut weights = column()?;
        let state: State = scratch.load("csc").unwrap_or_default();
        indptr.start_at(state.rows)?;
        indices.start_at(state.edges)?;
        weights.as_mut().map_or(Ok(()), |weights| weights.start_at(state.edges))?;
        let found = indptr.len() as u64 == state.rows
            && indices.len() as u64 == state.edges
            && weights.as_ref().is_none_or(|weights| weights.len() as u64 == state.edges);
        let state = if found { state } else { State::default() };
        if !found {
            (indptr, indices) = (scratch.column("indptr")?, scratch.column("indices")?);
            weights = column()?;
            indptr.start_at(0)?;
            indices.start_at(0)?;
            weights.as_mut().map_or(Ok(()), |weights| weights.start_at(0))?;
        }
        let mut csc = Self {
            scratch: scratch.clone(),
            indptr,
            indices,
            weights,
            edges: state.edges,
            synced: state.edges,
            row: state.rows.saturating_sub(1),
            parts: state.parts,
            nodes: num_nodes as u64,
            resumed: state.rows > 0,
            starts: Vec::new(),
        };
        if state.rows == 0 {
            csc.indptr.extend(&[0])?;
        }
        Ok(csc)
    }

    /// Closes the rows before `row`.
    fn close(&mut self, row: u64) -> Result<()> {
        while self.row < row {
            let many = (row - self.row).min(1 << 16);
            self.starts.resize(many as usize, 0);
            self.starts.fill(self.edges);
            self.indptr.extend(&self.starts)?;
            self.row += many;
        }
        Ok(())
    }

    fn extend(&mut self, run: &Run) -> Result<()> {
        let (first, last) = (run.rows.first(), run.rows.last());
        if first.is_some_and(|&(v, _)| u64::from(v) < self.row)
            || last.is_some_and(|&(v, _)| u64::from(v) >= self.nodes)
            || run.sources.iter().max().is_some_and(|&u| u64::from(u) >= self.nodes)
        {
            return Err(damaged());
        }
        let mut starts = std::mem::take(&mut self.starts);
        starts.clear();
        let (mut row, mut edges) = (self.row, self.edges);
        for &(v, count) in &run.rows {
            while row < u64::from(v) {
                starts.push(edges);
                row += 1;
                if starts.len() == 1 << 16 {
                    self.indptr.extend(&starts)?;
                    starts.clear();
                }
            }
            edges += count;
        }
        self.indptr.extend(&starts)?;
        self.indices.extend(&run.sources)?;
        if let Some(weights) = &mut self.weights {
            weights.extend(&run.weights)?;
        }
        (self.row, self.edges, self.starts) = (row, edges, starts);
        Ok(())
    }

    /// An edge that stands many times.
    fn repeat(&mut self, key: u64, copies: u64) -> Result<()> {
        if key >> 32 < self.row || key >> 32 >= self.nodes || u64::from(key as NodeId) >= self.nodes {
            return Err(damaged());
        }
        self.close(key >> 32)?;
        let same = vec![key as NodeId; 1 << 16];
        let mut left = copies;
        while left > 0 {
            let now = left.min(same.len() as u64);
            self.indices.extend(&same[..now as usize])?;
            left -= now;
        }
        self.edges += copies;
        Ok(())
    }

    fn sync_if_due(&mut self) -> Result<()> {
        if self.edges - self.synced < SYNC { Ok(()) } else { self.sync() }
    }

    /// Makes a point that a killed import can go on from.
    fn sync(&mut self) -> Result<()> {
        self.indptr.spill()?;
        self.indices.spill()?;
        self.indptr.sync()?;
        self.indices.sync()?;
        if let Some(weights) = &mut self.weights {
            weights.spill()?;
            weights.sync()?;
        }
        self.synced = self.edges;
        let state = State { parts: self.parts, edges: self.edges, rows: self.indptr.len() as u64 };
        self.scratch.save("csc", &state)
    }

    fn finish(mut self) -> Result<Graph> {
        self.close(self.nodes)?;
        let (nodes, resumed) = (self.nodes, self.resumed);
        let (indptr, indices) = (self.indptr.finish()?, self.indices.finish()?);
        let weights = self.weights.map(Rows::finish).transpose()?;
        if resumed {
            // what an earlier process wrote may be damaged
            let graph = Graph::new(indptr, indices).and_then(|graph| match weights {
                Some(weights) => graph.with_edge_weight(weights),
                None => Ok(graph),
            });
            return graph.ok().filter(|graph| graph.num_nodes() as u64 == nodes).ok_or_else(damaged);
        }
        Ok(Graph::sorted(indptr, indices, weights))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::{
        Buffer, build as in_memory, build_weighted,
        builder::{deal::sample, item::Weighted},
        external::Quiet,
        keyed::Stream,
    };

    fn scratch(dir: &tempfile::TempDir) -> Scratch {
        Scratch::open(&dir.path().join("work"), "test", 64 << 20, Box::new(Quiet)).unwrap()
    }

    fn through_the_disk<I: Item>(
        scratch: &Scratch,
        nodes: usize,
        edges: [&[u32]; 2],
        weight: &[f32],
        options: EdgeOptions,
        most: u64,
    ) -> Graph {
        let [src, dst] = edges;
        let mut spill =
            Spill::<I>::create(scratch, options, sample(src, dst, options.undirected)).unwrap().unwrap();
        spill.extend(src, dst, weight).unwrap();
        let parts = spill.into_parts().unwrap();
        let mut csc = Csc::resume(scratch, nodes, I::WEIGHTED).unwrap();
        for part in &parts.parts {
            large(scratch, &parts, part, options.keep_duplicates, most, 0, &mut csc).unwrap();
        }
        csc.finish().unwrap()
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(100))]
        /// The same graph as in memory, with parts so small that they are cut again and again; its weights to the bit.
        #[test]
        fn same_as_in_memory(
            edges in prop::collection::vec((0u32..30, prop_oneof![Just(3u32), 0u32..30], 0f32..1.0), 0..300),
            undirected: bool, drop_self_loops: bool, keep_duplicates: bool, most in 1u64..50,
        ) {
            let options = EdgeOptions { undirected, drop_self_loops, keep_duplicates };
            let src: Vec<u32> = edges.iter().map(|e| e.0).collect();
            let dst: Vec<u32> = edges.iter().map(|e| e.1).collect();
            let weight: Vec<f32> = edges.iter().map(|e| e.2).collect();
            let expected = build_weighted(31, &src, &dst, &weight, options).unwrap();
            let dir = tempfile::tempdir().unwrap();
            let plain = through_the_disk::<u64>(&scratch(&dir), 31, [&src, &dst], &[], options, most);
            prop_assert_eq!((plain.indptr(), plain.indices()), (expected.indptr(), expected.indices()));
            let dir = tempfile::tempdir().unwrap();
            let found =
                through_the_disk::<Weighted>(&scratch(&dir), 31, [&src, &dst], &weight, options, most);
            prop_assert_eq!((found.indptr(), found.indices()), (expected.indptr(), expected.indices()));
            prop_assert_eq!(found.edge_weight(), expected.edge_weight());
        }
    }

    #[test]
    fn weights_beyond_the_budget_go_through_the_disk() {
        let nodes = 1000usize;
        let mut stream = Stream::new(4);
        let count = 1_000_000;
        let mut ids = || (0..count).map(|_| stream.below(nodes as u64) as u32).collect::<Vec<_>>();
        let (src, dst) = (ids(), ids());
        let weight: Vec<f32> = (0..count).map(|_| stream.uniform() as f32).collect();
        let expected = build_weighted(nodes, &src, &dst, &weight, EdgeOptions::DIRECTED).unwrap();
        let dir = tempfile::tempdir().unwrap();
        let work = scratch(&dir);
        let mut edges = work.maybe_weighted_edges(EdgeOptions::DIRECTED, true);
        assert!(
            edges.extend(&src[..1], &dst[..1]).unwrap_err().to_string().contains("0 weights for 1 edges")
        );
        let error = edges.extend_weighted(&[0], &[0], &[-2.0]).unwrap_err().to_string();
        assert!(error.contains("edge 0 weighs -2"), "{error}");
        for run in (0..count).step_by(300_000) {
            let run = run..(run + 300_000).min(count);
            edges.extend_weighted(&src[run.clone()], &dst[run.clone()], &weight[run]).unwrap();
        }
        assert!(work.file("edges.bin").unwrap().exists(), "it goes through the disk");
        let graph = edges.build(nodes).unwrap();
        assert!(graph.indptr() == expected.indptr() && graph.indices() == expected.indices());
        assert!(graph.edge_weight() == expected.edge_weight() && graph.edge_weight().is_some());
    }

    /// Duplicates meet whose weights are on both sides of the point at which the first process stopped.
    #[test]
    fn weights_are_taken_up_while_reading_and_while_sorting() {
        let nodes = 500usize;
        let mut stream = Stream::new(6);
        let count = 1_000_000;
        let mut ids = || (0..count).map(|_| stream.below(nodes as u64) as u32).collect::<Vec<_>>();
        let (src, dst) = (ids(), ids());
        let weight: Vec<f32> = (0..count).map(|_| stream.uniform() as f32).collect();
        for options in [EdgeOptions::DIRECTED, EdgeOptions::UNDIRECTED] {
            let expected = build_weighted(nodes, &src, &dst, &weight, options).unwrap();
            let dir = tempfile::tempdir().unwrap();
            let work = scratch(&dir);
            let splitters = sample(&src, &dst, options.undirected);
            let mut spill = Spill::<Weighted>::create(&work, options, splitters).unwrap().unwrap();
            spill.extend(&src[..300_000], &dst[..300_000], &weight[..300_000]).unwrap();
            spill.sync().unwrap();
            // what comes after the point is lost, the file's end half written
            spill.extend(&src[300_000..500_000], &dst[300_000..500_000], &weight[300_000..500_000]).unwrap();
            drop((spill, work));
            let work = scratch(&dir);
            assert_eq!(work.maybe_weighted_edges(options, true).known(), 300_000);
            assert_eq!(work.edges(options).known(), 0, "edges without weights are others");
            let mut spill = Spill::<Weighted>::resume(&work, options).unwrap();
            spill.extend(&src[300_000..], &dst[300_000..], &weight[300_000..]).unwrap();
            let parts = spill.into_parts().unwrap();
            let mut csc = Csc::resume(&work, nodes, true).unwrap();
            for (i, part) in parts.parts[..150].iter().enumerate() {
                if i == 100 {
                    csc.parts = 100;
                    csc.sync().unwrap();
                }
                csc.extend(&Run::new(parts.read(part).unwrap(), false).unwrap()).unwrap();
            }
            drop((csc, parts, work));
            let work = scratch(&dir);
            assert!(Csc::resume(&work, nodes, true).unwrap().edges > 0);
            // a file that a process was killed over, or that is shorter than a note of it says: sorting starts again
            if options.undirected {
                let file = std::fs::File::options().write(true).open(work.file("edge-weight.npy").unwrap());
                file.unwrap().set_len(0).unwrap();
            }
            let mut edges = work.maybe_weighted_edges(options, true);
            edges.extend_weighted(&src, &dst, &weight).unwrap();
            let graph = edges.build(nodes).unwrap();
            assert!(graph.indptr() == expected.indptr() && graph.indices() == expected.indices());
            assert!(graph.edge_weight() == expected.edge_weight() && graph.edge_weight().is_some());
        }
    }

    fn pushed(scratch: &Scratch, pairs: &[(u32, u32)], options: EdgeOptions) -> crate::external::Edges {
        let mut edges = scratch.edges(options);
        for piece in pairs.chunks(40_000) {
            let (src, dst): (Vec<_>, Vec<_>) = piece.iter().copied().unzip();
            edges.extend(&src, &dst).unwrap();
        }
        edges
    }

    #[test]
    fn edges_beyond_the_budget_are_sorted_on_the_disk_and_taken_up() {
        let nodes = 300_000u32;
        let mut stream = Stream::new(3);
        let pairs: Vec<(u32, u32)> = (0..2_000_000)
            .map(|i| {
                (stream.below(1000) as u32, if i % 5 == 0 { 7 } else { stream.below(nodes.into()) as u32 })
            })
            .collect();
        let options = EdgeOptions::UNDIRECTED;
        let (src, dst): (Vec<_>, Vec<_>) = pairs.iter().copied().unzip();
        let expected = in_memory(nodes as usize, &src, &dst, options).unwrap();
        let same = |graph: &Graph| {
            assert!(graph.indptr() == expected.indptr() && graph.indices() == expected.indices());
        };
        let dir = tempfile::tempdir().unwrap();
        let work = scratch(&dir);
        for threads in [1, 3] {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
            let graph = pool.install(|| {
                let edges = pushed(&work, &pairs, options);
                assert_eq!((edges.len(), edges.largest()), (2_000_000, Some(nodes - 1)));
                edges.build(nodes as usize).unwrap()
            });
            same(&graph);
            assert!(Buffer::is_mapped(graph.buffers().1), "it went through the disk");
            drop(graph);
            work.remove().unwrap();
            std::fs::create_dir_all(dir.path().join("work")).unwrap();
        }
        assert!(pushed(&work, &pairs, options).build(10).unwrap_err().to_string().contains("10 nodes"));
        drop(work);

        // stopped while reading: the next one passes over what is there
        let work = scratch(&dir);
        work.remove().unwrap();
        drop(work);
        let work = scratch(&dir);
        let mut spill =
            Spill::<u64>::create(&work, options, sample(&src, &dst, options.undirected)).unwrap().unwrap();
        spill.extend(&src[..900_000], &dst[..900_000], &[]).unwrap();
        spill.sync().unwrap();
        spill.extend(&src[900_000..1_000_000], &dst[900_000..1_000_000], &[]).unwrap();
        drop((spill, work));
        let work = scratch(&dir);
        assert_eq!(work.edges(options).known(), 900_000);
        assert_eq!(work.edges(EdgeOptions::DIRECTED).known(), 0, "other options start again");
        // stopped while sorting, too
        let mut spill = Spill::<u64>::resume(&work, options).unwrap();
        spill.extend(&src[900_000..], &dst[900_000..], &[]).unwrap();
        let parts = spill.into_parts().unwrap();
        let mut csc = Csc::resume(&work, nodes as usize, false).unwrap();
        for part in &parts.parts[..200] {
            csc.extend(&Run::new(parts.read(part).unwrap(), false).unwrap()).unwrap();
        }
        csc.parts = 200;
        csc.sync().unwrap();
        csc.extend(&Run::new(parts.read(&parts.parts[200]).unwrap(), false).unwrap()).unwrap();
        drop((csc, parts, work));
        let work = scratch(&dir);
        assert!(Csc::resume(&work, nodes as usize, false).unwrap().edges > 0);
        same(&pushed(&work, &pairs, options).build(nodes as usize).unwrap());
    }
}
