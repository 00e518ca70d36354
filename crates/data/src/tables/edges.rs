//! Edge tables and foreign keys: ends, times, weights and features.

use graphmill_core::{Buffer, NodeId, Result};

use super::{
    column::{Batch, Cell},
    column_formats::{ColumnFormats, profile},
    encoding::EncodedColumn,
    ends::{self, End, EndIds, keep, places},
    faults::{Faults, FaultyRows},
    finished::FinishedEdges,
    kept::Kept,
    keys::{KeyColumns, NONE, NodeKeys, Unknown, shown},
    leaks::LeakSearch,
    parts::{EdgePart, FeaturePart, TaskPart},
    plan::{ColumnLine, Decision, FeatureColumn, decide, line, with_default},
    preprocessing::{EdgeEncoding, Preprocessing, TargetEncoding},
    profile::{MAX_DISTINCT, Profile, Shape, parsed},
    report::EdgeReport,
    rows::{self, Encoder},
    rule::ColumnRule,
    schema::{Dangling, EdgeTable, ForeignKey, Names, NodeTable},
    source::Table,
    targets::{RowInfo, TargetPlan},
    times::{self, TimeColumn, TimeUnit},
};
use crate::{
    external::{Rows, Scratch},
    typed::{EdgeType, Seeds, TaskOn},
};

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
    profiles: Vec<Profile>,
    /// Column of the time, and its unit.
    time: Option<(usize, TimeUnit)>,
    weight: Option<usize>,
    targets: TargetPlan,
    features: Vec<FeatureColumn>,
    fixed: Option<Vec<EncodedColumn>>,
    reverse: Option<String>,
    undirected: bool,
    keep_duplicates: bool,
    pub(super) lines: Vec<ColumnLine>,
    /// Number of rows.
    pub(super) rows: u64,
}

/// Columns of the rows that are edges.
struct EdgeRows {
    time: Option<Buffer<i64>>,
    weight: Option<Buffer<f32>>,
    features: Option<FeaturePart>,
    /// Targets, and the columns of the split.
    info: RowInfo,
}

