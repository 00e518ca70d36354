//! External sort from a spill to CSC: parts are sorted independently, several at a time, and
//! written in order.

use graphmill_core::{EdgeOptions, Graph, Result, builder::item::Item, progress::Unit};
use rayon::prelude::*;

use super::{
    Scratch,
    csc::{Csc, Run, damaged},
    spill::{Part, Parts, Spill},
};

/// Bytes per key: the key and its sorting workspace, and a source, a row and perhaps a weight,
/// which stay in memory while they are written and the next parts are sorted.
const fn bytes<I: Item>() -> u64 {
    2 * size_of::<I>() as u64 + 2 * (4 + 16 + if I::WEIGHTED { 4 } else { 0 })
}

/// Builds the graph of `num_nodes` nodes; all ids are below that.
///
/// O(E) work on all cores, which sort some parts while earlier ones are written. Memory: half of
/// the scratch's budget (a larger part is split again on disk).
pub(super) fn build<I: Item>(
    scratch: &Scratch,
    spill: Spill<I>,
    num_nodes: usize,
    options: EdgeOptions,
) -> Result<Graph> {
    let parts = spill.into_parts()?;
    let total: u64 = parts.parts.iter().map(|part| part.keys).sum();
    scratch.stage("sorting edges", Some(total), Unit::Edges);
    let mut csc = Csc::resume(scratch, num_nodes, I::WEIGHTED)?;
    let first = csc.parts;
    if first > parts.parts.len() {
        return Err(damaged());
    }
    let mut sorted: u64 = parts.parts[..first].iter().map(|part| part.keys).sum();
    let most = (scratch.memory() / 2 / bytes::<I>()).max(1 << 16);
    let mut at = first;
    let mut ready: Vec<Run> = Vec::new();
    loop {
        let mut capacity = most;
        let fits = parts.parts[at..].iter().take(rayon::current_num_threads()).take_while(|part| {
            let fits = part.keys <= capacity;
            capacity = capacity.saturating_sub(part.keys);
            fits
        });
        let group = &parts.parts[at..at + fits.count()];
        let (written, runs) = rayon::join(
            || ready.iter().try_for_each(|run| csc.extend(run)),
            || group.par_iter().map(|part| Run::new(parts.read(part)?, options.keep_duplicates)).collect(),
        );
        written?;
        csc.parts = at;
        csc.sync_if_due()?;
        scratch.check()?;
        scratch.done(sorted);
        if at == parts.parts.len() {
            break;
        }
        let runs: Result<Vec<Run>> = runs;
        ready = runs?;
        sorted += group.iter().map(|part| part.keys).sum::<u64>();
        at += group.len();
        if group.is_empty() {
            let part = &parts.parts[at];
            large(scratch, &parts, part, options.keep_duplicates, most, 0, &mut csc)?;
            sorted += part.keys;
            at += 1;
        }
    }
    let graph = csc.finish()?;
    parts.remove()?;
    Ok(graph)
}

/// Sorts a part that exceeds memory, by splitting it into smaller ones.
fn large<I: Item>(
    scratch: &Scratch,
    of: &Parts<I>,
    part: &Part,
    keep_duplicates: bool,
    most: u64,
    depth: usize,
    csc: &mut Csc,
) -> Result<()> {
    if part.keys <= most {
        return csc.extend(&Run::new(of.read(part)?, keep_duplicates)?);
    }
    if let Some(key) = of.only_key(part)? {
        if I::WEIGHTED {
            // Duplicates of one edge whose weights exceed the budget must be sorted nevertheless.
            return csc.extend(&Run::new(of.read(part)?, keep_duplicates)?);
        }
        let copies = if keep_duplicates { part.keys } else { 1 };
        return csc.repeat(key, copies);
    }
    let cut = (part.keys / most * 2).clamp(2, 256) as usize;
    let parts = of.split(scratch, part, &format!("edges-{depth}"), cut)?;
    for smaller in &parts.parts {
        large(scratch, &parts, smaller, keep_duplicates, most, depth + 1, csc)?;
    }
    parts.remove()
}

#[cfg(test)]
mod tests;
