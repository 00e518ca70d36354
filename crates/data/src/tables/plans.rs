//! Plans of all tables of an import: roles of their columns, and the reading of the node types.

use graphmill_core::{Error, Result};

use super::{
    base::Base,
    edges::EdgePlan,
    faults::Faults,
    finished::{FinishedNodes, keep_read, load_read},
    kept::Kept,
    keys::NodeKeys,
    link_tables::LinkTablePlan,
    memory::MemoryTable,
    node_leaks,
    nodes::{NodePlan, NodeRead},
    outside::{self, KnownKeys},
    parts::{NodePart, TaskPart},
    preprocessing::TaskEncoding,
    removals::{RemovalPlan, Removals},
    report::{EdgeReport, EndReport, NodeReport, TableReport, TargetReport},
    rule::Kind,
    schema::{Dangling, Names, TableSchema},
    schema_parts::TaskFiles,
    source::{Dialect, Table, TableFile},
    sources::{Sources, TargetFiles},
    target_tables::TargetTablePlan,
    times,
};
use crate::{
    external::{RecordSorter, Scratch, SortedRecords},
    typed::{Task, TypedDataset},
};

/// Budgets of an import in bytes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Budget {
    /// Rows of a table between two passes.
    pub(super) cache: usize,
    /// Keys of a node type.
    pub(super) keys: u64,
    /// Source bytes from which finished parts are recorded, so that a killed import resumes.
    pub(super) recorded: u64,
}

/// Source bytes of an import that takes seconds, so that recording its parts does not count.
const MIN_RECORDED_BYTES: u64 = 8 << 20;

impl Budget {
    /// Shares of `memory` for the tables of `schema`.
    pub(super) fn of(memory: u64, schema: &TableSchema) -> Self {
        let tasks = schema.targets.len() + schema.links.len();
        let tables = schema.nodes.len() + schema.edges.len() + tasks;
        let share = memory / 4 / tables.max(1) as u64;
        let cache = usize::try_from(share).unwrap_or(usize::MAX);
        Self { cache, keys: share, recorded: MIN_RECORDED_BYTES }
    }
}

/// Opens tables: files, or tables in memory.
struct Opener<'a> {
    schema: &'a TableSchema,
    /// Bytes of the rows of a table between two passes.
    cache: usize,
}

impl<'a> Opener<'a> {
    /// Name and contents of the table in memory that `names` is.
    fn in_memory(&self, names: &Names) -> Option<(&'a String, &'a MemoryTable)> {
        match &names.list()[..] {
            [name] => self.schema.memory.get_key_value(name),
            _ => None,
        }
    }

    /// Opens the table `names`, whose `files` may lack the columns `optional`. Messages call it
    /// `kind`.
    fn table(
        &self,
        kind: &str,
        names: &Names,
        (files, optional): (Vec<TableFile>, &[String]),
        (separator, quote): (Option<char>, Option<char>),
    ) -> Result<Table> {
        let one_byte = |c: Option<char>, what: &str| match c.map(u8::try_from) {
            None => Ok(None),
            Some(Ok(byte)) if byte.is_ascii() => Ok(Some(byte)),
            _ => {
                Err(Error::invalid(format!("'{kind}': the {what} is not an ASCII character; choose another")))
            }
        };
        let dialect = Dialect {
            separator: one_byte(separator, "separator")?,
            quote: one_byte(quote, "quote")?,
            columns: None,
        };
        match self.in_memory(names) {
            Some((name, table)) => Ok(table.open(name)),
            None => Table::open(kind, files, (dialect, optional), self.cache),
        }
    }

    /// Opens the table of a task, whose files may lack the columns `optional` if they are parts of
    /// the split. Messages call it `name`.
    fn task(
        &self,
        (kind, name): (&str, &str),
        of: TaskFiles,
        files: Vec<TableFile>,
        optional: &[String],
    ) -> Result<Table> {
        let TaskFiles { all, parts, dialect, .. } = of;
        let optional = if parts.is_some() { optional } else { &[] };
        let lists = parts.into_iter().flatten().filter(|names| !names.is_empty());
        let lists: Vec<&Names> = lists.collect();
        let tables: Vec<&MemoryTable> =
            lists.iter().filter_map(|names| Some(self.in_memory(names)?.1)).collect();
        if tables.is_empty() {
            return self.table(name, all, (files, optional), dialect);
        }
        if tables.len() == lists.len() {
            return MemoryTable::open_all(&tables, name, optional);
        }
        Err(Error::invalid(format!(
            "{kind} '{name}': some of train, valid and test are tables in memory, and others are files; pass \
             all of them in one way"
        )))
    }
}

/// Task of a table of targets, its encoding, and the counts of its rows.
type ReadTargets = (Option<TaskPart>, Option<TaskEncoding>, TargetReport);

