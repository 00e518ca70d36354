use graphmill_core::progress::Quiet;
use proptest::prelude::*;

use super::*;

const COLUMNS: EdgeColumns = EdgeColumns { weights: true, time: true, features: 2 };

/// Edges `(source, destination)` with columns that number them.
fn sorted(scratch: &Scratch, edges: &[(u32, u32)], batch: usize, spills: bool) -> SortedEdges {
    let mut sorter = EdgeSorter::<i16>::new(scratch, "e", [50, 20], COLUMNS).unwrap();
    for (i, batch) in edges.chunks(batch).enumerate().map(|(i, edges)| (i * batch, edges)) {
        let (sources, destinations): (Vec<u32>, Vec<u32>) = batch.iter().copied().unzip();
        let at = || i..i + batch.len();
        let weights: Vec<f32> = at().map(|e| e as f32).collect();
        let time: Vec<i64> = at().map(|e| -(e as i64)).collect();
        let features: Vec<i16> = at().flat_map(|e| [e as i16, 7]).collect();
        sorter.extend(&sources, &destinations, &weights, &time, &features).unwrap();
        if spills {
            sorter.spill().unwrap();
        }
    }
    assert_eq!(sorter.len(), edges.len() as u64);
    sorter.finish().unwrap()
}

fn check(found: &SortedEdges, edges: &[(u32, u32)]) {
    let mut order: Vec<usize> = (0..edges.len()).collect();
    order.sort_by_key(|&e| edges[e].1);
    let below = |v: u32| edges.iter().filter(|edge| edge.1 < v).count() as u64;
    assert_eq!(&found.indptr[..], (0..=20).map(below).collect::<Vec<_>>());
    assert_eq!(&found.indices[..], order.iter().map(|&e| edges[e].0).collect::<Vec<_>>());
    assert!(found.weights.as_ref().unwrap().iter().copied().eq(order.iter().map(|&e| e as f32)));
    assert!(found.time.as_ref().unwrap().iter().copied().eq(order.iter().map(|&e| -(e as i64))));
    let table = found.features.as_ref().unwrap();
    let mut row = [0.0; 2];
    for (i, &e) in order.iter().enumerate() {
        table.copy_row(i, &mut row);
        assert_eq!(row, [e as f64, 7.0]);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]
    #[test]
    fn edges_on_disk_are_those_of_a_stable_sort(
        edges in prop::collection::vec((0u32..50, 0u32..20), 0..300), batch in 1usize..100,
    ) {
        check(&sorted(&Scratch::in_memory(), &edges, batch, false), &edges);
        let dir = tempfile::tempdir().unwrap();
        let scratch = Scratch::open(&dir.path().join("s"), "sort", 0, Box::new(Quiet)).unwrap();
        check(&sorted(&scratch, &edges, batch, true), &edges);
    }
}

#[test]
fn large_buckets_are_divided_and_single_rows_streamed() {
    let dir = tempfile::tempdir().unwrap();
    let scratch = Scratch::open(&dir.path().join("s"), "sort", 0, Box::new(Quiet)).unwrap();
    let mut stream = graphmill_core::keyed::Stream::new(1);
    // Half of the edges lead to one destination.
    let edges: Vec<(u32, u32)> =
        (0..30_000u32).map(|i| (i, if i % 2 == 0 { 700 } else { stream.below(1000) as u32 })).collect();
    let layout = Layout::new::<f32>(EdgeColumns { time: true, ..EdgeColumns::default() });
    let mut records = Vec::new();
    for (i, (u, v)) in edges.iter().enumerate() {
        records.extend_from_slice(&v.to_ne_bytes());
        records.extend_from_slice(&u.to_ne_bytes());
        records.extend_from_slice(&(i as i64).to_ne_bytes());
    }
    let mut buckets = Buckets::create(scratch.file("b").unwrap(), 0..1000, layout.length).unwrap();
    records.chunks(16 * 1000).for_each(|some| buckets.extend(some).unwrap());
    let mut output = Output::<f32> {
        layout,
        rules: RowRules::default(),
        indptr: scratch.column("indptr").unwrap(),
        indices: scratch.column("indices").unwrap(),
        weights: None,
        time: Some(scratch.column("time").unwrap()),
        features: None,
        edges: 0,
        parallel: 0,
    };
    output.indptr.extend(&[0]).unwrap();
    buckets.drain(&scratch, 100, 0, &mut output).unwrap();
    let mut order: Vec<usize> = (0..edges.len()).collect();
    order.sort_by_key(|&e| edges[e].1);
    assert!(
        output.time.unwrap().finish().unwrap().iter().eq(order
            .iter()
            .map(|&e| e as i64)
            .collect::<Vec<_>>()
            .iter())
    );
    assert_eq!(output.indptr.finish().unwrap().len(), 1001);
    assert!(!dir.path().join("s/scratch-b").exists());
}

