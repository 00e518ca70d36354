//! Flavours of edge lists, tables and exporters on real data. Runs only if `GRAPHMILL_DATASETS`
//! names the directory of the datasets; the counts are the published ones (undirected edges count
//! twice).

use std::path::PathBuf;

use graphmill_data::{
    Dataset,
    dataset::import::{ImportOptions, import},
};

fn real(path: &str) -> Option<PathBuf> {
    let path = PathBuf::from(std::env::var_os("GRAPHMILL_DATASETS")?).join(path);
    path.exists().then_some(path)
}

fn load(format: &str, path: &str, options: &ImportOptions) -> Option<Dataset> {
    let dataset = import(format, real(path)?, options).unwrap_or_else(|e| panic!("{e}")).dataset;
    println!("{dataset}");
    Some(dataset)
}

fn counts(d: &Dataset) -> [usize; 4] {
    [d.num_nodes(), d.graph.num_edges(), d.features.dim, d.labels.classes()]
}

#[test]
fn metis() {
    for (path, expected) in [
        ("metis/4elt.graph", [15_606, 2 * 45_878, 0, 0]),
        ("metis/mdual.graph.gz", [258_569, 2 * 513_132, 0, 0]),
    ] {
        let Some(dataset) = load("edges", path, &ImportOptions::default()) else { return };
        assert_eq!(counts(&dataset), expected);
    }
}

#[test]
fn webgraph_and_snap_are_the_same_graph() {
    let Some(ascii) = load("edges", "cnr-2000/cnr-2000.graph-txt.gz", &ImportOptions::default()) else {
        return;
    };
    assert_eq!(counts(&ascii), [325_557, 3_216_152, 0, 0]);
    let snap = load("edges", "cnr-2000/cnr-2000.edges.txt.gz", &ImportOptions::default()).unwrap();
    assert_eq!(ascii.graph.indptr(), snap.graph.indptr());
    assert_eq!(ascii.graph.indices(), snap.graph.indices());
}

#[test]
fn sparse_ids() {
    let compact = ImportOptions { compact_ids: true, undirected: true, ..Default::default() };
    let Some(dataset) = load("edges", "snap/ca-AstroPh.txt.gz", &compact) else { return };
    assert_eq!(counts(&dataset), [18_772, 2 * 198_110 - 60, 0, 0]);
    let error =
        import("edges", real("snap/ca-AstroPh.txt.gz").unwrap(), &ImportOptions::default()).unwrap_err();
    assert!(error.to_string().contains("compact-ids"), "{error}");
}

#[test]
fn ids_from_1_and_sets_of_classes() {
    let options = ImportOptions { first_id: 1, undirected: true, ..Default::default() };
    let Some(dataset) = load("edges", "blogcatalog", &options) else { return };
    assert_eq!(counts(&dataset), [10_312, 2 * 333_983, 0, 39]);
    let graphmill_core::Labels::Multi { member, .. } = &dataset.labels else { panic!("sets of classes") };
    assert_eq!(member.iter().map(|&m| usize::from(m)).sum::<usize>(), 14_476);
}

#[test]
fn musae() {
    let undirected = ImportOptions { undirected: true, ..Default::default() };
    let Some(facebook) = load("musae", "musae_facebook", &ImportOptions::default()) else { return };
    assert_eq!(counts(&facebook), [22_470, 171_002, 4714, 4]);
    let facebook = load("musae", "musae_facebook", &undirected).unwrap();
    assert_eq!(facebook.graph.num_edges(), 2 * (171_002 - 179) + 179);
    let countries = [
        ("DE", 9498, 153_138),
        ("ENGB", 7126, 35_324),
        ("ES", 4648, 59_382),
        ("FR", 6549, 112_666),
        ("PTBR", 1912, 31_299),
        ("RU", 4385, 37_304),
        ("TW", 2772, 63_462),
    ];
    let mut sum = [0, 0];
    for (name, nodes, edges) in countries {
        let country = load("musae", &format!("twitch/{name}"), &ImportOptions::default()).unwrap();
        assert_eq!(
            (country.num_nodes(), country.graph.num_edges(), country.labels.classes()),
            (nodes, edges, 2)
        );
        assert_eq!((country.name.as_str(), country.metric.as_deref()), (name, Some("roc-auc")));
        let split = [country.split.train.len(), country.split.valid.len(), country.split.test.len()];
        assert_eq!(split, if name == "DE" { [4749, 2374, 2375] } else { [0, 0, 0] });
        sum = [sum[0] + nodes, sum[1] + edges];
    }
    let last = ImportOptions { split: Some("given:4".parse().unwrap()), ..Default::default() };
    assert_eq!(load("musae", "twitch/DE", &last).unwrap().split.train.len(), 4749);
    let rule =
        ImportOptions { split: Some("graphs:DE/ENGB/ES,FR,PTBR,RU,TW".parse().unwrap()), ..undirected };
    let union = load("musae", "twitch", &rule).unwrap();
    // No country has a self-loop or an edge in both directions, so each edge is stored twice.
    assert_eq!(counts(&union), [sum[0], 2 * sum[1], 3170, 2]);
    assert_eq!((union.graphs.len(), union.split.train.len(), union.split.valid.len()), (7, 9498, 7126));
}

#[test]
fn facebook100() {
    let schools = [
        ("Amherst41", 2235, 90_954),
        ("Caltech36", 769, 16_656),
        ("Cornell5", 18_660, 790_777),
        ("JohnsHopkins55", 5180, 186_586),
        ("Reed98", 962, 18_812),
    ];
    let mut sum = [0, 0];
    for (name, nodes, edges) in schools {
        let path = format!("fb100_mat/{name}.mat");
        let Some(school) = load("facebook100", &path, &ImportOptions::default()) else { return };
        let found = (&school.name[..], school.num_nodes(), school.graph.num_edges(), school.labels.classes());
        assert_eq!(found, (name, nodes, 2 * edges, 2));
        // Every row has at most a one for each of six attributes.
        assert!(school.features.stored() <= 6 * nodes && school.features.dim > 100);
        sum = [sum[0] + nodes, sum[1] + 2 * edges];
    }
    let rule = "graphs:Cornell5/JohnsHopkins55/Amherst41,Caltech36,Reed98".parse().unwrap();
    let all =
        load("facebook100", "fb100_mat", &ImportOptions { split: Some(rule), ..Default::default() }).unwrap();
    assert_eq!((all.num_nodes(), all.graph.num_edges(), all.graphs.len()), (sum[0], sum[1], 5));
}
