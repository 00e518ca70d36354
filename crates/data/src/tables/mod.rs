//! Import of people's own tables: node and edge tables with keys of any type become a dataset of
//! format 2.
//!
//! A table is read in passes: types of all columns; keys, targets and splits; statistics of the
//! training rows; features. Rows that take at most a quarter of the memory budget are kept between
//! the passes. Keys are numbered by a dictionary, or beyond the budget by sorting on disk. The
//! dataset has the same bytes for any budget and any number of threads, and for CSV, JSON lines,
//! Parquet and Arrow files with the same values.
//!
//! - [`TableSchema`]: tables and the roles of their columns, as a file `schema.toml`.
//! - [`plan`]: roles that an import would give to all columns.
//! - [`import_tables`]: the import.
//! - [`import_new_tables`]: the import of new rows, whose edges may name nodes of a dataset.
//! - [`Preprocessing`]: statistics, by which other tables are encoded alike.

mod column;
mod date;
mod dictionary;
mod edges;
mod encoding;
mod ends;
mod faults;
mod finished;
mod kept;
mod key_writer;
mod keys;
mod memory;
mod nodes;
mod outside;
mod parts;
mod plan;
mod preprocessing;
mod profile;
mod report;
#[cfg(test)]
mod resume_tests;
mod rows;
mod rule;
mod schema;
mod source;
mod sources;
mod split;
mod stats;
mod targets;
#[cfg(test)]
mod tests;
mod times;
mod value;
mod write;

use std::{path::Path, process};

use edges::EdgePlan;
use faults::Faults;
use finished::{FinishedNodes, keep_edges, keep_read, load_edges, load_read};
use graphmill_core::{Error, Result, memory as machine, progress::Unit};
use kept::Kept;
use keys::NodeKeys;
pub use memory::MemoryTable;
use nodes::{NodePlan, NodeRead};
pub use outside::KnownKeys;
use parts::Parts;
pub use plan::ColumnLine;
pub use preprocessing::{FILE as PREPROCESSING_FILE, Preprocessing};
pub use report::{EdgeReport, NodeReport, TableReport};
pub use rule::{ColumnRule, Kind, Missing, Part, Scale};
pub use schema::{CATEGORY_LIMIT, Dangling, EdgeTable, ForeignKey, Names, NodeTable, TableSchema, Target};
use source::{Dialect, Spool, Table, TableFile};
use sources::Sources;
pub use split::SplitRule;

use crate::{
    atomic,
    dataset::{Work, native::check_target},
    external::{RecordSorter, Scratch, SortedRecords},
    typed::TypedDataset,
};

/// Budgets of an import in bytes.
#[derive(Clone, Copy, Debug)]
struct Budget {
    /// Rows of a table between two passes.
    cache: usize,
    /// Keys of a node type.
    keys: u64,
    /// Source bytes from which finished parts are recorded, so that a killed import resumes.
    recorded: u64,
}

/// Source bytes of an import that takes seconds, so that recording its parts does not count.
const MIN_RECORDED_BYTES: u64 = 8 << 20;

impl Budget {
    fn of(memory: u64, tables: usize) -> Self {
        let share = memory / 4 / tables.max(1) as u64;
        let cache = usize::try_from(share).unwrap_or(usize::MAX);
        Self { cache, keys: share, recorded: MIN_RECORDED_BYTES }
    }
}

/// Roles that [`import_tables`] would give to the columns.
#[derive(Clone, Debug)]
pub struct Planned {
    /// Role of every column.
    pub report: TableReport,
    /// Schema with the inferred encoding of every column.
    pub schema: TableSchema,
}

/// Imported dataset.
#[derive(Debug)]
pub struct ImportedTables {
    /// Dataset, mapped.
    pub dataset: TypedDataset,
    /// Record of dropped, added and ignored data.
    pub report: TableReport,
}

/// Reads all values once and returns the roles of the columns, without writing anything.
///
/// # Errors
/// All faults of the tables at once.
pub fn plan(schema: &TableSchema, like: Option<&Preprocessing>) -> Result<Planned> {
    let mut spool = Spool::new(std::env::temp_dir().join(format!("graphmill-{}.table", process::id())));
    let budget =
        Budget::of(machine::available().unwrap_or(1 << 30) / 2, schema.nodes.len() + schema.edges.len());
    let sources = Sources::find(schema, &mut spool)?;
    let plans = Plans::new(schema, like, budget, sources, &Kept::none())?;
    Ok(Planned { report: plans.report(), schema: plans.resolved() })
}

/// Imports tables into the dataset directory `dst`, atomically and within a memory budget. Data
/// beyond the budget is kept in the directory `dst.importing` meanwhile. A killed import leaves
/// that directory, and the same import of the same tables resumes from the parts that were
/// finished: the types of a table's columns, the keys of a node type, all node types, the edges of
/// a type, and its sorted edges. Imports of a few megabytes, and of tables in memory or from
/// standard input, start again. After an error the directory is removed.
///
/// # Errors
/// All faults of the tables at once; `dst` is not empty; the disk is too small; the progress
/// cancels the work.
pub fn import_tables(
    schema: &TableSchema,
    dst: impl AsRef<Path>,
    like: Option<&Preprocessing>,
    work: Work,
) -> Result<ImportedTables> {
    import_within(schema, dst.as_ref(), Base { like, known: None }, work, None)
}

