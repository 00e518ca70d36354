//! Import of a GraphBolt dataset of several types, or with tasks on links, before its preprocessing
//! (DGL's `OnDiskDataset`: "YAML specification" in
//! `docs/source/stochastic_training/ondisk-dataset-specification.rst`). `SRC` is the directory of
//! `metadata.yaml`, or that file. Arrays are `numpy`, `torch` (nothing is executed) or `csv`.
//!
//! - `graph.nodes` and `graph.edges` with their types (`author:writes:paper`); without types they
//!   are `node` and `node:link:node`.
//! - `feature_data`: tables called `label`, `labels`, `year` or `time` are not features; all other
//!   tables of a type are joined. `weight` of edges are their weights, `time` or `timestamp` times.
//! - `tasks`: `seeds` of nodes `[N]` with `labels`, or of links `[N, 2]`: those with the label 0,
//!   or behind the first of the same `indexes`, are negatives. The older names `seed_nodes`,
//!   `node_pairs`, `negative_srcs` and `negative_dsts` are read too.

use std::{collections::HashMap, path::Path};

use graphmill_core::{Error, Labels, Result, location::Location};

use super::{
    TypedOptions,
    files::Files,
    loose::{self, Rows},
    raw::{RawEdges, RawTyped, split},
};
use crate::{
    dataset::import::graphbolt::metadata::{FeatureFile, Metadata, Set, Task as SourceTask},
    typed::{EdgeType, Negatives, Seeds, Targets, Task, TaskOn},
};

const SEEDS: [&str; 4] = ["seeds", "seed_nodes", "node_pairs", "node_ids"];
const NOT_FEATURES: [&str; 7] = ["label", "labels", "year", "time", "timestamp", "weight", "edge_weight"];
const NODE: &str = "node";

/// Rows of the seeds of a part of a task.
#[derive(Default)]
struct Part {
    /// Nodes, or pairs.
    seeds: Vec<u32>,
    pairs: bool,
    labels: Option<Rows>,
    negatives: Option<Negatives>,
}

