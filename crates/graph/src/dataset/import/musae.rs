//! MUSAE (Rozemberczki, Allen and Sarkar, Multi-scale attributed node embedding, Journal of Complex Networks 2021):
//! a directory with `musae_NAME_edges.csv`, `musae_NAME_features.json` and `musae_NAME_target.csv`, or a directory of
//! several such directories (Twitch's countries), which becomes the disjoint union of their graphs, in the order of their
//! names and called by them.
//!
//! - Edges: a header, then a line per edge, each edge once: ask for `undirected`.
//! - Features: a list of feature ids per node, in any order, perhaps with repeats; each is a one in that column. Several
//!   graphs share the ids.
//! - Targets: the node's id is the column `new_id`, or `id` where there is none; the class is `mature` (Twitch),
//!   `page_type` (Facebook) or `ml_target` (GitHub). Rows come in any order, and may repeat as long as they agree. Classes
//!   that are words are numbered in the order of the words.
//! - `splits.json`, where it is there: a list of splits `{"train": [..], "valid": [..], "test": [..]}`.
//!
//! Sets of two classes are scored by ROC-AUC, as they are in the studies that use Twitch.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt, fs,
    path::{Path, PathBuf},
};

use serde::{
    Deserialize,
    de::{self, DeserializeSeed, Deserializer, MapAccess, Visitor},
};

use super::{
    ImportOptions, Raw,
    blocks::Blocks,
    csr::Csr,
    edges::{ends, weights::Weights},
    json, splits,
};
use crate::{
    Buffer, Error, Features, Labels, NodeId, Result, Split, dataset::NamedGraph, external::Scratch, place::At,
};

/// So many columns need no list to back them.
const SOME_FEATURES: usize = 1 << 16;

/// The files of one graph.
struct Source {
    name: String,
    edges: PathBuf,
    features: PathBuf,
    target: PathBuf,
    splits: Option<PathBuf>,
}

/// Reads the directory `src`.
pub(super) fn read(src: &Path, options: &ImportOptions, scratch: &Scratch) -> Result<Raw> {
    let sources = find(src)?;
    let mut edges = Blocks::new(scratch.edges(options.edge_options(false)));
    let (mut targets, mut graphs, mut found_splits) = (Vec::new(), Vec::new(), Vec::new());
    let mut features = Csr { indptr: vec![0], ..Csr::default() };
    let mut num_nodes = 0usize;
    for source in &sources {
        let target = Target::read(&source.target)?;
        let nodes = target.classes.len();
        if num_nodes + nodes > NodeId::MAX as usize {
            return Err(At::new(src, "nodes").error("more nodes than 32-bit ids can number"));
        }
        let first = num_nodes as NodeId;
        ends::read::<NodeId>(&source.edges, Some(nodes), &Weights::None, scratch, &mut |from, to, _| {
            from.iter().zip(to).try_for_each(|(&u, &v)| edges.push(first + u, first + v))
        })?;
        read_features(&source.features, nodes, &mut features)?;
        if let Some(path) = &source.splits {
            found_splits = read_splits(path, num_nodes, nodes)?;
        }
        graphs.push(NamedGraph::new(&source.name, num_nodes..num_nodes + nodes));
        num_nodes += nodes;
        targets.push(target);
    }
    features.rows = num_nodes;
    // A split of one country is no split of the union.
    let alone = sources.len() == 1;
    let labels = number_classes(&targets);
    let metric = (labels.classes() == 2).then(|| "roc-auc".to_string());
    Ok(Raw {
        name: if alone { sources[0].name.clone() } else { file_name(src) },
        num_nodes,
        edges: edges.finish()?,
        features: finish_features(
            features,
            num_nodes,
            options.dense_features,
            &At::new(&sources[0].features, "features"),
        )?,
        labels,
        splits: if alone { found_splits } else { Vec::new() },
        graphs: if alone { Vec::new() } else { graphs },
        metric,
    })
}

