//! Edge tables and foreign keys: ends, times, weights and features.

use graphmill_core::Result;

use super::{
    column::{Batch, Cell},
    encoding::EncodedColumn,
    ends::{self, End, EndIds, keep, places},
    faults::Faults,
    kept::Kept,
    keys::{KeyColumns, NONE, NodeKeys, Unknown, shown},
    parts::{EdgePart, FeaturePart},
    plan::{ColumnLine, Decision, FeatureColumn, decide, line, with_default},
    preprocessing::EdgeEncoding,
    profile::{MAX_DISTINCT, Profile, Shape, parsed},
    report::EdgeReport,
    rows::{self, Encoder},
    rule::ColumnRule,
    schema::{Dangling, EdgeTable, ForeignKey, NodeTable},
    source::Table,
    times::TimeUnit,
};
use crate::external::{Rows, Scratch};

/// Edge type with the roles of its table's columns.
pub(super) struct EdgePlan {
    /// Number of the edge type, which names its files.
    index: usize,
    /// Source type, name and destination type.
    pub(super) edge_type: [String; 3],
    /// Numbers of the source type and the destination type.
    pub(super) ends: [usize; 2],
    pub(super) at: [End; 2],
    /// Columns of each key.
    pub(super) keys: [Vec<String>; 2],
    /// Rows without a key have no edge: foreign keys.
    is_optional: bool,
    /// Table of the edges; `None` for a foreign key, whose table is that of the source type.
    pub(super) table: Option<Table>,
    time: Option<(usize, TimeUnit)>,
    weight: Option<usize>,
    features: Vec<FeatureColumn>,
    fixed: Option<Vec<EncodedColumn>>,
    reverse: Option<String>,
    undirected: bool,
    keep_duplicates: bool,
    pub(super) lines: Vec<ColumnLine>,
    /// Number of rows.
    pub(super) rows: u64,
}

impl EdgePlan {
    /// Reads all values once and chooses the roles of the columns of an edge table.
    pub(super) fn of_table(
        (index, spec): (usize, &EdgeTable),
        types: &[String],
        table: Table,
        like: Option<&EdgeEncoding>,
        kept: &Kept,
        faults: &mut Faults,
    ) -> Result<Self> {
        let profiles = super::nodes::profile(&table, kept, &format!("types-of-edges-{index}"), faults)?;
        let name = table.name();
        let end = |given: &Option<String>| {
            given.as_ref().and_then(|name| types.iter().position(|kind| kind == name)).unwrap_or(0)
        };
        let ends = [end(&spec.source), end(&spec.destination)];
        let mut roles: Vec<Option<String>> = vec![None; table.columns.len()];
        let key = |names: Vec<String>, role: &str, roles: &mut Vec<Option<String>>, faults: &mut Faults| {
            let found: Vec<usize> =
                names.iter().filter_map(|column| faults.take(&name, table.position(column))).collect();
            found.iter().for_each(|&c| roles[c] = Some(role.into()));
            KeyColumns::new(&found, &profiles)
        };
        let at = [
            End::Key(key(spec.src.list(), "source", &mut roles, faults)),
            End::Key(key(spec.dst.list(), "destination", &mut roles, faults)),
        ];
        let find = |column: &String, faults: &mut Faults| faults.take(&name, table.position(column));
        let time = spec.time.as_ref().and_then(|column| {
            let c = find(column, faults)?;
            let known = like.and_then(|like| like.time.as_ref()).map(|(_, unit)| *unit);
            match known.or_else(|| TimeUnit::of(&profiles[c])) {
                Some(unit) => {
                    roles[c] = Some(unit.describe().into());
                    Some((c, unit))
                }
                None => {
                    faults.add(&name, not_all(column, &profiles[c], "dates or numbers"));
                    None
                }
            }
        });
        let weight = spec.weight.as_ref().and_then(|column| {
            let c = find(column, faults)?;
            if profiles[c].shape() != Some((Shape::Number, 0)) {
                faults.add(&name, not_all(column, &profiles[c], "numbers"));
            }
            roles[c] = Some("weight".into());
            Some(c)
        });
        let mut plan = Self {
            index,
            edge_type: [types[ends[0]].clone(), spec.kind.clone(), types[ends[1]].clone()],
            ends,
            at,
            keys: [spec.src.list(), spec.dst.list()],
            is_optional: false,
            table: None,
            time,
            weight,
            features: Vec::new(),
            fixed: like.map(|like| like.features.clone()),
            reverse: spec.reverse.clone(),
            undirected: spec.undirected,
            keep_duplicates: spec.keep_duplicates,
            lines: Vec::new(),
            rows: profiles.first().map_or(0, |profile| profile.rows),
        };
        for column in spec.columns.keys().chain(&spec.features) {
            find(column, faults);
        }
        plan.choose_features(spec, &table, &profiles, roles, faults);
        plan.table = Some(table);
        Ok(plan)
    }

