//! Importers on real data. Runs only if `GRAPHMILL_DATASETS` names the directory of the datasets;
//! the counts are the published ones (undirected edges count twice).

use std::{path::PathBuf, time::Instant};

use graphmill_core::{Labels, features::FeatureData};
use graphmill_data::{
    Dataset,
    dataset::import::{ImportOptions, import},
};

fn real(path: &str) -> Option<PathBuf> {
    let path = PathBuf::from(std::env::var_os("GRAPHMILL_DATASETS")?).join(path);
    path.parent()?.exists().then_some(path)
}

fn load(format: &str, path: &str, options: &ImportOptions) -> Option<Dataset> {
    let dataset = import(format, real(path)?, options).unwrap_or_else(|e| panic!("{e}")).dataset;
    println!("{dataset}");
    Some(dataset)
}

fn counts(d: &Dataset) -> [usize; 4] {
    [d.num_nodes(), d.graph.num_edges(), d.features.dim, d.labels.classes()]
}

fn split(d: &Dataset) -> [usize; 3] {
    [d.split.train.len(), d.split.valid.len(), d.split.test.len()]
}

fn undirected() -> ImportOptions {
    ImportOptions { undirected: true, no_self_loops: true, ..Default::default() }
}

#[test]
fn planetoid() {
    for (name, expected, parts) in [
        ("cora", [2708, 10_556, 1433, 7], [140, 500, 1000]),
        ("citeseer", [3327, 9104, 3703, 6], [120, 500, 1000]),
        ("pubmed", [19_717, 88_648, 500, 3], [60, 500, 1000]),
    ] {
        let path = format!("planetoid/ind.{name}");
        let Some(dataset) = load("planetoid", &path, &ImportOptions::default()) else { return };
        assert_eq!((counts(&dataset), split(&dataset), dataset.name.as_str()), (expected, parts, name));
        if let (Labels::Single { class, .. }, "citeseer") = (&dataset.labels, name) {
            assert_eq!(class.iter().filter(|&&c| c < 0).count(), 15);
        }
    }
}

#[test]
fn shchur() {
    for (name, expected) in [
        ("cora", [2708, 2 * 5278, 1433, 7]),
        ("citeseer", [3312, 2 * 4536, 3703, 6]),
        ("amazon_electronics_computers", [13_752, 2 * 245_861, 767, 10]),
        ("amazon_electronics_photo", [7650, 2 * 119_081, 745, 8]),
        ("ms_academic_cs", [18_333, 2 * 81_894, 6805, 15]),
        ("dblp", [17_716, 2 * 52_867, 1639, 4]),
    ] {
        let Some(dataset) = load("npz", &format!("shchur_npz/{name}.npz"), &undirected()) else { return };
        assert_eq!(counts(&dataset), expected);
    }
    let options = ImportOptions {
        largest_component: true,
        split: Some("planetoid:20,30".parse().unwrap()),
        normalize: "rows".parse().unwrap(),
        ..undirected()
    };
    let photo = load("npz", "shchur_npz/amazon_electronics_photo.npz", &options).unwrap();
    assert_eq!((counts(&photo), split(&photo)), ([7487, 2 * 119_043, 745, 8], [160, 240, 7087]));
    let stored = load("npz", "shchur_npz/citeseer.npz", &ImportOptions::default()).unwrap();
    assert_eq!(stored.graph.num_edges(), 4715);
}

#[test]
fn heterophilous() {
    for k in 0..10 {
        let rule = Some(format!("given:{k}").parse().unwrap());
        let options = ImportOptions { split: rule, ..undirected() };
        let Some(dataset) = load("npz", "heterophilous/minesweeper.npz", &options) else { return };
        assert_eq!(counts(&dataset), [10_000, 2 * 39_402, 7, 2]);
        assert_eq!((split(&dataset), dataset.metric.as_deref()), ([5000, 2500, 2500], Some("roc-auc")));
    }
    let options = ImportOptions { split: Some("given:10".parse().unwrap()), ..undirected() };
    assert!(import("npz", real("heterophilous/minesweeper.npz").unwrap(), &options).is_err());
}