/// Reads the directory (or the `metadata.yaml`) `src`.
pub(super) fn read(src: &Path, _options: &TypedOptions) -> Result<RawTyped> {
    let yaml = if src.is_dir() { src.join("metadata.yaml") } else { src.to_path_buf() };
    let metadata = Metadata::read(&yaml)?;
    let root = yaml.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let files = Files::open(root)?;
    let at = |place: &str| Location::new(&yaml, place.to_string());
    let name = metadata.dataset_name.clone().unwrap_or_else(|| files.title());
    let mut raw = RawTyped { name, ..RawTyped::default() };
    let Some(graph) = &metadata.graph else {
        return Err(at("graph").error(match metadata.graph_topology {
            Some(_) => "this dataset was preprocessed by GraphBolt; import the original directory",
            None => "there is no field 'graph'",
        }));
    };
    for nodes in &graph.nodes {
        raw.add_nodes(nodes.kind.as_deref().unwrap_or(NODE), nodes.num, None);
    }
    let tables: Vec<&FeatureFile> =
        graph.feature_data.iter().chain(&metadata.feature_data).flatten().collect();
    for nodes in &mut raw.nodes {
        let own = || {
            tables
                .iter()
                .filter(|file| file.domain == "node" && file.kind.as_deref().unwrap_or(NODE) == nodes.name)
        };
        let mut parts = Vec::new();
        for file in own().filter(|file| !NOT_FEATURES.contains(&file.name.as_str())) {
            parts.push(loose::features(&files, &file.path, &file.format, nodes.count)?);
        }
        nodes.features = loose::join(parts, nodes.count)?;
        if let Some(file) = own().find(|file| ["year", "time", "timestamp"].contains(&file.name.as_str())) {
            nodes.time = Some(times(&files, file, nodes.count)?.into());
        }
    }
    for file in &graph.edges {
        let edge_type = edge_type(file.kind.as_deref()).map_err(|e| at("graph.edges").error(e))?;
        let [from, to] = loose::edges(&files, &file.path, &file.format)?;
        let mut edges = RawEdges { src: from, dst: to, ..RawEdges::new(edge_type) };
        let name = edges.edge_type.to_string();
        let is_own = |file: &&&FeatureFile| {
            file.domain == "edge" && file.kind.as_deref().is_none_or(|kind| kind.replace("___", ":") == name)
        };
        let mut parts = Vec::new();
        for file in tables.iter().filter(is_own) {
            match file.name.as_str() {
                "weight" | "edge_weight" => {
                    let (weights, shape) = loose::load::<f32>(&files, &file.path, &file.format)?;
                    if weights.len() != edges.src.len() {
                        let message = format!("shape {shape:?} for {} edges", edges.src.len());
                        return Err(files.error(&file.path, "weights", message));
                    }
                    edges.weights = Some(weights.to_vec());
                }
                "time" | "timestamp" | "year" => edges.time = Some(times(&files, file, edges.src.len())?),
                name if NOT_FEATURES.contains(&name) => {
                    raw.report.ignore(format!("{name} of {}", edges.edge_type))
                }
                _ => parts.push(loose::features(&files, &file.path, &file.format, edges.src.len())?),
            }
        }
        edges.features = loose::join(parts, edges.src.len())?;
        raw.edges.push(edges);
    }
    let tasks = metadata.tasks.as_deref().unwrap_or_default();
    for (i, task) in tasks.iter().enumerate() {
        add_task(&files, task, i, &mut raw).map_err(|e| match e {
            Error::Invalid(message) => at("tasks").error(message),
            other => other,
        })?;
    }
    for file in
        tables.iter().filter(|file| file.domain == "node" && ["label", "labels"].contains(&&*file.name))
    {
        raw.report.ignore(format!("{} of nodes (the tasks have labels)", file.name));
    }
    let own = yaml.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    let named: Vec<&str> = metadata.paths().map(|path| path.trim_start_matches("./")).collect();
    raw.report.ignore_unread(files.names(), |name| name == own || named.contains(&name));
    Ok(raw)
}

fn times(files: &Files, file: &FeatureFile, rows: usize) -> Result<Vec<i64>> {
    let (times, shape) = loose::load::<i64>(files, &file.path, &file.format)?;
    match times.len() == rows {
        true => Ok(times.to_vec()),
        false => Err(files.error(&file.path, "times", format!("shape [{rows}] expected, {shape:?} found"))),
    }
}

/// Parses `author:writes:paper`.
fn edge_type(text: Option<&str>) -> Result<EdgeType, String> {
    let Some(text) = text else { return Ok(EdgeType::new(NODE, "link", NODE)) };
    match text.split(':').collect::<Vec<_>>()[..] {
        [source, name, destination] => Ok(EdgeType::new(source, name, destination)),
        _ => Err(format!("'{text}' is not an edge type; source:name:destination expected")),
    }
}

/// Adds a task for each type of its seeds.
fn add_task(files: &Files, task: &SourceTask, number: usize, raw: &mut RawTyped) -> Result<()> {
    let sets = [&task.train_set, &task.validation_set, &task.test_set];
    let mut kinds: Vec<Option<&str>> =
        sets.iter().flat_map(|sets| sets.iter().flatten()).map(|set| set.kind.as_deref()).collect();
    kinds.sort_unstable();
    kinds.dedup();
    let base = task.name.clone().unwrap_or_else(|| format!("task-{number}"));
    for kind in &kinds {
        let part =
            |sets: &Option<Vec<Set>>| match sets.iter().flatten().find(|set| set.kind.as_deref() == *kind) {
                Some(set) => read_part(files, set),
                None => Ok(Part::default()),
            };
        let parts = [part(sets[0])?, part(sets[1])?, part(sets[2])?];
        let title = match kind {
            Some(kind) if kinds.len() > 1 => format!("{base}-{kind}"),
            _ => base.clone(),
        };
        raw.tasks.push(task_of(title, *kind, parts, task.num_classes)?);
    }
    Ok(())
}

