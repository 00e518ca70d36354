//! Import of the sets of HNE (Yang et al., Heterogeneous network representation learning, TKDE
//! 2022): `node.dat`, `link.dat`, `label.dat` (see [`dat`](super::dat)), `label.dat.test`,
//! `link.dat.test` and `info.dat`, in a directory or an archive.
//!
//! Labels make a node classification task. Lines `source destination 0|1` of `link.dat.test` make
//! the task `link`: the ones are test pairs, the zeros their negatives, and the edges of the type
//! train.

use std::path::Path;

use graphmill_core::{Result, place::At};

use super::{
    TypedOptions,
    dat::{Names, class_names, read_labels, read_links, read_nodes},
    files::Files,
    lines::{for_each_line, wrong},
    raw::{RawTyped, hold_out, link_task, multi_labels, node_task, single_labels},
};
use crate::typed::Negatives;

/// Maximum length of `info.dat`.
const MAX_INFO: u64 = 1 << 26;

/// Reads the directory or archive `src`.
pub(super) fn read(src: &Path, options: &TypedOptions) -> Result<RawTyped> {
    let files = Files::open(src)?;
    let mut raw = RawTyped { name: files.title(), ..RawTyped::default() };
    let (names, target) = match files.find("info.dat") {
        Some(name) => parse_info(&String::from_utf8_lossy(&files.bytes(name, MAX_INFO)?)),
        None => {
            raw.report.note("there is no info.dat: types are named by their numbers");
            Default::default()
        }
    };
    let nodes = read_nodes(&files, &names, options.dense_features, &mut raw)?;
    let links = read_links(&files, &names, &nodes, &mut raw)?;
    if let Some(name) = files.find("label.dat") {
        let (known, multi) = read_labels(&files, name, &nodes)?;
        let (tested, test_multi) = match files.find("label.dat.test") {
            Some(name) => read_labels(&files, name, &nodes)?,
            None => Default::default(),
        };
        for (&position, train) in &known {
            let test = tested.get(&position).cloned().unwrap_or_default();
            let ids = |pairs: &[(u32, u32)]| {
                let mut ids: Vec<u32> = pairs.iter().map(|&(v, _)| v).collect();
                ids.sort_unstable();
                ids.dedup();
                ids
            };
            let (train_ids, test_ids) = (ids(train), ids(&test));
            let pairs = [&train[..], &test].concat();
            let count = raw.nodes[position].count;
            let labels = match multi || test_multi {
                true => multi_labels(count, &pairs, &At::new(files.path(), "label.dat"))?,
                false => single_labels(count, &pairs, 0),
            };
            let classes = labels.classes();
            let (train, valid) =
                hold_out(train_ids, options.valid_fraction.unwrap_or(0.2), options.split_seed);
            let mut task =
                node_task(nodes.name(position), nodes.name(position), labels, [train, valid, test_ids]);
            task.names = class_names(&names, &nodes, position, classes);
            raw.tasks.push(task);
        }
    }
    if let Some(name) = files.find("link.dat.test") {
        let (mut positives, mut negatives, mut ends) = (Vec::new(), Vec::new(), None);
        for_each_line(&files, name, |line| {
            let fields: Vec<&str> = line.split('\t').collect();
            let &[src, dst, label] = &fields[..] else {
                return Err(format!(
                    "three fields expected, separated by tabs: source, destination, 0 or 1; {} found",
                    fields.len()
                ));
            };
            let ((s, u), (t, v)) = (nodes.place("source", src)?, nodes.place("destination", dst)?);
            if *ends.get_or_insert((s, t)) != (s, t) {
                return Err(format!(
                    "a pair of {} and {}, unlike the first one",
                    nodes.name(s),
                    nodes.name(t)
                ));
            }
            match label.trim() {
                "1" => positives.extend([u, v]),
                "0" => negatives.extend([u, v]),
                other => return Err(format!("'{}' is neither 0 nor 1", other.escape_debug())),
            }
            Ok(())
        })?;
        let between = |e: usize| {
            let edge_type = &raw.edges[e].edge_type;
            ends.is_some_and(|(s, t)| {
                edge_type.source == nodes.name(s) && edge_type.destination == nodes.name(t)
            })
        };
        let fitting: Vec<usize> = links.values().copied().filter(|&e| between(e)).collect();
        let chosen = target.and_then(|kind| links.get(&kind).copied()).filter(|&e| between(e));
        let Some(e) = chosen.or(match fitting[..] {
            [only] => Some(only),
            _ => None,
        }) else {
            let message = format!(
                "{} link types have these ends, and info.dat does not name the target",
                fitting.len()
            );
            return Err(wrong(&files, name, message));
        };
        let train = raw.edges[e].pairs();
        let edge_type = raw.edges[e].edge_type.clone();
        let negatives = [None, None, Some(Negatives::Pairs(negatives.into()))];
        let mut task = link_task("link", &edge_type, [train, Vec::new(), positives], negatives);
        task.metric = Some("roc-auc".into());
        raw.tasks.push(task);
    }
    const READ: [&str; 7] =
        ["node.dat", "link.dat", "label.dat", "label.dat.test", "link.dat.test", "info.dat", "meta.dat"];
    raw.report.ignore_unread(files.names(), |name| READ.contains(&name.trim_end_matches(".gz")));
    Ok(raw)
}

/// Parses the tables of `info.dat`, which are lines of numbers and a name below the headings `TYPE`
/// and `LINK`; returns also the number of the target link type (`Targeting: Link Type (1,1,2)`).
fn parse_info(text: &str) -> (Names, Option<u32>) {
    let (mut names, mut target, mut section) = (Names::default(), None, "");
    for line in text.lines() {
        let fields: Vec<&str> = line.split_ascii_whitespace().collect();
        let number = |i: usize| fields.get(i).and_then(|field| field.parse::<u32>().ok());
        match fields[..] {
            ["TYPE", "MEANING"] => section = "node",
            ["LINK", "START", "END", "MEANING"] => section = "link",
            ["TYPE", "CLASS", "MEANING"] => section = "class",
            ["Targeting:", "Link", "Type", place] => {
                target = place.trim_matches(['(', ')']).rsplit(',').next().and_then(|kind| kind.parse().ok());
            }
            [_, name] if section == "node" => {
                if let Some(kind) = number(0) {
                    names.nodes.insert(kind, name.into());
                }
            }
            [_, _, _, name] if section == "link" => {
                if let (Some(kind), Some(start), Some(end)) = (number(0), number(1), number(2)) {
                    names.links.insert(kind, (start, end, name.into()));
                }
            }
            [_, _, name] if section == "class" => {
                if let (Some(kind), Some(class)) = (number(0), number(1)) {
                    names.classes.entry(kind).or_default().insert(class, name.into());
                }
            }
            _ => {}
        }
    }
    (names, target)
}
