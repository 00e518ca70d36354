use graphmill_core::features::FeatureData;

use super::*;
use crate::{Dataset, dataset::import::testing::import};

const YAML: &str = r#"
dataset_name: bolt
graph:
  nodes:
    - num: 4
  edges:
    - type: null
      format: csv
      path: edges/cite.csv
feature_data:
  - {domain: node, name: year, format: numpy, path: year.npy}
  - domain: node
    type: null
    name: feat
    format: numpy
    in_memory: false
    path: data/feat.npy
  - {domain: edge, name: time, format: torch, path: time.pt}
tasks:
  - name: link_prediction
    train_set: [{data: [{name: seeds, format: numpy, path: data/links.npy}]}]
  - name: class
    num_classes: 5
    train_set:
      - type: null
        data:
          - {name: seeds, format: numpy, in_memory: true, path: data/train.npy}
          - {name: labels, format: numpy, path: data/train-labels.npy}
    validation_set: [{data: [{name: seeds, format: numpy, path: data/valid.npy}, {name: labels, format: numpy, path: data/valid-labels.npy}]}]
    test_set: [{data: [{name: seeds, format: numpy, path: data/valid2.npy}, {name: labels, format: numpy, path: data/valid-labels.npy}]}]
"#;

fn directory(yaml: &str) -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name);
    ["edges", "data"].iter().for_each(|name| std::fs::create_dir(path(name)).unwrap());
    std::fs::write(path("metadata.yaml"), yaml).unwrap();
    std::fs::write(path("edges/cite.csv"), "0,1\n3,1\n2,2\n").unwrap();
    npy::write(path("edges/cite.npy"), &[0i64, 3, 2, 1, 1, 2], &[2, 3]).unwrap();
    npy::write(path("data/feat.npy"), &[1f64, 2., 3., 4.], &[4, 1]).unwrap();
    npy::write(path("data/links.npy"), &[0i64, 1], &[1, 2]).unwrap();
    npy::write(path("data/train.npy"), &[3i64, 0], &[2]).unwrap();
    npy::write(path("data/train-labels.npy"), &[2i64, 1], &[2]).unwrap();
    npy::write(path("data/valid.npy"), &[1i32], &[1, 1]).unwrap();
    npy::write(path("data/valid2.npy"), &[2i32], &[1]).unwrap();
    npy::write(path("data/valid-labels.npy"), &[0f32], &[1, 1]).unwrap();
    npy::write(path("data/label.npy"), &[0f32, f32::NAN, 3., 0.], &[4]).unwrap();
    dir
}

fn run(src: &Path) -> Result<Dataset, String> {
    import("graphbolt", src, &ImportOptions::default()).map_err(|e| e.to_string())
}

#[test]
fn all_parts_of_a_dataset_are_imported() {
    let arrays = YAML.replace("format: csv", "format: numpy").replace("cite.csv", "cite.npy");
    for yaml in [YAML, &arrays] {
        let dir = directory(yaml);
        for src in [dir.path().to_path_buf(), dir.path().join("metadata.yaml")] {
            let dataset = run(&src).unwrap();
            assert_eq!((dataset.name.as_str(), dataset.graph.in_neighbors(1)), ("bolt", &[0, 3][..]));
            let FeatureData::F32(data) = &dataset.features.data else { panic!() };
            assert_eq!(data[..], [1., 2., 3., 4.]);
            let Labels::Single { class, classes: 5 } = &dataset.labels else { panic!() };
            assert_eq!(class[..], [1, 0, 0, 2]);
            let Split { train, valid, test } = &dataset.split;
            assert_eq!((&train[..], &valid[..], &test[..]), (&[0, 3][..], &[1][..], &[2][..]));
        }
    }
}

#[test]
fn edge_weights_accompany_text_and_arrays() {
    let weight = "- {domain: edge, name: weight, format: numpy, path: data/weight.npy}\n";
    let of_data = YAML.replace("tasks:", &format!("  {weight}tasks:"));
    let of_graph = YAML.replace("  nodes:", &format!("  feature_data:\n    {weight}  nodes:"));
    let arrays = of_graph.replace("format: csv", "format: numpy").replace("cite.csv", "cite.npy");
    for yaml in [of_data, of_graph, arrays] {
        let dir = directory(&yaml);
        let path = dir.path().join("data/weight.npy");
        npy::write(&path, &[0.5f64, 2.0, 0.0], &[3]).unwrap();
        // 0 -> 1, 3 -> 1, 2 -> 2.
        assert_eq!(run(dir.path()).unwrap().graph.edge_weight(), Some(&[0.5, 2.0, 0.0][..]));
        let none = ImportOptions { weights: WeightColumn::None, ..Default::default() };
        assert!(import("graphbolt", dir.path(), &none).unwrap().graph.edge_weight().is_none());
        let named = ImportOptions { weights: WeightColumn::Named("w".into()), ..Default::default() };
        let error = import("graphbolt", dir.path(), &named).unwrap_err().to_string();
        assert!(error.contains("edges have no 'w'"), "{error}");
        for weights in [&[0.5f32, 2.0, -1.0][..], &[1.0, 1.0], &[1.0; 4]] {
            npy::write(&path, weights, &[weights.len()]).unwrap();
            let error = run(dir.path()).unwrap_err();
            assert!(error.contains("weight.npy"), "{error}");
        }
    }
}

