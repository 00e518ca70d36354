//! Tables of targets: rows of a node, a time and its target, each table a task.

use graphmill_core::{Buffer, NodeId, Result};

use super::{
    column_formats::{ColumnFormats, profile},
    ends,
    faults::{Faults, FaultyRows},
    kept::Kept,
    keys::{Ends, KeyColumns, NONE, NodeKeys, shown},
    leak::Leak,
    leaks::LeakSearch,
    parts::{NodePart, TaskPart},
    plan::ColumnLine,
    preprocessing::{TargetEncoding, TaskEncoding},
    profile::Profile,
    report::TargetReport,
    schema::{Dangling, TargetTable},
    source::Table,
    targets::{RowInfo, TargetPlan},
    task_columns::TaskColumns,
    times::{self, TimeColumn, TimeUnit},
};
use crate::{
    external::{Rows, Scratch},
    typed::{Seeds, Task, TaskOn},
};

/// Table of targets with the roles of its columns.
pub(super) struct TargetTablePlan<'a> {
    spec: &'a TargetTable,
    /// Name of the task.
    name: String,
    /// Number of the table, which names its files.
    index: usize,
    /// Number of the type of the nodes.
    pub(super) node_type: usize,
    /// Its name.
    on: String,
    pub(super) table: Table,
    pub(super) profiles: Vec<Profile>,
    key: KeyColumns,
    /// Column of the time, and its unit.
    pub(super) time: Option<(usize, TimeUnit)>,
    targets: TargetPlan,
    /// Columns that may determine the label, with what to do about each.
    examined: Vec<(usize, String)>,
    /// Role of every column.
    pub(super) lines: Vec<ColumnLine>,
}

impl<'a> TargetTablePlan<'a> {
    /// Reads all values once and chooses the roles of the columns; faults are added to `faults`.
    /// `parts` is the part of the split of each file of the table, if files give the split.
    pub(super) fn new(
        (index, spec): (usize, &'a TargetTable),
        types: &[String],
        (mut table, parts): (Table, Option<Vec<u8>>),
        like: Option<&TaskEncoding>,
        kept: &Kept,
        faults: &mut Faults,
    ) -> Result<Self> {
        let formats = ColumnFormats::of_targets(spec, like, &table);
        let name = format!("types-of-targets-{index}");
        let profiles = profile(&mut table, kept, &name, formats, faults)?;
        let mut columns = TaskColumns::new(&table, profiles);
        let id = columns.key(&spec.id.list(), "key", faults);
        let known = like.and_then(|like| like.time.as_ref()).map(|(_, unit)| *unit);
        let time = spec.time.as_ref().and_then(|column| columns.time(column, known, faults));
        let place = format!("targets '{}'", spec.task_name());
        let mut targets = TargetPlan::new(place, &spec.label, spec.task, spec.split.as_ref()).by_files(parts);
        let known = (like.map(|like| &like.target), time.map(|(c, _)| c));
        targets.assign(&table, &columns.profiles, known, &mut columns.roles, faults);
        let examined = match like {
            Some(_) => Vec::new(),
            None => examined(&columns.roles, time.map(|(c, _)| c)),
        };
        let lines = columns.lines("targets");
        let profiles = columns.profiles;
        let node_type = spec.end().number(types);
        Ok(Self {
            spec,
            name: spec.task_name(),
            index,
            node_type,
            on: types[node_type].clone(),
            lines,
            key: KeyColumns::new(&id, &profiles),
            table,
            profiles,
            time,
            targets,
            examined,
        })
    }

    /// Name of the task.
    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// Column of the time, if there is one.
    pub(super) fn time_column(&mut self) -> Option<TimeColumn<'_>> {
        TimeColumn::new(&self.table, &self.profiles, self.time.as_mut()?, &mut self.lines)
    }

    /// Roles of the columns, before the rows are read.
    pub(super) fn report(&self) -> TargetReport {
        TargetReport {
            name: self.name.clone(),
            on: self.on.clone(),
            rows: self.profiles.first().map_or(0, |profile| profile.rows),
            targets: self.profiles.first().map_or(0, |profile| profile.rows),
            columns: self.lines.clone(),
            ..TargetReport::default()
        }
    }

