//! Node tables: keys, targets, splits and features.

use graphmill_core::{NodeId, Result, memory};

use super::{
    changed::{Changed, ChangedColumns, ChangedTargets, first_rows},
    column_formats::{ColumnFormats, profile},
    encoding::EncodedColumn,
    faults::{Faults, FaultyRows},
    kept::Kept,
    key_writer::KeyWriter,
    keys::{KeyColumns, NodeKeys},
    leaks::LeakSearch,
    parts::{NodePart, TargetPart, TaskPart},
    plan::{ColumnLine, Decision, FeatureColumn, decide, line, with_default},
    preprocessing::{NodeEncoding, TargetEncoding},
    profile::Profile,
    report::NodeReport,
    rows::{self, Encoder, each_replaced},
    rule::{ColumnRule, Kind},
    schema::NodeTable,
    source::Table,
    targets::{RowInfo, TargetPlan},
    times::{self, TimeColumn, TimeUnit},
};
use crate::{
    external::{Rows, Scratch, SortedRecords},
    typed::{NodeData, TaskOn},
};

/// Role of a column of the key.
const KEY: &str = "key";
/// Number of repeated keys that a report lists.
const EXAMPLES: usize = 3;
/// Times that are copied at a time.
const CHUNK_LEN: usize = 1 << 16;

/// Node table with the roles of its columns.
pub(super) struct NodePlan<'a> {
    pub(super) spec: &'a NodeTable,
    /// Number of the node type, which names its files.
    index: usize,
    /// Nodes that precede those of the table.
    before: Option<&'a NodeData>,
    /// Treatment of rows with their keys.
    changed: Changed,
    /// Table; `None` if the nodes are those that edges name.
    pub(super) table: Option<Table>,
    pub(super) profiles: Vec<Profile>,
    key: KeyColumns,
    features: Vec<FeatureColumn>,
    /// Encodings of another dataset, which are used instead of statistics.
    fixed: Option<Vec<EncodedColumn>>,
    /// Target of the other dataset, whose names of classes stay those of a table without labels.
    known_target: Option<TargetEncoding>,
    targets: TargetPlan,
    /// Column of the time, and its unit.
    pub(super) time: Option<(usize, TimeUnit)>,
    /// Role of every column.
    pub(super) lines: Vec<ColumnLine>,
}

/// Rows of a node table after the first pass.
pub(super) struct NodeRead {
    pub(super) keys: NodeKeys,
    /// Target of every node.
    pub(super) targets: Option<TargetPart>,
    pub(super) split: [Vec<NodeId>; 3],
    /// Targets of nodes of the dataset that rows change.
    pub(super) changed: Option<ChangedTargets>,
    pub(super) report: NodeReport,
}