/// Imports tables of new rows as [`import_tables`] does, encoded by the statistics `like` of a
/// dataset. Nodes that only edges name are added behind the rows if the dataset has them by
/// `known`.
///
/// # Errors
/// As for [`import_tables`]; an edge names a node that neither the tables nor the dataset has.
pub fn import_new_tables(
    schema: &TableSchema,
    dst: impl AsRef<Path>,
    like: &Preprocessing,
    known: &KnownKeys,
    work: Work,
) -> Result<ImportedTables> {
    let schema = TableSchema { dangling: Dangling::Add, ..schema.clone() };
    let base = Base { like: Some(like), known: Some(known) };
    import_within(&schema, dst.as_ref(), base, work, None)
}

/// Dataset that tables are imported for.
#[derive(Clone, Copy, Default)]
struct Base<'a> {
    /// Statistics by which columns are encoded.
    like: Option<&'a Preprocessing>,
    /// Keys that edges may name without a row.
    known: Option<&'a KnownKeys<'a>>,
}

fn import_within(
    schema: &TableSchema,
    dst: &Path,
    base: Base,
    work: Work,
    budget: Option<Budget>,
) -> Result<ImportedTables> {
    check_target(dst, work.replace)?;
    schema.check()?;
    let memory = work.memory.or_else(|| Some(machine::available()? / 2)).unwrap_or(1 << 30);
    let mut spool = Spool::new(atomic::suffixed(dst, ".stdin"));
    let sources = Sources::find(schema, &mut spool)?;
    let identity = sources.identity(schema, base.like)?;
    let scratch = Scratch::open(&atomic::suffixed(dst, ".importing"), &identity, memory, work.progress)?;
    let budget =
        budget.unwrap_or_else(|| Budget::of(scratch.memory(), schema.nodes.len() + schema.edges.len()));
    let bytes = sources.bytes()?;
    let kept = Kept::new(&scratch, bytes > 0 && bytes >= budget.recorded);
    let imported =
        read(schema, dst, base, budget, &scratch, &kept, sources).and_then(|(parts, mut report)| {
            scratch.stage("writing the dataset", None, Unit::Bytes);
            let dataset = write::build(parts, &scratch, &kept, &mut report)?;
            scratch.check()?;
            dataset.save_by_way_of(&scratch, dst, work.replace)?;
            Ok(ImportedTables { dataset, report })
        });
    // After an error the first one is returned.
    let removed = scratch.remove();
    let imported = imported?;
    removed?;
    Ok(imported)
}

/// Reads all tables.
fn read(
    schema: &TableSchema,
    dst: &Path,
    base: Base,
    budget: Budget,
    scratch: &Scratch,
    kept: &Kept,
    sources: Sources,
) -> Result<(Parts, TableReport)> {
    scratch.stage("reading the tables", None, Unit::Bytes);
    let plans = Plans::new(schema, base.like, budget, sources, kept)?;
    let mut faults = Faults::default();
    let nodes = match FinishedNodes::load(kept, |i| NodeKeys::new(scratch, &i.to_string(), budget.keys)) {
        Some(nodes) => nodes,
        None => {
            let nodes = plans.read_nodes(base.known, budget, scratch, kept, &mut faults)?;
            // Faults of values end the import later, together with those of the edges.
            if !faults.any() {
                nodes.keep(kept)?;
            }
            nodes
        }
    };
    let mut report = TableReport::default();
    let mut preprocessing = Preprocessing::new();
    let names = nodes.parts.iter().map(|part| part.name.clone());
    preprocessing.nodes.extend(names.zip(nodes.encodings));
    let keys: Vec<&NodeKeys> = nodes.keys.iter().collect();
    let mut edges = Vec::new();
    for (e, plan) in plans.edges.iter().enumerate() {
        let finished = match load_edges(kept, e) {
            Some(finished) => finished,
            None => {
                let finished =
                    plan.read(plans.table_of(plan)?, &keys, schema.dangling, scratch, &mut faults)?;
                if !faults.any() {
                    keep_edges(&finished, kept, e)?;
                }
                finished
            }
        };
        let (part, encoding, counts) = finished;
        preprocessing.edges.insert(plan.name(), encoding);
        edges.push(part);
        report.edges.push(counts);
    }
    faults.check()?;
    report.nodes = nodes.reports;
    let name = schema.name.clone().unwrap_or_else(|| {
        dst.file_name().map_or("tables".into(), |name| name.to_string_lossy().into_owned())
    });
    let preprocessing = serde_json::to_value(&preprocessing).map_err(|e| Error::invalid(e.to_string()))?;
    Ok((Parts { name, nodes: nodes.parts, edges, tasks: nodes.tasks, preprocessing }, report))
}

