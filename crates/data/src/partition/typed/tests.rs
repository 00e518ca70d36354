//! Parts of generated datasets beside the whole.

use graphmill_core::{features::FeatureData, progress::Quiet};
use half::f16;
use proptest::prelude::*;

use super::*;
use crate::{
    generate::{GenerateOptions, generate_typed},
    partition::{Description, TABLE},
    typed::{FeatureTable, Keys, Targets, Task, TaskOn},
};

fn dataset(nodes: usize, seed: u64) -> TypedDataset {
    let options = GenerateOptions { nodes, classes: 3, dim: 3, seed, ..GenerateOptions::default() };
    let mut data = generate_typed("typed", &options).unwrap();
    for (r, edges) in data.edges.iter_mut().enumerate().filter(|(r, _)| r % 2 == 1) {
        let weights: Vec<f32> = (0..edges.num_edges()).map(|e| (e + r) as f32).collect();
        edges.weights = Some(weights.into());
    }
    for (r, edges) in data.edges.iter_mut().enumerate().filter(|(r, _)| r % 3 > 0) {
        let count = edges.num_edges();
        edges.time = Some((0..count as i64).map(|e| 3 * e - r as i64).collect::<Vec<_>>().into());
        let values = (0..count * r).map(|i| (i % 99) as f32);
        edges.features = Some(match r % 3 {
            1 => FeatureTable::dense(r, values.map(f16::from_f32).collect::<Vec<_>>()),
            // other types are stored as training reads them
            _ => FeatureTable::dense(r, values.map(|x| x as i64).collect::<Vec<_>>()),
        });
    }
    data.nodes[0].time = Some((0..data.nodes[0].count as i64).collect::<Vec<_>>().into());
    data
}

/// Reads the time and the features of an edge by its position in the graph of `parts`.
fn own_columns(
    dir: &TypedPartitionDir,
    parts: &[TypedPart],
    r: usize,
) -> impl Fn(usize) -> (Option<i64>, Vec<f64>) {
    let time = dir.edge_times(parts, r).unwrap();
    let features = dir.edge_features(parts, r, Verify::All).unwrap().unwrap_or_default();
    move |e| {
        let row = e * features.dim..(e + 1) * features.dim;
        let row = match &features.data {
            FeatureData::F16(values) => values[row].iter().map(|x| x.to_f64()).collect(),
            FeatureData::F32(values) => values[row].iter().map(|&x| x.into()).collect(),
            FeatureData::Csr(_) => panic!("dense rows"),
        };
        (time.as_ref().map(|time| time[e]), row)
    }
}

fn description<'a>() -> Description<'a> {
    Description { method: "test", seed: 7, ..Description::default() }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4))]

    /// Each node is in one part with its columns, its in-neighbours by every relation are in the
    /// order of the whole dataset, and any division of the parts gives the whole graph.
    #[test]
    fn parts_hold_the_rows_and_neighbours_of_their_nodes(
        seed in 0u64..100, nodes in 60usize..200, parts in 1u16..5,
    ) {
        let data = dataset(nodes, seed);
        let of: Vec<u16> = (0..data.num_nodes() as u64)
            .map(|v| (graphmill_core::keyed::key(&[seed, v]) % u64::from(parts)) as u16)
            .collect();
        let book = PartitionBook::new(parts, of).unwrap();
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("parts");
        let dir = write_types(&data, &book, &description(), &path, &Quiet).unwrap();
        prop_assert!(TypedPartitionDir::is_in(&path));
        prop_assert_eq!(dir.num_edges(), data.num_edges());
        prop_assert_eq!(dir.whole.tasks.len(), data.tasks.len());
        let times = [&dir.whole, &data].map(|of| of.nodes[0].time.as_ref().map(|time| time.to_vec()));
        prop_assert_eq!(&times[0], &times[1]);
        let graph = data.graph().unwrap();
        prop_assert_eq!(dir.schema(), graph.schema());
        let all: Vec<TypedPart> = (0..parts).map(|part| dir.part(part, Verify::All).unwrap()).collect();
        for part in &all {
            for (t, own) in part.nodes.iter().enumerate() {
                let (of, whole) = (&part.dataset.nodes[t], &data.nodes[t]);
                prop_assert_eq!(of.count, own.len());
                let mut rows = [[0.0; 3]; 2];
                for (i, &v) in own.iter().enumerate() {
                    prop_assert_eq!(book.part_of(dir.schema().global(t, v)), part.number);
                    let key = |keys: &Option<Keys>, i: usize| keys.as_ref().map(|k| k.get(i).to_string());
                    prop_assert_eq!(key(&of.keys, i), key(&whole.keys, v as usize));
                    if let (Some(of), Some(whole)) = (&of.features, &whole.features) {
                        of.copy_row(i, &mut rows[0]);
                        whole.copy_row(v as usize, &mut rows[1]);
                        prop_assert_eq!(rows[0], rows[1]);
                    }
                }
            }
        }
        for some in [&all[..1], &all[..]] {
            let own = dir.graph_of(some).unwrap();
            for (r, relation) in graph.schema().relations().iter().enumerate() {
                let columns = own_columns(&dir, some, r);
                let (own, whole) = (own.relation(r), graph.relation(r));
                for v in 0..whole.num_nodes() as NodeId {
                    let part = book.part_of(graph.schema().global(relation.dst, v));
                    let run = |of: &graphmill_core::Graph| {
                        let run = of.indptr()[v as usize] as usize..of.indptr()[v as usize + 1] as usize;
                        let weights = of.edge_weight().map(|of| of[run].to_vec());
                        (of.in_neighbors(v).to_vec(), weights.unwrap_or_default())
                    };
                    let has = usize::from(part) < some.len();
                    prop_assert_eq!(run(own), if has { run(whole) } else { (vec![], vec![]) });
                    let positions = own.indptr()[v as usize] as usize..own.indptr()[v as usize + 1] as usize;
                    for (e, of) in positions.zip(data.edges[r].row(v)) {
                        let time = data.edges[r].time.as_ref().map(|time| time[of]);
                        let features = data.edges[r].features.as_ref();
                        let mut row = vec![0.0; features.map_or(0, |table| table.width)];
                        features.iter().for_each(|table| table.copy_row(of, &mut row));
                        prop_assert_eq!(columns(e), (time, row));
                    }
                }
            }
        }
    }
}

