//! Importers of typed graphs on real datasets: the counts of their descriptions. Tests are skipped
//! unless `GRAPHMILL_DATASETS` names the directory of the datasets.

use std::path::PathBuf;

use graphmill_data::typed::{
    Negatives, Seeds, Task, TypedDataset,
    import::{TypedImported, TypedOptions, import},
};

/// Path of a dataset, or `None` to skip the test.
fn source(name: &str) -> Option<PathBuf> {
    let root = std::env::var_os("GRAPHMILL_DATASETS")?;
    let path = PathBuf::from(root).join("typed-links-time").join(name);
    path.exists().then_some(path)
}

fn load(format: &str, name: &str, options: &TypedOptions) -> Option<TypedImported> {
    let imported = import(format, source(name)?, options).unwrap();
    println!("{}\n{}", imported.dataset, imported.report);
    Some(imported)
}

/// Nodes of each type.
fn nodes(data: &TypedDataset) -> Vec<(&str, usize)> {
    data.nodes.iter().map(|nodes| (nodes.name.as_str(), nodes.count)).collect()
}

/// Rows of the split.
fn rows(task: &Task) -> [usize; 3] {
    [task.split.train.len(), task.split.valid.len(), task.split.test.len()]
}

fn widths(data: &TypedDataset) -> Vec<Option<usize>> {
    data.nodes.iter().map(|nodes| nodes.features.as_ref().map(|table| table.width)).collect()
}

#[test]
fn hgb_has_its_counts() {
    let Some(imported) = load("hgb", "hgb/DBLP.zip", &TypedOptions::default()) else { return };
    let data = imported.dataset;
    assert_eq!(nodes(&data), [("author", 4057), ("paper", 14328), ("term", 7723), ("venue", 20)]);
    assert_eq!(widths(&data), [Some(334), Some(4231), Some(50), None]);
    let edges: Vec<usize> = data.edges.iter().map(|edges| edges.num_edges()).collect();
    assert_eq!(edges, [19645, 85810, 14328, 19645, 85810, 14328]);
    assert!(data.edges.iter().all(|edges| edges.reverse.is_some()));
    assert_eq!(rows(&data.tasks[0]), [974, 243, 2840]);
    assert_eq!((data.tasks[0].width(), data.tasks[0].is_multi_label()), (4, false));
    assert_eq!(data.tasks[0].names, ["Database", "Data Mining", "AI", "Information Retrieval"]);
    let Some(imported) = load("hgb", "hgb/IMDB.zip", &TypedOptions::default()) else { return };
    let data = imported.dataset;
    assert_eq!(nodes(&data), [("movie", 4932), ("director", 2393), ("actor", 6124), ("keyword", 7971)]);
    assert_eq!(widths(&data), [Some(3489), Some(3341), Some(3341), None]);
    assert_eq!(data.num_edges(), 86_642);
    assert_eq!(rows(&data.tasks[0]), [1097, 274, 3202]);
    assert_eq!((data.tasks[0].width(), data.tasks[0].is_multi_label()), (5, true));
}

#[test]
fn ogb_hetero_has_its_counts() {
    let Some(imported) = load("ogb-hetero", "debian_bookworm_ogb", &TypedOptions::default()) else { return };
    let data = imported.dataset;
    let expected = [
        ("package", 63_436),
        ("source", 34_288),
        ("virtual", 35_352),
        ("tag", 598),
        ("term", 6018),
        ("host", 6855),
    ];
    assert_eq!(nodes(&data), expected);
    assert_eq!((data.num_edges(), data.edges.len()), (1_189_175, 15));
    let with_features =
        data.edges.iter().filter(|edges| edges.features.as_ref().is_some_and(|table| table.width == 3));
    assert_eq!(with_features.count(), 4);
    assert_eq!(widths(&data), [Some(11), None, None, None, None, None]);
    let task = &data.tasks[0];
    assert_eq!((rows(task), task.width(), &task.names[1][..]), ([31_196, 16_250, 15_990], 58, "cli-mono"));
    let keys = data.nodes[0].keys.as_ref().unwrap();
    assert_eq!((keys.get(0).to_string(), keys.get(1).to_string()), ("0ad".into(), "0ad-data".into()));
}

