//! Tables of links at times: rows of a source, a time and the destinations that it is linked to
//! then, each table a task.

use graphmill_core::{Buffer, NodeId, Result};

use super::{
    column::{Batch, Cell, integral},
    column_formats::{ColumnFormats, profile},
    ends::places,
    faults::{Faults, FaultyRows},
    kept::Kept,
    keys::{Ends, KeyColumns, NONE, NodeKeys, Unknown, shown},
    parts::{NodePart, TargetPart, TaskPart},
    plan::ColumnLine,
    profile::{Profile, Shape, parsed},
    report::{LabelReport, TargetReport},
    schema::{Dangling, LinkTable},
    source::Table,
    split::{self, SplitRule},
    task_columns::TaskColumns,
    times::{self, TimeColumn, TimeUnit},
};
use crate::{
    external::Scratch,
    typed::{EdgeType, Seeds, TaskOn},
};

/// Table of links with the roles of its columns.
pub(super) struct LinkTablePlan<'a> {
    spec: &'a LinkTable,
    /// Number of the table, which names its files.
    index: usize,
    /// Numbers of the types of the sources and the destinations.
    pub(super) ends: [usize; 2],
    on: EdgeType,
    pub(super) table: Table,
    profiles: Vec<Profile>,
    /// Keys of the sources and the destinations.
    keys: [KeyColumns; 2],
    /// Column of lists of destinations; `None` if each row has one.
    list: Option<usize>,
    time: Option<(usize, TimeUnit)>,
    /// Part of the split of each file, if files give the split.
    files: Option<Vec<u8>>,
    /// Shares of a split by time, if they do not.
    shares: [f64; 3],
    lines: Vec<ColumnLine>,
}

/// Pairs of all rows: each destination of a row is one.
#[derive(Default)]
struct Pairs {
    /// Number of the row of each pair.
    rows: Vec<u64>,
    times: Vec<i64>,
    /// Part of the split of each pair, if files give the split.
    parts: Vec<u8>,
    /// Ids of the sources and the destinations, [`NONE`] if there is no node.
    ids: [Buffer<NodeId>; 2],
    unknown: [Unknown; 2],
    /// Rows without the key of their source.
    missing: FaultyRows,
    /// Number of rows without a destination.
    empty: u64,
}

impl<'a> LinkTablePlan<'a> {
    /// Reads all values once and chooses the roles of the columns; faults are added to `faults`.
    /// `files` has the part of the split of each file of the table, if files give the split.
    pub(super) fn new(
        (index, spec): (usize, &'a LinkTable),
        types: &[String],
        (mut table, files): (Table, Option<Vec<u8>>),
        kept: &Kept,
        faults: &mut Faults,
    ) -> Result<Self> {
        let formats = ColumnFormats::of_links(spec, &table);
        let name = format!("types-of-links-{index}");
        let profiles = profile(&mut table, kept, &name, formats, faults)?;
        let mut columns = TaskColumns::new(&table, profiles);
        let src = columns.key(&spec.src.list(), "key of the source", faults);
        let dst = columns.key(&spec.dst.list(), "key of the destination", faults);
        let is_list = |c: usize| columns.profiles[c].shape().is_some_and(|(shape, _)| shape == Shape::List);
        let list = match dst[..] {
            [c] => Some(c).filter(|&c| is_list(c)),
            _ => None,
        };
        if let Some(c) = list {
            columns.roles[c] = Some("keys of the destinations".into());
        }
        let time = columns.time(&spec.time, None, faults);
        let shares = match spec.split.as_deref().map(str::parse::<SplitRule>) {
            None => split::DEFAULT,
            Some(Ok(SplitRule::Time(column, shares))) if column == spec.time => shares,
            Some(_) => {
                let message = format!(
                    "links are split by the times of their rows; write split = \"time:{}:60,20,20\", or name \
                     the files train, valid and test",
                    spec.time
                );
                faults.add(&format!("links '{}'", spec.name), message);
                split::DEFAULT
            }
        };
        let lines = columns.lines("links");
        let profiles = columns.profiles;
        let ends = spec.ends().map(|end| end.number(types));
        Ok(Self {
            spec,
            index,
            ends,
            on: EdgeType::new(&types[ends[0]], &spec.name, &types[ends[1]]),
            lines,
            keys: [src, dst].map(|columns| KeyColumns::new(&columns, &profiles)),
            table,
            profiles,
            list,
            time,
            files,
            shares,
        })
    }

    /// Column of the time.
    pub(super) fn time_column(&mut self) -> Option<TimeColumn<'_>> {
        TimeColumn::new(&self.table, &self.profiles, self.time.as_mut()?, &mut self.lines)
    }

    /// Roles of the columns, before the rows are read.
    pub(super) fn report(&self) -> TargetReport {
        let rows = self.profiles.first().map_or(0, |profile| profile.rows);
        TargetReport {
            name: self.spec.name.clone(),
            on: self.on.to_string(),
            rows,
            targets: rows,
            columns: self.lines.clone(),
            ..TargetReport::default()
        }
    }