#[test]
fn the_topology_has_all_edges_and_the_tasks_on_links() {
    let (mut data, directory) = (dataset(90, 2), tempfile::tempdir().unwrap());
    let on = data.edges[1].edge_type.clone();
    let mut task = Task::new("next", TaskOn::Edges(on));
    task.split.train = vec![0, 1, 2].into();
    task.split.test = vec![4].into();
    data.tasks.push(task);
    let book = (0..data.num_nodes()).map(|v| (v % 2) as u16).collect::<Vec<_>>();
    let path = directory.path().join("parts");
    let book = PartitionBook::new(2, book).unwrap();
    let dir = write_types(&data, &book, &description(), &path, &Quiet).unwrap();
    let found = dir.topology(Verify::Once).unwrap().unwrap();
    for (of, whole) in found.edges.iter().zip(&data.edges) {
        assert_eq!((&of.edge_type, &of.reverse), (&whole.edge_type, &whole.reverse));
        assert_eq!((&of.indptr[..], &of.indices[..]), (&whole.indptr[..], &whole.indices[..]));
        assert_eq!(
            (of.weights.as_deref(), of.time.as_deref()),
            (whole.weights.as_deref(), whole.time.as_deref())
        );
        assert!(of.features.is_none());
    }
    let counts = |of: &TypedDataset| of.nodes.iter().map(|nodes| nodes.count).collect::<Vec<_>>();
    assert_eq!((found.edges.len(), counts(&found)), (data.edges.len(), counts(&data)));
    let [next] = &found.tasks[..] else { panic!("one task on links: {:?}", found.tasks) };
    assert_eq!(
        (&next.name[..], &next.split.train[..], &next.split.test[..]),
        ("next", &[0, 1, 2][..], &[4][..])
    );
    assert_eq!(dir.whole.tasks.len(), data.tasks.len() - 1);
    let [on_nodes, on_links] = TypedPartitionDir::manifest_texts(&path).unwrap();
    let has = |text: &[u8], name: &str| String::from_utf8_lossy(text).contains(name);
    assert!(has(&on_links, "link-prediction") && !has(&on_nodes, "link-prediction"));
    let file = path.join("topology/graphmill.json");
    let text = std::fs::read_to_string(&file).unwrap();
    std::fs::write(&file, text.replace("next", "last")).unwrap();
    assert!(dir.topology(Verify::Once).is_err());
}

