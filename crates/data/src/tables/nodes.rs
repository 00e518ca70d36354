//! Node tables: keys, targets, splits and features.

use graphmill_core::{NodeId, Result};

use super::{
    column::Batch,
    encoding::EncodedColumn,
    faults::Faults,
    keys::{KeyColumns, NodeKeys},
    parts::{KeyPart, NodePart, TargetPart, TaskPart},
    plan::{ColumnLine, Decision, FeatureColumn, PlannedTarget, decide, decide_target, line, with_default},
    preprocessing::{NodeEncoding, TargetEncoding},
    profile::{Profile, Shape, canonical, parsed},
    report::NodeReport,
    rows::{self, Encoder},
    rule::{ColumnRule, Kind},
    schema::NodeTable,
    source::Table,
    split::{self, SplitRule},
    times::TimeUnit,
    value::is_missing_word,
};
use crate::external::{Scratch, SortedRecords};

/// Number of repeated keys that a report lists.
const EXAMPLES: usize = 3;

/// Node table with the roles of its columns.
pub(super) struct NodePlan<'a> {
    pub(super) spec: &'a NodeTable,
    /// Number of the node type, which names its files.
    index: usize,
    /// Table; `None` if the nodes are those that edges name.
    pub(super) table: Option<Table>,
    pub(super) profiles: Vec<Profile>,
    key: KeyColumns,
    features: Vec<FeatureColumn>,
    /// Encodings of another dataset, which are used instead of statistics.
    fixed: Option<Vec<EncodedColumn>>,
    target: Option<(usize, PlannedTarget)>,
    split: Option<SplitRule>,
    split_columns: Vec<usize>,
    split_unit: TimeUnit,
    /// Role of every column.
    pub(super) lines: Vec<ColumnLine>,
}

/// Rows of a node table after the first pass.
pub(super) struct NodeRead {
    pub(super) keys: NodeKeys,
    /// Target of every node.
    targets: Option<TargetPart>,
    split: [Vec<NodeId>; 3],
    pub(super) report: NodeReport,
}