    /// Reads the rows; `keys` and `nodes` are those of the types of both ends.
    pub(super) fn read(
        &self,
        keys: [&NodeKeys; 2],
        nodes: [&NodePart; 2],
        dangling: Dangling,
        scratch: &Scratch,
        faults: &mut Faults,
    ) -> Result<(TaskPart, TargetReport)> {
        let name = format!("links-{}", self.index);
        let mut report = self.report();
        let pairs = self.pairs(keys, &name, faults)?;
        let is_known = |i: usize| pairs.ids.iter().all(|ids| ids[i] != NONE);
        let exists_later = |end: usize, i: usize| {
            let exists = nodes[end].time.as_ref();
            exists.is_some_and(|exists| exists[pairs.ids[end][i] as usize] > pairs.times[i])
        };
        let known: Vec<usize> = (0..pairs.rows.len()).filter(|&i| is_known(i)).collect();
        let (early, known): (Vec<usize>, Vec<usize>) = known.into_iter().partition(|&i| exists_later(0, i));
        // nothing recommends a node that does not exist yet
        let (later, kept): (Vec<usize>, Vec<usize>) = known.into_iter().partition(|&i| exists_later(1, i));
        self.judge(&pairs, [&early, &later], dangling, &mut report, faults)?;
        let mut rows = scratch.column(&format!("{name}-pairs"))?;
        let mut times = scratch.column(&format!("{name}-time"))?;
        for kept in kept.chunks(1 << 16) {
            let ends = kept.iter().flat_map(|&i| pairs.ids.each_ref().map(|ids| ids[i]));
            rows.extend(&ends.collect::<Vec<NodeId>>())?;
            times.extend(&kept.iter().map(|&i| pairs.times[i]).collect::<Vec<i64>>())?;
        }
        report.targets = kept.len() as u64;
        let part = TaskPart {
            name: self.spec.name.clone(),
            on: TaskOn::Edges(self.on.clone()),
            seeds: Some(Seeds::Pairs(rows.finish()?)),
            time: Some(times.finish()?),
            targets: TargetPart::None { metric: self.spec.metric.clone() },
            split: self.divide(&pairs, &kept, &mut report.labels, faults),
        };
        Ok((part, report))
    }

    /// Reads the pairs of all rows.
    fn pairs(&self, keys: [&NodeKeys; 2], name: &str, faults: &mut Faults) -> Result<Pairs> {
        let mut columns = [
            Ends::new(keys[0], &format!("{name}-src"), false)?,
            Ends::new(keys[1], &format!("{name}-dst"), false)?,
        ];
        let table = &self.table;
        let mut pairs = Pairs::default();
        let (mut source, mut key, mut untimed) = (String::new(), String::new(), FaultyRows::default());
        table.scan(&vec![true; table.columns.len()], faults, |batch, faults| {
            for row in 0..batch.rows {
                let before = faults.total();
                let time = self.time.and_then(|column| times::read(column, table, batch, row, faults));
                if time.is_none() && faults.total() == before {
                    untimed.add(|| table.place(batch, row));
                }
                if !self.keys[0].read(batch, row, &mut source) {
                    pairs.missing.add(|| table.place(batch, row));
                    continue;
                }
                let first = pairs.rows.len();
                let mut add = |key: &str| -> Result<()> {
                    let number = pairs.rows.len() as u64;
                    columns[0].push(number, Some(&source))?;
                    columns[1].push(number, Some(key))?;
                    pairs.rows.push(batch.first + row as u64);
                    pairs.times.push(time.unwrap_or(i64::MIN));
                    if let Some(files) = &self.files {
                        pairs.parts.push(files.get(batch.file).copied().unwrap_or(3));
                    }
                    Ok(())
                };
                match self.list {
                    Some(c) => self.each(batch, (row, c), faults, &mut add)?,
                    None if self.keys[1].read(batch, row, &mut key) => add(&key)?,
                    None => {}
                }
                pairs.empty += u64::from(pairs.rows.len() == first);
            }
            Ok(())
        })?;
        let fix = "complete the times, or remove these rows";
        untimed.report(&table.name(), "without a time", fix, faults);
        let count = pairs.rows.len() as u64;
        let [src, dst] = columns;
        let (src, unknown_src) = src.finish(count)?;
        let (dst, unknown_dst) = dst.finish(count)?;
        (pairs.ids, pairs.unknown) = ([src, dst], [unknown_src, unknown_dst]);
        Ok(pairs)
    }