/// Plans of all tables.
struct Plans<'a> {
    schema: &'a TableSchema,
    nodes: Vec<NodePlan<'a>>,
    edges: Vec<EdgePlan>,
}

impl<'a> Plans<'a> {
    /// Reads the types of all columns.
    fn new(
        schema: &'a TableSchema,
        like: Option<&Preprocessing>,
        budget: Budget,
        sources: Sources,
        kept: &Kept,
    ) -> Result<Self> {
        schema.check()?;
        let types: Vec<String> = schema.nodes.iter().map(|table| table.kind.clone()).collect();
        let mut faults = Faults::default();
        let open = |kind: &str, names: &Names, files: Vec<TableFile>, separator, quote| {
            let one_byte = |c: Option<char>, what: &str| match c.map(u8::try_from) {
                None => Ok(None),
                Some(Ok(byte)) if byte.is_ascii() => Ok(Some(byte)),
                _ => Err(Error::invalid(format!(
                    "'{kind}': the {what} is not an ASCII character; choose another"
                ))),
            };
            let dialect = Dialect {
                separator: one_byte(separator, "separator")?,
                quote: one_byte(quote, "quote")?,
                columns: None,
            };
            match &names.list()[..] {
                [name] if schema.memory.contains_key(name) => Ok(schema.memory[name].open(name)),
                _ => Table::open(kind, files, dialect, budget.cache),
            }
        };
        let mut nodes = Vec::new();
        for (i, (spec, files)) in schema.nodes.iter().zip(sources.nodes).enumerate() {
            let table = match spec.files.is_empty() {
                true => None,
                false => Some(open(&spec.kind, &spec.files, files, spec.separator, spec.quote)?),
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
            nodes.push(NodePlan::new((i, spec), table, known, kept, &mut faults)?);
        }
        let mut edges = Vec::new();
        for (spec, files) in schema.edges.iter().zip(sources.edges) {
            let table = open(&spec.kind, &spec.files, files, spec.separator, spec.quote)?;
            let end = |given: &Option<String>| given.clone().unwrap_or_else(|| types[0].clone());
            let name = format!("{}:{}:{}", end(&spec.source), spec.kind, end(&spec.destination));
            let known = like.and_then(|like| like.edges.get(&name));
            edges.push(EdgePlan::of_table((edges.len(), spec), &types, table, known, kept, &mut faults)?);
        }
        for (source, plan) in nodes.iter().enumerate() {
            let Some(table) = &plan.table else { continue };
            for foreign in &plan.spec.foreign_keys {
                let (index, spec) = (edges.len(), (source, plan.spec));
                edges.push(EdgePlan::of_foreign_key(index, spec, foreign, &types, table, &plan.profiles));
            }
        }
        faults.check()?;
        Ok(Self { schema, nodes, edges })
    }

    /// Table of an edge type: its own, or that of the nodes with the foreign key.
    fn table_of<'p>(&'p self, plan: &'p EdgePlan) -> Result<&'p Table> {
        let table = plan.table.as_ref().or_else(|| self.nodes[plan.ends[0]].table.as_ref());
        table.ok_or_else(|| Error::invalid(format!("edges '{}' have no table", plan.name())))
    }

    /// Reads all node types completely.
    fn read_nodes(
        &self,
        known: Option<&KnownKeys>,
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
        let added = self.add_unknown(known, &mut reads, budget, scratch, faults)?;
        let (mut parts, mut tasks, mut encodings) = (Vec::new(), Vec::new(), Vec::new());
        for ((plan, read), added) in self.nodes.iter().zip(&mut reads).zip(&added) {
            let (part, task, encoding) = plan.finish(read, added.as_ref(), scratch, faults)?;
            parts.push(part);
            tasks.extend(task);
            encodings.push(encoding);
        }
        let (keys, reports) = reads.into_iter().map(|read| (read.keys, read.report)).unzip();
        Ok(FinishedNodes { keys, parts, tasks, encodings, reports })
    }

    /// Adds the keys that edges name to node types without files, and to all under
    /// [`Dangling::Add`]; returns them by node type. If edges lead to the nodes of a dataset, these
    /// keys are checked by `known`.
    fn add_unknown(
        &self,
        known: Option<&KnownKeys>,
        reads: &mut [NodeRead],
        budget: Budget,
        scratch: &Scratch,
        faults: &mut Faults,
    ) -> Result<Vec<Option<SortedRecords>>> {
        let all = self.schema.dangling == Dangling::Add;
        let is_open: Vec<bool> = self.nodes.iter().map(|plan| plan.table.is_none() || all).collect();
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
        if let Some(known) = known {
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
    fn report(&self) -> TableReport {
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
        TableReport { nodes: nodes.collect(), edges: edges.collect() }
    }

    /// Schema with the encoding of every column.
    fn resolved(&self) -> TableSchema {
        let mut schema = self.schema.clone();
        for (spec, plan) in schema.nodes.iter_mut().zip(&self.nodes) {
            spec.columns.extend(plan.rules());
        }
        for (spec, plan) in schema.edges.iter_mut().zip(&self.edges) {
            spec.columns.extend(plan.rules());
        }
        schema
    }
}
