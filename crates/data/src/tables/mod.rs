//! Import of people's own tables: tables of nodes, edges and targets with keys of any type become a
//! dataset of format 2.
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
//! - [`relbench()`]: schema of a directory of RelBench.
//! - [`append_tables`]: a dataset with the rows of further tables, [`MoreTables`].
//! - [`Preprocessing`]: statistics, by which other tables are encoded alike.

mod append;
#[cfg(test)]
mod append_tests;
mod base;
#[cfg(test)]
mod change_tests;
mod changed;
mod check;
mod column;
mod column_formats;
mod date;
mod dictionary;
mod edges;
mod encoding;
mod ends;
mod faults;
mod finished;
mod format;
#[cfg(test)]
mod format_tests;
mod joined;
mod kept;
mod key_writer;
mod keys;
mod leak;
mod leak_counts;
#[cfg(test)]
mod leak_tests;
mod leaks;
mod link_tables;
#[cfg(test)]
mod link_tests;
mod memory;
mod moments;
mod names;
mod node_leaks;
mod node_rows;
mod nodes;
#[cfg(test)]
mod null_tests;
mod nulls;
mod one_or_more;
mod others;
mod outside;
mod parts;
mod plan;
mod plans;
mod preprocessing;
mod profile;
mod readings;
mod reduced;
#[cfg(test)]
mod relational_tests;
mod relbench;
mod removals;
mod report;
#[cfg(test)]
mod resume_tests;
mod rows;
mod rule;
mod schema;
mod schema_parts;
mod source;
mod sources;
mod split;
mod stats;
mod target_tables;
#[cfg(test)]
mod target_tests;
mod targets;
mod task_columns;
#[cfg(test)]
mod tests;
mod times;
mod value;
mod write;

use std::{fs, path::Path, process};

pub use append::MoreTables;
use base::Base;
pub use changed::Changed;
use faults::Faults;
use finished::{FinishedEdges, FinishedNodes, keep_edges, load_edges};
pub use format::{Format, NumberFormat, TimePattern};
use graphmill_core::{Error, Result, memory as machine, progress::Unit};
use joined::Extended;
use kept::Kept;
use keys::NodeKeys;
pub use leak::{Leak, LeakKind};
pub use memory::MemoryTable;
pub use names::{TypeTables, find_edge_type};
pub use outside::KnownKeys;
use parts::Parts;
pub use plan::ColumnLine;
use plans::{Budget, Plans};
pub use preprocessing::{Appended, FILE as PREPROCESSING_FILE, Preprocessing};
pub use relbench::{RelBench, RelBenchOptions, relbench};
pub use report::{EdgeReport, EndReport, LabelReport, NodeReport, TableReport, TargetReport};
pub use rule::{ColumnRule, Kind, Missing, Part, Scale};
pub use schema::{
    CATEGORY_LIMIT, Dangling, EdgeTable, ForeignKey, LinkTable, Names, NodeTable, TableSchema, Target,
    TargetTable,
};
use source::Spool;
use sources::Sources;
pub use split::SplitRule;

use crate::{
    atomic,
    dataset::{Work, native::check_target},
    external::Scratch,
    typed::{self, TypedDataset, Verify},
};

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
    let budget = Budget::of(machine::available().unwrap_or(1 << 30) / 2, schema);
    let sources = Sources::find(schema, &[], &mut spool)?;
    let base = Base { like, ..Base::default() };
    let plans = Plans::new(schema, base, budget, sources, &Kept::none())?;
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
    import_within(schema, dst.as_ref(), Base { like, ..Base::default() }, work, None)
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
    let base = Base { like: Some(like), known: Some(known), ..Base::default() };
    import_within(&schema, dst.as_ref(), base, work, None)
}

/// Writes the dataset `base`, which [`import_tables`] or this function wrote, with the rows of
/// further tables to the directory `dst`. The tables are read as [`import_tables`] reads them:
/// within a memory budget, with the same bytes for any budget and number of threads, atomically,
/// and resumed after a kill.
///
/// Nodes, edges and rows of tasks keep their numbers, and new ones follow; edges of a destination
/// do, too. Rows that end are removed first, so that later edges and rows of tasks have smaller
/// numbers; nodes that end stay, without edges and rows of tasks, and keep their numbers. Columns
/// are encoded by the statistics of the import. New rows with labels are divided by the rule of the
/// import, or another one: on their own, so that earlier rows stay in their part. The result is
/// that of an import of all rows by these statistics, but for splits by shares, and the rounding of
/// weights of edges that are merged.
///
/// # Errors
/// All faults of the tables at once, such as a node whose key `base` has unless
/// [`MoreTables::changed`] allows it, or the end of an edge that `base` does not have; `base` was
/// not imported from tables; `dst` is `base` or not empty; the disk is too small; the progress
/// cancels the work.
pub fn append_tables(
    base: impl AsRef<Path>,
    tables: &MoreTables,
    dst: impl AsRef<Path>,
    work: Work,
) -> Result<(ImportedTables, Appended)> {
    append_within(base.as_ref(), tables, dst.as_ref(), work, None)
}

