//! Import of interaction logs with edge features, in two layouts:
//!
//! - TGN and DyGLib: `ml_NAME.csv` with the columns `u`, `i`, `ts`, `label` and `idx` (a first
//!   column without a name counts rows), `ml_NAME.npy` with a row of features per event, and
//!   `ml_NAME_node.npy` with a row per node. Ids begin at 1: row 0 of both arrays is padding.
//! - JODIE (Kumar et al., KDD 2019): a CSV whose header begins with `user_id,item_id,timestamp,
//!   state_label`; the columns behind it are features. Users and items are numbered separately.
//!
//! Nodes are all ids that occur, with the ids as keys. If a label is not zero, the task `...-label`
//! predicts it. See [`streams`](super::streams) for the task on links.

use std::path::Path;

use graphmill_core::Result;

use super::{
    TypedOptions, arrays,
    files::Files,
    ids::Ids,
    lines::{finite, for_each_line, whole, wrong},
    raw::RawTyped,
    streams::{self, Events},
    tables::SparseTable,
    times::micros,
};
use crate::typed::{FeatureTable, Keys};

/// Reads the directory or file `src`.
pub(super) fn read(src: &Path, options: &TypedOptions) -> Result<RawTyped> {
    let files = Files::open(src)?;
    let is_table = |name: &&String| name.trim_end_matches(".gz").ends_with(".csv");
    let tables: Vec<&str> = files.names().iter().filter(is_table).map(String::as_str).collect();
    let name = match tables[..] {
        [name] => name,
        [] => files.required("ml_NAME.csv")?,
        _ => {
            let message = format!("several tables: {}; name one of them", tables.join(", "));
            return Err(graphmill_core::Error::format(src, "directory", message));
        }
    };
    let mut raw = RawTyped::default();
    let stem = name.trim_end_matches(".gz").trim_end_matches(".csv");
    raw.name = stem.rsplit('/').next().unwrap_or(stem).trim_start_matches("ml_").to_string();
    let header = header(&files, name)?;
    let at = |column: &str| header.iter().position(|name| name == column);
    if let (Some(u), Some(i), Some(ts)) = (at("u"), at("i"), at("ts")) {
        // Arrays beside a table that was named itself.
        let beside = if src.is_file() {
            Files::open(src.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or(Path::new(".")))?
        } else {
            Files::open(src)?
        };
        read_ml(
            &files,
            name,
            &beside,
            stem,
            [Some(u), Some(i), Some(ts), at("label"), at("idx")],
            options,
            &mut raw,
        )?;
    } else if header.first().is_some_and(|first| first.starts_with("user")) {
        read_jodie(&files, name, options, &mut raw)?;
    } else {
        return Err(wrong(
            &files,
            name,
            format!(
                "the header is '{}'; u,i,ts,label,idx expected, or \
                    user_id,item_id,timestamp,state_label,...; a list \
                 without a header is imported as 'temporal'",
                header.join(",")
            ),
        ));
    }
    let arrays = [format!("{stem}.npy"), format!("{stem}_node.npy")];
    raw.report.ignore_unread(files.names(), |other| {
        other == name || arrays.iter().any(|array| other.trim_end_matches(".gz") == array)
    });
    Ok(raw)
}

/// Names of the columns.
pub(super) fn header(files: &Files, name: &str) -> Result<Vec<String>> {
    let mut header = None;
    for_each_line(files, name, |line| {
        header.get_or_insert_with(|| {
            line.split(',').map(|field| field.trim().trim_matches('"').to_string()).collect()
        });
        Ok(())
    })?;
    Ok(header.unwrap_or_default())
}