/// Sum of the rows of all tasks.
fn all_rows(data: &TypedDataset) -> [usize; 3] {
    data.tasks.iter().map(rows).fold([0; 3], |sum, rows| [0, 1, 2].map(|i| sum[i] + rows[i]))
}

fn negatives(task: &Task) -> [usize; 3] {
    task.negatives.each_ref().map(|part| match part {
        Some(Negatives::Pairs(pairs)) => pairs.len() / 2,
        Some(Negatives::Destinations { nodes, .. } | Negatives::Sources { nodes, .. }) => nodes.len(),
        Some(Negatives::Lists(lists)) => lists.nodes.len(),
        None => 0,
    })
}

#[test]
fn triples_have_their_counts() {
    let Some(imported) = load("triples", "kg/FB15k-237.tar.gz", &TypedOptions::default()) else { return };
    let data = imported.dataset;
    assert_eq!((data.num_nodes(), data.edges.len(), data.num_edges()), (14_541, 237, 272_115));
    assert_eq!(all_rows(&data), [272_115, 17_535, 20_466]);
    let loops: u64 = imported.report.edges.values().map(|counts| counts.self_loops_kept).sum();
    assert_eq!(loops, 1625);
    let Some(imported) = load("triples", "kg/codex-s", &TypedOptions::default()) else { return };
    let data = imported.dataset;
    assert_eq!((data.nodes[0].count, data.tasks.len()), (2034, 42));
    assert_eq!(all_rows(&data), [32_888, 1827, 1828]);
    let given =
        data.tasks.iter().map(negatives).fold([0; 3], |sum, part| [0, 1, 2].map(|i| sum[i] + part[i]));
    assert_eq!(given, [0, 1827, 1828]);
    assert_eq!(data.nodes[1].name, "type");
}

#[test]
fn rdf_has_its_counts() {
    let Some(imported) = load("rdf", "rdf_aifb", &TypedOptions::default()) else { return };
    let data = imported.dataset;
    assert_eq!((data.num_nodes(), data.edges.len(), data.num_edges()), (8285, 45, 29_043));
    assert_eq!((rows(&data.tasks[0]), data.tasks[0].width()), ([112, 28, 36], 4));
    assert_eq!(imported.report.other["triples with a literal object"], 8705);
    let both = TypedOptions { add_reverses: true, ..Default::default() };
    let Some(imported) = load("rdf", "rdf_aifb", &both) else { return };
    assert_eq!((imported.dataset.edges.len(), imported.dataset.num_edges()), (90, 58_086));
    let bare = TypedOptions { no_literals: true, ..Default::default() };
    let Some(imported) = load("rdf", "rdf_aifb", &bare) else { return };
    assert_eq!((imported.dataset.num_nodes(), imported.dataset.num_edges()), (2835, 29_043 - 8705));
}

#[test]
fn ogb_links_have_their_counts() {
    let Some(imported) = load("ogb-links", "ogbl_ddi", &TypedOptions::default()) else { return };
    let data = imported.dataset;
    assert_eq!((data.num_nodes(), data.num_edges()), (4267, 2 * 1_067_911));
    assert_eq!(data.edges[0].reverse.as_deref(), Some("link"));
    assert_eq!(rows(&data.tasks[0]), [1_067_911, 133_489, 133_489]);
    assert_eq!(negatives(&data.tasks[0]), [0, 101_882, 95_599]);
    assert_eq!(data.nodes[0].keys.as_ref().unwrap().get(1).to_string(), "DB00002");
    // The arrays without pickles are the same.
    let npz = source("ogbl_ddi/split_npz/test.npz").unwrap();
    let mut npz = graphmill_data::npz::Npz::open(&npz).unwrap();
    let positives = npz.read_as::<u32>("edge").unwrap().data;
    let Some(Seeds::Pairs(pairs)) = &data.tasks[0].seeds else { panic!() };
    assert_eq!(pairs[pairs.len() - positives.len()..], positives);
    let Some(Negatives::Pairs(pairs)) = &data.tasks[0].negatives[2] else { panic!() };
    assert_eq!(pairs[..], npz.read_as::<u32>("edge_neg").unwrap().data);
}