fn append_within(
    base: &Path,
    tables: &MoreTables,
    dst: &Path,
    work: Work,
    budget: Option<Budget>,
) -> Result<(ImportedTables, Appended)> {
    let place = |path: &Path| fs::canonicalize(path).ok();
    if place(dst).is_some_and(|dst| Some(dst) == place(base)) {
        let message = "rows are appended to a new directory, because runs refer to the old dataset; name \
                       another directory";
        return Err(Error::format(dst, "directory", message));
    }
    let known = Preprocessing::read(base)?;
    let before = typed::open(base, Verify::Once)?;
    append::check(&before, &known)?;
    let schema = tables.schema(&before, &known)?;
    // Rows are copied as a whole.
    before.feature_tables().try_for_each(|features| features.verify())?;
    let ends = tables.removals(&before, &known)?;
    let (changed, ends) = (tables.changed, &ends[..]);
    let of = Base { like: Some(&known), known: None, before: Some(&before), changed, ends };
    let imported = import_within(&schema, dst, of, work, budget)?;
    let appended = Preprocessing::last_appended(&imported.dataset)?;
    Ok((imported, appended))
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
    let sources = Sources::find(schema, base.ends, &mut spool)?;
    let identity = sources.identity(schema, base)?;
    let scratch = Scratch::open(&atomic::suffixed(dst, ".importing"), &identity, memory, work.progress)?;
    let budget = budget.unwrap_or_else(|| Budget::of(scratch.memory(), schema));
    let bytes = sources.bytes()?;
    let kept = Kept::new(&scratch, bytes > 0 && bytes >= budget.recorded);
    let imported =
        read(schema, dst, base, budget, &scratch, &kept, sources).and_then(|(parts, of, mut report)| {
            scratch.stage("writing the dataset", None, Unit::Bytes);
            let dataset = match base.before.zip(base.like) {
                None => write::build(parts, None, &scratch, &kept, &mut report)?,
                Some(base) => extended(base, (parts, of), &scratch, &kept, &mut report)?,
            };
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

/// The dataset `before`, of which `of` has the rows that stay, with the rows of tables, which the
/// record `known` encodes.
fn extended(
    (before, known): (&TypedDataset, &Preprocessing),
    (mut parts, of): (Parts, Extended),
    scratch: &Scratch,
    kept: &Kept,
    report: &mut TableReport,
) -> Result<TypedDataset> {
    let tasks = std::mem::take(&mut parts.tasks);
    let mut data = write::build(parts, Some(&of.reduced), scratch, kept, report)?;
    data.tasks = joined::tasks(&of.reduced, (tasks, &of.changed), &data, scratch)?;
    let appended = joined::record(before, &of, &data)?;
    data.preprocessing = Some(known.with(appended).to_value()?);
    Ok(data)
}

/// Reads all tables, also those of ends of the dataset that they extend, if there is one.
fn read(
    schema: &TableSchema,
    dst: &Path,
    base: Base,
    budget: Budget,
    scratch: &Scratch,
    kept: &Kept,
    sources: Sources,
) -> Result<(Parts, Extended, TableReport)> {
    scratch.stage("reading the tables", None, Unit::Bytes);
    let plans = Plans::new(schema, base, budget, sources, kept)?;
    let mut faults = Faults::default();
    let nodes = match FinishedNodes::load(kept, |i| NodeKeys::new(scratch, &i.to_string(), budget.keys)) {
        Some(nodes) => nodes,
        None => {
            let nodes = plans.read_nodes(base, budget, scratch, kept, &mut faults)?;
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
    let (mut edges, mut tasks) = (Vec::new(), nodes.tasks);
    let (reduced, removals) = plans.reduced(base, &keys, scratch, &mut report.ends, &mut faults)?;
    removals.refuse_early(&reduced, &nodes.parts, &mut faults);
    for (e, plan) in plans.edges.iter().enumerate() {
        let finished = match load_edges(kept, e) {
            Some(finished) => finished,
            None => {
                let how = (schema.dangling, schema.seed.wrapping_add((plans.nodes.len() + e) as u64));
                let finished = plan.read(plans.table_of(plan)?, &keys, how, scratch, &mut faults)?;
                if !faults.any() {
                    keep_edges(&finished, kept, e)?;
                }
                finished
            }
        };
        let FinishedEdges { part, task, encoding, report: counts } = finished;
        preprocessing.edges.insert(plan.name(), encoding);
        edges.push(part);
        tasks.extend(task);
        report.edges.push(counts);
    }
    let of = (&nodes.parts[..], &keys[..], &reduced.tasks[..]);
    for (task, encoding, counts) in plans.read_targets(of, scratch, &mut faults)? {
        preprocessing.targets.extend(encoding.map(|encoding| (counts.name.clone(), encoding)));
        tasks.extend(task);
        report.targets.push(counts);
    }
    for plan in &plans.links {
        let of = (plan.ends.map(|t| keys[t]), plan.ends.map(|t| &nodes.parts[t]));
        let (task, counts) = plan.read(of.0, of.1, schema.dangling, scratch, &mut faults)?;
        tasks.push(task);
        report.targets.push(counts);
    }
    faults.check()?;
    report.nodes = nodes.reports;
    let name = schema.name.clone().unwrap_or_else(|| {
        dst.file_name().map_or("tables".into(), |name| name.to_string_lossy().into_owned())
    });
    let of = Extended { reduced, removals, changed: nodes.changed };
    Ok((Parts { name, nodes: nodes.parts, edges, tasks, preprocessing }, of, report))
}
