//! Tests: the parts together are the dataset, and damage is reported.

use std::fs;

use graphmill_core::progress::Quiet;
use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::{
    Dataset,
    reorder::tests::{Kind, attributes, dataset},
};

fn description() -> Description<'static> {
    Description {
        method: "by hand",
        seed: 5,
        options: json!({"a": 1}),
        statistics: json!({"edge_cut": 0.5}),
        searches: &[],
    }
}

/// In-neighbours of `v` with the bits of their weights.
fn row(graph: &graphmill_core::Graph, v: u32) -> Vec<(u32, Option<u32>)> {
    let run = graph.indptr()[v as usize] as usize..graph.indptr()[v as usize + 1] as usize;
    run.map(|e| (graph.indices()[e], graph.edge_weight().map(|weight| weight[e].to_bits()))).collect()
}

fn is_all_of(dir: &PartitionDir, whole: &Dataset, book: &PartitionBook) {
    assert_eq!(dir.book.of(), book.of());
    assert_eq!((dir.num_nodes(), dir.num_edges()), (whole.num_nodes(), whole.graph.num_edges()));
    assert_eq!((dir.source(), dir.is_weighted()), ("tiny", whole.graph.edge_weight().is_some()));
    for ((_, ids), (_, expected)) in dir.split.parts().into_iter().zip(whole.split.parts()) {
        assert_eq!(ids[..], expected[..]);
    }
    let topology = dir.topology(Verify::Once).unwrap().unwrap();
    assert_eq!(topology.num_nodes(), whole.num_nodes());
    assert!((0..whole.num_nodes() as u32).all(|v| row(&topology, v) == row(&whole.graph, v)));
    let mut seen = vec![0; whole.num_nodes()];
    for number in 0..dir.parts() {
        let part = dir.part(number).unwrap();
        let global = |local: u32| part.nodes[local as usize];
        for (((name, own), (_, all)), n) in
            part.dataset.split.parts().into_iter().zip(whole.split.parts()).zip(0..)
        {
            let own: Vec<u32> = own.iter().map(|&v| global(v)).collect();
            let expected: Vec<u32> = all.iter().copied().filter(|&v| book.part_of(v) == number).collect();
            assert_eq!(own, expected, "{name} {n}");
        }
        for local in 0..part.dataset.num_nodes() as u32 {
            let v = global(local);
            seen[v as usize] += 1;
            assert_eq!((book.part_of(v), part.local(v)), (number, Some(local)));
            assert_eq!(attributes(&part.dataset, local), attributes(whole, v));
            assert_eq!(dir.degrees[v as usize] as usize, whole.graph.in_degree(v));
            assert_eq!(part.neighbors.degree(local), whole.graph.in_degree(v));
            let start = part.neighbors.indptr()[local as usize] as usize;
            let weights = part.neighbors.edge_weight();
            let bits = |i: usize| weights.map(|weights| weights[start + i].to_bits());
            let found: Vec<_> =
                part.neighbors.of(local).iter().enumerate().map(|(i, &u)| (u, bits(i))).collect();
            let expected = row(&whole.graph, v);
            assert_eq!(found, expected);
            let inside: Vec<_> = expected.into_iter().filter(|(u, _)| book.part_of(*u) == number).collect();
            let own: Vec<_> =
                row(&part.dataset.graph, local).into_iter().map(|(u, w)| (global(u), w)).collect();
            assert_eq!(own, inside);
            let graph_of = |set: &Dataset, v: u32| {
                set.graphs.iter().find(|g| g.nodes.contains(&(v as usize))).map(|g| g.name.clone())
            };
            assert_eq!(graph_of(&part.dataset, local), graph_of(whole, v));
        }
    }
    assert!(seen.iter().all(|&times| times == 1));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(8))]
    #[test]
    fn parts_together_equal_the_dataset(
        nodes in 5usize..30,
        pairs in prop::collection::vec((0u32..30, 0u32..30), 0..90),
        of in prop::collection::vec(0u16..5, 30),
        (weighted, undirected, multi, features, named, reordered) in
            (any::<bool>(), any::<bool>(), any::<bool>(), 0u8..4, any::<bool>(), any::<bool>()),
    ) {
        let whole = dataset(nodes, &pairs, Kind { weighted, undirected, multi, features, named, reordered });
        // No part is empty.
        let part = |(v, &p): (usize, &u16)| if v < 5 { v as u16 } else { p };
        let of: Vec<u16> = of.iter().take(nodes).enumerate().map(part).collect();
        let book = PartitionBook::new(5, of).unwrap();
        let root = tempfile::tempdir().unwrap();
        let made = write(&whole, &book, &description(), &root.path().join("d"), &Quiet).unwrap();
        is_all_of(&made, &whole, &book);
        prop_assert_eq!((made.method(), made.seed()), ("by hand", 5));
        prop_assert_eq!((made.options(), made.statistics()), (&json!({"a": 1}), &json!({"edge_cut": 0.5})));
        prop_assert_eq!(fs::read_dir(root.path()).unwrap().count(), 1, "nothing is left beside it");
    }
}

