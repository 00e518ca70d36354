//! Targets of a table, and the division of its labelled rows.

use graphmill_core::NodeId;

use super::{
    changed::ChangedTargets,
    column::{Batch, Cell},
    faults::Faults,
    keys::NodeKeys,
    node_rows::NodeRows,
    parts::{NamedClasses, TargetPart},
    plan::{PlannedClasses, PlannedTarget, decide_target, kind_of_several},
    preprocessing::TargetEncoding,
    profile::{Profile, Shape, canonical, parsed},
    report::LabelReport,
    schema::{Names, Target},
    source::Table,
    split::{self, SplitRule},
    times::TimeUnit,
    value::is_missing_word,
};

/// Target of a table and rule of its split.
pub(super) struct TargetPlan {
    /// Table in messages: `nodes 'user'`.
    place: String,
    /// Columns of the target.
    pub(super) target: Option<(Vec<usize>, PlannedTarget)>,
    /// Names of these columns.
    pub(super) names: Vec<String>,
    /// Kind of the target, if it is given.
    task: Option<Target>,
    split: Option<SplitRule>,
    /// Part of the split of the rows of each file, instead of a rule.
    files: Option<Vec<u8>>,
    /// Text of the rule; `None` for the default.
    pub(super) rule: Option<String>,
    /// Text of the default by time, if it divides the rows.
    default: Option<String>,
    /// True if a table may lack all columns of the target: its rows have no labels then.
    is_optional: bool,
    /// Columns that the rule reads.
    columns: Vec<usize>,
    /// Unit of the time by which rows are divided.
    unit: TimeUnit,
}

impl TargetPlan {
    /// Creates the plan of a table that is called `place` in messages: the columns of its label,
    /// the kind of the target and the rule of the split.
    pub(super) fn new(place: String, label: &Names, task: Option<Target>, split: Option<&String>) -> Self {
        Self {
            place,
            target: None,
            names: label.list(),
            task,
            split: None,
            files: None,
            rule: split.cloned(),
            default: None,
            is_optional: false,
            columns: Vec::new(),
            unit: TimeUnit::Integer,
        }
    }

    /// The same plan, whose table may lack all columns of the target if `optional`.
    #[must_use]
    pub(super) fn or_none(self, optional: bool) -> Self {
        Self { is_optional: optional, ..self }
    }

    /// The same plan, whose rows are in the part of the split of their file, if `parts` are given.
    #[must_use]
    pub(super) fn by_files(self, parts: Option<Vec<u8>>) -> Self {
        let rule = parts.as_ref().map(|_| split::FILES.to_string()).or(self.rule);
        Self { files: parts, rule, ..self }
    }

    /// Finds the columns of target and split, and writes their roles to `roles`. The target is
    /// that of `known`, if there is one. Rows with labels are divided by the column `time` if no
    /// rule says otherwise.
    pub(super) fn assign(
        &mut self,
        table: &Table,
        profiles: &[Profile],
        (known, time): (Option<&TargetEncoding>, Option<usize>),
        roles: &mut [Option<String>],
        faults: &mut Faults,
    ) {
        let name = table.name();
        if self.is_optional && self.names.iter().all(|column| table.position(column).is_err()) {
            self.names.clear();
            return;
        }
        let find = |column: &str, faults: &mut Faults| faults.take(&name, table.position(column));
        let found: Vec<usize> = self.names.iter().filter_map(|column| find(column, faults)).collect();
        if found.len() == self.names.len() {
            let target = self.choose(&name, &found, profiles, known, faults);
            for (k, &c) in found.iter().enumerate() {
                let of_class = matches!(target, Some(PlannedTarget::Classes(_))) && known.is_none();
                let mixed = profiles[c].mixed(&table.columns[c]).filter(|_| of_class);
                let mixed = mixed.map(|(what, declare)| format!("; {what}; {declare}")).unwrap_or_default();
                roles[c] = target.as_ref().map(|target| target.describe(k) + &mixed);
            }
            self.target = target.map(|target| (found, target));
        }
        if self.files.is_some() {
            return;
        }
        self.split = match (&self.rule, time) {
            (Some(text), _) => {
                let rule: Result<SplitRule, _> = text.parse();
                faults.take(&name, rule.map_err(|e| e.to_string()))
            }
            (None, Some(c)) if !self.names.is_empty() => {
                let column = &table.columns[c];
                self.default = Some(format!("time:{column}:60,20,20 (the default)"));
                Some(SplitRule::Time(column.clone(), split::DEFAULT))
            }
            (None, _) => None,
        };
        let Some(rule) = &self.split else { return };
        self.columns = rule.columns().iter().filter_map(|column| find(column, faults)).collect();
        let (SplitRule::Time(column, _), Some(&c)) = (rule, self.columns.first()) else {
            self.columns.iter().for_each(|&c| roles[c] = Some("split".into()));
            return;
        };
        // The time of a row may have another role, too.
        match TimeUnit::of(&profiles[c]) {
            Some(unit) => self.unit = unit,
            None => faults.add(
                &name,
                format!(
                    "column '{column}': not every value is a date or a number, so it gives no order in \
                     time; choose another column"
                ),
            ),
        }
    }