#[test]
fn interactions_have_their_counts() {
    let Some(imported) = load("interactions", "gowalla", &TypedOptions::default()) else { return };
    let data = imported.dataset;
    assert_eq!(nodes(&data), [("user", 29_858), ("item", 40_981)]);
    let [train, valid, test] = rows(&data.tasks[0]);
    assert_eq!((train, valid, train + test), (810_128, 0, 1_027_370));
    assert_eq!((data.num_edges(), data.edges.len()), (2 * 810_128, 2));
    // The matrix alone gives the same training pairs.
    let dir = tempfile::tempdir().unwrap();
    for name in ["s_adj_mat.npz", "test.txt"] {
        std::fs::copy(source("gowalla").unwrap().join(name), dir.path().join(name)).unwrap();
    }
    let matrix = import("interactions", dir.path(), &TypedOptions::default()).unwrap().dataset;
    assert_eq!(matrix.edges[0].indices[..], data.edges[0].indices[..]);
    assert_eq!(matrix.edges[0].indptr[..], data.edges[0].indptr[..]);
}

#[test]
fn temporal_lists_have_their_counts() {
    let Some(imported) = load("temporal", "snap_temporal/CollegeMsg.txt.gz", &TypedOptions::default()) else {
        return;
    };
    let data = imported.dataset;
    assert_eq!((data.num_nodes(), data.num_edges()), (1899, 59_835));
    assert_eq!(imported.report.edges["node:links:node"].duplicates_kept, 59_835 - 20_296);
    assert_eq!(rows(&data.tasks[0]).iter().sum::<usize>(), 59_835);
    let dir = tempfile::tempdir().unwrap();
    for name in ["a2q", "c2a", "c2q"] {
        let name = format!("sx-mathoverflow-{name}.txt.gz");
        std::fs::copy(source("snap_temporal").unwrap().join(&name), dir.path().join(&name)).unwrap();
    }
    let imported = import("temporal", dir.path(), &TypedOptions::default()).unwrap();
    let data = imported.dataset;
    let edges: Vec<_> = data.edges.iter().map(|edges| (&*edges.edge_type.name, edges.num_edges())).collect();
    assert_eq!(edges, [("a2q", 107_581), ("c2a", 195_330), ("c2q", 203_639)]);
    assert_eq!(data.num_nodes(), 24_818);
    let loops: u64 = imported.report.edges.values().map(|counts| counts.self_loops_kept).sum();
    assert_eq!(loops, 116_109);
    for edges in &data.edges {
        let time = edges.time.as_ref().unwrap();
        assert!((0..data.nodes[0].count as u32).all(|v| time[edges.row(v)].is_sorted()));
    }
    let Some(imported) = load("temporal", "temporal_ml/ml_wikipedia.txt.gz", &TypedOptions::default()) else {
        return;
    };
    assert_eq!(nodes(&imported.dataset), [("user", 8227), ("item", 1000)]);
    assert_eq!(imported.dataset.num_edges(), 157_474);
    assert_eq!(imported.report.edges["user:links:item"].duplicates_kept, 157_474 - 18_257);
    let name = "bitcoin_otc/soc-sign-bitcoinotc.csv.gz";
    let Some(imported) = load("temporal", name, &TypedOptions::default()) else { return };
    let data = imported.dataset;
    assert_eq!((data.num_nodes(), data.num_edges()), (5881, 35_592));
    assert_eq!(data.edges[0].time.as_ref().unwrap().iter().min(), Some(&1_289_241_911_728_360));
    assert_eq!(data.nodes[0].keys.as_ref().unwrap().get(5880).to_string(), "6005");
    assert_eq!((data.tasks.len(), &data.tasks[1].name[..]), (2, "links-rating"));
}

