//! Import of temporal edge lists: lines `source destination time` (SNAP's temporal networks), or
//! `source,destination,rating,time` (SNAP's signed Bitcoin networks), separated by white space,
//! commas or tabs.
//!
//! A file is an edge type; of several files in a directory each is one, named by the part of its
//! name that differs. Nodes are all ids that occur, with the ids as keys; if the ids of all sources
//! are below those of all destinations, they become the node types `user` and `item`. Comments
//! begin with `#` or `%`. See [`streams`](super::streams) for the task.

use std::path::Path;

use graphmill_core::Result;

use super::{
    TypedOptions,
    files::Files,
    ids::Ids,
    lines::{fields, finite, for_each_line, wrong},
    raw::RawTyped,
    streams::{self, Events},
    times::micros,
};

/// Reads the file, directory or archive `src`.
pub(super) fn read(src: &Path, options: &TypedOptions) -> Result<RawTyped> {
    let files = Files::open(src)?;
    let mut raw = RawTyped { name: files.title(), ..RawTyped::default() };
    let is_list = |name: &&String| {
        let name = name.trim_end_matches(".gz");
        [".txt", ".csv", ".tsv", ".edges"].iter().any(|ending| name.ends_with(ending)) || src.is_file()
    };
    let names: Vec<&str> = files.names().iter().filter(is_list).map(String::as_str).collect();
    if names.is_empty() {
        files.required("edges.txt")?;
    }
    let (mut ids, mut all) = (Ids::default(), Vec::new());
    for (name, title) in names.iter().zip(titles(&names)) {
        let mut events = Events { name: title, ..Events::default() };
        let mut columns = None;
        for_each_line(&files, name, |line| {
            if line.trim_start().starts_with(['#', '%']) {
                return Ok(());
            }
            let fields = fields(line);
            let expected = *columns.get_or_insert(fields.len());
            if fields.len() != expected {
                return Err(format!("{} fields, but the first line has {expected}", fields.len()));
            }
            let (rating, time) = match fields[..] {
                [_, _, time] => (None, time),
                [_, _, rating, time] => (Some(finite("rating", rating)?), time),
                _ => {
                    return Err(format!(
                        "{} fields; source, destination and time expected, or source, destination, rating and time \
                         (lists without times are imported as 'edges')",
                        fields.len()
                    ));
                }
            };
            let time = micros(time)?;
            events.src.push(ids.id(fields[0])?);
            events.dst.push(ids.id(fields[1])?);
            events.time.push(time);
            events.ratings.extend(rating);
            Ok(())
        })?;
        if events.src.is_empty() {
            return Err(wrong(&files, name, "there are no edges"));
        }
        all.push(events);
    }
    raw.report.ignore_unread(files.names(), |name| names.contains(&name));
    streams::add(&mut raw, ids, all, options)?;
    Ok(raw)
}

/// Names of edge types: the file names without their endings and without what all of them share;
/// `links` for a single file.
fn titles(names: &[&str]) -> Vec<String> {
    let stems: Vec<&str> = names
        .iter()
        .map(|name| {
            let base = name.rsplit('/').next().unwrap_or_default().trim_end_matches(".gz");
            base.rsplit_once('.').map_or(base, |(stem, _)| stem)
        })
        .collect();
    let [first, rest @ ..] = &stems[..] else { return Vec::new() };
    if rest.is_empty() {
        return vec!["links".into()];
    }
    let shared = |other: &&str| first.bytes().zip(other.bytes()).take_while(|(a, b)| a == b).count();
    let length = rest.iter().map(shared).min().unwrap_or(0);
    // Whole words: up to the last separator.
    let length = first.as_bytes()[..length].iter().rposition(|b| b"-_.".contains(b)).map_or(0, |i| i + 1);
    stems.iter().map(|stem| stem[length..].to_string()).collect()
}