/// Plans of all tables.
pub(super) struct Plans<'a> {
    schema: &'a TableSchema,
    pub(super) nodes: Vec<NodePlan<'a>>,
    pub(super) edges: Vec<EdgePlan>,
    pub(super) targets: Vec<TargetTablePlan<'a>>,
    pub(super) links: Vec<LinkTablePlan<'a>>,
    /// Tables of nodes and edges that end.
    ends: Vec<RemovalPlan>,
}

impl<'a> Plans<'a> {
    /// Reads the types of all columns.
    pub(super) fn new(
        schema: &'a TableSchema,
        base: Base<'a>,
        budget: Budget,
        sources: Sources,
        kept: &Kept,
    ) -> Result<Self> {
        schema.check()?;
        let like = base.like;
        let types: Vec<String> = schema.nodes.iter().map(|table| table.kind.clone()).collect();
        let mut faults = Faults::default();
        let opener = Opener { schema, cache: budget.cache };
        let mut nodes = Vec::new();
        for (i, (spec, files)) in schema.nodes.iter().zip(sources.nodes).enumerate() {
            let table = match spec.files.is_empty() {
                true => None,
                false => {
                    Some(opener.table(&spec.kind, &spec.files, (files, &[]), (spec.separator, spec.quote))?)
                }
            };
            let known = match like {
                Some(like) => Some(like.nodes.get(&spec.kind).ok_or_else(|| {
                    let known: Vec<&str> = like.nodes.keys().map(String::as_str).collect();
                    Error::Unknown {
                        axis: "node type of the other dataset",
                        name: spec.kind.clone(),
                        known: known.join(", "),
                    }
                })?),
                None => None,
            };
            let known = (known, base.nodes(&spec.kind), base.changed);
            nodes.push(NodePlan::new((i, spec), table, known, kept, &mut faults)?);
        }
        let mut edges = Vec::new();
        for (spec, files) in schema.edges.iter().zip(sources.edges) {
            let table = opener.table(&spec.kind, &spec.files, (files, &[]), (spec.separator, spec.quote))?;
            let end = |given: &Option<String>| given.clone().unwrap_or_else(|| types[0].clone());
            let name = format!("{}:{}:{}", end(&spec.source), spec.kind, end(&spec.destination));
            let known = (like.and_then(|like| like.edges.get(&name)), base.edges(&name).is_some());
            edges.push(EdgePlan::of_table((edges.len(), spec), &types, table, known, kept, &mut faults)?);
        }
        for (source, plan) in nodes.iter().enumerate() {
            let Some(table) = &plan.table else { continue };
            for foreign in &plan.spec.foreign_keys {
                let (at, of) = ((edges.len(), source, plan.spec), (table, &plan.profiles[..]));
                edges.push(EdgePlan::of_foreign_key(at, foreign, &types, of, like, &mut faults));
            }
        }
        let mut targets = Vec::new();
        for (spec, TargetFiles { files, parts }) in schema.targets.iter().zip(sources.targets) {
            let name = spec.task_name();
            let table = opener.task(("targets", &name), spec.task_files(), files, &spec.label.list())?;
            let known = like.and_then(|like| like.targets.get(&name));
            let at = (targets.len(), spec);
            targets.push(TargetTablePlan::new(at, &types, (table, parts), known, kept, &mut faults)?);
        }
        let mut links = Vec::new();
        for (spec, TargetFiles { files, parts }) in schema.links.iter().zip(sources.links) {
            let table = opener.task(("links", &spec.name), spec.task_files(), files, &spec.dst.list())?;
            let at = (links.len(), spec);
            links.push(LinkTablePlan::new(at, &types, (table, parts), kept, &mut faults)?);
        }
        let mut ends = Vec::new();
        for (spec, files) in base.ends.iter().zip(sources.ends) {
            let name = format!("ends of {}", spec.name);
            let table = opener.table(&name, &spec.files, (files, &[]), (spec.separator, spec.quote))?;
            ends.push(RemovalPlan::new((ends.len(), spec), table, kept, &mut faults)?);
        }
        let mut plans = Self { schema, nodes, edges, targets, links, ends };
        plans.agree_on_times(&mut faults);
        faults.check()?;
        Ok(plans)
    }

    /// Gives all times one unit, because they are compared, and writes it to the roles of the
    /// columns.
    fn agree_on_times(&mut self, faults: &mut Faults) {
        let mut of_edges = Vec::new();
        for plan in &mut self.edges {
            let nodes = &self.nodes[plan.ends[0]];
            of_edges.extend(plan.time_column(nodes.table.as_ref(), &nodes.profiles));
        }
        let mut columns = Vec::new();
        for plan in &mut self.nodes {
            columns.extend(plan.time_column());
        }
        columns.extend(of_edges);
        for plan in &mut self.targets {
            columns.extend(plan.time_column());
        }
        for plan in &mut self.links {
            columns.extend(plan.time_column());
        }
        times::agree(columns, faults);
    }