/// Directory of two parts with every optional file.
fn small() -> (tempfile::TempDir, PathBuf, Dataset) {
    let kind =
        Kind { weighted: true, undirected: true, multi: false, features: 1, named: false, reordered: false };
    let whole = dataset(9, &[(0, 1), (1, 2), (3, 4), (8, 2), (5, 6), (6, 7)], kind);
    let book = PartitionBook::new(2, vec![0, 1, 0, 1, 0, 1, 0, 1, 0]).unwrap();
    let root = tempfile::tempdir().unwrap();
    let path = root.path().join("d");
    write(&whole, &book, &description(), &path, &Quiet).unwrap();
    (root, path, whole)
}

/// Error of opening all of a directory.
fn fault(path: &Path) -> Option<String> {
    let open = |dir: PartitionDir| {
        (0..dir.parts()).try_for_each(|part| dir.part(part).map(drop))?;
        dir.topology(Verify::Once).map(drop)
    };
    PartitionDir::open(path).and_then(open).err().map(|e| e.to_string())
}

fn all_files(dir: &Path, files: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        match path.is_dir() {
            true => all_files(&path, files),
            false if path.ends_with("verified.json") => {}
            false => files.push(path),
        }
    }
}

#[test]
fn unchanged_lists_of_neighbors_are_not_read_again() {
    let (_root, path, _) = small();
    // files that were just written are not recorded
    std::thread::sleep(std::time::Duration::from_millis(25));
    assert_eq!(fault(&path), None);
    for name in
        ["part-0000/neighbors/indices.npy", "part-0001/neighbors/edge_weight.npy", "topology/indices.npy"]
    {
        let file = path.join(name);
        let good = fs::read(&file).unwrap();
        let time = fs::metadata(&file).unwrap().modified().unwrap();
        let put = |bytes: &[u8], time| {
            fs::write(&file, bytes).unwrap();
            fs::File::options().write(true).open(&file).unwrap().set_modified(time).unwrap();
        };
        let mut bad = good.clone();
        *bad.last_mut().unwrap() ^= 64;
        put(&bad, time);
        assert_eq!(fault(&path), None, "{name} is not read");
        if let Some(part) = ["part-0000", "part-0001"].iter().position(|part| name.starts_with(part)) {
            let all = PartitionDir::open(&path).unwrap().part_with(part as u16, Verify::All);
            assert!(all.unwrap_err().to_string().contains("the file is damaged"));
        }
        put(&bad, time + std::time::Duration::from_millis(1));
        assert!(fault(&path).unwrap().contains(name));
        put(&good, time);
        assert_eq!(fault(&path), None);
    }
}

#[test]
fn damage_anywhere_is_reported_with_its_file() {
    let (_root, path, _) = small();
    assert_eq!(fault(&path), None);
    let mut files = Vec::new();
    all_files(&path, &mut files);
    assert!(files.len() > 28, "{files:?}");
    for file in files {
        let name = file.file_name().unwrap().to_str().unwrap();
        let good = fs::read(&file).unwrap();
        for at in [good.len() - 1, good.len() / 2, 3] {
            let mut bad = good.clone();
            bad[at] ^= 4;
            fs::write(&file, bad).unwrap();
            let message = fault(&path).unwrap_or_else(|| panic!("{name}: byte {at}"));
            assert!(message.contains(name), "{name}: {message}");
        }
        fs::write(&file, &good[..good.len() - 1]).unwrap();
        assert!(fault(&path).unwrap().contains(name));
        fs::remove_file(&file).unwrap();
        assert!(fault(&path).unwrap().contains(name));
        fs::write(&file, good).unwrap();
    }
    assert_eq!(fault(&path), None);
}