    fn choose_features(
        &mut self,
        spec: &EdgeTable,
        table: &Table,
        profiles: &[Profile],
        roles: Vec<Option<String>>,
        faults: &mut Faults,
    ) {
        let name = table.name();
        for (c, column) in table.columns.iter().enumerate() {
            let profile = &profiles[c];
            let missing = profile.shape().map_or(profile.rows, |(shape, _)| profile.missing_as(shape));
            let plain =
                |becomes: String| ColumnLine { column: column.clone(), becomes, features: 0, missing };
            let is_feature = spec.features.contains(column);
            if !is_feature {
                let becomes = roles[c].clone().unwrap_or("ignored: not named as an edge feature".into());
                self.lines.push(plain(becomes));
                continue;
            }
            if let Some(known) = self.fixed.iter().flatten().find(|known| known.column == *column) {
                let features = known.encoding.width();
                self.lines.push(ColumnLine { features, ..plain("as in the other dataset".into()) });
                continue;
            }
            let rule = with_default(spec.columns.get(column), spec.missing);
            match decide(&name, column, profile, &rule, MAX_DISTINCT, faults) {
                Decision::Ignore(why) => {
                    faults.add(&name, format!("column '{column}' is named as a feature, but is {why}"));
                }
                Decision::Encode(planned) => {
                    self.lines.push(line(column, &planned, missing));
                    self.features.push(FeatureColumn { position: c, planned });
                }
            }
        }
    }

    /// Edge type of a foreign key of the node type number `source`.
    pub(super) fn of_foreign_key(
        index: usize,
        (source, spec): (usize, &NodeTable),
        foreign: &ForeignKey,
        types: &[String],
        table: &Table,
        profiles: &[Profile],
    ) -> Self {
        let names = foreign.column.list();
        let positions: Vec<usize> = names.iter().filter_map(|name| table.position(name).ok()).collect();
        let destination = types.iter().position(|kind| *kind == foreign.to).unwrap_or(0);
        let kind = foreign.kind.clone().unwrap_or_else(|| names.join("_"));
        Self {
            index,
            edge_type: [spec.kind.clone(), kind, foreign.to.clone()],
            ends: [source, destination],
            at: [End::Row, End::Key(KeyColumns::new(&positions, profiles))],
            keys: [spec.id.list(), names],
            is_optional: true,
            table: None,
            time: None,
            weight: None,
            features: Vec::new(),
            fixed: None,
            reverse: foreign.reverse.clone(),
            undirected: false,
            keep_duplicates: false,
            lines: Vec::new(),
            rows: profiles.first().map_or(0, |profile| profile.rows),
        }
    }

    /// Rule of every column that becomes features.
    pub(super) fn rules(&self) -> Vec<(String, ColumnRule)> {
        let Some(table) = &self.table else { return Vec::new() };
        let name = |column: &FeatureColumn| table.columns[column.position].clone();
        self.features.iter().map(|column| (name(column), column.planned.rule())).collect()
    }

    /// Name `source:name:destination`.
    pub(super) fn name(&self) -> String {
        self.edge_type.join(":")
    }