    /// Table of an edge type: its own, or that of the nodes with the foreign key.
    pub(super) fn table_of<'p>(&'p self, plan: &'p EdgePlan) -> Result<&'p Table> {
        let table = plan.table.as_ref().or_else(|| self.nodes[plan.ends[0]].table.as_ref());
        table.ok_or_else(|| Error::invalid(format!("edges '{}' have no table", plan.name())))
    }

    /// Reads all node types completely.
    pub(super) fn read_nodes(
        &self,
        base: Base,
        budget: Budget,
        scratch: &Scratch,
        kept: &Kept,
        faults: &mut Faults,
    ) -> Result<FinishedNodes> {
        let mut reads = Vec::new();
        for (i, plan) in self.nodes.iter().enumerate() {
            let empty = || NodeKeys::new(scratch, &i.to_string(), budget.keys);
            let read = match load_read(kept, i, empty) {
                Some(read) => read,
                None => {
                    let seed = self.schema.seed.wrapping_add(i as u64);
                    let read = plan.read(scratch, budget.keys, seed, faults)?;
                    if !faults.any() {
                        keep_read(&read, kept, i)?;
                    }
                    read
                }
            };
            reads.push(read);
        }
        faults.check()?;
        let added = self.add_unknown(base, &mut reads, budget, scratch, faults)?;
        let (mut parts, mut tasks, mut encodings) = (Vec::new(), Vec::new(), Vec::new());
        let mut changed = Vec::new();
        for ((plan, read), added) in self.nodes.iter().zip(&mut reads).zip(&added) {
            let (part, task, encoding) = plan.finish(read, added.as_ref(), scratch, faults)?;
            parts.push(part);
            tasks.extend(task);
            encodings.push(encoding);
            changed.extend(read.changed.take());
        }
        let (keys, reports) = reads.into_iter().map(|read| (read.keys, read.report)).unzip();
        Ok(FinishedNodes { keys, parts, tasks, encodings, reports, changed })
    }

    /// Reads the tables of targets, whose rows follow those of the tasks `before`. A table with a
    /// fault may have no task.
    pub(super) fn read_targets(
        &self,
        (nodes, keys, before): (&[NodePart], &[&NodeKeys], &[Task]),
        scratch: &Scratch,
        faults: &mut Faults,
    ) -> Result<Vec<ReadTargets>> {
        let mut read = Vec::new();
        for (i, plan) in self.targets.iter().enumerate() {
            let before = before.iter().find(|task| task.name == plan.name());
            let number = self.nodes.len() + self.edges.len() + i;
            let how = (self.schema.dangling, self.schema.seed.wrapping_add(number as u64));
            let of = (keys[plan.node_type], &nodes[plan.node_type], before);
            let (task, report) = plan.read(of, how, scratch, faults)?;
            let (task, encoding) = task.unzip();
            read.push((task, encoding, report));
        }
        for (t, plan) in self.nodes.iter().enumerate().filter(|_| !faults.any()) {
            let of_type = self.targets.iter().zip(&mut read).filter(|(plan, _)| plan.node_type == t);
            let of_type = of_type.filter_map(|(plan, (task, _, report))| {
                Some(((task.as_ref()?, plan.time.map(|(_, unit)| unit)), report))
            });
            let (tasks, reports): (Vec<_>, Vec<_>) = of_type.unzip();
            if !tasks.is_empty() {
                let leaks = node_leaks::find(plan, keys[t], &tasks)?;
                reports.into_iter().zip(leaks).for_each(|(report, leaks)| report.labels.leaks.extend(leaks));
            }
        }
        Ok(read)
    }

    /// Dataset whose rows precede those of the tables, without those that end, and the rows that
    /// do, which are also counted in `reports`; `keys` are those of the node types.
    pub(super) fn reduced(
        &self,
        base: Base,
        keys: &[&NodeKeys],
        scratch: &Scratch,
        reports: &mut Vec<EndReport>,
        faults: &mut Faults,
    ) -> Result<(TypedDataset, Removals)> {
        let Some((before, known)) = base.before.zip(base.like) else { return Ok(Default::default()) };
        let mut removals = Removals::new(before, keys);
        for plan in &self.ends {
            reports.push(plan.read((before, keys), self.schema.dangling, &mut removals, faults)?);
        }
        Ok((removals.reduce(before, known, scratch)?, removals))
    }

