use graphmill_core::features::FeatureData;

use super::*;
use crate::{Dataset, dataset::import::testing::import};

fn furnish(dir: &Path, name: &str, files: [&str; 3]) {
    fs::create_dir_all(dir).unwrap();
    for (rest, text) in ["edges.csv", "features.json", "target.csv"].iter().zip(files) {
        fs::write(dir.join(format!("musae_{name}_{rest}")), text).unwrap();
    }
}

const TWITCH: [&str; 3] = [
    "from,to\n0,2\n2,1\n",
    r#"{"2": [4, 0, 4], "0": [], "1": [1]}"#,
    "id,days,mature,views,partner,new_id\n70,1,True,5,False,2\n71,1,False,5,False,0\n\
     70,1,True,6,False,2\n9,1,True,5,False,1\n",
];
const PAGES: [&str; 3] = [
    "id_1,id_2\n0,1\n",
    r#"{"0": [2], "1": [0, 1]}"#,
    "id,facebook_id,page_name,page_type\n0,5,\"a, b\",tvshow\n1,6,c,company\n",
];

fn run(src: &Path) -> Result<Dataset, String> {
    import("musae", src, &ImportOptions::default()).map_err(|e| e.to_string())
}

fn classes(dataset: &Dataset) -> Vec<i32> {
    let Labels::Single { class, .. } = &dataset.labels else { panic!() };
    class.to_vec()
}

fn floats(dataset: &Dataset) -> Vec<f32> {
    match &dataset.features.data {
        FeatureData::F32(data) => data.to_vec(),
        FeatureData::Csr(rows) => rows.to_dense().unwrap(),
        FeatureData::F16(_) => panic!(),
    }
}

#[test]
fn rows_may_be_unordered_and_duplicated() {
    let dir = tempfile::tempdir().unwrap();
    let src = dir.path().join("DE");
    furnish(&src, "DE", TWITCH);
    fs::write(src.join("splits.json"), r#"[{"train": [2], "valid": [0], "test": [1]}]"#).unwrap();
    let dataset = run(&src).unwrap();
    assert_eq!((dataset.name.as_str(), dataset.metric.as_deref()), ("DE", Some("roc-auc")));
    assert_eq!((dataset.num_nodes(), dataset.graph.in_neighbors(1)), (3, &[2][..]));
    assert_eq!((dataset.features.dim, classes(&dataset)), (5, vec![0, 1, 1]));
    assert_eq!(floats(&dataset), [0., 0., 0., 0., 0., 0., 1., 0., 0., 0., 1., 0., 0., 0., 1.]);
    assert_eq!((dataset.split.train[0], dataset.split.valid[0], dataset.split.test[0]), (2, 0, 1));
    assert!(dataset.graphs.is_empty());
}

#[test]
fn several_graphs_form_a_union() {
    let dir = tempfile::tempdir().unwrap();
    furnish(&dir.path().join("b"), "b", PAGES);
    furnish(&dir.path().join("a"), "a", PAGES);
    fs::create_dir(dir.path().join("other")).unwrap();
    let dataset = run(dir.path()).unwrap();
    assert_eq!(dataset.graphs, [NamedGraph::new("a", 0..2), NamedGraph::new("b", 2..4)]);
    assert_eq!((dataset.graph.in_neighbors(1), dataset.graph.in_neighbors(3)), (&[0][..], &[2][..]));
    assert_eq!(classes(&dataset), [1, 0, 1, 0]);
    assert_eq!((dataset.features.dim, dataset.split.train.len()), (3, 0));
    let rule = ImportOptions { split: Some("graphs:b//a".parse().unwrap()), ..Default::default() };
    assert_eq!(import("musae", dir.path(), &rule).unwrap().split.train[..], [2, 3]);
}

#[test]
fn errors_contain_the_file_and_the_position() {
    let fails = |file: usize, text: &str, why: &str| {
        let dir = tempfile::tempdir().unwrap();
        let mut files = TWITCH;
        files[file] = text;
        furnish(dir.path(), "DE", files);
        let error = run(dir.path()).unwrap_err();
        let name = ["edges.csv", "features.json", "target.csv"][file];
        assert!(error.contains(name) && error.contains(why), "{error}");
    };
    fails(0, "from,to\n0,3\n", "line 2: the edge joins nodes 0 and 3");
    fails(1, r#"{"3": [1]}"#, "line 1 column");
    fails(1, r#"{"1": [1], "1": [2]}"#, "node 1 occurs twice");
    fails(1, r#"{"1": [-1]}"#, "line 1 column");
    fails(1, r#"{"1": [99999999]}"#, "the largest feature is 99999999");
    fails(1, r#"{"1": [1]"#, "line 1 column");
    fails(2, "id,mature\n", "no rows");
    fails(2, "id,days\n0,1\n", "line 1: no column mature");
    fails(2, "mature\nTrue\n", "line 1: no column new_id or id");
    fails(2, "id,mature\nx,True\n", "line 2: 'x' is not a node id");
    fails(2, "id,mature\n0\n", "line 2: no id or no mature");
    fails(2, "id,mature\n,True\n", "line 2: no id or no mature");
    fails(2, "id,mature\n0,True\n\n1,True\n", "line 3: the line is empty");
    fails(2, "id,mature\n0,True\n1,\"a\n\nb\"\n2,True\n\r\n", "line 7: the line is empty");
    fails(2, "id,mature\n0,True\n2,True\n", "line 3: node 2 follows node 0");
    fails(2, "id,mature\n0,True\n1,True\n0,False\n", "node 0 is 'True' here and 'False' in line 4");
    let dir = tempfile::tempdir().unwrap();
    assert!(run(dir.path()).unwrap_err().contains("no musae_NAME_target.csv"));
    furnish(dir.path(), "DE", TWITCH);
    fs::write(dir.path().join("splits.json"), r#"[{"train": [3]}]"#).unwrap();
    assert!(run(dir.path()).unwrap_err().contains("splits.json: split 0, 'train'"));
    furnish(dir.path(), "FR", TWITCH);
    assert!(run(dir.path()).unwrap_err().contains("one directory for each"));
    fs::remove_file(dir.path().join("musae_FR_target.csv")).unwrap();
    fs::remove_file(dir.path().join("musae_DE_features.json")).unwrap();
    assert!(run(dir.path()).unwrap_err().contains("musae_DE_features.json: cannot open"));
}

#[test]
fn damage_is_an_error_or_harmless() {
    let dir = tempfile::tempdir().unwrap();
    furnish(dir.path(), "DE", TWITCH);
    for (rest, text) in ["edges.csv", "features.json", "target.csv"].iter().zip(TWITCH) {
        let path = dir.path().join(format!("musae_DE_{rest}"));
        for length in 0..text.len() {
            fs::write(&path, &text[..length]).unwrap();
            let _ = run(dir.path()); // a shorter table may be a table
        }
        for bit in 0..text.len() * 8 {
            let mut bad = text.as_bytes().to_vec();
            bad[bit / 8] ^= 1 << (bit % 8);
            fs::write(&path, &bad).unwrap();
            let _ = run(dir.path()); // no panic
        }
        fs::write(&path, text).unwrap();
    }
    assert!(run(dir.path()).is_ok());
}
