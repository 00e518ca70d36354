//! Formats of the columns of a table: stated, known from another dataset, or found by reading all
//! values.
#![forbid(unsafe_code)]

use std::collections::BTreeMap;

use graphmill_core::Result;
use rayon::prelude::*;

use super::{
    faults::Faults,
    format::Format,
    kept::Kept,
    others::Others,
    preprocessing::{EdgeEncoding, NodeEncoding, TaskEncoding},
    profile::Profile,
    readings::{Found, Sought},
    rule::{ColumnRule, Kind},
    schema::{EdgeTable, LinkTable, Names, NodeTable, Target, TargetTable},
    source::Table,
    split::SplitRule,
};

/// Different values that a format does not read that are counted.
const MAX_COUNTED: usize = 20;

/// Formats that columns of a table have or may have.
pub(super) struct ColumnFormats<'a> {
    stated: Option<&'a BTreeMap<String, Format>>,
    /// Those of another dataset: none are found then.
    like: Option<&'a BTreeMap<String, Format>>,
    /// Texts that stand for missing values: those of another dataset, and stated ones.
    nulls: [Option<&'a BTreeMap<String, Names>>; 2],
    /// Formats that each column may have, in the order of the table.
    sought: Vec<Sought>,
}

impl<'a> ColumnFormats<'a> {
    /// No formats: all columns of `table` are keys.
    pub(super) fn none(table: &Table) -> Self {
        Self { stated: None, like: None, nulls: [None; 2], sought: vec![Sought::None; table.columns.len()] }
    }

    /// Formats of a node table.
    pub(super) fn of_nodes(spec: &'a NodeTable, like: Option<&'a NodeEncoding>, table: &Table) -> Self {
        let is_feature = |column: &String| match like {
            Some(like) => like.features.iter().any(|known| known.column == *column),
            None => {
                let is_named = spec.features.is_empty() || spec.features.contains(column);
                is_named && !spec.ignore.contains(column)
            }
        };
        let of_feature = |column: &String| match is_feature(column) {
            true => sought_by(spec.columns.get(column)),
            false => Sought::None,
        };
        let mut this = Self {
            stated: Some(&spec.formats),
            like: like.map(|like| &like.formats),
            nulls: [like.map(|like| &like.nulls), Some(&spec.nulls)],
            sought: table.columns.iter().map(of_feature).collect(),
        };
        this.seek_of_target(table, (&spec.label, spec.task), spec.split.as_ref());
        let times = spec.foreign_keys.iter().filter_map(|foreign| foreign.time.clone());
        this.seek(table, times.chain(spec.time.clone()), Sought::Times);
        let foreign = spec.foreign_keys.iter().flat_map(|foreign| foreign.column.list());
        this.seek(table, foreign.chain(spec.id.list()), Sought::None);
        this
    }

    /// Formats of an edge table.
    pub(super) fn of_edges(spec: &'a EdgeTable, like: Option<&'a EdgeEncoding>, table: &Table) -> Self {
        let of_feature = |column: &String| match spec.features.contains(column) {
            true => sought_by(spec.columns.get(column)),
            false => Sought::None,
        };
        let mut this = Self {
            stated: Some(&spec.formats),
            like: like.map(|like| &like.formats),
            nulls: [like.map(|like| &like.nulls), Some(&spec.nulls)],
            sought: table.columns.iter().map(of_feature).collect(),
        };
        // those of an earlier import may be features of a table that names none
        let known = like.iter().flat_map(|like| like.features.iter().map(|known| known.column.clone()));
        this.seek(table, known, Sought::All);
        this.seek_of_target(table, (&spec.label, spec.task), spec.split.as_ref());
        this.seek(table, spec.weight.clone(), Sought::Numbers);
        this.seek(table, spec.time.clone(), Sought::Times);
        this.seek(table, spec.src.list().into_iter().chain(spec.dst.list()), Sought::None);
        this
    }

    /// Formats of a table of targets.
    pub(super) fn of_targets(spec: &'a TargetTable, like: Option<&'a TaskEncoding>, table: &Table) -> Self {
        let nulls = [like.map(|like| &like.nulls), Some(&spec.nulls)];
        let formats = like.map(|like| &like.formats);
        let mut this = Self { stated: Some(&spec.formats), like: formats, nulls, ..Self::none(table) };
        this.seek_of_target(table, (&spec.label, spec.task), spec.split.as_ref());
        this.seek(table, spec.time.clone(), Sought::Times);
        this.seek(table, spec.id.list(), Sought::None);
        this
    }