/// Task of seeds of one type.
fn task_of(title: String, kind: Option<&str>, parts: [Part; 3], classes: Option<usize>) -> Result<Task> {
    let pairs = parts.iter().any(|part| part.pairs);
    if parts.iter().any(|part| part.pairs != pairs && !part.seeds.is_empty()) {
        return Err(Error::invalid(format!(
            "task '{title}': seeds of one set are nodes and of another are links"
        )));
    }
    let width = if pairs { 2 } else { 1 };
    let on = if pairs {
        TaskOn::Edges(edge_type(kind).map_err(Error::invalid)?)
    } else {
        TaskOn::Nodes(kind.unwrap_or(NODE).to_string())
    };
    let mut first = 0u32;
    let rows = [0, 1, 2].map(|i| {
        let rows = first..first + (parts[i].seeds.len() / width) as u32;
        first = rows.end;
        rows.collect::<Vec<u32>>()
    });
    let seeds: Vec<u32> = parts.iter().flat_map(|part| part.seeds.iter().copied()).collect();
    let counts = rows.each_ref().map(Vec::len);
    let labels = parts.each_ref().map(|part| part.labels.as_ref());
    let targets = match labels.iter().any(Option::is_some) {
        true => targets(&title, labels, counts, classes)?,
        false => Targets::None,
    };
    Ok(Task {
        seeds: Some(if pairs { Seeds::Pairs(seeds.into()) } else { Seeds::Nodes(seeds.into()) }),
        targets,
        split: split(rows),
        negatives: parts.map(|part| part.negatives),
        ..Task::new(title, on)
    })
}

/// Targets of all parts in their order.
fn targets(
    title: &str,
    parts: [Option<&Rows>; 3],
    counts: [usize; 3],
    classes: Option<usize>,
) -> Result<Targets> {
    let (mut class, mut member, mut values) = (Vec::new(), Vec::new(), Vec::new());
    let mut width = None;
    for (part, count) in parts.into_iter().zip(counts) {
        let columns = match part {
            Some(Rows::Classes(_)) | None => 1,
            Some(Rows::Sets(_, width) | Rows::Values(_, width)) => *width,
        };
        if count > 0 && part.is_some() && *width.get_or_insert(columns) != columns {
            return Err(Error::invalid(format!(
                "task '{title}': labels of the sets have different numbers of columns"
            )));
        }
        match part {
            Some(Rows::Classes(rows)) => {
                class.extend_from_slice(rows);
                values.extend(rows.iter().map(|&x| x as f32));
            }
            Some(Rows::Sets(rows, _)) => {
                member.extend_from_slice(rows);
                values.extend(rows.iter().map(|&x| f32::from(x)));
            }
            Some(Rows::Values(rows, _)) => values.extend_from_slice(rows),
            None => {
                class.extend(std::iter::repeat_n(-1, count));
                values.extend(std::iter::repeat_n(f32::NAN, count * width.unwrap_or(1)));
            }
        }
    }
    let (width, rows) = (width.unwrap_or(1), counts.iter().sum::<usize>());
    if class.len() == rows && width == 1 {
        let found = class.iter().max().map_or(0, |&most| (most + 1) as usize);
        let declared = classes.filter(|&classes| classes <= 2 * found + 1024).unwrap_or(found).max(found);
        return Ok(Targets::Classes(Labels::Single { class: class.into(), classes: declared }));
    }
    if member.len() == rows * width {
        return Ok(Targets::Classes(Labels::Multi { member: member.into(), classes: width }));
    }
    if values.len() != rows * width {
        return Err(Error::invalid(format!("task '{title}': some sets have no labels")));
    }
    Ok(Targets::Values { width, values: values.into() })
}

