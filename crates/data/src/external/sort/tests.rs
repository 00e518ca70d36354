use graphmill_core::{
    Buffer, Error, build as in_memory, build_weighted,
    builder::{deal::sample, item::Weighted},
    keyed::Stream,
    progress::Quiet,
};
use proptest::prelude::*;

use super::*;

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
    /// Compares with the graph built in memory, with parts so small that they are split repeatedly;
    /// weights match to the bit.
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
fn weighted_edges_beyond_the_budget_sort_on_disk() {
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
    assert!(edges.extend(&src[..1], &dst[..1]).unwrap_err().to_string().contains("0 weights for 1 edges"));
    let error = edges.extend_weighted(&[0], &[0], &[-2.0]).unwrap_err().to_string();
    assert!(error.contains("edge 0 weighs -2"), "{error}");
    for run in (0..count).step_by(300_000) {
        let run = run..(run + 300_000).min(count);
        edges.extend_weighted(&src[run.clone()], &dst[run.clone()], &weight[run]).unwrap();
    }
    assert!(work.file("edges.bin").unwrap().exists(), "spilled to disk");
    let graph = edges.build(nodes).unwrap();
    assert!(graph.indptr() == expected.indptr() && graph.indices() == expected.indices());
    assert!(graph.edge_weight() == expected.edge_weight() && graph.edge_weight().is_some());
}

/// Duplicates whose weights lie on both sides of the interruption are combined.
#[test]
fn weighted_edges_resume_while_reading_and_while_sorting() {
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
        // Data after the checkpoint is lost, the file's end half written.
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
        // A file from a killed process, or one shorter than its record: sorting starts again.
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
fn edges_beyond_the_budget_sort_on_disk_and_resume() {
    let nodes = 300_000u32;
    let mut stream = Stream::new(3);
    let pairs: Vec<(u32, u32)> = (0..2_000_000)
        .map(|i| (stream.below(1000) as u32, if i % 5 == 0 { 7 } else { stream.below(nodes.into()) as u32 }))
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
        assert!(Buffer::is_mapped(graph.buffers().1), "spilled to disk");
        drop(graph);
        work.remove().unwrap();
        std::fs::create_dir_all(dir.path().join("work")).unwrap();
    }
    assert!(pushed(&work, &pairs, options).build(10).unwrap_err().to_string().contains("10 nodes"));
    drop(work);

    // Interrupted while reading: the next process skips the existing edges.
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
    // Interrupted while sorting.
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

/// Progress receiver that cancels the work when the flag is set.
struct Stop(std::sync::Arc<std::sync::atomic::AtomicBool>);

impl graphmill_core::progress::Progress for Stop {
    fn is_stopped(&self) -> bool {
        self.0.load(std::sync::atomic::Ordering::Relaxed)
    }
}

#[test]
fn counts_of_the_source_are_resumed_without_reading_it_again() {
    let (dir, options) = (tempfile::tempdir().unwrap(), EdgeOptions::UNDIRECTED);
    let pairs: Vec<(u32, u32)> = (0..2_000_000).map(|i| (i % 1000, i % 3000)).collect();
    let self_loops = pairs.iter().filter(|(u, v)| u == v).count() as u64;
    let flag = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
    let progress = Box::new(Stop(flag.clone()));
    let work = Scratch::open(&dir.path().join("work"), "test", 64 << 20, progress).unwrap();
    let mut edges = pushed(&work, &pairs, options);
    edges.count_dropped(5);
    flag.store(true, std::sync::atomic::Ordering::Relaxed);
    assert!(matches!(edges.build(3000), Err(Error::Stopped)), "stopped while sorting");
    drop(work);
    let work = scratch(&dir);
    let mut edges = work.edges(options);
    assert!(edges.take_up_all());
    assert_eq!((edges.len(), edges.self_loops(), edges.dropped()), (2_000_000, self_loops, 5));
}