    /// Keys of the ends that no node table has, by end: collected for `--dangling add`.
    pub(super) fn unknown(
        &self,
        table: &Table,
        nodes: &[&NodeKeys],
        faults: &mut Faults,
    ) -> Result<[Unknown; 2]> {
        let keys = self.ends.map(|end| nodes[end]);
        let name = format!("unknown-{}", self.index);
        Ok(ends::read(table, &self.at, keys, &name, true, faults)?.unknown)
    }

    /// Reads the edges.
    pub(super) fn read(
        &self,
        table: &Table,
        nodes: &[&NodeKeys],
        dangling: Dangling,
        scratch: &Scratch,
        faults: &mut Faults,
    ) -> Result<(EdgePart, EdgeEncoding, EdgeReport)> {
        let name = format!("edges-{}", self.index);
        let keys = self.ends.map(|end| nodes[end]);
        let EndIds { ids: [src, dst], unknown, rows, missing, examples } =
            ends::read(table, &self.at, keys, &name, false, faults)?;
        let mut report =
            EdgeReport { kind: self.name(), rows, columns: self.lines.clone(), ..EdgeReport::default() };
        if !self.is_optional {
            report.missing_ends = missing;
            if missing > 0 && dangling == Dangling::Error {
                faults.add_many(&table.name(), missing, || {
                    format!(
                        "{missing} rows have no source or destination: {}; complete them, or drop them with \
                             dangling = drop",
                        examples.join(", ")
                    )
                });
            }
        }
        self.count_dangling(table, &unknown, dangling, &mut report, faults)?;
        let is_kept = |row: u64| src[row as usize] != NONE && dst[row as usize] != NONE;
        let kept = (0..rows).filter(|&row| is_kept(row)).count() as u64;
        report.edges = kept;
        let (columns, placed) = self.fitted(table, is_kept, faults)?;
        let mut encoder = Encoder::new(scratch, &format!("{name}-features"), &placed)?;
        let mut times = self.time.map(|_| scratch.column(&format!("{name}-time"))).transpose()?;
        let mut weights = self.weight.map(|_| scratch.column(&format!("{name}-weight"))).transpose()?;
        if times.is_some() || weights.is_some() || !placed.is_empty() {
            table.scan(&vec![true; table.columns.len()], faults, |batch, faults| {
                for row in (0..batch.rows).filter(|&row| is_kept(batch.first + row as u64)) {
                    if let Some(times) = &mut times {
                        times.extend(&[self.time_of(table, batch, row, &mut report, faults)])?;
                    }
                    if let Some(weights) = &mut weights {
                        weights.extend(&[self.weight_of(table, batch, row, faults)])?;
                    }
                }
                encoder.push(table, batch, faults, is_kept)
            })?;
        }
        let features: Option<FeaturePart> = encoder.finish()?;
        let (src, dst) = if kept == rows {
            (src, dst)
        } else {
            (
                keep(scratch, &format!("{name}-src-kept"), &src, is_kept)?,
                keep(scratch, &format!("{name}-dst-kept"), &dst, is_kept)?,
            )
        };
        let encoding = EdgeEncoding {
            src: self.keys[0].clone(),
            dst: self.keys[1].clone(),
            time: self.time.map(|(c, unit)| (table.columns[c].clone(), unit)),
            weight: self.weight.map(|c| table.columns[c].clone()),
            keep_duplicates: self.keep_duplicates,
            foreign_key: Some(self.is_optional),
            features: columns,
        };
        let part = EdgePart {
            edge_type: self.edge_type.clone(),
            reverse: self.reverse.clone(),
            undirected: self.undirected,
            keep_duplicates: self.keep_duplicates,
            src,
            dst,
            weight: weights.map(Rows::finish).transpose()?,
            time: times.map(Rows::finish).transpose()?,
            features,
        };
        Ok((part, encoding, report))
    }