/// Reads a table and arrays of the layout of TGN. `columns` are u, i, ts, label and idx.
fn read_ml(
    files: &Files,
    name: &str,
    beside: &Files,
    stem: &str,
    columns: [Option<usize>; 5],
    options: &TypedOptions,
    raw: &mut RawTyped,
) -> Result<()> {
    let [u, i, ts, label, idx] = columns;
    let mut events = Events { name: "links".into(), ..Events::default() };
    let (mut ids, mut rows, mut first) = (Ids::default(), Vec::new(), true);
    for_each_line(files, name, |line| {
        if std::mem::take(&mut first) {
            return Ok(());
        }
        let fields: Vec<&str> = line.split(',').collect();
        let field = |column: Option<usize>| -> Result<Option<&str>, String> {
            let Some(column) = column else { return Ok(None) };
            fields
                .get(column)
                .copied()
                .map(Some)
                .ok_or_else(|| format!("{} fields, but the header has more", fields.len()))
        };
        let id = |what: &str, column| -> Result<i64, String> {
            let id = field(column)?.unwrap_or_default();
            let number = id.parse::<f64>().ok().filter(|x| x.fract() == 0.0 && (1.0..9e15).contains(x));
            number.map(|x| x as i64).ok_or_else(|| {
                format!("{what} '{}' is not a whole number from 1 (0 is padding)", id.escape_debug())
            })
        };
        let (user, item) = (id("u", u)?, id("i", i)?);
        let time = micros(field(ts)?.unwrap_or_default())?;
        let class = class(field(label)?)?;
        if let Some(idx) = field(idx)? {
            rows.push(whole::<usize>("idx", idx)?);
        }
        events.src.push(ids.id(&user.to_string())?);
        events.dst.push(ids.id(&item.to_string())?);
        events.time.push(time);
        events.labels.push(class);
        Ok(())
    })?;
    keep_labels(&mut events);
    let count = events.src.len();
    if let Some(name) = beside.find(&format!("{stem}.npy")) {
        let (table, shape) = arrays::read::<f32>(beside, name)?;
        let &[stored, width] = &shape[..] else {
            return Err(wrong(beside, name, format!("shape [events, features] expected, {shape:?} found")));
        };
        let rows = if rows.is_empty() { (1..=count).collect() } else { rows };
        let shift = usize::from(stored == count); // without the row of padding
        if let Some(row) = rows.iter().find(|&&row| row < shift || row - shift >= stored) {
            return Err(wrong(beside, name, format!("{stored} rows, but an event has the row {row}")));
        }
        if width > 0 && table.iter().any(|&x| x != 0.0) {
            let values = arrays::select_rows(&table, width, rows.iter().map(|row| row - shift));
            events.features = Some(FeatureTable::dense(width, values));
        } else {
            raw.report.note(format!("{name}: all features are zero; the events have no features"));
        }
    }
    streams::add(raw, ids, vec![events], options)?;
    match beside.find(&format!("{stem}_node.npy")) {
        Some(name) => add_node_features(beside, name, raw),
        None => Ok(()),
    }
}

/// Adds the rows of the array `name` to the nodes, whose keys are their rows.
fn add_node_features(beside: &Files, name: &str, raw: &mut RawTyped) -> Result<()> {
    let (table, shape) = arrays::read::<f32>(beside, name)?;
    let &[stored, width] = &shape[..] else {
        return Err(wrong(beside, name, format!("shape [nodes, features] expected, {shape:?} found")));
    };
    let mut used = 0;
    for nodes in &mut raw.nodes {
        let Some(Keys::Integers(keys)) = &nodes.keys else { continue };
        if let Some(key) = keys.iter().find(|&&key| key as usize >= stored) {
            return Err(wrong(beside, name, format!("{stored} rows, but there is a node {key}")));
        }
        used += keys.len();
        let values = arrays::select_rows(&table, width, keys.iter().map(|&key| key as usize));
        if width > 0 && values.iter().any(|&x| x != 0.0) {
            nodes.features = Some(FeatureTable::dense(width, values));
        } else {
            raw.report.note(format!("{name}: all features are zero; the nodes have no features"));
        }
    }
    raw.report.count("rows of node features without events, and padding", (stored - used) as u64);
    Ok(())
}