impl<'a> NodePlan<'a> {
    /// Reads all values once and chooses the roles of the columns; faults are added to `faults`.
    pub(super) fn new(
        (index, spec): (usize, &'a NodeTable),
        mut table: Option<Table>,
        (like, before, changed): (Option<&NodeEncoding>, Option<&'a NodeData>, Changed),
        kept: &Kept,
        faults: &mut Faults,
    ) -> Result<Self> {
        let name = format!("types-of-nodes-{index}");
        let read = |table: &mut Table| {
            let formats = ColumnFormats::of_nodes(spec, like, table);
            profile(table, kept, &name, formats, faults)
        };
        let profiles = table.as_mut().map_or(Ok(Vec::new()), read)?;
        let mut plan = Self {
            spec,
            index,
            before,
            changed,
            key: KeyColumns::new(&[], &profiles),
            table,
            profiles,
            features: Vec::new(),
            fixed: like.filter(|_| before.is_some()).map(|like| like.features.clone()),
            known_target: like.and_then(|like| like.target.clone()),
            targets: TargetPlan::new(
                format!("nodes '{}'", spec.kind),
                &spec.label,
                spec.task,
                spec.split.as_ref(),
            )
            .or_none(before.is_some()),
            time: None,
            lines: Vec::new(),
        };
        if plan.table.is_some() {
            plan.assign_roles(like, faults);
        } else if !spec.label.is_empty()
            || spec.split.is_some()
            || spec.time.is_some()
            || !spec.columns.is_empty()
            || !spec.formats.is_empty()
            || !spec.nulls.is_empty()
            || !spec.features.is_empty()
            || !spec.ignore.is_empty()
        {
            faults
                .add(&format!("nodes '{}'", spec.kind), "without files there are no columns; name the files");
        }
        Ok(plan)
    }

    fn assign_roles(&mut self, like: Option<&NodeEncoding>, faults: &mut Faults) {
        let Some(table) = &self.table else { return };
        let name = table.name();
        let spec = self.spec;
        let mut roles: Vec<Option<String>> = vec![None; table.columns.len()];
        let find = |column: &str, faults: &mut Faults| faults.take(&name, table.position(column));
        let id: Vec<usize> = spec.id.list().iter().filter_map(|column| find(column, faults)).collect();
        id.iter().for_each(|&c| roles[c] = Some(KEY.into()));
        self.key = KeyColumns::new(&id, &self.profiles);
        for foreign in &spec.foreign_keys {
            for c in foreign.column.list().iter().filter_map(|column| find(column, faults)) {
                roles[c] = Some(format!("edge to '{}'", foreign.to));
            }
        }
        // A missing column is a fault of the edges.
        let times_of_edges = spec.foreign_keys.iter().filter_map(|foreign| foreign.time.as_ref());
        let of_edges = times_of_edges.filter(|column| !spec.features.contains(column));
        for c in of_edges.filter_map(|column| table.position(column).ok()) {
            roles[c] = Some("time of edges".into());
        }
        let known = like.and_then(|like| like.target.as_ref());
        self.targets.assign(table, &self.profiles, (known, None), &mut roles, faults);
        let known = like.and_then(|like| like.time.as_ref()).map(|(_, unit)| *unit);
        self.time = spec.time.as_ref().and_then(|column| {
            let found = times::column(column, table, &self.profiles, known, faults)?;
            // It may also be a feature.
            if !spec.features.contains(column) {
                roles[found.0] = Some(found.1.describe().into());
            }
            Some(found)
        });
        for column in spec.ignore.iter().chain(spec.features.iter()) {
            find(column, faults);
        }
        for column in spec.columns.keys() {
            if let Some(role) = find(column, faults).and_then(|c| roles[c].as_ref()) {
                let message = format!(
                    "column '{column}': it is no feature ({role}), so its rule has no effect; leave the \
                     rule out"
                );
                faults.add(&name, message);
            }
        }
        self.choose_features(like, roles, faults);
    }

    /// Column of the time, if there is one.
    pub(super) fn time_column(&mut self) -> Option<TimeColumn<'_>> {
        TimeColumn::new(self.table.as_ref()?, &self.profiles, self.time.as_mut()?, &mut self.lines)
    }

    /// Chooses the encodings of the columns without another role.
    fn choose_features(
        &mut self,
        like: Option<&NodeEncoding>,
        roles: Vec<Option<String>>,
        faults: &mut Faults,
    ) {
        let Some(table) = &self.table else { return };
        let (name, spec) = (table.name(), self.spec);
        if let Some(like) = like {
            let missing = like.features.iter().filter(|known| table.position(&known.column).is_err());
            missing.for_each(|known| {
                faults.add(
                    &name,
                    format!("the column '{}' of the other dataset is missing; add it", known.column),
                );
            });
            self.fixed = Some(like.features.clone());
        }
        for (c, column) in table.columns.iter().enumerate() {
            let profile = &self.profiles[c];
            let missing = profile.shape().map_or(profile.rows, |(shape, _)| profile.missing_as(shape));
            let mut add = |becomes: String, features: usize| {
                let line = ColumnLine::new(column, becomes, missing, table.format(c));
                self.lines.push(ColumnLine { features, ..line });
            };
            if let Some(role) = &roles[c] {
                let lacks_keys = missing > 0 && role == KEY;
                add(if lacks_keys { format!("{KEY}, which every row needs") } else { role.clone() }, 0);
                continue;
            }
            if let Some(like) = like {
                match like.features.iter().find(|known| known.column == *column) {
                    Some(known) => add("as in the other dataset".into(), known.encoding.width()),
                    None => add("ignored: not a column of the other dataset".into(), 0),
                }
                continue;
            }
            if spec.ignore.contains(column) || (!spec.features.is_empty() && !spec.features.contains(column))
            {
                add("ignored, as the options say".into(), 0);
                continue;
            }
            let rule = with_default(spec.columns.get(column), spec.missing);
            match decide(&name, column, profile, &rule, spec.category_limit, faults) {
                Decision::Ignore(why) => {
                    if spec.features.contains(column) {
                        faults.add(
                            &name,
                            format!(
                                "column '{column}' is named as a feature, but is {why}; choose a kind \
                                 (column {column}=category)"
                            ),
                        );
                    }
                    add(why, 0);
                }
                Decision::Encode(planned, note) => {
                    let format = table.format(c);
                    self.lines.push(ColumnLine { format, note, ..line(column, &planned, missing) });
                    self.features.push(FeatureColumn { position: c, planned });
                }
            }
        }
    }

    /// Rule of every column that becomes features or is ignored.
    pub(super) fn rules(&self) -> Vec<(String, ColumnRule)> {
        let Some(table) = &self.table else { return Vec::new() };
        let name = |column: &FeatureColumn| table.columns[column.position].clone();
        let encoded = self.features.iter().map(|column| (name(column), column.planned.rule()));
        let ignore = ColumnRule { kind: Some(Kind::Ignore), ..ColumnRule::default() };
        let is_ignored = |line: &&ColumnLine| line.becomes.starts_with("ignored");
        let ignored = self.lines.iter().filter(is_ignored).map(|line| (line.column.clone(), ignore.clone()));
        encoded.chain(ignored).collect()
    }

    /// Reads keys, targets and the columns of the split.
    pub(super) fn read(
        &self,
        scratch: &Scratch,
        budget: u64,
        seed: u64,
        faults: &mut Faults,
    ) -> Result<NodeRead> {
        let mut keys = NodeKeys::new(scratch, &self.index.to_string(), budget);
        let mut report =
            NodeReport { kind: self.spec.kind.clone(), columns: self.lines.clone(), ..NodeReport::default() };
        match self.before.and_then(|nodes| nodes.keys.as_ref()) {
            Some(known) if self.spec.is_numbered() => keys.follow_numbered(known.len() as u64),
            Some(known) => keys.follow(known)?,
            None => {}
        }
        let Some(table) = &self.table else {
            keys.finish()?;
            return Ok(NodeRead { keys, targets: None, split: Default::default(), changed: None, report });
        };
        let mut info = RowInfo::default();
        let mut key = String::new();
        let all = vec![true; table.columns.len()];
        let mut repeated_examples: Vec<String> = Vec::new();
        // which rows are left out is known once all keys are
        let leaves_out = self.changed == Changed::Keep;
        let mut of_labels = Faults::default();
        let mut leaks = LeakSearch::of_table(table, self.examined(table, ""), &self.targets, self.time);
        table.scan(&all, faults, |batch, faults| {
            for row in 0..batch.rows {
                if self.spec.is_numbered() {
                    keys.push_numbered()?;
                    self.targets.read(table, batch, row, &mut info, faults);
                    continue;
                }
                let place = || batch.places.of(row);
                if !self.key.read(batch, row, &mut key) {
                    let columns = self.spec.id.list().join(", ");
                    faults.add(
                        &table.file(batch),
                        format!("{}: the key ({columns}) is missing; fill it in, or remove the row", place()),
                    );
                    // The row keeps its number.
                    key = format!("\0{}", batch.first + row as u64);
                }
                let count = |keys: &NodeKeys| keys.rows.repeated.len() - keys.known.len();
                let before = count(&keys);
                keys.push(&key)?;
                if count(&keys) > before && repeated_examples.len() < EXAMPLES {
                    repeated_examples.push(format!("{} ({})", super::keys::shown(&key), place()));
                }
                let faults = if leaves_out { &mut of_labels } else { &mut *faults };
                self.targets.read(table, batch, row, &mut info, faults);
            }
            let rows: Vec<usize> = (0..batch.rows).collect();
            leaks.iter_mut().for_each(|leaks| leaks.add(batch, &rows, &info));
            Ok(())
        })?;
        report.labels.leaks = leaks.map(LeakSearch::finish).unwrap_or_default();
        keys.finish()?;
        if of_labels.total() > 0 {
            self.targets.check_new(table, &keys, faults)?;
        }
        let mut other = keys.known.len() as u64;
        match self.changed {
            Changed::Fail => self.refuse_known(table, &keys, faults)?,
            Changed::Keep => report.unchanged = other,
            Changed::Replace => {
                keys.rows.changed = first_rows(&keys.known);
                other = keys.rows.changed.len() as u64;
                report.changed = other;
            }
        }
        let changed = self.targets.changed(&info, &keys.rows, seed);
        info.keep(&keys, self.targets.width());
        report.rows = keys.rows.rows;
        report.repeated_keys = keys.rows.repeated.len() as u64 - other;
        report.repeated_examples = repeated_examples;
        let (targets, split) = self.targets.divide(info, seed, &mut report.labels, faults);
        Ok(NodeRead { keys, targets, split, changed, report })
    }

    /// Columns that may determine a label, with the option that leaves each out ` of nodes 'user'`:
    /// none if another dataset chose them.
    pub(super) fn examined(&self, table: &Table, of: &str) -> Vec<(usize, String)> {
        let feature = |c: usize| (c, format!("leave it out{of} (column {}=ignore)", table.columns[c]));
        let mut examined: Vec<_> = self.features.iter().map(|column| feature(column.position)).collect();
        let foreign = self.spec.foreign_keys.iter().flat_map(|foreign| foreign.column.list());
        let out = format!("leave the foreign key out{of}, and ignore its column");
        examined.extend(foreign.filter_map(|name| Some((table.position(&name).ok()?, out.clone()))));
        if self.fixed.is_some() { Vec::new() } else { examined }
    }

    /// Adds a fault for rows with a key of the dataset that the table extends.
    fn refuse_known(&self, table: &Table, keys: &NodeKeys, faults: &mut Faults) -> Result<()> {
        let (mut rows, mut key) = (FaultyRows::default(), String::new());
        if keys.known.is_empty() {
            return Ok(());
        }
        table.scan(&vec![true; table.columns.len()], &mut Faults::default(), |batch, _| {
            for row in (0..batch.rows).filter(|row| keys.is_known(batch.first + *row as u64)) {
                self.key.read(batch, row, &mut key);
                rows.add(|| format!("{} '{}'", batch.places.of(row), super::keys::shown(&key)));
            }
            Ok(())
        })?;
        let fix = "remove these rows, or choose changed = replace (replace the columns of these nodes) or \
                   keep (keep the nodes as they are)";
        rows.report(&table.name(), "with a key that the dataset has", fix, faults);
        Ok(())
    }

    /// Encodings of the features, fitted to the training rows unless an earlier import fixed them.
    fn columns(&self, read: &NodeRead, faults: &mut Faults) -> Result<Vec<EncodedColumn>> {
        let (fixed, table) = (&self.fixed, &self.table);
        let (None, Some(table)) = (fixed, table) else { return Ok(fixed.clone().unwrap_or_default()) };
        let train = &read.split[0];
        let is_used = |row: u64| {
            let id = read.keys.rows.id(row);
            id.is_some_and(|id| train.is_empty() || train.binary_search(&id).is_ok())
        };
        rows::fit(table, &self.features, is_used, faults)
    }

    /// The encodings with the positions of their columns.
    fn placed(&self, columns: &[EncodedColumn]) -> Vec<(usize, EncodedColumn)> {
        let place = |column: &EncodedColumn| match &self.table {
            Some(table) => Some((table.position(&column.column).ok()?, column.clone())),
            // only nodes without values are encoded
            None => Some((0, column.clone())),
        };
        columns.iter().filter_map(place).collect()
    }

    /// Encodes the features and writes the keys; `added` are the keys that only edges name.
    pub(super) fn finish(
        &self,
        read: &mut NodeRead,
        added: Option<&SortedRecords>,
        scratch: &Scratch,
        faults: &mut Faults,
    ) -> Result<(NodePart, Option<TaskPart>, NodeEncoding)> {
        let kind = &self.spec.kind;
        let keys = &read.keys;
        let mut writer = KeyWriter::new(scratch, self.index, keys.integers)?;
        let target = self.known_target.clone();
        let (key, is_numbered) = (self.spec.id.list(), self.spec.is_numbered());
        let mut encoding = NodeEncoding { key, is_numbered, target, ..NodeEncoding::default() };
        let columns = self.columns(read, faults)?;
        let placed = self.placed(&columns);
        let mut encoder = Encoder::new(scratch, &format!("features-{}", self.index), &placed)?;
        let times_before = self.before.and_then(|nodes| nodes.time.as_ref());
        let mut times: Option<Rows<i64>> = match self.time.is_some() || times_before.is_some() {
            true => Some(scratch.column(&format!("node-time-{}", self.index))?),
            false => None,
        };
        if let Some(before) = self.before {
            before.keys.iter().try_for_each(|keys| writer.push_all(keys))?;
            let changed = self.read_changed(keys, &placed, scratch, faults)?;
            encoder.follow(before.features.as_ref(), (&changed.nodes, changed.features.as_ref()))?;
            encoder.add_unknown(&changed.unknown);
            if let (Some(times), Some(before)) = (&mut times, times_before) {
                let extend = |chunk: &[i64]| times.extend(chunk);
                each_replaced((before, 1, CHUNK_LEN), (&changed.nodes, &changed.times), extend)?;
            }
        }
        if let Some(table) = &self.table {
            let mut key = String::new();
            table.scan(&vec![true; table.columns.len()], faults, |batch, faults| {
                let is_used = |row: u64| keys.rows.id(row).is_some();
                for row in (0..batch.rows).filter(|&row| is_used(batch.first + row as u64)) {
                    if self.spec.is_numbered() {
                        key = (keys.rows.base + batch.first + row as u64).to_string();
                    } else {
                        self.key.read(batch, row, &mut key);
                    }
                    writer.push(&key)?;
                    if let (Some(times), Some(column)) = (&mut times, self.time) {
                        let time = times::read(column, table, batch, row, faults);
                        read.report.missing_times += u64::from(time.is_none());
                        times.extend(&[time.unwrap_or(i64::MIN)])?;
                    }
                }
                encoder.push(table, batch, faults, is_used)
            })?;
            encoding.time = self.time.map(|(c, unit)| (table.columns[c].clone(), unit));
            (encoding.formats, encoding.nulls) = (table.named_formats(), table.named_nulls());
        }
        for _ in 0..keys.added {
            encoder.push_missing()?;
            times.as_mut().map_or(Ok(()), |times| times.extend(&[i64::MIN]))?;
        }
        read.report.unknown_values =
            encoder.unknown_values().map(|(column, count)| (column.to_string(), count)).collect();
        let features = encoder.finish()?;
        encoding.features = columns;
        if let Some(added) = added {
            super::keys::distinct(added, |key| writer.push(&String::from_utf8_lossy(key)))?;
        }
        let count = keys.count() as usize;
        read.report.nodes = count as u64;
        read.report.added = keys.added;
        if let Some((_, planned)) = &self.targets.target {
            let rule = self.targets.rule.as_ref();
            encoding.target = Some(TargetEncoding::new(self.spec.label.clone(), planned, rule));
        }
        let rows = count - keys.rows.base as usize;
        let split = std::mem::take(&mut read.split);
        let task = read.targets.take().map(|targets| self.task(targets, rows, split)).transpose()?;
        let time = times.map(Rows::finish).transpose()?;
        let part = NodePart { name: kind.clone(), count, time, features, keys: writer.finish()? };
        Ok((part, task, encoding))
    }

    /// Columns of the rows that change nodes of the dataset.
    fn read_changed(
        &self,
        keys: &NodeKeys,
        placed: &[(usize, EncodedColumn)],
        scratch: &Scratch,
        faults: &mut Faults,
    ) -> Result<ChangedColumns> {
        let Some(table) = &self.table else { return Ok(ChangedColumns::default()) };
        let name = format!("changed-features-{}", self.index);
        ChangedColumns::read(table, &keys.rows, placed, self.time, (scratch, &name), faults)
    }

    /// Task of the `count` nodes of this import, whose targets are those of the first of them.
    fn task(&self, mut targets: TargetPart, count: usize, split: [Vec<NodeId>; 3]) -> Result<TaskPart> {
        match &mut targets {
            TargetPart::Classes(class, columns) => memory::resize(class, count * columns.len(), -1)?,
            TargetPart::Values(values, names) => memory::resize(values, count * names.len(), f32::NAN)?,
            TargetPart::None { .. } => {}
        }
        Ok(TaskPart {
            name: self.targets.names.join("-"),
            on: TaskOn::Nodes(self.spec.kind.clone()),
            seeds: None,
            time: None,
            targets,
            split,
        })
    }
}