    /// Encodings of the features, alone and with the positions of their columns.
    #[allow(clippy::type_complexity)]
    fn fitted(
        &self,
        table: &Table,
        is_kept: impl Fn(u64) -> bool,
        faults: &mut Faults,
    ) -> Result<(Vec<EncodedColumn>, Vec<(usize, EncodedColumn)>)> {
        let columns = match &self.fixed {
            Some(fixed) => fixed.clone(),
            None if self.features.is_empty() => Vec::new(),
            None => rows::fit(table, &self.features, is_kept, faults)?,
        };
        let mut placed = Vec::new();
        for column in &columns {
            let found = faults.take(&table.name(), table.position(&column.column));
            placed.extend(found.map(|c| (c, column.clone())));
        }
        Ok((columns, placed))
    }

    /// Counts the rows that name nodes without a row, or reports them as faults.
    fn count_dangling(
        &self,
        table: &Table,
        unknown: &[Unknown; 2],
        dangling: Dangling,
        report: &mut EdgeReport,
        faults: &mut Faults,
    ) -> Result<()> {
        for ((unknown, kind), columns) in
            unknown.iter().zip([&self.edge_type[0], &self.edge_type[2]]).zip(&self.keys)
        {
            if unknown.count == 0 {
                continue;
            }
            let rows: Vec<u64> = unknown.examples.iter().map(|(row, _)| *row).collect();
            let places = places(table, &rows)?;
            let examples: Vec<String> = places
                .iter()
                .zip(&unknown.examples)
                .map(|(place, (_, key))| format!("{place} '{}'", shown(key)))
                .collect();
            if dangling == Dangling::Error {
                faults.add_many(&table.name(), unknown.count, || {
                    format!(
                        "column '{}': {} of {} rows name a node that is not in the table of '{kind}': {}; \
                         add the rows, or choose dangling = drop (drop these edges) or add (add these nodes)",
                        columns.join(", "),
                        unknown.count,
                        report.rows,
                        examples.join(", ")
                    )
                });
            } else {
                report.dangling += unknown.count;
                report.dangling_examples.extend(examples);
            }
        }
        Ok(())
    }

    /// Time of a row; the smallest if it is missing.
    fn time_of(
        &self,
        table: &Table,
        batch: &Batch,
        row: usize,
        report: &mut EdgeReport,
        faults: &mut Faults,
    ) -> i64 {
        let Some((c, unit)) = self.time else { return i64::MIN };
        match unit.read(batch.columns[c].get(row), &mut Vec::new()) {
            Ok(time) => {
                report.missing_times += u64::from(time.is_none());
                time.unwrap_or(i64::MIN)
            }
            Err(why) => {
                let column = &table.columns[c];
                faults.add(&table.file(batch), format!("{}: column '{column}': {why}", batch.places.of(row)));
                i64::MIN
            }
        }
    }

    /// Weight of a row.
    fn weight_of(&self, table: &Table, batch: &Batch, row: usize, faults: &mut Faults) -> f32 {
        let Some(c) = self.weight else { return 1.0 };
        let cell = batch.columns[c].get(row);
        let weight = match parsed(cell, &mut Vec::new()) {
            Cell::Int(x) => Some(x as f32),
            Cell::Float(x) => Some(x as f32),
            _ => None,
        };
        match weight.filter(|w| w.is_finite() && *w >= 0.0) {
            Some(weight) => weight,
            None => {
                let (column, place) = (&table.columns[c], batch.places.of(row));
                let text = cell.text();
                let text = if text.is_empty() { "a missing value".into() } else { format!("'{text}'") };
                faults.add(
                    &table.file(batch),
                    format!("{place}: column '{column}': {text} is not a weight: a finite number from 0"),
                );
                0.0
            }
        }
    }
}

/// Message about a column whose values do not all have a type.
fn not_all(column: &str, profile: &Profile, what: &str) -> String {
    let example = profile.first(Shape::Text).or_else(|| profile.first(Shape::Bool));
    let example = example.map_or("no value is there".into(), |(place, text)| format!("{place} '{text}'"));
    format!("column '{column}': not every value is one of {what}: {example}")
}
