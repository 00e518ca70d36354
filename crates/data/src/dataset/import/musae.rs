//! Import of the MUSAE datasets (Rozemberczki, Allen and Sarkar, Multi-scale attributed node
//! embedding, Journal of Complex Networks 2021): a directory with `musae_NAME_edges.csv`,
//! `musae_NAME_features.json` and `musae_NAME_target.csv`, or a directory of several such
//! directories (Twitch's countries), which becomes the disjoint union of their graphs, named and
//! ordered by their names.
//!
//! - Edges: a header, then one line per edge, each edge once: pass `undirected`.
//! - Features: a list of feature ids per node, unordered and possibly with duplicates; each is a
//!   one in that column. Several graphs share the ids.
//! - Targets: the node's id is the column `new_id`, or else `id`; the class is `mature` (Twitch),
//!   `page_type` (Facebook) or `ml_target` (GitHub). Rows are unordered, and duplicates must agree.
//!   Classes that are words are numbered alphabetically; a class that is empty, `nan` or -1 is
//!   missing.
//! - `splits.json`, if present: a list of splits `{"train": [..], "valid": [..], "test": [..]}`.
//!
//! Datasets of two classes are scored by ROC-AUC, as in studies that use Twitch.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt, fs,
    io::{BufRead, BufReader},
    path::{Path, PathBuf},
};

use graphmill_core::{Buffer, Error, Features, Labels, NodeId, Result, Split, location::Location, memory};
use serde::{
    Deserialize,
    de::{self, DeserializeSeed, Deserializer, MapAccess, Visitor},
};

use super::{
    ImportOptions, ImportReport, Raw,
    blocks::Blocks,
    csr::Csr,
    edges::{
        ends,
        weights::{Weights, unread_columns},
    },
    json,
    report::names_in,
    splits,
};
use crate::{dataset::NamedGraph, external::Scratch};

/// Number of columns that is always accepted.
const MIN_ACCEPTED_FEATURES: usize = 1 << 16;

/// Files of one graph.
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
    let mut report = ImportReport::default();
    for source in &sources {
        let target = Target::read(&source.target, &mut report)?;
        report.ignore_columns("edges", unread_columns(&source.edges, 2, &Weights::None)?);
        let nodes = target.classes.len();
        if num_nodes + nodes > NodeId::MAX as usize {
            return Err(Location::new(src, "nodes").error("more nodes than 32-bit ids can number"));
        }
        let first = num_nodes as NodeId;
        ends::read::<NodeId>(&source.edges, Some(nodes), &Weights::None, scratch, &mut |from, to, _| {
            from.iter().zip(to).try_for_each(|(&u, &v)| edges.push(first + u, first + v))
        })?;
        let repeats = read_features(&source.features, nodes, &mut features)?;
        report.count("repeated feature ids of a node", repeats);
        if let Some(path) = &source.splits {
            found_splits = read_splits(path, num_nodes, nodes)?;
        }
        graphs.push(NamedGraph::new(&source.name, num_nodes..num_nodes + nodes));
        num_nodes += nodes;
        targets.push(target);
    }
    features.rows = num_nodes;
    // A split of one country is not a split of the union.
    let alone = sources.len() == 1;
    for source in sources.iter().filter(|source| !alone && source.splits.is_some()) {
        report.ignore(format!("{}: splits.json", source.name));
    }
    let read = |path: &Path| {
        let mut files = sources
            .iter()
            .flat_map(|s| [Some(&s.edges), Some(&s.features), Some(&s.target), s.splits.as_ref()]);
        files.any(|file| file.is_some_and(|file| file == path || file.parent() == Some(path)))
    };
    report.ignore_unread(src, |name| read(&src.join(name)))?;
    for source in sources.iter().filter(|_| !alone) {
        let dir = source.target.parent().unwrap_or(src);
        for name in names_in(dir)?.into_iter().filter(|name| !read(&dir.join(name))) {
            report.ignore(format!("{}: {name}", source.name));
        }
    }
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
            &Location::new(&sources[0].features, "features"),
            &mut report,
        )?,
        labels,
        splits: if alone { found_splits } else { Vec::new() },
        graphs: if alone { Vec::new() } else { graphs },
        metric,
        report,
        ..Raw::default()
    })
}