    /// Formats of a table of links.
    pub(super) fn of_links(spec: &'a LinkTable, table: &Table) -> Self {
        let nulls = [None, Some(&spec.nulls)];
        let mut this = Self { stated: Some(&spec.formats), nulls, ..Self::none(table) };
        this.seek(table, [spec.time.clone()], Sought::Times);
        this.seek(table, spec.src.list().into_iter().chain(spec.dst.list()), Sought::None);
        this
    }

    /// Seeks these formats in the columns `names`.
    fn seek(&mut self, table: &Table, names: impl IntoIterator<Item = String>, sought: Sought) {
        for c in names.into_iter().filter_map(|name| table.position(&name).ok()) {
            self.sought[c] = sought;
        }
    }

    /// Seeks the formats of a target and of the columns of its split.
    fn seek_of_target(
        &mut self,
        table: &Table,
        (label, task): (&Names, Option<Target>),
        split: Option<&String>,
    ) {
        match split.and_then(|rule| rule.parse().ok()) {
            Some(SplitRule::Time(column, _)) => self.seek(table, [column], Sought::Times),
            Some(rule) => self.seek(table, rule.columns().into_iter().map(String::from), Sought::None),
            None => {}
        }
        let of_label = if task == Some(Target::Classification) { Sought::None } else { Sought::Numbers };
        self.seek(table, label.list(), of_label);
    }

    /// Texts that stand for missing values. Stated ones of columns that are missing are faults,
    /// unless another dataset has them.
    fn nulls(&self, table: &Table, faults: &mut Faults) -> Vec<(usize, Names)> {
        let [like, stated] = self.nulls;
        let mut nulls = BTreeMap::new();
        for (name, texts) in like.into_iter().chain(stated).flatten() {
            match table.position(name) {
                Ok(c) => _ = nulls.insert(c, texts.clone()),
                Err(_) if like.is_some() => {}
                Err(why) => faults.add(&table.name(), why),
            }
        }
        nulls.into_iter().collect()
    }

    /// Formats that are known before the values are read. Stated ones of columns that are missing,
    /// or that no number and no date is read from, are faults, unless another dataset has them.
    fn known(&self, table: &Table, faults: &mut Faults) -> Vec<(usize, Format)> {
        let mut known = BTreeMap::new();
        for (name, format) in self.like.into_iter().flatten() {
            if let Some(c) = table.position(name).ok().filter(|&c| self.sought[c] != Sought::None) {
                known.insert(c, format.clone());
            }
        }
        for (name, format) in self.stated.into_iter().flatten() {
            match table.position(name) {
                Ok(c) if self.sought[c] != Sought::None => {
                    known.insert(c, format.clone());
                }
                _ if self.like.is_some() => {}
                Ok(_) => faults.add(
                    &table.name(),
                    format!(
                        "column '{name}': no number and no date is read from it, so its format {format} has \
                         no effect; leave the format out, or the rule that ignores the column"
                    ),
                ),
                Err(why) => faults.add(&table.name(), why),
            }
        }
        known.into_iter().collect()
    }
}

/// Formats that a feature may have by its rule.
fn sought_by(rule: Option<&ColumnRule>) -> Sought {
    match rule.map(|rule| (rule.kind, rule)) {
        None => Sought::All,
        Some((Some(Kind::Number), _)) => Sought::Numbers,
        Some((Some(Kind::Date), _)) => Sought::Times,
        Some((Some(_), _)) => Sought::None,
        Some((None, rule)) if rule.scale.is_some() => Sought::Numbers,
        Some((None, rule)) if !rule.parts.is_empty() => Sought::Times,
        Some((None, _)) => Sought::All,
    }
}