fn file_name(path: &Path) -> String {
    path.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

/// The graph of a directory, or those of the directories in it.
fn find(src: &Path) -> Result<Vec<Source>> {
    if let Some(source) = Source::find(src)? {
        return Ok(vec![source]);
    }
    let entries = fs::read_dir(src).map_err(|e| Error::io(src, "look into", e))?;
    let mut dirs: Vec<PathBuf> =
        entries.filter_map(|entry| Some(entry.ok()?.path())).filter(|path| path.is_dir()).collect();
    dirs.sort_unstable();
    let mut sources = Vec::new();
    for dir in dirs {
        if let Some(source) = Source::find(&dir)? {
            sources.push(Source { name: file_name(&dir), ..source });
        }
    }
    if sources.is_empty() {
        let message = "no musae_NAME_target.csv is here, nor in a directory here";
        return Err(Error::format(src, "directory", message));
    }
    Ok(sources)
}

impl Source {
    fn find(dir: &Path) -> Result<Option<Self>> {
        let entries = fs::read_dir(dir).map_err(|e| Error::io(dir, "look into", e))?;
        let mut names: Vec<String> = entries
            .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
            .filter_map(|name| Some(name.strip_suffix("_target.csv")?.to_string()))
            .collect();
        names.sort_unstable();
        let prefix = match &names[..] {
            [] => return Ok(None),
            [prefix] => prefix,
            [first, second, ..] => {
                let message = format!(
                    "both '{first}_target.csv' and '{second}_target.csv' are here; a directory for each"
                );
                return Err(Error::format(dir, "directory", message));
            }
        };
        let file = |rest: &str| dir.join(format!("{prefix}{rest}"));
        let splits = dir.join("splits.json");
        Ok(Some(Self {
            name: prefix.strip_prefix("musae_").unwrap_or(prefix).to_string(),
            edges: file("_edges.csv"),
            features: file("_features.json"),
            target: file("_target.csv"),
            splits: splits.is_file().then_some(splits),
        }))
    }
}

/// The class of every node, as it is written.
struct Target {
    classes: Vec<String>,
}

impl Target {
    fn read(path: &Path) -> Result<Self> {
        let file = fs::File::open(path).map_err(|e| Error::io(path, "open", e))?;
        let mut reader = csv::ReaderBuilder::new().flexible(true).from_reader(std::io::BufReader::new(file));
        let header = reader.headers().map_err(|e| csv_error(path, &e))?.clone();
        let column = |names: &[&str]| {
            let found = names.iter().find_map(|name| header.iter().position(|known| known == *name));
            found.ok_or_else(|| {
                let here = header.iter().collect::<Vec<_>>().join(", ");
                At::new(path, "line 1").error(format!("no column {} among {here}", names.join(" or ")))
            })
        };
        let id_column = column(&["new_id", "id"])?;
        let class_column = column(&["mature", "page_type", "ml_target", "target"])?;
        let mut rows: Vec<(u64, String, u64)> = Vec::new();
        for record in reader.records() {
            let record = record.map_err(|e| csv_error(path, &e))?;
            let line = record.position().map_or(0, csv::Position::line);
            let at = || At::new(path, format!("line {line}"));
            let field = |c: usize| record.get(c).map(str::trim).filter(|field| !field.is_empty());
            let (Some(id), Some(class)) = (field(id_column), field(class_column)) else {
                return Err(at().error(format!("no {} or no {}", &header[id_column], &header[class_column])));
            };
            let Ok(id) = id.parse::<u64>() else {
                return Err(at().error(format!("'{}' is not a node id", id.escape_debug())));
            };
            rows.push((id, class.to_string(), line));
        }
        rows.sort_unstable();
        let mut classes = Vec::with_capacity(rows.len());
        let mut last: Option<(u64, String, u64)> = None;
        for (id, class, line) in rows {
            let at = || At::new(path, format!("line {line}"));
            match &last {
                Some((other, first, _)) if *other == id && *first == class => continue,
                Some((other, first, before)) if *other == id => {
                    return Err(
                        at().error(format!("node {id} is '{class}' here and '{first}' in line {before}"))
                    );
                }
                _ => {}
            }
            if id != classes.len() as u64 {
                let message =
                    format!("node {id} follows on {}: no row has the ids between", classes.len() as i64 - 1);
                return Err(at().error(message));
            }
            classes.push(class.clone());
            last = Some((id, class, line));
        }
        if classes.is_empty() {
            return Err(At::new(path, "contents").error("there are no rows"));
        }
        Ok(Self { classes })
    }
}

fn csv_error(path: &Path, error: &csv::Error) -> Error {
    let line = error.position().map_or(0, csv::Position::line);
    At::new(path, format!("line {line}")).error(error.to_string())
}

/// Numbers stand for themselves; words (`True`, `government`) are numbered in their order, over all graphs.
fn number_classes(targets: &[Target]) -> Labels {
    let words: BTreeSet<&str> =
        targets.iter().flat_map(|target| &target.classes).map(String::as_str).collect();
    let numbers: Option<BTreeMap<&str, i32>> = words
        .iter()
        .map(|word| Some((*word, word.parse::<i32>().ok().filter(|c| (0..words.len() as i32).contains(c))?)))
        .collect();
    let numbers = numbers.unwrap_or_else(|| words.iter().copied().zip(0..).collect());
    let class: Vec<i32> =
        targets.iter().flat_map(|target| &target.classes).map(|word| numbers[word.as_str()]).collect();
    Labels::Single { class: class.into(), classes: words.len() }
}

/// Adds a row for each of `nodes` nodes.
fn read_features(path: &Path, nodes: usize, features: &mut Csr) -> Result<()> {
    let text = json::map(path)?;
    let mut lists = Lists { rows: vec![None; nodes], columns: features.columns };
    let mut input = serde_json::Deserializer::from_slice(&text);
    let read = lists.deserialize(&mut input).and_then(|()| input.end());
    read.map_err(|e| json::error(path, &e))?;
    features.columns = lists.columns;
    for row in lists.rows {
        features.indices.extend_from_slice(&row.unwrap_or_default());
        features.indptr.push(features.indices.len() as u64);
    }
    Ok(())
}

/// Feature ids by node, ascending, each once.
struct Lists {
    rows: Vec<Option<Vec<u32>>>,
    columns: usize,
}

impl<'de> DeserializeSeed<'de> for &mut Lists {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, json: D) -> Result<(), D::Error> {
        json.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for &mut Lists {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a map from node ids to lists of feature ids")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let nodes = self.rows.len();
        while let Some(key) = map.next_key::<std::borrow::Cow<'de, str>>()? {
            let v = key.parse::<usize>().ok().filter(|&v| v < nodes);
            let v = v.ok_or_else(|| {
                de::Error::custom(format!("'{}' is no node: there are {nodes}", key.escape_debug()))
            })?;
            let mut row: Vec<u32> = map.next_value()?;
            row.sort_unstable();
            row.dedup();
            if let Some(&most) = row.last() {
                self.columns = self.columns.max(most as usize + 1);
            }
            if self.rows[v].replace(row).is_some() {
                return Err(de::Error::custom(format!("node {v} stands twice")));
            }
        }
        Ok(())
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Parts {
    train: Vec<u64>,
    #[serde(alias = "val")]
    valid: Option<Vec<u64>>,
    test: Option<Vec<u64>>,
}

/// The splits of a graph of `nodes` nodes, the first of which has the number `first`.
fn read_splits(path: &Path, first: usize, nodes: usize) -> Result<Vec<Split>> {
    let parsed: Vec<Parts> = serde_json::from_slice(&json::map(path)?).map_err(|e| json::error(path, &e))?;
    let split = |(k, parts): (usize, Parts)| {
        let part = |name: &str, ids: Option<Vec<u64>>| match ids {
            Some(ids) => {
                let ids = splits::from_ids(ids, nodes, &At::new(path, format!("split {k}, '{name}'")))?;
                Ok::<Buffer<NodeId>, Error>(
                    ids.iter().map(|&v| v + first as NodeId).collect::<Vec<_>>().into(),
                )
            }
            None => Ok(Buffer::default()),
        };
        Ok(Split {
            train: part("train", Some(parts.train))?,
            valid: part("valid", parts.valid)?,
            test: part("test", parts.test)?,
        })
    };
    parsed.into_iter().enumerate().map(split).collect()
}

/// Ones where the lists have ids; sparse where that is smaller.
fn finish_features(features: Csr, nodes: usize, dense: bool, at: &At) -> Result<Features> {
    let columns = features.columns;
    if columns > features.indices.len() + SOME_FEATURES {
        return Err(at.error(format!(
            "the largest feature is {}, but the lists hold {} in all: the file is damaged",
            columns - 1,
            features.indices.len()
        )));
    }
    super::features::from_csr(features, nodes, dense, at, at)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        Dataset,
        dataset::{FeatureData, import::import},
    };

    fn furnish(dir: &Path, name: &str, files: [&str; 3]) {
        fs::create_dir_all(dir).unwrap();
        for (rest, text) in ["edges.csv", "features.json", "target.csv"].iter().zip(files) {
            fs::write(dir.join(format!("musae_{name}_{rest}")), text).unwrap();
        }
    }

    const TWITCH: [&str; 3] = [
        "from,to\n0,2\n2,1\n",
        r#"{"2": [4, 0, 4], "0": [], "1": [1]}"#,
        "id,days,mature,views,partner,new_id\n70,1,True,5,False,2\n71,1,False,5,False,0\n70,1,True,6,False,2\n9,1,True,5,False,1\n",
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
    fn one_graph_in_any_order_with_repeats() {
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
    fn several_graphs_are_united() {
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
    fn faults_name_the_file_and_the_place() {
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
        fails(1, r#"{"1": [1], "1": [2]}"#, "node 1 stands twice");
        fails(1, r#"{"1": [-1]}"#, "line 1 column");
        fails(1, r#"{"1": [99999999]}"#, "the largest feature is 99999999");
        fails(1, r#"{"1": [1]"#, "line 1 column");
        fails(2, "id,mature\n", "no rows");
        fails(2, "id,days\n0,1\n", "line 1: no column mature");
        fails(2, "mature\nTrue\n", "line 1: no column new_id or id");
        fails(2, "id,mature\nx,True\n", "line 2: 'x' is not a node id");
        fails(2, "id,mature\n0\n", "line 2: no id or no mature");
        fails(2, "id,mature\n0,True\n2,True\n", "line 3: node 2 follows on 0");
        fails(2, "id,mature\n0,True\n1,True\n0,False\n", "node 0 is 'True' here and 'False' in line 4");
        let dir = tempfile::tempdir().unwrap();
        assert!(run(dir.path()).unwrap_err().contains("no musae_NAME_target.csv"));
        furnish(dir.path(), "DE", TWITCH);
        fs::write(dir.path().join("splits.json"), r#"[{"train": [3]}]"#).unwrap();
        assert!(run(dir.path()).unwrap_err().contains("splits.json: split 0, 'train'"));
        furnish(dir.path(), "FR", TWITCH);
        assert!(run(dir.path()).unwrap_err().contains("a directory for each"));
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
}
