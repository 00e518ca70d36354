//! Import of users and items for recommendation (He et al., LightGCN, SIGIR 2020): lines `user item
//! item ...` in `train.txt`, `test.txt` and, optionally, `valid.txt`; or the training matrix
//! `s_adj_mat.npz` of SciPy beside `test.txt`.
//!
//! The edge type `user:interacts:item` holds the training pairs, and its reverse is added. The task
//! `recommendation` has the pairs of all files. Ids that are whole numbers are used unchanged;
//! other ids become keys.

use std::{collections::HashSet, path::Path};

use graphmill_core::{Result, location::Location};

use super::{
    TypedOptions,
    files::Files,
    ids::{Ids, renumber},
    lines::{for_each_line, wrong},
    raw::{RawEdges, RawTyped, Reverse, link_task},
};
use crate::{
    dataset::import::csr::Csr,
    npz::Npz,
    typed::{EdgeType, Keys},
};

/// Users and items of the pairs of a file.
#[derive(Default)]
struct Pairs {
    users: Vec<u32>,
    items: Vec<u32>,
}

/// Reads the directory or archive `src`.
pub(super) fn read(src: &Path, _options: &TypedOptions) -> Result<RawTyped> {
    let files = Files::open(src)?;
    let mut raw = RawTyped { name: files.title(), ..RawTyped::default() };
    let (mut users, mut items) = (Ids::default(), Ids::default());
    let mut read = Vec::new();
    let mut part = |stem: &str| -> Result<Pairs> {
        let names = [format!("{stem}.txt"), format!("{stem}_from_adj.txt")];
        match names.iter().find_map(|name| files.find(name)) {
            Some(name) => {
                read.push(name);
                read_lists(&files, name, &mut users, &mut items)
            }
            None => Ok(Pairs::default()),
        }
    };
    let mut parts = [part("train")?, part("valid")?, part("test")?];
    let matrix = files.find("s_adj_mat.npz").filter(|_| parts[0].users.is_empty());
    let (user_keys, user_numbers, mut user_count) = numbers(users)?;
    let (item_keys, item_numbers, mut item_count) = numbers(items)?;
    for part in &mut parts {
        renumber(&mut part.users, &user_numbers);
        renumber(&mut part.items, &item_numbers);
    }
    if let Some(name) = matrix {
        read.push(name);
        (parts[0], user_count, item_count) = read_matrix(&files, name, user_count, item_count)?;
    } else if parts[0].users.is_empty() {
        files.required("train.txt")?;
    }
    let edge_type = EdgeType::new("user", "interacts", "item");
    let [train, valid, test] = &parts;
    let known: HashSet<u64> =
        train.users.iter().zip(&train.items).map(|(&u, &i)| u64::from(u) << 32 | u64::from(i)).collect();
    let again = test
        .users
        .iter()
        .zip(&test.items)
        .filter(|&(&u, &i)| known.contains(&(u64::from(u) << 32 | u64::from(i))));
    raw.report.count("test pairs that are also training pairs", again.count() as u64);
    let pairs =
        |part: &Pairs| part.users.iter().zip(&part.items).flat_map(|(&u, &i)| [u, i]).collect::<Vec<u32>>();
    let mut task = link_task(
        "recommendation",
        &edge_type,
        [pairs(train), pairs(valid), pairs(test)],
        [None, None, None],
    );
    task.metric = Some("ndcg@20".into());
    raw.tasks.push(task);
    raw.add_nodes("user", user_count, user_keys);
    raw.add_nodes("item", item_count, item_keys);
    let mut edges = RawEdges::new(edge_type);
    edges.reverse = Reverse::Add("interacted-by".into());
    let [train, ..] = parts;
    (edges.src, edges.dst) = (train.users, train.items);
    raw.edges.push(edges);
    raw.report.ignore_unread(files.names(), |name| read.contains(&name));
    Ok(raw)
}

/// Reads lines of a user and items.
fn read_lists(files: &Files, name: &str, users: &mut Ids, items: &mut Ids) -> Result<Pairs> {
    let mut pairs = Pairs::default();
    let mut seen = HashSet::new();
    for_each_line(files, name, |line| {
        let mut fields = line.split([' ', '\t', ',']).filter(|field| !field.is_empty());
        let user = users.id(fields.next().unwrap_or_default())?;
        if !seen.insert(user) {
            return Err("the user has two lines".into());
        }
        for item in fields {
            pairs.users.push(user);
            pairs.items.push(items.id(item)?);
        }
        Ok(())
    })?;
    Ok(pairs)
}

/// Keys of ids, their final numbers, and the number of nodes: whole numbers from 0 stay unchanged
/// if they are dense. Fails if memory runs out.
fn numbers(ids: Ids) -> Result<(Option<Keys>, Vec<u32>, usize)> {
    let preliminary = ids.len();
    let (keys, number) = ids.finish()?;
    if let Keys::Integers(values) = &keys {
        let last = values.last().copied().unwrap_or(-1);
        if values.first().is_none_or(|&first| first >= 0) && last < (2 * preliminary as i64).max(1 << 16) {
            let unchanged = number.iter().map(|&new| values[new as usize] as u32).collect();
            return Ok((None, unchanged, (last + 1) as usize));
        }
    }
    Ok((Some(keys), number, preliminary))
}

/// Reads the training pairs of a symmetric matrix of users and then items: every row before the
/// first item, the smallest column of these rows, is a user.
fn read_matrix(files: &Files, name: &str, users: usize, items: usize) -> Result<(Pairs, usize, usize)> {
    let Some(path) = files.on_disk(name) else {
        return Err(wrong(files, name, "an .npz file inside an archive is not read; unpack the archive"));
    };
    let mut npz = Npz::open(&path)?;
    let at = Location::new(&path, "matrix");
    let csr = Csr::from_npz(&mut npz, "")?;
    if csr.rows != csr.columns {
        return Err(
            at.error(format!("{} rows and {} columns; a square matrix expected", csr.rows, csr.columns))
        );
    }
    let mut first = csr.rows as u32;
    let mut row = 0;
    while row < first as usize && row < csr.rows {
        let run = csr.indptr[row] as usize..csr.indptr[row + 1] as usize;
        first = csr.indices[run].iter().copied().min().map_or(first, |least| first.min(least));
        row += 1;
    }
    let count = first as usize;
    if count < users || csr.rows - count < items {
        return Err(at.error(format!(
            "{count} users and {} items, but the lists name {users} users and {items} items",
            csr.rows - count
        )));
    }
    let mut pairs = Pairs::default();
    for u in 0..count {
        for &i in &csr.indices[csr.indptr[u] as usize..csr.indptr[u + 1] as usize] {
            pairs.users.push(u as u32);
            pairs.items.push(i - first);
        }
    }
    for i in count..csr.rows {
        let run = csr.indptr[i] as usize..csr.indptr[i + 1] as usize;
        if let Some(j) = csr.indices[run].iter().find(|&&j| j as usize >= count) {
            return Err(at.error(format!("item {i} is linked to item {j}: users come first, and then items")));
        }
    }
    Ok((pairs, count, csr.rows - count))
}