/// Profiles of all columns, whose formats are added to `table`; both are recorded as the part
/// `name`. Columns whose format is found are read a second time.
pub(super) fn profile(
    table: &mut Table,
    kept: &Kept,
    name: &str,
    formats: ColumnFormats,
    faults: &mut Faults,
) -> Result<Vec<Profile>> {
    table.add_nulls(formats.nulls(table, faults));
    let record = kept.load(name, |record: (Vec<Profile>, Vec<(usize, Format)>)| Some(record));
    if let Some((profiles, formats)) = record {
        table.add_formats(formats, faults);
        return Ok(profiles);
    }
    let known = formats.known(table, faults);
    let mut sought = match formats.like {
        Some(_) => vec![Sought::None; table.columns.len()],
        None => formats.sought,
    };
    known.iter().for_each(|(c, _)| sought[*c] = Sought::None);
    table.add_formats(known, faults);
    let all = vec![true; table.columns.len()];
    let mut profiles = read_profiles(table, &all, &sought, faults)?;
    let found = find(table, &mut profiles, faults)?;
    if !found.is_empty() {
        let wanted = table.only(found.iter().map(|(c, _)| *c));
        table.add_formats(found, faults);
        // faults of rows are those of the first pass
        let none = vec![Sought::None; wanted.len()];
        let again = read_profiles(table, &wanted, &none, &mut Faults::default())?;
        let places = profiles.iter_mut().zip(again).zip(&wanted);
        places.filter(|(_, wanted)| **wanted).for_each(|((profile, again), _)| *profile = again);
    }
    // Faults end the import, and a record would hide them.
    if !faults.any() {
        kept.save(name, || Ok((&profiles, table.formats())))?;
    }
    Ok(profiles)
}

/// Profiles of the columns of which `wanted` is set.
fn read_profiles(
    table: &Table,
    wanted: &[bool],
    sought: &[Sought],
    faults: &mut Faults,
) -> Result<Vec<Profile>> {
    let mut profiles: Vec<Profile> = sought.iter().map(|&sought| Profile::new(sought)).collect();
    table.scan(wanted, faults, |batch, _| {
        let file = table.before_place(batch);
        let columns = profiles.par_iter_mut().enumerate().filter(|(c, _)| wanted[*c]);
        columns.for_each(|(c, profile)| profile.add(batch, c, &file));
        Ok(())
    })?;
    Ok(profiles)
}

/// Formats of columns whose values all agree with one. Columns of which nearly all do are faults.
fn find(table: &Table, profiles: &mut [Profile], faults: &mut Faults) -> Result<Vec<(usize, Format)>> {
    let mut formats = Vec::new();
    for (c, profile) in profiles.iter_mut().enumerate() {
        let (format, count, examples) = match profile.find_format() {
            Found::One(format) => {
                formats.push((c, format));
                continue;
            }
            Found::Nearly(format, count, examples) => (format, count, examples),
            Found::None | Found::Several(..) => continue,
        };
        let others = others_of(table, c, &format)?;
        faults.add_many(&table.name(), count, || {
            let (name, what) = (&table.columns[c], format.describe());
            let listed = examples.iter().map(|(place, text)| format!("{place} '{text}'"));
            let listed = listed.collect::<Vec<_>>().join(", ");
            let more = match count.saturating_sub(examples.len() as u64) {
                0 => String::new(),
                more => format!(" and {more} more"),
            };
            let counts = others.as_ref().filter(|_| count > 1);
            let counts = counts.map(|others| format!(", in all {}", others.list())).unwrap_or_default();
            let declare = others.map(|others| format!(" declare these missing ({}),", others.nulls(name)));
            format!(
                "column '{name}': {count} of {} values are not {what}: {listed}{more}{counts}; fix them,{} \
                 or import the column as a category (column {name}=category) or ignore it (column \
                 {name}=ignore)",
                profile.rows - profile.missing,
                declare.unwrap_or_default(),
            )
        });
    }
    Ok(formats)
}

/// Values of the column number `c` that `format` does not read, if these are few different texts.
///
/// # Errors
/// The table cannot be read.
fn others_of(table: &Table, c: usize, format: &Format) -> Result<Option<Others>> {
    let mut counts: BTreeMap<String, u64> = BTreeMap::new();
    table.scan(&table.only([c]), &mut Faults::default(), |batch, _| {
        for row in 0..batch.rows {
            let cell = batch.columns[c].get(row);
            if counts.len() <= MAX_COUNTED && format.read(cell).is_none() {
                *counts.entry(cell.text().into_owned()).or_default() += 1;
            }
        }
        Ok(())
    })?;
    Ok(Others::new(counts.iter().map(|(text, count)| (&text[..], *count))))
}