#[test]
fn two_layouts_of_the_same_data_agree() {
    let Some(saint) = load("graphsaint", "cora_graphsaint", &ImportOptions::default()) else { return };
    let planetoid = load("planetoid", "planetoid/ind.cora", &ImportOptions::default()).unwrap();
    assert_eq!(saint.graph.indices(), planetoid.graph.indices());
    assert_eq!(format!("{:?}", saint.labels), format!("{:?}", planetoid.labels));
    assert_eq!(split(&saint), [140, 500, 1000]);

    let edges = load("edges", "human_go", &ImportOptions { undirected: true, ..Default::default() }).unwrap();
    let saint = load("graphsaint", "human_go_graphsaint", &ImportOptions::default()).unwrap();
    // 2 x 15,978 edges and 530 self-loops.
    assert_eq!(counts(&edges), [3106, 32_486, 32, 14]);
    assert_eq!(counts(&saint), counts(&edges));
    assert_eq!(saint.graph.indices(), edges.graph.indices());
    assert_eq!((split(&edges), split(&saint)), ([1675, 187, 1244], [1675, 187, 1244]));
    assert_eq!(saint.split.valid[..], edges.split.valid[..]);
    assert!(edges.labels.is_multi());
    let plain = load("edges", "human_go", &ImportOptions { keep_duplicates: true, ..Default::default() });
    assert_eq!(plain.unwrap().graph.num_edges(), 18_496);
}

#[test]
fn edge_lists() {
    let compact = ImportOptions { compact_ids: true, undirected: true, ..Default::default() };
    let Some(sparse) = load("edges", "snap/ca-AstroPh.txt.gz", &compact) else { return };
    assert_eq!((sparse.num_nodes(), sparse.graph.num_edges()), (18_772, 2 * 198_110 - 60));
    let blog = load("edges", "blogcatalog", &compact).unwrap();
    assert_eq!((blog.num_nodes(), blog.graph.num_edges()), (10_312, 2 * 333_983));
    let web = load("edges", "cnr-2000/cnr-2000.edges.txt.gz", &ImportOptions::default()).unwrap();
    assert_eq!((web.num_nodes(), web.graph.num_edges()), (325_557, 3_216_152));
    let web = load("edges", "cnr-2000/cnr-2000.edges.txt.gz", &undirected()).unwrap();
    assert_eq!(web.graph.num_edges(), 2 * 2_738_969);
}

#[test]
fn the_largest_dataset_imports() {
    let start = Instant::now();
    let Some(dataset) = load("graphsaint", "fb100_large_graphsaint", &ImportOptions::default()) else {
        return;
    };
    println!("imported in {:.2} s", start.elapsed().as_secs_f64());
    assert_eq!(counts(&dataset), [373_252, 28_072_756, 32, 7]);
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("fb100");
    let start = Instant::now();
    dataset.save(&path).unwrap();
    println!("saved in {:.2} s", start.elapsed().as_secs_f64());
    let start = Instant::now();
    let opened = Dataset::open(&path).unwrap();
    println!("opened in {:.2} s", start.elapsed().as_secs_f64());
    assert_eq!(counts(&opened), counts(&dataset));
    assert_eq!(opened.graph.indices(), dataset.graph.indices());
}

#[test]
fn ogb_and_graphsage_layouts() {
    let Some(ogb) = load("ogb", "minesweeper_ogb", &undirected()) else { return };
    let npz = load("npz", "heterophilous/minesweeper.npz", &undirected()).unwrap();
    assert_eq!((counts(&ogb), split(&ogb)), ([10_000, 2 * 39_402, 7, 2], [5000, 2500, 2500]));
    same(&ogb, &npz);

    let sage = load("graphsage", "human_go_graphsage", &ImportOptions::default()).unwrap();
    let edges = load("edges", "human_go", &ImportOptions { undirected: true, ..Default::default() }).unwrap();
    assert_eq!((counts(&sage), split(&sage)), ([3106, 32_486, 32, 14], [1675, 187, 1244]));
    same(&sage, &edges);
    let saint = load("graphsaint", "human_go_graphsaint", &ImportOptions::default()).unwrap();
    same(&sage, &saint);
}

/// Asserts that two copies of the same data, in different layouts, are equal.
fn same(a: &Dataset, b: &Dataset) {
    assert_eq!((a.graph.indptr(), a.graph.indices()), (b.graph.indptr(), b.graph.indices()));
    for ((part, a), (_, b)) in a.split.parts().into_iter().zip(b.split.parts()) {
        assert_eq!(a[..], b[..], "{part}");
    }
    match (&a.labels, &b.labels) {
        (Labels::Single { class: a, .. }, Labels::Single { class: b, .. }) => assert_eq!(a[..], b[..]),
        (Labels::Multi { member: a, .. }, Labels::Multi { member: b, .. }) => assert_eq!(a[..], b[..]),
        _ => panic!("labels of different kinds"),
    }
    let (FeatureData::F32(a), FeatureData::F32(b)) = (&a.features.data, &b.features.data) else { panic!() };
    let close = a.iter().zip(&b[..]).all(|(x, y)| (x - y).abs() <= 1e-6 * y.abs().max(1.0));
    assert!(a.len() == b.len() && close, "features differ");
}