#[test]
fn labels_of_seeds_precede_the_table() {
    let table = "  - {domain: node, name: label, format: numpy, path: data/label.npy}\ntasks:";
    let dir = directory(&YAML.replace("tasks:", table));
    let Labels::Single { class, classes: 5 } = run(dir.path()).unwrap().labels else { panic!() };
    assert_eq!(class[..], [1, 0, 0, 2]);
    let (before, _) = YAML.split_once("tasks:").unwrap();
    let dir = directory(&format!("{before}{}", table.replace("tasks:", "")));
    let dataset = run(dir.path()).unwrap();
    let Labels::Single { class, classes: 4 } = &dataset.labels else { panic!() };
    assert_eq!((&class[..], dataset.split.train.len()), (&[0, -1, 3, 0][..], 0));
    let dir = directory(before);
    assert_eq!(run(dir.path()).unwrap().labels.classes(), 0);
}

#[test]
fn sets_of_classes() {
    let dir = directory(&YAML.replace("num_classes: 5", "num_classes: 2"));
    let path = |name: &str| dir.path().join(name);
    npy::write(path("data/train-labels.npy"), &[1i64, 1, 1, 0], &[2, 2]).unwrap();
    npy::write(path("data/valid-labels.npy"), &[0i64, 1], &[1, 2]).unwrap();
    let Labels::Multi { member, classes: 2 } = run(dir.path()).unwrap().labels else { panic!() };
    assert_eq!(member[..], [1, 0, 0, 1, 0, 1, 1, 1]);
    npy::write(path("data/valid-labels.npy"), &[0i64, 1, 1], &[1, 3]).unwrap();
    assert!(run(dir.path()).unwrap_err().contains("another number of columns"));
}

#[test]
fn unsupported_contents_are_reported() {
    let fails = |from: &str, to: &str, why: &str| {
        let error = run(directory(&YAML.replace(from, to)).path()).unwrap_err();
        assert!(error.contains(why), "{error}");
    };
    let feat = "format: numpy\n    in_memory: false";
    fails(
        feat,
        "format: torch\n    in_memory: false",
        "metadata.yaml: feature_data: 'data/feat.npy' is a torch",
    );
    fails(feat, "format: feather\n    in_memory: false", "'feather'; numpy expected");
    fails(
        "    - num: 4",
        "    - {type: a, num: 4}\n    - {type: b, num: 1}",
        "graph: 2 types of nodes and 1 of",
    );
    fails("graph:", "graph_topology: {type: x}\ngraf:", "import the original directory");
    fails("graph:", "graf:", "no field 'graph'");
    fails("format: csv", "format: parquet", "graph.edges: 'edges/cite.csv' has the format 'parquet'");
    fails("num_classes: 5", "num_classes: 2", "num_classes: 2 classes, but the labels have 3");
    fails("num_classes: 5", "num_classes: 50000", "50000 classes");
    fails("num: 4", "num: 3", "cite.csv: line 2: the edge joins nodes 3 and 1, but there are 3");
    let error = run(directory(
        &YAML
            .replace("name: class", "name: node_classification")
            .replace("name: seeds, format: numpy, in_memory", "name: nodes, format: numpy, in_memory"),
    )
    .path());
    assert!(error.unwrap_err().contains("train_set: its data contains no 'seeds'"));
    let set = "validation_set: [";
    fails(set, &format!("{set}{{data: []}}, "), "validation_set: 2 types of nodes");
    fails("data/valid2.npy", "data/links.npy", "links.npy: seeds: node ids [seeds] expected, shape [1, 2]");
    fails("data/valid2.npy", "data/absent.npy", "absent.npy: cannot open");
    fails("data/valid2.npy", "data/valid.npy", "node 1 is in 'test' and in 'valid'");
    fails("data/valid-labels.npy", "data/train-labels.npy", "train-labels.npy: labels: 2 rows of labels");
    let bare = YAML.split_once("feature_data:").unwrap().0.replace("num: 4", "num: 4000000000000000000");
    assert!(run(directory(&bare).path()).unwrap_err().contains("graph.nodes: 4000000000000000000 nodes"));
    assert!(run(Path::new("absent")).unwrap_err().contains("cannot open"));
}

#[test]
fn damage_is_an_error_or_harmless() {
    let dir = directory(YAML);
    for name in ["metadata.yaml", "data/train.npy", "data/train-labels.npy", "edges/cite.csv"] {
        let path = dir.path().join(name);
        let good = std::fs::read(&path).unwrap();
        for length in (0..good.len()).step_by(7) {
            std::fs::write(&path, &good[..length]).unwrap();
            let _ = run(dir.path()); // a shorter description may be one
        }
        for bit in (0..good.len() * 8).step_by(5) {
            let mut bad = good.clone();
            bad[bit / 8] ^= 1 << (bit % 8);
            std::fs::write(&path, &bad).unwrap();
            let _ = run(dir.path()); // no panic
        }
        std::fs::write(&path, &good).unwrap();
    }
    assert!(run(dir.path()).is_ok());
}