#[test]
fn partitions_of_earlier_versions_lack_columns_of_edges() {
    let (data, directory) = (dataset(60, 1), tempfile::tempdir().unwrap());
    let book = PartitionBook::new(1, vec![0; data.num_nodes()]).unwrap();
    let path = directory.path().join("parts");
    let mut dir = write_types(&data, &book, &description(), &path, &Quiet).unwrap();
    let parts = [dir.part(0, Verify::Once).unwrap()];
    let of = &mut dir.manifest.edge_types[1];
    (of.timed, of.features) = (false, 0);
    let relation = dir.schema().relation_name(1);
    for error in
        [dir.edge_times(&parts, 1).unwrap_err(), dir.edge_features(&parts, 1, Verify::Once).unwrap_err()]
    {
        let error = error.to_string();
        assert!(error.contains(&relation) && error.ends_with("partition the dataset again"), "{error}");
    }
    assert!(dir.edge_times(&parts, 0).unwrap().is_none());
}

#[test]
fn methods_partition_the_union_and_damage_is_found() {
    let data = dataset(150, 3);
    let union = data.graph().unwrap().union().unwrap();
    let directory = tempfile::tempdir().unwrap();
    let options = crate::partition::Options::default();
    for method in TABLE.iter() {
        let book = (method.make.make)(&options).unwrap().partition(&union, &[0, 1, 2, 3], &Quiet).unwrap();
        let path = directory.path().join(method.name);
        let what = Description { method: method.name, ..description() };
        assert_eq!(write_types(&data, &book, &what, &path, &Quiet).unwrap().method(), method.name);
        // a directory of format 2 is not one of format 1, and the other way round
        assert!(crate::partition::PartitionDir::open(&path).unwrap_err().to_string().contains("version 2"));
    }
    let path = directory.path().join("hash");
    let again =
        write_types(&data, &PartitionBook::new(1, vec![0; 150]).unwrap(), &description(), &path, &Quiet);
    assert!(again.unwrap_err().to_string().contains("already holds a partitioned dataset"));
    for file in
        ["book.npy", "part-0001/neighbors/0/indices.npy", "part-0001/nodes.npy", "whole/graphmill.json"]
    {
        let file = path.join(file);
        let bytes = std::fs::read(&file).unwrap();
        let mut damaged = bytes.clone();
        let last = damaged.len() - 1;
        damaged[last] ^= 1;
        std::fs::write(&file, damaged).unwrap();
        let open = || TypedPartitionDir::open(&path).and_then(|dir| dir.part(1, Verify::All));
        assert!(open().is_err(), "{}", file.display());
        std::fs::write(&file, bytes).unwrap();
        open().unwrap();
    }
    // lists of neighbours that are unchanged since they were verified are not read again
    let file = path.join("part-0001/neighbors/0/indices.npy");
    let mut bytes = std::fs::read(&file).unwrap();
    let time = std::time::SystemTime::now() - std::time::Duration::from_secs(9);
    let mut put = |time| {
        *bytes.last_mut().unwrap() ^= 1;
        std::fs::write(&file, &bytes).unwrap();
        std::fs::File::options().write(true).open(&file).unwrap().set_modified(time).unwrap();
    };
    let open = |verify| TypedPartitionDir::open(&path).and_then(|dir| dir.part(1, verify)).map(drop);
    put(time);
    put(time);
    open(Verify::Once).unwrap();
    put(time);
    open(Verify::Once).unwrap();
    assert!(open(Verify::All).is_err());
    put(time);
    put(time + std::time::Duration::from_secs(1));
    assert!(open(Verify::Once).is_err());
    let empty = PartitionBook::new(2, vec![0; 150]).unwrap();
    let error = write_types(&data, &empty, &description(), &directory.path().join("empty"), &Quiet);
    assert!(error.unwrap_err().to_string().contains("part 1 has no node"));
}

#[test]
fn missing_values_of_targets_stay_missing() {
    let mut data = dataset(60, 3);
    let count = data.nodes[0].count;
    let values: Vec<f32> = (0..count).map(|v| if v % 3 == 1 { f32::NAN } else { v as f32 }).collect();
    let on = TaskOn::Nodes(data.nodes[0].name.clone());
    data.tasks =
        vec![Task { targets: Targets::Values { width: 1, values: values.into() }, ..Task::new("value", on) }];
    let of: Vec<u16> = (0..data.num_nodes()).map(|v| (v % 2) as u16).collect();
    let (book, directory) = (PartitionBook::new(2, of).unwrap(), tempfile::tempdir().unwrap());
    let path = directory.path().join("parts");
    let dir = write_types(&data, &book, &description(), &path, &Quiet).unwrap();
    for part in 0..2 {
        let part = dir.part(part, Verify::All).unwrap();
        let Targets::Values { values, .. } = &part.dataset.tasks[0].targets else { panic!("values") };
        for (&v, value) in part.nodes[0].iter().zip(values.iter()) {
            assert!(if v % 3 == 1 { value.is_nan() } else { *value == v as f32 }, "node {v}: {value}");
        }
    }
}