fn file_name(path: &Path) -> String {
    path.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

/// Finds the graph of a directory, or those of its subdirectories.
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
        let message = "no musae_NAME_target.csv in this directory or its subdirectories";
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
                    "both '{first}_target.csv' and '{second}_target.csv' are here; use one directory for each"
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

/// Class of every node as text; empty if it is missing.
struct Target {
    classes: Vec<String>,
}

impl Target {
    fn read(path: &Path, report: &mut ImportReport) -> Result<Self> {
        refuse_empty_lines(path)?;
        let file = fs::File::open(path).map_err(|e| Error::io(path, "open", e))?;
        let mut reader = csv::ReaderBuilder::new().flexible(true).from_reader(BufReader::new(file));
        let header = reader.headers().map_err(|e| csv_error(path, &e))?.clone();
        let column = |names: &[&str]| {
            let found = names.iter().find_map(|name| header.iter().position(|known| known == *name));
            found.ok_or_else(|| {
                let here = header.iter().collect::<Vec<_>>().join(", ");
                Location::new(path, "line 1").error(format!("no column {} among {here}", names.join(" or ")))
            })
        };
        let id_column = column(&["new_id", "id"])?;
        let class_column = column(&["mature", "page_type", "ml_target", "target"])?;
        let unread = header.iter().enumerate().filter(|(c, _)| ![id_column, class_column].contains(c));
        report.ignore_columns("target", unread.map(|(_, name)| name));
        let mut rows: Vec<(u64, String, u64)> = Vec::new();
        for record in reader.records() {
            let record = record.map_err(|e| csv_error(path, &e))?;
            let line = record.position().map_or(0, csv::Position::line);
            let at = || Location::new(path, format!("line {line}"));
            let field = |c: usize| record.get(c).map(str::trim).filter(|field| !field.is_empty());
            let (Some(id), Some(_)) = (field(id_column), record.get(class_column)) else {
                return Err(at().error(format!("no {} or no {}", &header[id_column], &header[class_column])));
            };
            // Tools write -1 and nan for a missing number.
            let class =
                field(class_column).filter(|class| *class != "-1" && !class.eq_ignore_ascii_case("nan"));
            let Ok(id) = id.parse::<u64>() else {
                return Err(at().error(format!("'{}' is not a node id", id.escape_debug())));
            };
            rows.push((id, class.unwrap_or_default().to_string(), line));
        }
        rows.sort_unstable();
        let mut classes = memory::reserve(rows.len())?;
        let mut last: Option<(u64, String, u64)> = None;
        for (id, class, line) in rows {
            let at = || Location::new(path, format!("line {line}"));
            match &last {
                Some((other, first, _)) if *other == id && *first == class => {
                    report.count("repeated rows of targets", 1);
                    continue;
                }
                Some((other, first, before)) if *other == id => {
                    return Err(
                        at().error(format!("node {id} is '{class}' here and '{first}' in line {before}"))
                    );
                }
                _ => {}
            }
            if id != classes.len() as u64 {
                let message = format!(
                    "node {id} follows node {}: the ids between have no row",
                    classes.len() as i64 - 1
                );
                return Err(at().error(message));
            }
            classes.push(class.clone());
            last = Some((id, class, line));
        }
        if classes.is_empty() {
            return Err(Location::new(path, "contents").error("there are no rows"));
        }
        Ok(Self { classes })
    }
}

/// Rejects empty lines outside of quotes, which the CSV reader would skip.
fn refuse_empty_lines(path: &Path) -> Result<()> {
    let file = fs::File::open(path).map_err(|e| Error::io(path, "open", e))?;
    let mut quoted = false;
    for (i, line) in BufReader::new(file).split(b'\n').enumerate() {
        let line = line.map_err(|e| Error::io(path, "read", e))?;
        if !quoted && line.trim_ascii().is_empty() {
            let at = Location::new(path, format!("line {}", i + 1));
            return Err(at.error("the line is empty, but a row has several values; remove the line"));
        }
        quoted ^= line.iter().filter(|&&b| b == b'"').count() % 2 == 1;
    }
    Ok(())
}

fn csv_error(path: &Path, error: &csv::Error) -> Error {
    let line = error.position().map_or(0, csv::Position::line);
    Location::new(path, format!("line {line}")).error(error.to_string())
}

/// Numbers the classes: numbers represent themselves; words (`True`, `government`) are numbered
/// alphabetically, over all graphs.
fn number_classes(targets: &[Target]) -> Labels {
    let words: BTreeSet<&str> = targets
        .iter()
        .flat_map(|target| &target.classes)
        .map(String::as_str)
        .filter(|word| !word.is_empty())
        .collect();
    let numbers: Option<BTreeMap<&str, i32>> = words
        .iter()
        .map(|word| Some((*word, word.parse::<i32>().ok().filter(|c| (0..words.len() as i32).contains(c))?)))
        .collect();
    let numbers = numbers.unwrap_or_else(|| words.iter().copied().zip(0..).collect());
    let all = targets.iter().flat_map(|target| &target.classes);
    let class: Vec<i32> = all.map(|word| numbers.get(word.as_str()).copied().unwrap_or(-1)).collect();
    Labels::Single { class: class.into(), classes: words.len() }
}

/// Adds a row for each of `nodes` nodes, and returns the number of duplicate feature ids.
fn read_features(path: &Path, nodes: usize, features: &mut Csr) -> Result<u64> {
    let text = json::map(path)?;
    let mut lists = Lists { rows: memory::filled(None, nodes)?, columns: features.columns, repeats: 0 };
    let mut input = serde_json::Deserializer::from_slice(&text);
    let read = lists.deserialize(&mut input).and_then(|()| input.end());
    read.map_err(|e| json::error(path, &e))?;
    features.columns = lists.columns;
    for row in lists.rows {
        features.indices.extend_from_slice(&row.unwrap_or_default());
        features.indptr.push(features.indices.len() as u64);
    }
    Ok(lists.repeats)
}

/// Feature ids by node, ascending and unique.
struct Lists {
    rows: Vec<Option<Vec<u32>>>,
    columns: usize,
    /// Number of duplicate ids.
    repeats: u64,
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
                de::Error::custom(format!("'{}' is not a node: there are {nodes}", key.escape_debug()))
            })?;
            let mut row: Vec<u32> = map.next_value()?;
            row.sort_unstable();
            let given = row.len();
            row.dedup();
            self.repeats += (given - row.len()) as u64;
            if let Some(&most) = row.last() {
                self.columns = self.columns.max(most as usize + 1);
            }
            if self.rows[v].replace(row).is_some() {
                return Err(de::Error::custom(format!("node {v} occurs twice")));
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

/// Reads the splits of a graph of `nodes` nodes, the first of which has the number `first`.
fn read_splits(path: &Path, first: usize, nodes: usize) -> Result<Vec<Split>> {
    let parsed: Vec<Parts> = serde_json::from_slice(&json::map(path)?).map_err(|e| json::error(path, &e))?;
    let split = |(k, parts): (usize, Parts)| {
        let part = |name: &str, ids: Option<Vec<u64>>| match ids {
            Some(ids) => {
                let ids = splits::from_ids(ids, nodes, &Location::new(path, format!("split {k}, '{name}'")))?;
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

/// Creates features with ones at the listed ids; sparse if that is smaller.
fn finish_features(
    features: Csr,
    nodes: usize,
    dense: bool,
    at: &Location,
    report: &mut ImportReport,
) -> Result<Features> {
    let columns = features.columns;
    if columns > features.indices.len() + MIN_ACCEPTED_FEATURES {
        return Err(at.error(format!(
            "the largest feature is {}, but the lists hold {} in all: the file is damaged",
            columns - 1,
            features.indices.len()
        )));
    }
    super::features::from_csr(features, nodes, dense, at, at, report)
}

#[cfg(test)]
mod tests;