impl EdgePlan {
    /// Reads all values once and chooses the roles of the columns of an edge table, whose edges
    /// extend those of a dataset if `is_longer`.
    pub(super) fn of_table(
        (index, spec): (usize, &EdgeTable),
        types: &[String],
        mut table: Table,
        (like, is_longer): (Option<&EdgeEncoding>, bool),
        kept: &Kept,
        faults: &mut Faults,
    ) -> Result<Self> {
        let formats = ColumnFormats::of_edges(spec, like, &table);
        let profiles = profile(&mut table, kept, &format!("types-of-edges-{index}"), formats, faults)?;
        let name = table.name();
        let ends = spec.ends().map(|end| end.number(types));
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
        let known = like.and_then(|like| like.time.as_ref()).map(|(_, unit)| *unit);
        let time = spec.time.as_ref().and_then(|column| {
            let found = times::column(column, &table, &profiles, known, faults)?;
            roles[found.0] = Some(found.1.describe().into());
            Some(found)
        });
        let weight = spec.weight.as_ref().and_then(|column| {
            let c = find(column, faults)?;
            if profiles[c].shape().is_some_and(|shape| shape != (Shape::Number, 0)) {
                faults.add(&name, profiles[c].not_all(column, "numbers"));
            }
            roles[c] = Some("weight".into());
            Some(c)
        });
        let place = format!("edges '{}'", spec.kind);
        let mut targets =
            TargetPlan::new(place, &spec.label, spec.task, spec.split.as_ref()).or_none(is_longer);
        let known = (like.and_then(|like| like.target.as_ref()), time.map(|(c, _)| c));
        targets.assign(&table, &profiles, known, &mut roles, faults);
        let mut plan = Self {
            index,
            edge_type: [types[ends[0]].clone(), spec.kind.clone(), types[ends[1]].clone()],
            ends,
            at,
            keys: [spec.src.list(), spec.dst.list()],
            is_optional: false,
            table: None,
            profiles: Vec::new(),
            time,
            weight,
            targets,
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
        (plan.table, plan.profiles) = (Some(table), profiles);
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
            let format = table.format(c);
            let plain = |becomes: String| ColumnLine::new(column, becomes, missing, format.clone());
            let is_feature = spec.features.contains(column);
            if is_feature && self.targets.names.contains(column) {
                let message = format!(
                    "column '{column}' is the label, which no edge reads; leave it out of the features"
                );
                faults.add(&name, message);
            }
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
                Decision::Encode(planned, note) => {
                    self.lines.push(ColumnLine { format, note, ..line(column, &planned, missing) });
                    self.features.push(FeatureColumn { position: c, planned });
                }
            }
        }
    }

    /// Edge type number `index` of a foreign key of the node type number `source`, whose table this
    /// is. A fault is added if the column of the time does not hold times.
    pub(super) fn of_foreign_key(
        (index, source, spec): (usize, usize, &NodeTable),
        foreign: &ForeignKey,
        types: &[String],
        (table, profiles): (&Table, &[Profile]),
        like: Option<&Preprocessing>,
        faults: &mut Faults,
    ) -> Self {
        let names = foreign.column.list();
        let positions: Vec<usize> = names.iter().filter_map(|name| table.position(name).ok()).collect();
        let destination = types.iter().position(|kind| *kind == foreign.to).unwrap_or(0);
        let kind = foreign.kind.clone().unwrap_or_else(|| names.join("_"));
        let edge_type = [spec.kind.clone(), kind, foreign.to.clone()];
        let known = like.and_then(|like| like.edges.get(&edge_type.join(":"))?.time.as_ref());
        let known = known.map(|(_, unit)| *unit);
        let time = foreign.time.as_ref();
        let time = time.and_then(|column| times::column(column, table, profiles, known, faults));
        Self {
            index,
            edge_type,
            ends: [source, destination],
            at: [End::Row, End::Key(KeyColumns::new(&positions, profiles))],
            keys: [spec.id.list(), names],
            is_optional: true,
            table: None,
            profiles: Vec::new(),
            time,
            weight: None,
            targets: TargetPlan::new(String::new(), &Names::None, None, None),
            features: Vec::new(),
            fixed: None,
            reverse: foreign.reverse.clone(),
            undirected: false,
            keep_duplicates: false,
            lines: Vec::new(),
            rows: profiles.first().map_or(0, |profile| profile.rows),
        }
    }

    /// Column of the time, if there is one: of the own table, or of `nodes` with its profiles,
    /// whose foreign key the edges are.
    pub(super) fn time_column(
        &mut self,
        nodes: Option<&Table>,
        of_nodes: &[Profile],
    ) -> Option<TimeColumn<'_>> {
        let (table, profiles) = match &self.table {
            Some(table) => (table, &self.profiles[..]),
            None => (nodes?, of_nodes),
        };
        TimeColumn::new(table, profiles, self.time.as_mut()?, &mut self.lines)
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
        (dangling, seed): (Dangling, u64),
        scratch: &Scratch,
        faults: &mut Faults,
    ) -> Result<FinishedEdges> {
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
        let EdgeRows { time, weight, features, info } =
            self.rows(table, &placed, is_kept, (scratch, &name), &mut report, faults)?;
        let (src, dst) = if kept == rows {
            (src, dst)
        } else {
            (
                keep(scratch, &format!("{name}-src-kept"), &src, is_kept)?,
                keep(scratch, &format!("{name}-dst-kept"), &dst, is_kept)?,
            )
        };
        let (targets, split) = self.targets.divide(info, seed, &mut report.labels, faults);
        let task = targets.map(|targets| -> Result<TaskPart> {
            let seeds = Some(Seeds::Pairs(pairs(scratch, &format!("{name}-pairs"), &src, &dst)?));
            let [source, name, destination] = &self.edge_type;
            let on = TaskOn::Edges(EdgeType::new(source, name, destination));
            Ok(TaskPart { name: self.targets.names.join("-"), on, seeds, time: time.clone(), targets, split })
        });
        let part = EdgePart {
            edge_type: self.edge_type.clone(),
            reverse: self.reverse.clone(),
            undirected: self.undirected,
            keep_duplicates: self.keep_duplicates,
            src,
            dst,
            weight,
            time,
            features,
        };
        Ok(FinishedEdges { part, task: task.transpose()?, encoding: self.encoding(table, columns), report })
    }

    /// Reads the columns of the rows of which `is_kept` returns true; `name` is unique within the
    /// scratch.
    fn rows(
        &self,
        table: &Table,
        placed: &[(usize, EncodedColumn)],
        is_kept: impl Fn(u64) -> bool + Copy,
        (scratch, name): (&Scratch, &str),
        report: &mut EdgeReport,
        faults: &mut Faults,
    ) -> Result<EdgeRows> {
        let mut encoder = Encoder::new(scratch, &format!("{name}-features"), placed)?;
        let mut times: Option<Rows<i64>> =
            self.time.map(|_| scratch.column(&format!("{name}-time"))).transpose()?;
        let mut weights: Option<Rows<f32>> =
            self.weight.map(|_| scratch.column(&format!("{name}-weight"))).transpose()?;
        let (mut info, mut untimed) = (RowInfo::default(), FaultyRows::default());
        let (has_labels, width) = (self.targets.target.is_some(), self.targets.width());
        let out = "leave it out of the edge features";
        let features = self.features.iter().map(|column| (column.position, out.to_string()));
        let mut leaks = LeakSearch::of_table(table, features, &self.targets, self.time);
        if times.is_some() || weights.is_some() || !placed.is_empty() || has_labels {
            table.scan(&vec![true; table.columns.len()], faults, |batch, faults| {
                for row in (0..batch.rows).filter(|&row| is_kept(batch.first + row as u64)) {
                    self.targets.read(table, batch, row, &mut info, faults);
                    if let (Some(times), Some(column)) = (&mut times, self.time) {
                        let time = times::read(column, table, batch, row, faults);
                        times.extend(&[time.unwrap_or(i64::MIN)])?;
                        report.missing_times += u64::from(time.is_none());
                        if time.is_none() && has_labels && info.last_has_label(width) {
                            untimed.add(|| batch.places.of(row));
                        }
                    }
                    if let Some(weights) = &mut weights {
                        weights.extend(&[self.weight_of(table, batch, row, faults)])?;
                    }
                }
                if let Some(leaks) = &mut leaks {
                    let rows = (0..batch.rows).filter(|&row| is_kept(batch.first + row as u64));
                    leaks.add(batch, &rows.collect::<Vec<_>>(), &info);
                }
                encoder.push(table, batch, faults, is_kept)
            })?;
        }
        report.labels.leaks = leaks.map(LeakSearch::finish).unwrap_or_default();
        let fix = "complete the times, or remove the labels of these rows";
        untimed.report(&table.name(), "with a label, but without a time", fix, faults);
        Ok(EdgeRows {
            time: times.map(Rows::finish).transpose()?,
            weight: weights.map(Rows::finish).transpose()?,
            features: encoder.finish()?,
            info,
        })
    }

    /// Record of the columns, of which `features` became features.
    fn encoding(&self, table: &Table, features: Vec<EncodedColumn>) -> EdgeEncoding {
        let (target, rule) = (self.targets.target.as_ref(), self.targets.rule.as_ref());
        EdgeEncoding {
            src: self.keys[0].clone(),
            dst: self.keys[1].clone(),
            time: self.time.map(|(c, unit)| (table.columns[c].clone(), unit)),
            weight: self.weight.map(|c| table.columns[c].clone()),
            keep_duplicates: self.keep_duplicates,
            foreign_key: Some(self.is_optional),
            target: target
                .map(|(_, planned)| TargetEncoding::new(self.targets.names.clone().into(), planned, rule)),
            features,
            formats: self.table.as_ref().map(Table::named_formats).unwrap_or_default(),
            nulls: self.table.as_ref().map(Table::named_nulls).unwrap_or_default(),
        }
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

/// Sources and destinations, row by row.
fn pairs(scratch: &Scratch, name: &str, src: &[NodeId], dst: &[NodeId]) -> Result<Buffer<NodeId>> {
    let mut rows = scratch.column(name)?;
    for (src, dst) in src.chunks(1 << 16).zip(dst.chunks(1 << 16)) {
        rows.extend(&src.iter().zip(dst).flat_map(|(&u, &v)| [u, v]).collect::<Vec<_>>())?;
    }
    rows.finish()
}