#[test]
fn faults_of_batches_name_the_edge() {
    let scratch = Scratch::in_memory();
    let mut sorter = EdgeSorter::<f32>::new(&scratch, "e", [2, 3], EdgeColumns::default()).unwrap();
    sorter.extend(&[1], &[2], &[], &[], &[]).unwrap();
    let mut fault = |sources: &[u32], destinations: &[u32], weights: &[f32]| {
        sorter.extend(sources, destinations, weights, &[], &[]).unwrap_err().to_string()
    };
    assert!(fault(&[0, 2], &[0, 0], &[]).contains("edge 2 has the source 2, but there are 2"));
    assert!(fault(&[0], &[3], &[]).contains("edge 1 has the destination 3, but there are 3"));
    assert!(fault(&[0], &[], &[]).contains("0 destinations for 1 edges x 1"));
    assert!(fault(&[0], &[0], &[1.0]).contains("1 weights for 1 edges x 0"));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]
    #[test]
    fn rules_of_rows_hold_for_any_budget(
        edges in prop::collection::vec((0u32..6, 0u32..5, 0i64..4), 0..80), timed in any::<bool>(),
        drops in any::<bool>(), memory in 0u64..2000,
    ) {
        let columns = EdgeColumns { time: true, ..EdgeColumns::default() };
        let rules = RowRules { by_time: timed, counts_parallel: true, drops_parallel: drops && !timed };
        let dir = tempfile::tempdir().unwrap();
        for scratch in [Scratch::in_memory(), Scratch::open_within(&dir.path().join("s"), memory)] {
            let mut sorter = EdgeSorter::<f32>::new(&scratch, "e", [6, 5], columns).unwrap();
            edges.iter().for_each(|&(u, v, t)| sorter.extend(&[u], &[v], &[], &[t], &[]).unwrap());
            let (found, parallel) = sorter.finish_by(rules).unwrap();
            let mut expected: Vec<_> = edges.clone();
            expected.sort_by_key(|edge| (edge.1, if timed { edge.2 } else { 0 }));
            let ends = |i: usize| (expected[i].0, expected[i].1);
            let is_first = |i: usize| !(0..i).any(|j| ends(j) == ends(i));
            let firsts = (0..expected.len()).filter(|&i| is_first(i)).count();
            prop_assert_eq!(parallel, (expected.len() - firsts) as u64);
            let is_kept = |i: &usize| !rules.drops_parallel || is_first(*i);
            let kept: Vec<_> = (0..expected.len()).filter(is_kept).map(|i| expected[i]).collect();
            let below = |v: u32| kept.iter().filter(|edge| edge.1 < v).count() as u64;
            prop_assert_eq!(&found.indptr[..], &(0..=5).map(below).collect::<Vec<_>>()[..]);
            prop_assert_eq!(&found.indices[..], &kept.iter().map(|edge| edge.0).collect::<Vec<_>>()[..]);
            let times: Vec<i64> = kept.iter().map(|edge| edge.2).collect();
            prop_assert_eq!(&found.time.unwrap()[..], &times[..]);
        }
    }
}