    /// Reads the rows, which follow those of `before`; `keys` and `nodes` are those of the type of
    /// the nodes. Without a target, whose fault is added, there is no task.
    pub(super) fn read(
        &self,
        (keys, nodes, before): (&NodeKeys, &NodePart, Option<&Task>),
        (dangling, seed): (Dangling, u64),
        scratch: &Scratch,
        faults: &mut Faults,
    ) -> Result<(Option<(TaskPart, TaskEncoding)>, TargetReport)> {
        let name = format!("targets-{}", self.index);
        let mut report = self.report();
        let ids = self.nodes(keys, &name, dangling, &mut report, faults)?;
        let early = match dangling == Dangling::Drop {
            true => self.early(&ids, nodes, &mut report)?,
            false => Vec::new(),
        };
        let is_kept = |row: u64| ids[row as usize] != NONE && early.binary_search(&row).is_err();
        let kept: Vec<u64> = (0..ids.len() as u64).filter(|&row| is_kept(row)).collect();
        let ids = ends::keep(scratch, &format!("{name}-nodes"), &ids, is_kept)?;
        let (info, time, leaks) = self.rows(&kept, (&ids, nodes), scratch, &name, faults)?;
        report.labels.leaks = leaks;
        self.refuse_repeated(&kept, (&ids, time.as_deref()), before, faults)?;
        report.targets = kept.len() as u64;
        let (targets, split) = self.targets.divide(info, seed, &mut report.labels, faults);
        let (Some(targets), Some((_, planned))) = (targets, &self.targets.target) else {
            return Ok((None, report));
        };
        let encoding = TaskEncoding {
            time: self.time.map(|(c, unit)| (self.table.columns[c].clone(), unit)),
            id: self.spec.id.list(),
            formats: self.table.named_formats(),
            nulls: self.table.named_nulls(),
            target: TargetEncoding::new(self.spec.label.clone(), planned, self.targets.rule.as_ref()),
        };
        let part = TaskPart {
            name: self.name.clone(),
            on: TaskOn::Nodes(self.on.clone()),
            seeds: Some(Seeds::Nodes(ids)),
            time,
            targets,
            split,
        };
        Ok((Some((part, encoding)), report))
    }

    /// Node of each row, [`NONE`] for a row that is dropped. Other rows without a node are faults.
    fn nodes(
        &self,
        keys: &NodeKeys,
        name: &str,
        dangling: Dangling,
        report: &mut TargetReport,
        faults: &mut Faults,
    ) -> Result<Buffer<NodeId>> {
        let table = &self.table;
        let mut nodes = Ends::new(keys, &format!("{name}-ids"), false)?;
        let (mut key, mut missing) = (String::new(), FaultyRows::default());
        table.scan(&vec![true; table.columns.len()], faults, |batch, _| {
            for row in 0..batch.rows {
                let is_there = self.key.read(batch, row, &mut key);
                if !is_there {
                    missing.add(|| table.place(batch, row));
                }
                nodes.push(batch.first + row as u64, is_there.then_some(&key))?;
            }
            Ok(())
        })?;
        let (ids, unknown) = nodes.finish(report.rows)?;
        let rows: Vec<u64> = unknown.examples.iter().map(|(row, _)| *row).collect();
        let places = ends::places(table, &rows)?;
        let places = places.iter().zip(&unknown.examples);
        let places = places.map(|(place, (_, key))| format!("{place} '{}'", shown(key))).collect();
        let unknown = FaultyRows { count: unknown.count, places };
        if dangling == Dangling::Drop {
            report.dangling = unknown.count + missing.count;
            report.dangling_examples = [unknown.places, missing.places].concat();
            return Ok(ids);
        }
        let what = format!("with a node that is not in the table of '{}'", self.on);
        let fix = "add the nodes, or choose dangling = drop (drop these targets)";
        unknown.report(&table.name(), &what, fix, faults);
        let fix = "complete them, or choose dangling = drop (drop these targets)";
        missing.report(&table.name(), "without the key of a node", fix, faults);
        Ok(ids)
    }

    /// Rows from before their node exists, which are dropped.
    fn early(&self, ids: &[NodeId], nodes: &NodePart, report: &mut TargetReport) -> Result<Vec<u64>> {
        let (mut rows, mut early) = (FaultyRows::default(), Vec::new());
        let (Some(column), Some(exists)) = (self.time, &nodes.time) else { return Ok(early) };
        let table = &self.table;
        // Faults of the times are found when the rows are read.
        table.scan(&vec![true; table.columns.len()], &mut Faults::default(), |batch, faults| {
            for row in 0..batch.rows {
                let (number, place) = (batch.first + row as u64, || table.place(batch, row));
                let time = times::read(column, table, batch, row, faults);
                let first = exists.get(ids[number as usize] as usize);
                if time.zip(first).is_some_and(|(time, &first)| first > time) {
                    rows.add(place);
                    early.push(number);
                }
            }
            Ok(())
        })?;
        (report.early, report.early_examples) = (rows.count, rows.places);
        Ok(early)
    }

