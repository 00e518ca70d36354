//! Export of an edge list and, in a directory, the other arrays of a dataset:
//!
//! ```text
//! edges.txt     (or .gz) SNAP's layout: '# Nodes: N Edges: M', then 'from to' with a tab, ordered by 'to',
//!               followed by the weight if edges have weights; as .csv 'source,target' are the
//!               names of the columns, and no comment precedes them
//! features.npy  f4 or f2 [V, F], if the dataset has features
//! feature_mean.npy feature_deviation.npy  f8 [F], the statistics of standardized features
//! labels.npy    i4 [V] (-1 unknown) or u1 [V, C]
//! split.json    {"train": [..], "valid": [..], "test": [..]}, the nonempty parts
//! meta.json     name, counts, metric, graphs and normalization of the features
//! ```
//!
//! To import duplicate edges again, pass `keep_duplicates`; to import edges that were written once,
//! pass `undirected`.

use std::{io::Write, path::Path};

use graphmill_core::{Error, Graph, Labels, NodeId, Result, features::FeatureData, symmetry::is_symmetric};
use rayon::prelude::*;
use serde::Serialize;

use super::{DEVIATION, ExportOptions, MEAN, lines, lines::Style, normalized, several_columns};
use crate::{
    Dataset,
    atomic::{self, Disk, Real},
    dataset::import::Meta,
    npy::{Writer, write_new},
};

/// Names of all files that an export may contain.
pub(super) const FILES: [&str; 8] = [
    "edges.txt",
    "edges.txt.gz",
    "features.npy",
    "feature_mean.npy",
    "feature_deviation.npy",
    "labels.npy",
    "split.json",
    "meta.json",
];

/// Returns true if `dst` names an edge list rather than a directory.
pub(super) fn is_list(dst: &Path) -> bool {
    separator(dst).is_some()
}

/// Separator between the ids of a list, by its file name.
fn separator(dst: &Path) -> Option<u8> {
    let name = dst.file_name()?.to_str()?;
    match name.strip_suffix(".gz").unwrap_or(name).rsplit_once('.')?.1 {
        "txt" | "tsv" => Some(b'\t'),
        "csv" => Some(b','),
        _ => None,
    }
}

/// Writes the directory or the file `dst`.
pub(super) fn write(dataset: &Dataset, dst: &Path, options: &ExportOptions) -> Result<Vec<String>> {
    let once = options.undirected_once;
    if once && !is_symmetric(&dataset.graph, true) {
        let why = if is_symmetric(&dataset.graph, false) {
            "the graph has edges that weigh more one way than the other; export without it"
        } else {
            "the graph has edges that go one way only; export without it, or import with --undirected"
        };
        return Err(Error::invalid(format!("undirected-once: {why}")));
    }
    let count = lines::count(&dataset.graph, once);
    let mut lost = Vec::new();
    if dataset.original_ids.is_some() {
        lost.push("the ids that nodes had before they were reordered".to_string());
    }
    if dataset.keys.is_some() {
        lost.push("the keys of the nodes, which are numbered here; the format csv keeps them".into());
    }
    if let Some(separator) = separator(dst) {
        let style =
            Style { separator, once, gzip: options.compress || dst.extension().is_some_and(|e| e == "gz") };
        lost.push("features, labels and split: this is the list of edges alone".into());
        let head = if separator == b',' {
            lost.extend(unstated_nodes(&dataset.graph));
            names(dataset).into()
        } else {
            head(dataset, count, once)
        };
        atomic::write(dst, |file| lines::write(file, &head, &dataset.graph, style))?;
        return Ok(lost);
    }
    lost.extend(normalized(dataset, "meta.json"));
    atomic::write_dir(dst, options.replace, |dir| write_parts(dataset, dir, options, count))?;
    Ok(lost)
}

