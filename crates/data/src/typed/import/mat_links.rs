//! Import of the networks of SEAL (Zhang and Chen, Link prediction based on graph neural networks,
//! NeurIPS 2018): a MATLAB file with the sparse matrix `net`.
//!
//! The graph is undirected, without self-loops. A fraction of its links tests (`test-fraction`,
//! 0.1), and another validates (`valid-fraction`, 0.05): these are not edges of the dataset. Each
//! has a random negative, a pair without a link; no pair is drawn twice.

use std::{collections::HashSet, path::Path};

use graphmill_core::{
    Error, Result,
    keyed::{Stream, key},
    location::Location,
    memory,
};

use super::{
    TypedOptions,
    files::Files,
    raw::{RawEdges, RawTyped, Reverse, link_task, random_parts},
};
use crate::{
    dataset::import::facebook100::mat5::Mat,
    typed::{EdgeType, Negatives},
};

/// Purpose of the random negatives.
const NEGATIVES: u64 = 0x7479_7003;

/// Reads the file `src`.
pub(super) fn read(src: &Path, options: &TypedOptions) -> Result<RawTyped> {
    let mut raw = RawTyped { name: Files::open(src)?.title(), ..RawTyped::default() };
    let at = Location::new(src, "variable net");
    let mut mat = Mat::open(src)?;
    let (mut net, mut known) = (None, Vec::new());
    while let Some(variable) = mat.next()? {
        known.push(variable.name.escape_debug().to_string());
        if variable.name == "net" && net.is_none() {
            let shape = variable.shape.clone();
            if shape.len() != 2 || shape[0] != shape[1] {
                return Err(at.error(format!("shape {shape:?} found, a square matrix expected")));
            }
            crate::dataset::import::claims::nodes(shape[0], variable.most_entries(), &at)?;
            net = Some((shape[0], variable.sparse()?));
        } else {
            raw.report.ignore(format!("variable {}", variable.name.escape_debug()));
        }
    }
    let Some((nodes, net)) = net else {
        let message = format!("there is no matrix 'net'; the variables are: {}", known.join(", "));
        return Err(Location::new(src, "variables").error(message));
    };
    let (mut links, mut loops) = (Vec::new(), 0);
    for (j, run) in (0u32..).zip(net.starts.windows(2)) {
        for &i in &net.row[run[0] as usize..run[1] as usize] {
            loops += u64::from(i == j);
            if i != j {
                links.push((i.min(j), i.max(j)));
            }
        }
    }
    raw.report.count("self-loops of the matrix, left out", loops);
    let entries = links.len();
    links.sort_unstable();
    links.dedup();
    raw.report.count("links stored in one direction only", (2 * links.len()).saturating_sub(entries) as u64);
    let (valid, test) = (options.valid_fraction.unwrap_or(0.05), options.test_fraction.unwrap_or(0.1));
    if valid + test >= 1.0 {
        return Err(Error::invalid(format!(
            "valid-fraction {valid} and test-fraction {test} leave no links to train on; their sum must be \
                below 1"
        )));
    }
    let parts = random_parts(links.len(), valid, test, options.split_seed);
    let pairs = parts.each_ref().map(|rows| {
        rows.iter().flat_map(|&row| [links[row as usize].0, links[row as usize].1]).collect::<Vec<u32>>()
    });
    let held = parts[1].len() + parts[2].len();
    let mut drawn = draw_negatives(nodes, &links, held, options.split_seed).map_err(|e| at.error(e))?;
    let test_negatives = drawn.split_off(2 * parts[1].len());
    let given = |pairs: Vec<u32>| {
        Some(pairs).filter(|pairs| !pairs.is_empty()).map(|pairs| Negatives::Pairs(pairs.into()))
    };
    let edge_type = EdgeType::new("node", "link", "node");
    let mut edges = RawEdges::new(edge_type.clone());
    edges.src = pairs[0].iter().copied().step_by(2).collect();
    edges.dst = pairs[0].iter().copied().skip(1).step_by(2).collect();
    edges.reverse = Reverse::Undirected;
    let mut task = link_task("link", &edge_type, pairs, [None, given(drawn), given(test_negatives)]);
    task.metric = Some("roc-auc".into());
    raw.tasks.push(task);
    raw.edges.push(edges);
    raw.add_nodes("node", nodes, None);
    raw.report.count("links, of which the training ones are edges", links.len() as u64);
    Ok(raw)
}

/// Draws `count` distinct pairs of nodes without a link.
///
/// # Errors
/// A message: the graph has too few such pairs.
fn draw_negatives(nodes: usize, links: &[(u32, u32)], count: usize, seed: u64) -> Result<Vec<u32>, String> {
    let all = nodes as u128 * nodes.saturating_sub(1) as u128 / 2;
    if (links.len() + 2 * count) as u128 > all {
        return Err(format!(
            "{count} negatives asked for, but {nodes} nodes with {} links have too few pairs without one; \
                reduce \
             valid-fraction and test-fraction",
            links.len()
        ));
    }
    let mut stream = Stream::new(key(&[seed, NEGATIVES]));
    let (mut drawn, mut seen) = (memory::reserve(2 * count).map_err(|e| e.to_string())?, HashSet::new());
    while seen.len() < count {
        let [u, v] = [(); 2].map(|()| stream.below(nodes as u64) as u32);
        let pair = (u.min(v), u.max(v));
        if u != v && links.binary_search(&pair).is_err() && seen.insert(pair) {
            drawn.extend([pair.0, pair.1]);
        }
    }
    Ok(drawn)
}
