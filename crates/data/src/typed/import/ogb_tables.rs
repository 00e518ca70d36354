//! Small tables of the layouts of OGB: counts, flags, lists of ids, names of ids.

use std::collections::BTreeMap;

use graphmill_core::Result;

use super::{
    files::Files,
    lines::{Faults, for_each_line, whole, wrong},
};

/// Path of the table `name`, without its ending, if there is one.
pub(super) fn find<'f>(files: &'f Files, name: &str) -> Option<&'f str> {
    files.find(&format!("{name}.csv"))
}

/// Path of the table `name`, without its ending.
///
/// # Errors
/// There is no such file.
pub(super) fn required<'f>(files: &'f Files, name: &str) -> Result<&'f str> {
    files.required(&format!("{name}.csv"))
}

/// Reads a header and one row of values.
///
/// # Errors
/// The file cannot be read, or its rows differ in length.
pub(super) fn header_and_row(files: &Files, name: &str) -> Result<Vec<(String, String)>> {
    let mut rows: Vec<Vec<String>> = Vec::new();
    for_each_line(files, name, |line| {
        rows.push(line.split(',').map(|field| field.trim().to_string()).collect());
        Ok(())
    })?;
    match &rows[..] {
        [header, row] if header.len() == row.len() => {
            Ok(header.iter().cloned().zip(row.iter().cloned()).collect())
        }
        _ => Err(wrong(files, name, "a header and one row of as many values expected")),
    }
}

/// Names whose flag is `True`.
pub(super) fn flagged(files: &Files, name: &str) -> Result<Vec<String>> {
    let row = header_and_row(files, name)?;
    Ok(row
        .into_iter()
        .filter(|(_, flag)| flag.eq_ignore_ascii_case("true") || flag == "1")
        .map(|(name, _)| name)
        .collect())
}

/// Single count of the file `name`.
///
/// # Errors
/// The file does not hold one number.
pub(super) fn count(files: &Files, name: &str) -> Result<usize> {
    let mut values = Vec::new();
    for_each_line(files, name, |line| {
        values.push(whole::<usize>("the count", line)?);
        Ok(())
    })?;
    match values[..] {
        [count] => Ok(count),
        _ => Err(wrong(files, name, format!("one number expected, {} found", values.len()))),
    }
}

/// Reads edges `source,destination` between `ends` nodes.
///
/// # Errors
/// The file cannot be read, or lines have faults.
pub(super) fn edges(files: &Files, name: &str, ends: [usize; 2]) -> Result<[Vec<u32>; 2]> {
    let [mut src, mut dst] = [Vec::new(), Vec::new()];
    for_each_line(files, name, |line| {
        let (u, v) = line.split_once(',').ok_or("two ids with a comma between them expected")?;
        let id = |what: &str, text: &str, count: usize| {
            let id = whole::<u32>(what, text)?;
            if (id as usize) < count {
                Ok(id)
            } else {
                Err(format!("{what} {id}, but there are {count} nodes"))
            }
        };
        let (u, v) = (id("source", u, ends[0])?, id("destination", v, ends[1])?);
        src.push(u);
        dst.push(v);
        Ok(())
    })?;
    Ok([src, dst])
}

/// Reads a list of distinct ids below `count`; returns them ascending.
///
/// # Errors
/// The file cannot be read, or lines have faults.
pub(super) fn ids(files: &Files, name: &str, count: usize) -> Result<Vec<u32>> {
    let mut ids = Vec::new();
    for_each_line(files, name, |line| {
        let id = whole::<u32>("node", line)?;
        if id as usize >= count {
            return Err(format!("node {id}, but there are {count} nodes"));
        }
        ids.push(id);
        Ok(())
    })?;
    ids.sort_unstable();
    let mut faults = Faults::default();
    ids.windows(2)
        .filter(|pair| pair[0] == pair[1])
        .for_each(|pair| faults.add("ids", format!("node {} occurs twice", pair[0])));
    faults.finish(files, name)?;
    Ok(ids)
}

/// Reads a column of whole numbers with one row per node; an empty or `nan` field is `None`.
///
/// # Errors
/// The file cannot be read, lines have faults, or there are not `count` rows.
pub(super) fn column(files: &Files, name: &str, count: usize) -> Result<Vec<Vec<Option<i64>>>> {
    let mut rows = Vec::new();
    for_each_line(files, name, |line| {
        let value = |field: &str| {
            let field = field.trim();
            if field.is_empty() || field.eq_ignore_ascii_case("nan") {
                return Ok(None);
            }
            let number: Option<f64> = field.parse().ok().filter(|x: &f64| x.fract() == 0.0 && x.abs() < 9e15);
            number
                .map(|x| Some(x as i64))
                .ok_or_else(|| format!("'{}' is not a whole number", field.escape_debug()))
        };
        rows.push(line.split(',').map(value).collect::<Result<Vec<_>, _>>()?);
        Ok(())
    })?;
    if rows.len() != count {
        return Err(wrong(files, name, format!("{} rows for {count} nodes", rows.len())));
    }
    Ok(rows)
}

/// Reads names of ids: a header, and lines `id,name`. `None` if an id below `count` has no name.
///
/// # Errors
/// The file cannot be read, or lines have faults.
pub(super) fn names(files: &Files, name: &str, count: usize) -> Result<Option<Vec<String>>> {
    let mut names = BTreeMap::new();
    let mut first = true;
    for_each_line(files, name, |line| {
        if std::mem::take(&mut first) {
            return Ok(()); // the header
        }
        let (id, name) = line.split_once(',').ok_or("an id and a name with a comma between them expected")?;
        names.insert(whole::<u64>("id", id)?, name.trim().trim_matches('"').to_string());
        Ok(())
    })?;
    let all = (0..count as u64).map(|id| names.get(&id).cloned()).collect();
    Ok(if names.len() == count { all } else { None })
}