    /// Chooses the target of these columns. Several are values, or a class in each.
    fn choose(
        &self,
        table: &str,
        columns: &[usize],
        profiles: &[Profile],
        known: Option<&TargetEncoding>,
        faults: &mut Faults,
    ) -> Option<PlannedTarget> {
        match known {
            _ if columns.is_empty() => return None,
            Some(known) if known.reads(&self.names) => return Some(known.planned()),
            Some(known) => {
                let labels = known.column.list().join(", ");
                faults.add(table, format!("the labels of the other dataset are {labels}; name the same"));
                return None;
            }
            None => {}
        }
        let task = match (columns.len(), self.task) {
            (1, task) | (_, task @ Some(_)) => task,
            (_, None) => {
                let profiles: Vec<&Profile> = columns.iter().map(|&c| &profiles[c]).collect();
                Some(kind_of_several(table, &self.names, &profiles, faults)?)
            }
        };
        let decide = |(&c, name): (&usize, &String)| decide_target(table, name, &profiles[c], task, faults);
        let all: Option<Vec<PlannedTarget>> = columns.iter().zip(&self.names).map(decide).collect();
        PlannedTarget::joined(all?)
    }

    /// Reads the target and the part of the split of a row.
    pub(super) fn read(
        &self,
        table: &Table,
        batch: &Batch,
        row: usize,
        info: &mut RowInfo,
        faults: &mut Faults,
    ) {
        let mut list = Vec::new();
        let mut fault = |c: usize, why: String| {
            let column = &table.columns[c];
            faults.add(&table.file(batch), format!("{}: column '{column}': {why}", batch.places.of(row)));
        };
        match &self.target {
            None => {}
            Some((columns, PlannedTarget::Classes(planned))) => {
                for (&c, PlannedClasses { names, of }) in columns.iter().zip(planned) {
                    let value = canonical(batch.columns[c].get(row), *of);
                    let class = value.as_ref().and_then(|value| names.iter().position(|name| name == value));
                    if let (Some(value), None) = (&value, class) {
                        fault(c, format!("'{value}' is not one of the classes {}", names.join(", ")));
                    }
                    info.class.push(class.map_or(-1, |class| class as i32));
                }
            }
            Some((columns, PlannedTarget::Values)) => {
                for &c in columns {
                    let cell = batch.columns[c].get(row);
                    let value = match parsed(cell, &mut list) {
                        Cell::Int(x) => x as f32,
                        Cell::Float(x) => x as f32,
                        Cell::Missing => f32::NAN,
                        Cell::Text(text) if is_missing_word(text.trim()) => f32::NAN,
                        _ => {
                            fault(c, format!("'{}' is not a number", cell.text()));
                            f32::NAN
                        }
                    };
                    info.value.push(value);
                }
            }
        }
        if let Some(parts) = &self.files {
            return info.part.push(parts.get(batch.file).copied().unwrap_or(3));
        }
        let part = |parts: &[usize]| parts.first().map_or(3, |&part| part as u8);
        match (&self.split, &self.columns[..]) {
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
                        Cell::Bool(true) | Cell::Int(1) => set.push(p),
                        Cell::Bool(false) | Cell::Int(0) | Cell::Missing => {}
                        _ => fault(c, format!("'{}' is not a truth value", cell.text())),
                    }
                }
                if set.len() > 1 {
                    fault(columns[0], "the row is in several parts of the split".into());
                }
                info.part.push(part(&set));
            }
            (Some(SplitRule::Time(..)), &[c]) => match self.unit.read(batch.columns[c].get(row), &mut list) {
                Ok(time) => info.time.push(time),
                Err(why) => {
                    fault(c, why);
                    info.time.push(None);
                }
            },
            _ => {}
        }
    }

    /// Adds the faults of the rows that are not nodes of the dataset that the table extends.
    ///
    /// # Errors
    /// The table cannot be read.
    pub(super) fn check_new(
        &self,
        table: &Table,
        keys: &NodeKeys,
        faults: &mut Faults,
    ) -> graphmill_core::Result<()> {
        table.scan(&vec![true; table.columns.len()], &mut Faults::default(), |batch, _| {
            for row in (0..batch.rows).filter(|row| !keys.is_known(batch.first + *row as u64)) {
                self.read(table, batch, row, &mut RowInfo::default(), faults);
            }
            Ok(())
        })
    }

    /// Names of the labels with their numbers of classes, `None` for numbers.
    pub(super) fn labels(&self) -> Vec<(String, Option<usize>)> {
        let Some((_, planned)) = &self.target else { return Vec::new() };
        let classes = |k: usize| match planned {
            PlannedTarget::Classes(columns) => Some(columns[k].names.len()),
            PlannedTarget::Values => None,
        };
        self.names.iter().enumerate().map(|(k, name)| (name.clone(), classes(k))).collect()
    }

    /// Column of the time by which rows are divided.
    pub(super) fn split_time(&self) -> Option<usize> {
        matches!(self.split, Some(SplitRule::Time(..))).then(|| self.columns.first().copied()).flatten()
    }

    /// Number of classes or values of each row.
    pub(super) fn width(&self) -> usize {
        self.names.len().max(1)
    }

    /// Divides the labelled rows by the rule of the split. One of several classes or values is a
    /// label.
    pub(super) fn divide(
        &self,
        info: RowInfo,
        seed: u64,
        report: &mut LabelReport,
        faults: &mut Faults,
    ) -> (Option<TargetPart>, [Vec<NodeId>; 3]) {
        let mut parts: [Vec<NodeId>; 3] = Default::default();
        let width = self.width();
        let count = info.class.len().max(info.value.len()) / width;
        let is_labelled = |v: usize| {
            let of = v * width..(v + 1) * width;
            info.class.get(of.clone()).is_some_and(|row| row.iter().any(|&class| class >= 0))
                || info.value.get(of).is_some_and(|row| row.iter().any(|x| !x.is_nan()))
        };
        let Some((_, planned)) = &self.target else {
            if self.split.is_some() {
                faults.add(&self.place, "a split without a label; name the column of the label");
            }
            return (None, parts);
        };
        if count > NodeId::MAX as usize {
            faults.add(
                &self.place,
                format!("{count} rows with labels: at most {} fit; divide them", NodeId::MAX),
            );
            return (None, parts);
        }
        let labelled: Vec<NodeId> = (0..count).filter(|&v| is_labelled(v)).map(|v| v as NodeId).collect();
        report.missing_labels = (count - labelled.len()) as u64;
        let rule = self.split.clone().unwrap_or(SplitRule::Random(split::DEFAULT));
        match &rule {
            _ if self.files.is_some() => by_part(&info.part, is_labelled, &mut parts, report),
            SplitRule::Random(shares) => split::random(&labelled, *shares, seed, &mut parts),
            SplitRule::Stratified(shares) => match planned {
                PlannedTarget::Classes(columns) if columns.len() > 1 => faults.add(
                    &self.place,
                    "a stratified split needs one column of classes, but there are several; choose \
                     random:60,20,20",
                ),
                PlannedTarget::Classes(columns) => {
                    for class in 0..columns[0].names.len() as i32 {
                        let of_class: Vec<NodeId> =
                            labelled.iter().copied().filter(|&v| info.class[v as usize] == class).collect();
                        split::random(&of_class, *shares, seed, &mut parts);
                    }
                }
                PlannedTarget::Values => faults.add(
                    &self.place,
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
                by_part(&info.part, is_labelled, &mut parts, report);
            }
        }
        parts.iter_mut().for_each(|part| part.sort_unstable());
        report.split = parts.each_ref().map(|part| part.len() as u64);
        let rule = self.rule.as_ref().or(self.default.as_ref());
        report.split_rule = rule.cloned().unwrap_or_else(|| "random:60,20,20 (the default)".into());
        (Some(self.part(planned, info)), parts)
    }

    /// Targets of the rows that change nodes, divided on their own; `None` if there are none.
    pub(super) fn changed(&self, info: &RowInfo, rows: &NodeRows, seed: u64) -> Option<ChangedTargets> {
        if rows.changed.is_empty() || self.target.is_none() {
            return None;
        }
        let mut info = info.clone();
        info.retain(self.width(), |row| rows.changed(row).is_some());
        // Faults of the rule are those of the new rows.
        let (targets, split) = self.divide(info, seed, &mut LabelReport::default(), &mut Faults::default());
        let is_named = matches!(self.split, Some(SplitRule::Column(_) | SplitRule::Masks(_)));
        let nodes = rows.changed.iter().map(|(_, v)| *v).collect();
        Some(ChangedTargets { task: self.names.join("-"), nodes, targets: targets?, split, is_named })
    }

    /// Targets of the rows, by the kind of the target.
    fn part(&self, planned: &PlannedTarget, info: RowInfo) -> TargetPart {
        match planned {
            PlannedTarget::Classes(columns) => {
                let named = self.names.iter().zip(columns).map(|(name, column)| NamedClasses {
                    column: name.clone(),
                    classes: column.names.clone(),
                });
                TargetPart::Classes(info.class, named.collect())
            }
            PlannedTarget::Values => TargetPart::Values(info.value, self.names.clone()),
        }
    }
}