#[test]
fn inconsistent_manifest_counts_are_rejected() {
    let (_root, path, _) = small();
    let file = path.join(manifest::FILE_NAME);
    let good = fs::read_to_string(&file).unwrap();
    let with = |change: fn(&mut Manifest)| {
        let mut m = Manifest::read(&path).unwrap();
        change(&mut m);
        fs::write(&file, m.signed().unwrap().1).unwrap();
        let message = fault(&path).unwrap();
        fs::write(&file, &good).unwrap();
        message
    };
    let fails = |change: fn(&mut Manifest), why: &str| {
        let message = with(change);
        assert!(message.contains(why), "{message}");
    };
    fails(|m| m.format = "zip".into(), "'zip' found");
    fails(|m| m.version = 2, "version 2");
    fails(|m| m.parts = 3, "2 parts are described, parts is 3");
    fails(|m| m.nodes = 10, "nodes do not add up to 10");
    fails(|m| m.edges += 1, "neighbors do not add up");
    fails(|m| m.train += 1, "train.npy");
    fails(|m| m.each.swap(0, 1), "part 0 has 5 nodes");
    fails(|m| m.each[1].checksum = m.each[0].checksum.clone(), "another dataset");
    fails(|m| m.each[0].nodes = usize::MAX, "do not add up");
    fails(
        |m| {
            (m.each[0].nodes, m.each[1].nodes) = (4, 5);
        },
        "part 0 has 5 nodes",
    );
    fails(|m| m.each[0].edges += 1, "edges, not");
    fails(|m| m.weighted = false, "weights");
    let text = good.replace("\"seed\": 5", "\"seed\": 6");
    fs::write(&file, text).unwrap();
    assert!(fault(&path).unwrap().contains("damaged or was edited"));
}

#[test]
fn partitions_of_older_versions_open_without_a_topology() {
    let (_root, path, _) = small();
    let mut m = Manifest::read(&path).unwrap();
    m.files.retain(|name, _| !name.starts_with(neighbors::TOPOLOGY));
    fs::write(path.join(manifest::FILE_NAME), m.signed().unwrap().1).unwrap();
    fs::remove_dir_all(path.join(neighbors::TOPOLOGY)).unwrap();
    assert_eq!(fault(&path), None);
    assert!(PartitionDir::open(&path).unwrap().topology(Verify::Once).unwrap().is_none());
}

#[test]
fn nonempty_targets_are_rejected() {
    let (root, path, whole) = small();
    let book = PartitionBook::new(2, vec![0; 9]).unwrap();
    let refused = |book: &PartitionBook, dst: &Path| {
        write(&whole, book, &description(), dst, &Quiet).unwrap_err().to_string()
    };
    assert!(refused(&book, &path).contains("already holds a partitioned dataset"));
    assert!(refused(&book, root.path()).contains("not empty"));
    assert!(refused(&book, &path.join("book.npy")).contains("this is a file"));
    assert!(refused(&book, &root.path().join("new")).contains("part 1 has no node"));
    let short = PartitionBook::new(1, vec![0; 8]).unwrap();
    assert!(refused(&short, &root.path().join("new")).contains("a partition of 8 nodes, but there are 9"));
    let dir = PartitionDir::open(&path).unwrap();
    assert!(dir.part(2).unwrap_err().to_string().contains("part 2 of 2"));
    assert!(PartitionDir::open(root.path()).unwrap_err().to_string().contains("graphmill partition"));
    assert_eq!(fs::read_dir(root.path()).unwrap().count(), 1);
}

#[test]
fn searches_are_stored_and_checked() {
    let (root, path, whole) = small();
    assert_eq!(PartitionDir::open(&path).unwrap().searches().unwrap(), None);
    let train = whole.split.train.to_vec();
    assert!(train.len() > 1, "the test needs training nodes");
    let backwards: Vec<NodeId> = train.iter().rev().copied().collect();
    let book = PartitionBook::new(2, vec![0, 1, 0, 1, 0, 1, 0, 1, 0]).unwrap();
    let stored = |name: &str, searches: &[Vec<NodeId>]| {
        let what = Description { searches, ..description() };
        write(&whole, &book, &what, &root.path().join(name), &Quiet).unwrap().searches()
    };
    let searches = [train.clone(), backwards];
    assert_eq!(stored("two", &searches).unwrap(), Some(searches.to_vec()));
    let twice = vec![train[0]; train.len()];
    let error = stored("bad", &[train, twice]).unwrap_err().to_string();
    assert!(error.contains("search 1 does not have every training node once"), "{error}");
}