fn write_parts(dataset: &Dataset, dir: &Path, options: &ExportOptions, count: u64) -> Result<()> {
    let nodes = dataset.num_nodes();
    let once = options.undirected_once;
    let style = Style { separator: b'\t', once, gzip: options.compress };
    file(&dir.join(if options.compress { FILES[1] } else { FILES[0] }), |file| {
        lines::write(file, &head(dataset, count, once), &dataset.graph, style)
    })?;
    let path = dir.join("features.npy");
    let shape = [nodes, dataset.features.dim];
    match &dataset.features.data {
        _ if dataset.features.dim == 0 => {}
        FeatureData::F32(data) => write_new(&path, data, &shape)?,
        FeatureData::F16(data) => write_new(&path, data, &shape)?,
        // Written row by row: a dense table may exceed memory.
        FeatureData::Csr(rows) => {
            let mut table = Writer::create(&path)?;
            let mut dense = vec![0.0f32; shape[1]];
            for i in 0..nodes {
                let (columns, values) = rows.row(i);
                columns.iter().zip(values).for_each(|(&j, &x)| dense[j as usize] = x);
                table.extend(&dense)?;
                columns.iter().for_each(|&j| dense[j as usize] = 0.0);
            }
            table.finish(&shape)?;
        }
    }
    if let Some(how) = &dataset.normalization {
        for (name, values) in [MEAN, DEVIATION].iter().zip(how.statistics()) {
            if let Some(values) = values {
                write_new(&dir.join(format!("{name}.npy")), values, &[values.len()])?;
            }
        }
    }
    let path = dir.join("labels.npy");
    match &dataset.labels {
        Labels::Single { class, .. } => write_new(&path, class, &[nodes])?,
        Labels::Multi { member, classes } => write_new(&path, member, &[nodes, *classes])?,
        Labels::Columns { .. } => return Err(several_columns("edges")),
        Labels::Values { values, width } => write_new(&path, values, &[nodes, *width])?,
    }
    let [train, valid, test] = dataset.split.parts().map(|(_, ids)| &ids[..]);
    let split = Parts { train, valid, test };
    if !(train.is_empty() && valid.is_empty() && test.is_empty()) {
        json(&dir.join("split.json"), &split)?;
    }
    let meta = Meta {
        name: Some(dataset.name.clone()),
        nodes: Some(nodes),
        edges: Some(count),
        classes: Some(dataset.labels.classes()),
        multi: dataset.labels.is_multi().then_some(true),
        metric: dataset.metric.clone(),
        normalize: dataset.normalization.as_ref().map(|how| how.name().to_string()),
        graphs: (!dataset.graphs.is_empty()).then(|| dataset.graphs.clone()),
        ..Meta::default()
    };
    json(&dir.join("meta.json"), &meta)
}

/// Names of the columns of a CSV file. Comments would precede them, and most readers of CSV take
/// the first line for the names.
fn names(dataset: &Dataset) -> &'static str {
    if dataset.graph.edge_weight().is_some() { "source,target,weight\n" } else { "source,target\n" }
}

/// Description of the nodes that a list without a number of nodes loses: those behind the last with
/// an edge.
fn unstated_nodes(graph: &Graph) -> Option<String> {
    let nodes = graph.num_nodes();
    let last = NodeId::try_from(nodes.checked_sub(1)?).ok()?;
    let has_edge = !graph.in_neighbors(last).is_empty() || graph.indices().par_iter().any(|&u| u == last);
    (!has_edge).then(|| {
        format!(
            "the number of nodes, {nodes}, as the last has no edge; import the list with --num-nodes {nodes}"
        )
    })
}

/// Comments at the beginning of the list.
fn head(dataset: &Dataset, count: u64, once: bool) -> String {
    let what = if once { "Undirected graph, each edge once" } else { "Directed graph" };
    let name: String = dataset.name.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    let weight = if dataset.graph.edge_weight().is_some() { "\tWeight" } else { "" };
    let nodes = dataset.num_nodes();
    format!("# {what}: {name}\n# Nodes: {nodes} Edges: {count}\n# FromNodeId\tToNodeId{weight}\n")
}

#[derive(Serialize)]
struct Parts<'a> {
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    train: &'a [NodeId],
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    valid: &'a [NodeId],
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    test: &'a [NodeId],
}

fn json(path: &Path, value: &impl Serialize) -> Result<()> {
    file(path, |file| {
        serde_json::to_writer(&mut *file, value)?;
        file.write_all(b"\n")
    })
}

/// Writes a file of a directory that is itself moved into place.
fn file(path: &Path, fill: impl FnOnce(&mut dyn Write) -> std::io::Result<()>) -> Result<()> {
    Real.write(path, fill).map_err(|e| Error::io(path, "write", e))
}