/// Split of the labelled rows into the part that each row names.
fn by_part(
    of_rows: &[u8],
    is_labelled: impl Fn(usize) -> bool,
    parts: &mut [Vec<NodeId>; 3],
    report: &mut LabelReport,
) {
    for (v, &part) in of_rows.iter().enumerate() {
        match parts.get_mut(part as usize) {
            Some(part) if is_labelled(v) => part.push(v as NodeId),
            Some(_) => report.split_without_label += 1,
            None => report.outside_split += u64::from(is_labelled(v)),
        }
    }
}

/// Label of a row.
#[derive(Clone, Copy, Debug)]
pub(super) enum Label {
    /// Number of the class.
    Class(i32),
    /// A number.
    Value(f64),
}

/// Targets and parts of the split of the rows.
#[derive(Clone, Default)]
pub(super) struct RowInfo {
    class: Vec<i32>,
    value: Vec<f32>,
    part: Vec<u8>,
    time: Vec<Option<i64>>,
}

impl RowInfo {
    /// Number of rows with a target, of which a row has `width` classes or values.
    pub(super) fn targets(&self, width: usize) -> usize {
        self.class.len().max(self.value.len()) / width
    }

    /// Class or value number `k` of the `width` of row `row`; `None` if it is missing.
    pub(super) fn label(&self, row: usize, (k, width): (usize, usize)) -> Option<Label> {
        let at = row * width + k;
        match self.class.get(at) {
            Some(&class) => (class >= 0).then_some(Label::Class(class)),
            None => self.value.get(at).filter(|x| !x.is_nan()).map(|&x| Label::Value(x.into())),
        }
    }