impl<'a> NodePlan<'a> {
    /// Reads all values once and chooses the roles of the columns; faults are added to `faults`.
    pub(super) fn new(
        (index, spec): (usize, &'a NodeTable),
        table: Option<Table>,
        like: Option<&NodeEncoding>,
        faults: &mut Faults,
    ) -> Result<Self> {
        let profiles = table.as_ref().map_or(Ok(Vec::new()), |table| profile(table, faults))?;
        let mut plan = Self {
            spec,
            index,
            key: KeyColumns::new(&[], &profiles),
            table,
            profiles,
            features: Vec::new(),
            fixed: None,
            target: None,
            split: None,
            split_columns: Vec::new(),
            split_unit: TimeUnit::Integer,
            lines: Vec::new(),
        };
        if plan.table.is_some() {
            plan.assign_roles(like, faults);
        } else if spec.label.is_some() || spec.split.is_some() || !spec.columns.is_empty() {
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
        id.iter().for_each(|&c| roles[c] = Some("key".into()));
        self.key = KeyColumns::new(&id, &self.profiles);
        for foreign in &spec.foreign_keys {
            for c in foreign.column.list().iter().filter_map(|column| find(column, faults)) {
                roles[c] = Some(format!("edge to '{}'", foreign.to));
            }
        }
        let label = spec.label.as_ref().and_then(|column| find(column, faults));
        if let (Some(c), Some(column)) = (label, &spec.label) {
            let known = like.and_then(|like| like.target.as_ref());
            let target = match known {
                Some(TargetEncoding { classes: Some(names), of, .. }) => {
                    Some(PlannedTarget::Classes { names: names.clone(), of: *of })
                }
                Some(_) => Some(PlannedTarget::Values),
                None => decide_target(&name, column, &self.profiles[c], spec.task, faults),
            };
            roles[c] = target.as_ref().map(|target| match target {
                PlannedTarget::Classes { names, .. } => format!("label: {} classes", names.len()),
                PlannedTarget::Values => "target of a regression".into(),
            });
            self.target = target.map(|target| (c, target));
        }
        self.split = spec.split.as_ref().and_then(|text| {
            let rule: Result<SplitRule, _> = text.parse();
            faults.take(&name, rule.map_err(|e| e.to_string()))
        });
        if let Some(rule) = &self.split {
            self.split_columns = rule.columns().iter().filter_map(|column| find(column, faults)).collect();
            self.split_columns.iter().for_each(|&c| roles[c] = Some("split".into()));
            if let (SplitRule::Time(column, _), Some(&c)) = (rule, self.split_columns.first()) {
                match TimeUnit::of(&self.profiles[c]) {
                    Some(unit) => self.split_unit = unit,
                    None => faults.add(&name, format!("column '{column}': not every value is a date or a number, so it gives no order in time")),
                }
                // The time of a node is also a feature.
                roles[c] = None;
            }
        }
        for column in spec.ignore.iter().chain(spec.features.iter()).chain(spec.columns.keys()) {
            find(column, faults);
        }
        self.choose_features(like, roles, faults);
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
                self.lines.push(ColumnLine { column: column.clone(), becomes, features, missing });
            };
            if let Some(role) = &roles[c] {
                add(role.clone(), 0);
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
                        faults.add(&name, format!("column '{column}' is named as a feature, but is {why}; choose a kind (column {column}=category)"));
                    }
                    add(why, 0);
                }
                Decision::Encode(planned) => {
                    self.lines.push(line(column, &planned, missing));
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
        let Some(table) = &self.table else {
            return Ok(NodeRead { keys, targets: None, split: Default::default(), report });
        };
        let mut info = RowInfo::default();
        let mut key = String::new();
        let all = vec![true; table.columns.len()];
        let mut repeated_examples: Vec<String> = Vec::new();
        table.scan(&all, faults, |batch, faults| {
            for row in 0..batch.rows {
                let place = || batch.places.of(row);
                if !self.key.read(batch, row, &mut key) {
                    let columns = self.spec.id.list().join(", ");
                    faults.add(
                        &table.file(batch),
                        format!("{}: the key ({columns}) is missing; every row needs one", place()),
                    );
                    // The row keeps its number.
                    key = format!("\0{}", batch.first + row as u64);
                }
                let before = keys.rows.repeated.len();
                keys.push(&key)?;
                if keys.rows.repeated.len() > before && repeated_examples.len() < EXAMPLES {
                    repeated_examples.push(format!("{} ({})", super::keys::shown(&key), place()));
                }
                self.read_info(table, batch, row, &mut info, faults);
            }
            Ok(())
        })?;
        keys.finish()?;
        info.keep(&keys);
        report.rows = keys.rows.rows;
        report.repeated_keys = keys.rows.repeated.len() as u64;
        report.repeated_examples = repeated_examples;
        let (targets, split) = self.divide(info, seed, &mut report, faults);
        Ok(NodeRead { keys, targets, split, report })
    }

    /// Reads the target and the part of the split of a row.
    fn read_info(&self, table: &Table, batch: &Batch, row: usize, info: &mut RowInfo, faults: &mut Faults) {
        let mut list = Vec::new();
        let mut fault = |c: usize, why: String| {
            let column = &table.columns[c];
            faults.add(&table.file(batch), format!("{}: column '{column}': {why}", batch.places.of(row)));
        };
        match &self.target {
            None => {}
            Some((c, PlannedTarget::Classes { names, of })) => {
                let value = canonical(batch.columns[*c].get(row), *of);
                let class = value.as_ref().and_then(|value| names.iter().position(|name| name == value));
                if let (Some(value), None) = (&value, class) {
                    fault(*c, format!("'{value}' is not one of the classes {}", names.join(", ")));
                }
                info.class.push(class.map_or(-1, |class| class as i32));
            }
            Some((c, PlannedTarget::Values)) => {
                let cell = batch.columns[*c].get(row);
                let value = match parsed(cell, &mut list) {
                    super::column::Cell::Int(x) => x as f32,
                    super::column::Cell::Float(x) => x as f32,
                    super::column::Cell::Missing => f32::NAN,
                    super::column::Cell::Text(text) if is_missing_word(text.trim()) => f32::NAN,
                    _ => {
                        fault(*c, format!("'{}' is not a number", cell.text()));
                        f32::NAN
                    }
                };
                info.value.push(value);
            }
        }
        let part = |parts: &[usize]| parts.first().map_or(3, |&part| part as u8);
        match (&self.split, &self.split_columns[..]) {
            (Some(SplitRule::Column(_)), &[c]) => {
                let value = canonical(batch.columns[c].get(row), Shape::Number).unwrap_or_default();
                let found = split::part_of(value.trim());
                if found.is_none() && !value.trim().is_empty() {
                    fault(c, format!("'{value}' is not train, valid or test (or 0, 1, 2)"));
                }
                info.part.push(found.map_or(3, |part| part as u8));
            }
            (Some(SplitRule::Masks(_)), columns) => {
                let mut set = Vec::new();
                for (p, &c) in columns.iter().enumerate() {
                    let cell = batch.columns[c].get(row);
                    match parsed(cell, &mut list) {
                        super::column::Cell::Bool(true) | super::column::Cell::Int(1) => set.push(p),
                        super::column::Cell::Bool(false)
                        | super::column::Cell::Int(0)
                        | super::column::Cell::Missing => {}
                        _ => fault(c, format!("'{}' is not a truth value", cell.text())),
                    }
                }
                if set.len() > 1 {
                    fault(columns[0], "the row is in several parts of the split".into());
                }
                info.part.push(part(&set));
            }
            (Some(SplitRule::Time(..)), &[c]) => {
                match self.split_unit.read(batch.columns[c].get(row), &mut list) {
                    Ok(time) => info.time.push(time),
                    Err(why) => {
                        fault(c, why);
                        info.time.push(None);
                    }
                }
            }
            _ => {}
        }
    }

    /// Divides the labelled nodes by the rule of the split.
    fn divide(
        &self,
        info: RowInfo,
        seed: u64,
        report: &mut NodeReport,
        faults: &mut Faults,
    ) -> (Option<TargetPart>, [Vec<NodeId>; 3]) {
        let mut parts: [Vec<NodeId>; 3] = Default::default();
        let count = info.class.len().max(info.value.len());
        let is_labelled =
            |v: usize| info.class.get(v).map_or_else(|| !info.value[v].is_nan(), |&class| class >= 0);
        let Some((_, planned)) = &self.target else {
            if self.split.is_some() {
                faults.add(
                    &format!("nodes '{}'", self.spec.kind),
                    "a split without a label; name the column of the label",
                );
            }
            return (None, parts);
        };
        let labelled: Vec<NodeId> = (0..count).filter(|&v| is_labelled(v)).map(|v| v as NodeId).collect();
        report.missing_labels = (count - labelled.len()) as u64;
        let rule = self.split.clone().unwrap_or(SplitRule::Random(split::DEFAULT));
        match &rule {
            SplitRule::Random(shares) => split::random(&labelled, *shares, seed, &mut parts),
            SplitRule::Stratified(shares) => match planned {
                PlannedTarget::Classes { names, .. } => {
                    for class in 0..names.len() as i32 {
                        let of_class: Vec<NodeId> =
                            labelled.iter().copied().filter(|&v| info.class[v as usize] == class).collect();
                        split::random(&of_class, *shares, seed, &mut parts);
                    }
                }
                PlannedTarget::Values => faults.add(
                    &format!("nodes '{}'", self.spec.kind),
                    "a stratified split needs classes, but the target is a number; choose random:60,20,20",
                ),
            },
            SplitRule::Time(_, shares) => {
                let dated =
                    labelled.iter().filter_map(|&v| Some((info.time.get(v as usize).copied().flatten()?, v)));
                let dated: Vec<_> = dated.collect();
                report.outside_split = (labelled.len() - dated.len()) as u64;
                split::by_time(dated, *shares, &mut parts);
            }
            SplitRule::Column(_) | SplitRule::Masks(_) => {
                for (v, &part) in info.part.iter().enumerate() {
                    match parts.get_mut(part as usize) {
                        Some(part) if is_labelled(v) => part.push(v as NodeId),
                        Some(_) => report.split_without_label += 1,
                        None => report.outside_split += u64::from(is_labelled(v)),
                    }
                }
            }
        }
        parts.iter_mut().for_each(|part| part.sort_unstable());
        report.split = parts.each_ref().map(|part| part.len() as u64);
        report.split_rule = self.spec.split.clone().unwrap_or_else(|| "random:60,20,20 (the default)".into());
        let targets = match planned {
            PlannedTarget::Classes { names, .. } => TargetPart::Classes(info.class, names.clone()),
            PlannedTarget::Values => TargetPart::Values(info.value),
        };
        (Some(targets), parts)
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
        let mut part_features = None;
        let mut encoding = NodeEncoding { key: self.spec.id.list(), ..NodeEncoding::default() };
        if let Some(table) = &self.table {
            let columns = match &self.fixed {
                Some(fixed) => fixed.clone(),
                None => {
                    let train = &read.split[0];
                    let is_used = |row: u64| {
                        let id = keys.rows.id(row);
                        id.is_some_and(|id| train.is_empty() || train.binary_search(&id).is_ok())
                    };
                    rows::fit(table, &self.features, is_used, faults)?
                }
            };
            let placed: Vec<(usize, EncodedColumn)> = columns
                .iter()
                .filter_map(|column| Some((table.position(&column.column).ok()?, column.clone())))
                .collect();
            let mut encoder = Encoder::new(scratch, &format!("features-{}", self.index), &placed)?;
            let mut key = String::new();
            table.scan(&vec![true; table.columns.len()], faults, |batch, faults| {
                let is_used = |row: u64| keys.rows.id(row).is_some();
                for row in (0..batch.rows).filter(|&row| is_used(batch.first + row as u64)) {
                    self.key.read(batch, row, &mut key);
                    writer.push(&key)?;
                }
                encoder.push(table, batch, faults, is_used)
            })?;
            for _ in 0..keys.added {
                encoder.push_missing()?;
            }
            read.report.unknown_values =
                encoder.unknown_values().map(|(column, count)| (column.to_string(), count)).collect();
            part_features = encoder.finish()?;
            encoding.features = columns;
        }
        if let Some(added) = added {
            super::keys::distinct(added, |key| writer.push(&String::from_utf8_lossy(key)))?;
        }
        let count = keys.count() as usize;
        read.report.nodes = count as u64;
        read.report.added = keys.added;
        if let (Some((c, planned)), Some(table)) = (&self.target, &self.table) {
            let (classes, of) = match planned {
                PlannedTarget::Classes { names, of } => (Some(names.clone()), *of),
                PlannedTarget::Values => (None, Shape::Number),
            };
            encoding.target = Some(TargetEncoding { column: table.columns[*c].clone(), classes, of });
        }
        let task = read.targets.take().map(|mut targets| {
            match &mut targets {
                TargetPart::Classes(class, _) => class.resize(count, -1),
                TargetPart::Values(values) => values.resize(count, f32::NAN),
            }
            TaskPart {
                name: self.spec.label.clone().unwrap_or_default(),
                on: kind.clone(),
                targets,
                split: std::mem::take(&mut read.split),
            }
        });
        let part = NodePart { name: kind.clone(), count, features: part_features, keys: writer.finish()? };
        Ok((part, task, encoding))
    }
}

/// Profiles of all columns.
pub(super) fn profile(table: &Table, faults: &mut Faults) -> Result<Vec<Profile>> {
    let mut profiles: Vec<Profile> = table.columns.iter().map(|_| Profile::new()).collect();
    table.scan(&vec![true; table.columns.len()], faults, |batch, _| {
        let file = table.file(batch);
        profiles.iter_mut().enumerate().for_each(|(c, profile)| profile.add(batch, c, &file));
        Ok(())
    })?;
    Ok(profiles)
}

/// Targets and parts of the split of the rows.
#[derive(Default)]
struct RowInfo {
    class: Vec<i32>,
    value: Vec<f32>,
    part: Vec<u8>,
    time: Vec<Option<i64>>,
}

impl RowInfo {
    /// Keeps the rows that are nodes.
    fn keep(&mut self, keys: &NodeKeys) {
        fn keep<T>(values: &mut Vec<T>, keys: &NodeKeys) {
            let mut row = 0;
            values.retain(|_| {
                row += 1;
                keys.rows.id(row - 1).is_some()
            });
        }
        if keys.rows.repeated.is_empty() {
            return;
        }
        keep(&mut self.class, keys);
        keep(&mut self.value, keys);
        keep(&mut self.part, keys);
        keep(&mut self.time, keys);
    }
}

/// Writer of the keys of a node type.
enum KeyWriter {
    Integers(crate::external::Rows<i64>),
    Texts(crate::external::Rows<u64>, crate::external::Rows<u8>, u64),
}

impl KeyWriter {
    fn new(scratch: &Scratch, index: usize, integers: bool) -> Result<Self> {
        if integers {
            return Ok(Self::Integers(scratch.column(&format!("key-numbers-{index}"))?));
        }
        let mut starts = scratch.column(&format!("key-starts-{index}"))?;
        starts.extend(&[0])?;
        Ok(Self::Texts(starts, scratch.column(&format!("key-bytes-{index}"))?, 0))
    }

    fn push(&mut self, key: &str) -> Result<()> {
        match self {
            Self::Integers(numbers) => numbers.extend(&[key.parse().unwrap_or_default()]),
            Self::Texts(starts, bytes, end) => {
                *end += key.len() as u64;
                bytes.extend(key.as_bytes())?;
                starts.extend(&[*end])
            }
        }
    }

    fn finish(self) -> Result<KeyPart> {
        Ok(match self {
            Self::Integers(numbers) => KeyPart::Integers(numbers.finish()?),
            Self::Texts(starts, bytes, _) => KeyPart::Texts(starts.finish()?, bytes.finish()?),
        })
    }
}