/// Reads a table of JODIE.
fn read_jodie(files: &Files, name: &str, options: &TypedOptions, raw: &mut RawTyped) -> Result<()> {
    let (mut log, mut ids) = (Log::read(files, name)?, Ids::default());
    keep_labels(&mut log.events);
    let shift = log.number(&mut ids).map_err(|e| wrong(files, name, e))?;
    streams::add(raw, ids, vec![log.events], options)?;
    separate_keys(raw, shift);
    Ok(())
}

/// Log of users and items.
pub(super) struct Log {
    /// Times, classes and features; [`Log::number`] adds the ends.
    pub(super) events: Events,
    /// User and item of each event, numbered separately.
    pairs: Vec<(u32, u32)>,
}

impl Log {
    /// Reads the lines of the table `name` behind its header.
    ///
    /// # Errors
    /// The file cannot be read, or lines have faults.
    pub(super) fn read(files: &Files, name: &str) -> Result<Self> {
        let (mut log, features) = log_lines(files, name)?;
        log.events.features = features.finish(true)?;
        Ok(log)
    }

    /// Adds the ends to the events: items follow the users in one id space. Returns the id of the
    /// first item.
    ///
    /// # Errors
    /// A message: there are too many ids.
    pub(super) fn number(&mut self, ids: &mut Ids) -> Result<u64, String> {
        let shift = self.pairs.iter().map(|&(user, _)| u64::from(user) + 1).max().unwrap_or(0);
        for &(user, item) in &self.pairs {
            self.events.src.push(ids.id(&user.to_string())?);
            self.events.dst.push(ids.id(&(shift + u64::from(item)).to_string())?);
        }
        Ok(shift)
    }
}

/// Numbers items from 0 again, in their keys.
pub(super) fn separate_keys(raw: &mut RawTyped, shift: u64) {
    if let Some(nodes) = raw.nodes.get_mut(1)
        && let Some(Keys::Integers(keys)) = &nodes.keys
    {
        nodes.keys =
            Some(Keys::Integers(keys.iter().map(|key| key - shift as i64).collect::<Vec<_>>().into()));
    }
}

/// Times and classes, users and items, and features of the lines of a log.
fn log_lines(files: &Files, name: &str) -> Result<(Log, SparseTable)> {
    let mut events = Events { name: "links".into(), ..Events::default() };
    let (mut lines, mut first) = (SparseTable::default(), true);
    let mut pairs: Vec<(u32, u32)> = Vec::new();
    let mut width = None;
    for_each_line(files, name, |line| {
        if std::mem::take(&mut first) {
            return Ok(());
        }
        let mut fields = line.splitn(5, ',');
        let (Some(user), Some(item), Some(time), Some(label)) =
            (fields.next(), fields.next(), fields.next(), fields.next())
        else {
            return Err("four fields or more expected: user, item, time, label, features".into());
        };
        let (user, item) = (whole::<u32>("user", user)?, whole::<u32>("item", item)?);
        let (time, class) = (micros(time)?, class(Some(label))?);
        let features = fields.next();
        if *width.get_or_insert(features.is_some()) != features.is_some() {
            return Err("the first event has features and this one has none, or the other way round".into());
        }
        if let Some(features) = features {
            lines.push_text(features, ',')?;
        }
        pairs.push((user, item));
        events.time.push(time);
        events.labels.push(class);
        Ok(())
    })?;
    Ok((Log { events, pairs }, lines))
}

/// Class of an event.
fn class(label: Option<&str>) -> Result<i32, String> {
    let Some(label) = label else { return Ok(0) };
    let value = finite("label", label)?;
    match value {
        _ if value.fract() == 0.0 && (0.0..65536.0).contains(&value) => Ok(value as i32),
        _ => Err(format!("the label {value} is not a class from 0 to 65535")),
    }
}

/// Drops labels that are all zero.
fn keep_labels(events: &mut Events) {
    if events.labels.iter().all(|&class| class == 0) {
        events.labels.clear();
    }
}