    /// Calls `add` with the key of each destination of the list in column `c` of a row.
    fn each(
        &self,
        batch: &Batch,
        (row, c): (usize, usize),
        faults: &mut Faults,
        add: &mut dyn FnMut(&str) -> Result<()>,
    ) -> Result<()> {
        let cell = batch.columns[c].get(row);
        let mut list = Vec::new();
        let wrong = match parsed(cell, &mut list) {
            Cell::Missing => None,
            Cell::List(values) => {
                let mut wrong = None;
                for &value in values {
                    match integral(value) {
                        Some(key) => add(&key.to_string())?,
                        None => wrong = Some(format!("{value} is not an integer below 2^53")),
                    }
                }
                wrong
            }
            other => Some(format!("'{}' is not a list of integers", other.text())),
        };
        if let Some(why) = wrong {
            let column = &self.table.columns[c];
            faults
                .add(&self.table.file(batch), format!("{}: column '{column}': {why}", batch.places.of(row)));
        }
        Ok(())
    }

    /// Counts pairs that are left out, or adds faults for them: those with the numbers `early` are
    /// from before their source exists, and with the numbers `later` from before their destination
    /// does.
    fn judge(
        &self,
        pairs: &Pairs,
        [early, later]: [&[usize]; 2],
        dangling: Dangling,
        report: &mut TargetReport,
        faults: &mut Faults,
    ) -> Result<()> {
        let table = &self.table;
        let of = |numbers: &[usize]| -> Result<FaultyRows> {
            let mut first: Vec<u64> = numbers.iter().map(|&i| pairs.rows[i]).collect();
            first.dedup();
            first.truncate(5);
            Ok(FaultyRows { count: numbers.len() as u64, places: places(table, &first)? })
        };
        let (early, later) = (of(early)?, of(later)?);
        report.labels.split_without_label = pairs.empty;
        (report.early, report.early_examples) = (later.count, later.places);
        let is_dropped = dangling == Dangling::Drop;
        if is_dropped {
            report.dangling = pairs.missing.count;
            report.dangling_examples.clone_from(&pairs.missing.places);
            report.early += early.count;
            report.early_examples.extend(early.places);
        } else {
            let fix = "complete them, or choose dangling = drop (drop these links)";
            pairs.missing.report(&table.name(), "without the key of a source", fix, faults);
            let fix = "remove these rows, correct the time of the node, or choose dangling = drop (drop \
                       these links)";
            early.report(&table.name(), "with a time before that from which its source exists", fix, faults);
        }
        for (unknown, kind) in pairs.unknown.iter().zip([&self.on.source, &self.on.destination]) {
            let mut rows: Vec<u64> = unknown.examples.iter().map(|(i, _)| pairs.rows[*i as usize]).collect();
            rows.dedup();
            let found = places(table, &rows)?;
            let place = |(i, key): &(u64, String)| {
                let at = rows.partition_point(|&row| row < pairs.rows[*i as usize]);
                format!("{} '{}'", found.get(at).map_or("", String::as_str), shown(key))
            };
            let places: Vec<String> = unknown.examples.iter().map(place).collect();
            if is_dropped {
                report.dangling += unknown.count;
                report.dangling_examples.extend(places);
                continue;
            }
            let what = format!("with a node that is not in the table of '{kind}'");
            let fix = "add the nodes, or choose dangling = drop (drop these links)";
            FaultyRows { count: unknown.count, places }.report(&table.name(), &what, fix, faults);
        }
        Ok(())
    }

    /// Parts of the split of the pairs `kept`: those of their files, or by their times, so that
    /// the destinations of a row stay together.
    fn divide(
        &self,
        pairs: &Pairs,
        kept: &[usize],
        report: &mut LabelReport,
        faults: &mut Faults,
    ) -> [Vec<NodeId>; 3] {
        let mut parts: [Vec<NodeId>; 3] = Default::default();
        if kept.len() >= NodeId::MAX as usize {
            let message = format!("{} links: at most {} fit; divide them", kept.len(), NodeId::MAX - 1);
            faults.add(&format!("links '{}'", self.spec.name), message);
            return parts;
        }
        match &self.files {
            Some(_) => {
                for (number, &i) in (0..).zip(kept) {
                    if let Some(part) = parts.get_mut(usize::from(pairs.parts[i])) {
                        part.push(number);
                    }
                }
                report.split_rule = split::FILES.into();
            }
            None => {
                let mut times: Vec<i64> = kept.iter().map(|&i| pairs.times[i]).collect();
                times.sort_unstable();
                let end = |share: f64| times.get((times.len() as f64 * share) as usize).copied();
                let [train, valid, test] = self.shares;
                let [first, second] = [train, train + valid].map(end);
                let last = Some(train + valid + test).filter(|sum| *sum < 1.0 - 1e-9).and_then(end);
                let is_before = |time: i64, end: Option<i64>| end.is_none_or(|end| time < end);
                for (number, &i) in (0..).zip(kept) {
                    let time = pairs.times[i];
                    let part = usize::from(!is_before(time, first)) + usize::from(!is_before(time, second));
                    if is_before(time, last) {
                        parts[part].push(number);
                    }
                }
                let rule = self.spec.split.clone();
                let default = || format!("time:{}:60,20,20 (the default)", self.spec.time);
                report.split_rule = rule.unwrap_or_else(default);
            }
        }
        report.split = parts.each_ref().map(|part| part.len() as u64);
        parts
    }
}
