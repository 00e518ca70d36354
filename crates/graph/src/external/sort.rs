//! From a spill to CSC: parts are sorted each by itself, several at a time, and written in their order.

use rayon::prelude::*;
use serde::{Deserialize, Serialize};

use super::{
    Rows, Scratch, Unit,
    spill::{Part, Parts, Spill},
};
use crate::{EdgeOptions, Error, Graph, NodeId, Result, builder::radix};

/// Edges between two points that a killed import can go on from.
const SYNC: u64 = 1 << 28;

/// Bytes that a key takes: it, its place while the part is sorted, and a source and a row, which are kept while they are
/// written and the next parts are sorted.
const BYTES: u64 = 8 + 8 + 2 * (4 + 16);

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
pub(super) fn build(
    scratch: &Scratch,
    spill: Spill,
    num_nodes: usize,
    options: EdgeOptions,
) -> Result<Graph> {
    let parts = spill.into_parts()?;
    let total: u64 = parts.parts.iter().map(|part| part.keys).sum();
    scratch.stage("sorting edges", Some(total), Unit::Edges);
    let mut csc = Csc::resume(scratch, num_nodes)?;
    let first = csc.parts;
    if first > parts.parts.len() {
        return Err(damaged());
    }
    let mut sorted: u64 = parts.parts[..first].iter().map(|part| part.keys).sum();
    let most = (scratch.memory() / 2 / BYTES).max(1 << 16);
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
            || {
                group
                    .par_iter()
                    .map(|part| Ok(Run::new(parts.read(part)?, options.keep_duplicates)))
                    .collect()
            },
        );
        written?;
        csc.parts = at;
        csc.sync_if_due()?;
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
fn large(
    scratch: &Scratch,
    of: &Parts,
    part: &Part,
    keep_duplicates: bool,
    most: u64,
    depth: usize,
    csc: &mut Csc,
) -> Result<()> {
    if part.keys <= most {
        return csc.extend(&Run::new(of.read(part)?, keep_duplicates));
    }
    if let Some(key) = of.only_key(part)? {
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
}

impl Run {
    fn new(mut keys: Vec<u64>, keep_duplicates: bool) -> Self {
        radix::sort(&mut keys);
        if !keep_duplicates {
            keys.dedup();
        }
        let sources = keys.iter().map(|&key| key as NodeId).collect();
        let rows = keys.chunk_by(|a, b| a >> 32 == b >> 32);
        let rows = rows.map(|row| ((row[0] >> 32) as NodeId, row.len() as u64)).collect();
        Self { sources, rows }
    }
}

/// A graph that is written from its first row to its last.
struct Csc {
    scratch: Scratch,
    indptr: Rows<u64>,
    indices: Rows<NodeId>,
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
    fn resume(scratch: &Scratch, num_nodes: usize) -> Result<Self> {
        let (mut indptr, mut indices) = (scratch.column("indptr")?, scratch.column("indices")?);
        let state: State = scratch.load("csc").unwrap_or_default();
        indptr.start_at(state.rows)?;
        indices.start_at(state.edges)?;
        let found = indptr.len() as u64 == state.rows && indices.len() as u64 == state.edges;
        let state = if found { state } else { State::default() };
        if !found {
            (indptr, indices) = (scratch.column("indptr")?, scratch.column("indices")?);
            indptr.start_at(0)?;
            indices.start_at(0)?;
        }
        let mut csc = Self {
            scratch: scratch.clone(),
            indptr,
            indices,
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
        self.synced = self.edges;
        let state = State { parts: self.parts, edges: self.edges, rows: self.indptr.len() as u64 };
        self.scratch.save("csc", &state)
    }

    fn finish(mut self) -> Result<Graph> {
        self.close(self.nodes)?;
        let (nodes, resumed) = (self.nodes, self.resumed);
        let (indptr, indices) = (self.indptr.finish()?, self.indices.finish()?);
        if resumed {
            // what an earlier process wrote may be damaged
            let graph = Graph::new(indptr, indices).ok().filter(|graph| graph.num_nodes() as u64 == nodes);
            return graph.ok_or_else(damaged);
        }
        Ok(Graph::sorted(indptr, indices))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::{Buffer, build as in_memory, builder::deal::sample, external::Quiet, keyed::Stream};

    fn scratch(dir: &tempfile::TempDir) -> Scratch {
        Scratch::open(&dir.path().join("work"), "test", 64 << 20, Box::new(Quiet)).unwrap()
    }

    fn through_the_disk(
        scratch: &Scratch,
        nodes: usize,
        pairs: &[(u32, u32)],
        options: EdgeOptions,
        most: u64,
    ) -> Graph {
        let (src, dst): (Vec<_>, Vec<_>) = pairs.iter().copied().unzip();
        let mut spill =
            Spill::create(scratch, options, sample(&src, &dst, options.undirected)).unwrap().unwrap();
        spill.extend(&src, &dst).unwrap();
        let parts = spill.into_parts().unwrap();
        let mut csc = Csc::resume(scratch, nodes).unwrap();
        for part in &parts.parts {
            large(scratch, &parts, part, options.keep_duplicates, most, 0, &mut csc).unwrap();
        }
        csc.finish().unwrap()
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(100))]
        /// The same graph as in memory, with parts so small that they are cut again and again.
        #[test]
        fn same_as_in_memory(
            pairs in prop::collection::vec((0u32..30, prop_oneof![Just(3u32), 0u32..30]), 0..300),
            undirected: bool, drop_self_loops: bool, keep_duplicates: bool, most in 1u64..50,
        ) {
            let options = EdgeOptions { undirected, drop_self_loops, keep_duplicates };
            let (src, dst): (Vec<_>, Vec<_>) = pairs.iter().copied().unzip();
            let expected = in_memory(31, &src, &dst, options).unwrap();
            let dir = tempfile::tempdir().unwrap();
            let found = through_the_disk(&scratch(&dir), 31, &pairs, options, most);
            prop_assert_eq!(found.indptr(), expected.indptr());
            prop_assert_eq!(found.indices(), expected.indices());
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
            Spill::create(&work, options, sample(&src, &dst, options.undirected)).unwrap().unwrap();
        spill.extend(&src[..900_000], &dst[..900_000]).unwrap();
        spill.sync().unwrap();
        spill.extend(&src[900_000..1_000_000], &dst[900_000..1_000_000]).unwrap();
        drop((spill, work));
        let work = scratch(&dir);
        assert_eq!(work.edges(options).known(), 900_000);
        assert_eq!(work.edges(EdgeOptions::DIRECTED).known(), 0, "other options start again");
        // stopped while sorting, too
        let mut spill = Spill::resume(&work, options).unwrap();
        spill.extend(&src[900_000..], &dst[900_000..]).unwrap();
        let parts = spill.into_parts().unwrap();
        let mut csc = Csc::resume(&work, nodes as usize).unwrap();
        for part in &parts.parts[..200] {
            csc.extend(&Run::new(parts.read(part).unwrap(), false)).unwrap();
        }
        csc.parts = 200;
        csc.sync().unwrap();
        csc.extend(&Run::new(parts.read(&parts.parts[200]).unwrap(), false)).unwrap();
        drop((csc, parts, work));
        let work = scratch(&dir);
        assert!(Csc::resume(&work, nodes as usize).unwrap().edges > 0);
        same(&pushed(&work, &pairs, options).build(nodes as usize).unwrap());
    }
}