/// Reads the seeds of a set.
fn read_part(files: &Files, set: &Set) -> Result<Part> {
    let Some(file) = set.file(&SEEDS) else {
        return Err(Error::invalid("a set without 'seeds'"));
    };
    let (seeds, shape) = loose::load::<u32>(files, &file.path, &file.format)?;
    let rows = match shape[..] {
        [rows] | [rows, 1] => {
            let labels = match set.file(&["labels", "label"]) {
                Some(file) => Some(loose::labels(files, &file.path, &file.format, rows)?),
                None => None,
            };
            return Ok(Part { seeds: seeds.to_vec(), labels, ..Part::default() });
        }
        [rows, 2] => rows,
        _ => {
            return Err(files.error(
                &file.path,
                "seeds",
                format!("shape [seeds] or [seeds, 2] expected, {shape:?} found"),
            ));
        }
    };
    let mut part = Part { pairs: true, ..Part::default() };
    let labels = match set.file(&["labels", "label"]) {
        Some(file) => Some(loose::labels(files, &file.path, &file.format, rows)?),
        None => None,
    };
    for (name, sources) in [("negative_dsts", false), ("negative_srcs", true)] {
        let Some(file) = set.file(&[name]) else { continue };
        let (nodes, shape) = loose::load::<u32>(files, &file.path, &file.format)?;
        let &[count, each] = &shape[..] else {
            return Err(files.error(
                &file.path,
                "negatives",
                format!("shape [{rows}, negatives] expected, {shape:?} found"),
            ));
        };
        if count != rows || part.negatives.is_some() {
            return Err(files.error(
                &file.path,
                "negatives",
                format!("{count} rows of negatives for {rows} links, one of each expected"),
            ));
        }
        part.negatives = Some(if sources {
            Negatives::Sources { each, nodes }
        } else {
            Negatives::Destinations { each, nodes }
        });
    }
    match (labels, set.file(&["indexes"])) {
        (Some(Rows::Classes(class)), indexes)
            if part.negatives.is_none() && class.iter().all(|c| [0, 1].contains(c)) && class.contains(&0) =>
        {
            let indexes = match indexes {
                Some(file) => loose::load::<u32>(files, &file.path, &file.format)?.0,
                None => Default::default(),
            };
            (part.seeds, part.negatives) = separate(&seeds, &class, &indexes);
        }
        (labels, _) => {
            part.seeds = seeds.to_vec();
            part.labels =
                labels.filter(|rows| !matches!(rows, Rows::Classes(class) if class.iter().all(|&c| c == 1)));
        }
    }
    Ok(part)
}

/// Separates the pairs of the class 1 from those of the class 0. If `indexes` assigns the same
/// number of negatives with the same source to every positive, they stay assigned.
fn separate(seeds: &[u32], class: &[i32], indexes: &[u32]) -> (Vec<u32>, Option<Negatives>) {
    let of = |wanted: i32| (0..class.len()).filter(move |&i| class[i] == wanted);
    let pair = |i: usize| [seeds[2 * i], seeds[2 * i + 1]];
    let positives: Vec<u32> = of(1).flat_map(pair).collect();
    let (count, total) = (positives.len() / 2, of(0).count());
    let each = total.checked_div(count).unwrap_or(0);
    if indexes.len() == class.len() && each > 0 && each * count == total {
        let row: HashMap<u32, usize> = of(1).enumerate().map(|(at, i)| (indexes[i], at)).collect();
        let mut lists: Vec<Vec<u32>> = vec![Vec::new(); count];
        let assigned = of(0).all(|i| match row.get(&indexes[i]) {
            Some(&at) if seeds[2 * i] == positives[2 * at] => {
                lists[at].push(seeds[2 * i + 1]);
                true
            }
            _ => false,
        });
        if assigned && lists.iter().all(|list| list.len() == each) {
            return (positives, Some(Negatives::Destinations { each, nodes: lists.concat().into() }));
        }
    }
    (positives, Some(Negatives::Pairs(of(0).flat_map(pair).collect::<Vec<_>>().into())))
}
