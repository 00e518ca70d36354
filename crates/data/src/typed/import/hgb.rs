//! Import of the sets of the Heterogeneous Graph Benchmark (Lv et al., Are we really making much
//! progress?, KDD 2021): `node.dat`, `link.dat`, `label.dat`, `label.dat.test` and `info.dat` (see
//! [`dat`](super::dat)), in a directory or a zip archive.
//!
//! A task per labelled node type: the nodes of `label.dat.test` test, and a fraction of those of
//! `label.dat` (`valid-fraction`, 0.2) validates. Several classes of a node, separated by commas,
//! make a set of classes.

use std::{collections::BTreeMap, path::Path};

use graphmill_core::{Result, place::At};
use serde_json::Value;

use super::{
    TypedOptions,
    dat::{Names, class_names, read_labels, read_links, read_nodes},
    files::Files,
    raw::{RawTyped, TypedReport, hold_out, multi_labels, node_task, single_labels},
};

/// Maximum length of `info.dat`.
const MAX_INFO: u64 = 1 << 26;

/// Reads the directory or archive `src`.
pub(super) fn read(src: &Path, options: &TypedOptions) -> Result<RawTyped> {
    let files = Files::open(src)?;
    let mut raw = RawTyped { name: files.title(), ..RawTyped::default() };
    let names = read_info(&files, &mut raw.report)?;
    let nodes = read_nodes(&files, &names, options.dense_features, &mut raw)?;
    read_links(&files, &names, &nodes, &mut raw)?;
    let (known, multi) = read_labels(&files, files.required("label.dat")?, &nodes)?;
    let (tested, test_multi) = match files.find("label.dat.test") {
        Some(name) => read_labels(&files, name, &nodes)?,
        None => Default::default(),
    };
    let mut positions: Vec<usize> = known.keys().chain(tested.keys()).copied().collect();
    positions.sort_unstable();
    positions.dedup();
    for position in positions {
        let part =
            |classes: &BTreeMap<usize, Vec<(u32, u32)>>| classes.get(&position).cloned().unwrap_or_default();
        let (train, test) = (part(&known), part(&tested));
        let ids = |pairs: &[(u32, u32)]| {
            let mut ids: Vec<u32> = pairs.iter().map(|&(v, _)| v).collect();
            ids.sort_unstable();
            ids.dedup();
            ids
        };
        let (train_ids, test_ids) = (ids(&train), ids(&test));
        if let Some(v) = test_ids.iter().find(|v| train_ids.binary_search(v).is_ok()) {
            let message = format!("node {v} of type '{}' is also in label.dat", nodes.name(position));
            return Err(super::lines::wrong(&files, "label.dat.test", message));
        }
        let pairs = [train, test].concat();
        let count = raw.nodes[position].count;
        let labels = match multi || test_multi {
            true => multi_labels(count, &pairs, &At::new(files.path(), "label.dat"))?,
            false => single_labels(count, &pairs, 0),
        };
        let classes = labels.classes();
        let (train, valid) = hold_out(train_ids, options.valid_fraction.unwrap_or(0.2), options.split_seed);
        let mut task =
            node_task(nodes.name(position), nodes.name(position), labels, [train, valid, test_ids]);
        task.names = class_names(&names, &nodes, position, classes);
        raw.tasks.push(task);
    }
    const READ: [&str; 6] = ["node.dat", "link.dat", "label.dat", "label.dat.test", "info.dat", "meta.dat"];
    raw.report.ignore_unread(files.names(), |name| READ.contains(&name.trim_end_matches(".gz")));
    Ok(raw)
}

/// Names of types and classes in `info.dat`, which is JSON; without them types have numbers.
fn read_info(files: &Files, report: &mut TypedReport) -> Result<Names> {
    let mut names = Names::default();
    let Some(name) = files.find("info.dat") else {
        report.note("there is no info.dat: types are named by their numbers");
        return Ok(names);
    };
    let text = files.bytes(name, MAX_INFO)?;
    // Python writes missing numbers as NaN, which is not JSON.
    let text = String::from_utf8_lossy(&text).replace(": NaN", ": null");
    let info = match serde_json::from_str::<Value>(&text) {
        Ok(info) => info,
        Err(e) => {
            report.note(format!("info.dat is not JSON ({e}): types are named by their numbers"));
            return Ok(names);
        }
    };
    let number = |text: &str| text.trim().parse::<u32>().ok();
    let entries = |value: &Value| value.as_object().cloned().unwrap_or_default();
    let text =
        |value: &Value| value.as_str().map(str::to_string).or_else(|| value.as_u64().map(|x| x.to_string()));
    for (kind, name) in entries(&info["node.dat"]["node type"]) {
        if let (Some(kind), Some(name)) = (number(&kind), text(&name)) {
            names.nodes.insert(kind, name);
        }
    }
    for (kind, link) in entries(&info["link.dat"]["link type"]) {
        let end = |name: &str| text(&link[name]).and_then(|end| number(&end));
        if let (Some(kind), Some(start), Some(end), Some(meaning)) =
            (number(&kind), end("start"), end("end"), link["meaning"].as_str())
        {
            names.links.insert(kind, (start, end, meaning.to_string()));
        }
    }
    for (kind, classes) in entries(&info["label.dat"]["node type"]) {
        let Some(kind) = number(&kind) else { continue };
        for (class, name) in entries(&classes) {
            if let (Some(class), Some(name)) = (number(&class), text(&name)) {
                names.classes.entry(kind).or_default().insert(class, name);
            }
        }
    }
    Ok(names)
}