    /// Returns true if the last row has a class or value.
    pub(super) fn last_has_label(&self, width: usize) -> bool {
        let classes = &self.class[self.class.len().saturating_sub(width)..];
        let values = &self.value[self.value.len().saturating_sub(width)..];
        classes.iter().any(|&class| class >= 0) || values.iter().any(|x| !x.is_nan())
    }

    /// Keeps the rows that are nodes; a row has `width` classes or values.
    pub(super) fn keep(&mut self, keys: &NodeKeys, width: usize) {
        if !keys.rows.repeated.is_empty() {
            self.retain(width, |row| keys.rows.id(row).is_some());
        }
    }

    /// Keeps the rows of which `is_kept` returns true; a row has `width` classes or values.
    fn retain(&mut self, width: usize, is_kept: impl Fn(u64) -> bool) {
        fn keep<T>(values: &mut Vec<T>, width: usize, is_kept: impl Fn(u64) -> bool) {
            let mut at = 0;
            values.retain(|_| {
                at += 1;
                is_kept(((at - 1) / width) as u64)
            });
        }
        keep(&mut self.class, width, &is_kept);
        keep(&mut self.value, width, &is_kept);
        keep(&mut self.part, 1, &is_kept);
        keep(&mut self.time, 1, &is_kept);
    }
}