    /// Adds the keys that edges name to node types without files, and to all under
    /// [`Dangling::Add`]; returns them by node type. If edges lead to the nodes of a dataset, these
    /// keys are checked by the known ones of `base`.
    fn add_unknown(
        &self,
        base: Base,
        reads: &mut [NodeRead],
        budget: Budget,
        scratch: &Scratch,
        faults: &mut Faults,
    ) -> Result<Vec<Option<SortedRecords>>> {
        let all = self.schema.dangling == Dangling::Add;
        let is_open = |plan: &NodePlan| all || plan.table.is_none() && base.is_open(&plan.spec.kind);
        let is_open: Vec<bool> = self.nodes.iter().map(is_open).collect();
        let mut sorters: Vec<Option<RecordSorter>> = is_open
            .iter()
            .enumerate()
            .map(|(i, open)| {
                open.then(|| RecordSorter::new(scratch, &format!("all-unknown-{i}"), budget.keys))
            })
            .collect();
        if is_open.contains(&true) {
            let keys: Vec<&NodeKeys> = reads.iter().map(|read| &read.keys).collect();
            for plan in self.edges.iter().filter(|plan| plan.ends.iter().any(|&end| is_open[end])) {
                let unknown = plan.unknown(self.table_of(plan)?, &keys, &mut Faults::default())?;
                for (unknown, end) in unknown.into_iter().zip(plan.ends) {
                    if let (Some(sorter), Some(all)) = (&mut sorters[end], unknown.all) {
                        all.finish()?.for_each(|key, _| sorter.push(key, 0))?;
                    }
                }
            }
        }
        let sorted = |sorter: Option<RecordSorter>| sorter.map(RecordSorter::finish).transpose();
        let added: Vec<Option<SortedRecords>> = sorters.into_iter().map(sorted).collect::<Result<_>>()?;
        if let Some(known) = base.known {
            self.refuse_unknown(known, &added, faults)?;
            faults.check()?;
        }
        for (read, added) in reads.iter_mut().zip(&added) {
            added.as_ref().map_or(Ok(()), |added| read.keys.add(added))?;
        }
        Ok(added)
    }

    /// Adds faults for edges to nodes that no table has, in `named` by node type, and that are not
    /// `known` either.
    fn refuse_unknown(
        &self,
        known: &KnownKeys,
        named: &[Option<SortedRecords>],
        faults: &mut Faults,
    ) -> Result<()> {
        for (t, (plan, named)) in self.nodes.iter().zip(named).enumerate() {
            let Some(named) = named else { continue };
            let unknown = outside::unknown(&plan.spec.kind, named, known)?;
            let ends = self.edges.iter().flat_map(|plan| [(plan, 0), (plan, 1)]);
            for (plan, end) in ends.filter(|(plan, end)| !unknown.is_empty() && plan.ends[*end] == t) {
                outside::refuse(plan, self.table_of(plan)?, end, &unknown, faults)?;
            }
        }
        Ok(())
    }

    /// Roles of all columns.
    pub(super) fn report(&self) -> TableReport {
        let nodes = self.nodes.iter().map(|plan| NodeReport {
            kind: plan.spec.kind.clone(),
            nodes: plan.profiles.first().map_or(0, |profile| profile.rows),
            columns: plan.lines.clone(),
            ..NodeReport::default()
        });
        let edges = self.edges.iter().map(|plan| EdgeReport {
            kind: plan.name(),
            edges: plan.rows,
            columns: plan.lines.clone(),
            ..EdgeReport::default()
        });
        let targets = self.targets.iter().map(TargetTablePlan::report);
        let targets = targets.chain(self.links.iter().map(LinkTablePlan::report));
        TableReport {
            nodes: nodes.collect(),
            edges: edges.collect(),
            targets: targets.collect(),
            ends: Vec::new(),
        }
    }

    /// Schema with the encoding of every column.
    pub(super) fn resolved(&self) -> TableSchema {
        let mut schema = self.schema.clone();
        for (spec, plan) in schema.nodes.iter_mut().zip(&self.nodes) {
            spec.columns.extend(plan.rules());
            spec.formats.extend(plan.table.iter().flat_map(Table::named_formats));
            let is_read =
                |column: &String| spec.columns.get(column).is_none_or(|rule| rule.kind != Some(Kind::Ignore));
            spec.formats.retain(|column, _| is_read(column));
        }
        for (spec, plan) in schema.edges.iter_mut().zip(&self.edges) {
            spec.columns.extend(plan.rules());
            spec.formats.extend(plan.table.iter().flat_map(Table::named_formats));
            let is_read =
                |column: &String| spec.columns.get(column).is_none_or(|rule| rule.kind != Some(Kind::Ignore));
            spec.formats.retain(|column, _| is_read(column));
        }
        for (spec, plan) in schema.targets.iter_mut().zip(&self.targets) {
            spec.formats.extend(plan.table.named_formats());
        }
        for (spec, plan) in schema.links.iter_mut().zip(&self.links) {
            spec.formats.extend(plan.table.named_formats());
        }
        schema
    }
}