#[test]
fn events_have_their_counts() {
    let Some(imported) = load("events", "temporal_ml/ml_UCI-Msg.csv.gz", &TypedOptions::default()) else {
        return;
    };
    let data = imported.dataset;
    assert_eq!(
        (&*data.name, data.num_nodes(), data.num_edges(), data.tasks.len()),
        ("UCI-Msg", 1899, 59_834, 1)
    );
    let keys = data.nodes[0].keys.as_ref().unwrap();
    assert_eq!((keys.get(0).to_string(), keys.get(1898).to_string()), ("2".into(), "1900".into()));
}

#[test]
fn heco_has_its_counts() {
    let Some(imported) = load("heco", "heco_acm", &TypedOptions::default()) else { return };
    let data = imported.dataset;
    assert_eq!(nodes(&data), [("author", 7167), ("paper", 4019), ("subject", 60)]);
    assert_eq!(widths(&data), [Some(1902), Some(1902), None]);
    let edges: Vec<_> = data.edges.iter().map(|edges| edges.num_edges()).collect();
    assert_eq!(edges, [13_407, 4019]);
    let all: Vec<_> = data.tasks.iter().map(|task| (&*task.name, rows(task), task.width())).collect();
    let expected = [
        ("class-20", [60, 1000, 1000], 3),
        ("class-40", [120, 1000, 1000], 3),
        ("class-60", [180, 1000, 1000], 3),
    ];
    assert_eq!(all, expected);
}

#[test]
fn hne_has_its_counts() {
    let Some(imported) = load("hne", "hne_pubmed", &TypedOptions::default()) else { return };
    let data = imported.dataset;
    let expected = [("GENE", 13_561), ("DISEASE", 20_163), ("CHEMICAL", 26_522), ("SPECIES", 2863)];
    assert_eq!(nodes(&data), expected);
    assert_eq!((data.edges.len(), data.num_edges()), (10, 236_458));
    let all: Vec<_> = data.tasks.iter().map(|task| (&*task.name, rows(task), task.width())).collect();
    let train = data.edges.iter().find(|edges| edges.edge_type.name == "DISEASE-and-DISEASE").unwrap();
    assert_eq!(all, [("DISEASE", [294, 74, 86], 8), ("link", [train.num_edges(), 0, 8522], 0)]);
    assert_eq!(negatives(&data.tasks[1]), [0, 0, 8522]);
    let loops: u64 = imported.report.edges.values().map(|counts| counts.self_loops_kept).sum();
    assert_eq!(loops, 1793);
}

#[test]
fn mat_links_have_their_counts() {
    for (name, nodes, links) in
        [("USAir", 332, 2126), ("NS", 1589, 2742), ("Yeast", 2375, 11_693), ("Power", 4941, 6594)]
    {
        let Some(imported) = load("mat-links", &format!("seal_mat/{name}.mat"), &TypedOptions::default())
        else {
            return;
        };
        let (data, task) = (&imported.dataset, &imported.dataset.tasks[0]);
        assert_eq!((data.num_nodes(), rows(task).iter().sum::<usize>()), (nodes, links));
        let test = (links as f64 * 0.1).round() as usize;
        assert_eq!((rows(task)[2], negatives(task)), (test, [0, rows(task)[1], test]));
        assert_eq!(data.num_edges(), 2 * rows(task)[0]);
    }
}

#[test]
fn ciao_has_its_counts() {
    let Some(imported) = load("ciao", "ciao", &TypedOptions::default()) else { return };
    let data = imported.dataset;
    assert_eq!(nodes(&data), [("user", 7375), ("product", 105_114)]);
    let edges: Vec<_> = data.edges.iter().map(|edges| edges.num_edges()).collect();
    assert_eq!(edges, [284_086, 111_781]);
    assert_eq!(imported.report.edges["user:rates:product"].duplicates_kept, 1436);
    assert_eq!(rows(&data.tasks[0]).iter().sum::<usize>(), 284_086);
}
