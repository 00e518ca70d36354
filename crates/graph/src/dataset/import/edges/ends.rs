//! The two ends of every edge, from text or an array.

use std::path::Path;

use super::{
    is_npy,
    text::{Lines, fields, is_header, whole},
};
use crate::{Result, npy, place::At};

/// The two ends of every edge, as written; below `nodes` where that is known.
pub(super) fn read<T: Id>(path: &Path, nodes: Option<usize>) -> Result<(Vec<T>, Vec<T>)> {
    let limit = nodes.map(|nodes| nodes as u64);
    if is_npy(path) {
        return read_array(path, limit);
    }
    let (mut from, mut to) = (Vec::new(), Vec::new());
    let mut lines = Lines::open(path)?;
    let mut first = true;
    loop {
        let wrong = {
            let Some((_, line)) = lines.next()? else { break };
            if std::mem::take(&mut first) && is_header(fields(line).take(2)) {
                continue;
            }
            let mut ends = fields(line);
            let (a, b) = (ends.next().unwrap_or_default(), ends.next());
            match (whole::<T>(a), b.map(whole::<T>)) {
                (Some(u), Some(Some(v))) => match outside(u, v, limit) {
                    None => {
                        from.push(u);
                        to.push(v);
                        continue;
                    }
                    Some(wrong) => wrong,
                },
                (_, None) => format!("two node ids expected, '{}' found", line.escape_debug()),
                (None, _) => not_an_id::<T>(a),
                (_, Some(None)) => not_an_id::<T>(b.unwrap_or_default()),
            }
        };
        return Err(lines.at().error(wrong));
    }
    Ok((from, to))
}

/// Ids are numbers of 32 bits, or before they are made compact of 64.
pub(super) trait Id: npy::Element + std::str::FromStr + std::fmt::Display + Ord + Into<u64> {}

impl Id for u32 {}
impl Id for u64 {}

/// What is wrong with an edge whose ends are not both below `limit`, where there is one.
fn outside<T: Id>(u: T, v: T, limit: Option<u64>) -> Option<String> {
    let limit = limit.filter(|&limit| u.max(v).into() >= limit)?;
    Some(format!("the edge joins nodes {u} and {v}, but there are {limit} nodes"))
}

fn not_an_id<T: Id>(field: &str) -> String {
    let most = T::DTYPE.size * 8;
    let hint = if most < 64 { "; compact-ids takes larger ones" } else { "" };
    format!(
        "'{}' is not a node id: ids are whole numbers from 0 that fit {most} bits{hint}",
        field.escape_debug()
    )
}

/// Edges as an array `[E, 2]` or, as PyG writes them, `[2, E]`.
fn read_array<T: Id>(path: &Path, limit: Option<u64>) -> Result<(Vec<T>, Vec<T>)> {
    let array = npy::open(path)?;
    let data = array.read_as::<T>()?;
    let (from, to): (Vec<T>, Vec<T>) = match array.shape[..] {
        [_, 2] => data.chunks_exact(2).map(|edge| (edge[0], edge[1])).unzip(),
        [2, edges] => (data[..edges].to_vec(), data[edges..].to_vec()),
        _ => {
            let message = format!("shape [edges, 2] or [2, edges] expected, {:?} found", array.shape);
            return Err(At::new(path, "header").error(message));
        }
    };
    let wrong = from.iter().zip(&to).enumerate().find_map(|(e, (&u, &v))| Some((e, outside(u, v, limit)?)));
    match wrong {
        None => Ok((from, to)),
        Some((e, message)) => Err(At::new(path, format!("edge {e}")).error(message)),
    }
}