    /// Targets and times of the rows `kept`, whose nodes are `ids`, and columns of the table that
    /// determine a target. A row without a time, or from before its node exists, is a fault.
    fn rows(
        &self,
        kept: &[u64],
        (ids, nodes): (&[NodeId], &NodePart),
        scratch: &Scratch,
        name: &str,
        faults: &mut Faults,
    ) -> Result<(RowInfo, Option<Buffer<i64>>, Vec<Leak>)> {
        let table = &self.table;
        let (mut info, mut rows) = (RowInfo::default(), Vec::new());
        let (labels, width) = (self.targets.labels(), self.targets.width());
        // dates of columns that no model reads may be late
        let mut leaks = LeakSearch::new(table, self.examined.iter().cloned(), labels, None, width);
        let mut times: Option<Rows<i64>> =
            self.time.map(|_| scratch.column(&format!("{name}-time"))).transpose()?;
        let (mut untimed, mut early, mut next) = (FaultyRows::default(), FaultyRows::default(), 0);
        table.scan(&vec![true; table.columns.len()], faults, |batch, faults| {
            rows.clear();
            for row in 0..batch.rows {
                if kept.get(next) != Some(&(batch.first + row as u64)) {
                    continue;
                }
                rows.push(row);
                let v = ids[next] as usize;
                next += 1;
                self.targets.read(table, batch, row, &mut info, faults);
                let (Some(times), Some(column)) = (&mut times, self.time) else { continue };
                let before = faults.total();
                let time = times::read(column, table, batch, row, faults);
                times.extend(&[time.unwrap_or(i64::MIN)])?;
                match time {
                    Some(time) if nodes.time.as_ref().is_some_and(|exists| exists[v] > time) => {
                        early.add(|| table.place(batch, row));
                    }
                    None if faults.total() == before => untimed.add(|| table.place(batch, row)),
                    _ => {}
                }
            }
            leaks.iter_mut().for_each(|leaks| leaks.add(batch, &rows, &info));
            Ok(())
        })?;
        let fix = "complete the times, or remove these rows";
        untimed.report(&table.name(), "without a time", fix, faults);
        let fix = "remove these rows, correct the time of the node, or choose dangling = drop (drop these \
                   targets)";
        early.report(&table.name(), "with a time before that from which the node exists", fix, faults);
        let leaks = leaks.map(LeakSearch::finish).unwrap_or_default();
        Ok((info, times.map(Rows::finish).transpose()?, leaks))
    }

    /// Adds a fault for rows of the same node and time as an earlier one, of which `before` may be
    /// the first.
    fn refuse_repeated(
        &self,
        kept: &[u64],
        (ids, time): (&[NodeId], Option<&[i64]>),
        before: Option<&Task>,
        faults: &mut Faults,
    ) -> Result<()> {
        let first: &[NodeId] = match before.and_then(|task| task.seeds.as_ref()) {
            Some(Seeds::Nodes(ids)) => ids,
            _ => &[],
        };
        let first_time = before.and_then(|task| task.time.as_ref());
        let of = |row: usize| match row.checked_sub(first.len()) {
            Some(row) => (ids[row], time.map_or(0, |time| time[row])),
            None => (first[row], first_time.map_or(0, |time| time[row])),
        };
        let mut order: Vec<usize> = (0..first.len() + ids.len()).collect();
        order.sort_by_key(|&row| of(row)); // stable: the first row is the earliest
        let repeated = order.windows(2).filter(|pair| of(pair[0]) == of(pair[1]));
        let repeated = repeated.filter_map(|pair| pair[1].checked_sub(first.len()));
        let mut repeated: Vec<u64> = repeated.map(|row| kept[row]).collect();
        repeated.sort_unstable();
        let count = repeated.len() as u64;
        repeated.truncate(5);
        let rows = FaultyRows { count, places: ends::places(&self.table, &repeated)? };
        let what = match time {
            Some(_) => "with the node and time of an earlier row",
            None => "with the node of an earlier row",
        };
        let fix = match time {
            Some(_) => "keep one row of each",
            None => "keep one row of each, or name the column of their times",
        };
        rows.report(&self.table.name(), what, fix, faults);
        Ok(())
    }
}

/// Columns without a role, and that of the time, with what to do about one that determines the
/// label. The key is none of them: a node may well have one label at all times.
fn examined(roles: &[Option<String>], time: Option<usize>) -> Vec<(usize, String)> {
    let remedy = |(c, role): (usize, &Option<String>)| match role {
        _ if time == Some(c) => Some((c, "take rows of all labels at each time".to_string())),
        None => Some((c, "keep it out of the features (this import ignores it)".to_string())),
        Some(_) => None,
    };
    roles.iter().enumerate().filter_map(remedy).collect()
}
