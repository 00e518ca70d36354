//! Schema of a directory of RelBench: a database in Parquet files, and tables of targets at times.
//!
//! # Source
//!
//! Robinson et al., RelBench: a benchmark for deep learning on relational databases, NeurIPS 2024
//! (datasets and benchmarks). The files are those of `relbench/base/table.py`, `database.py` and
//! `task_base.py`:
//!
//! - `db/TABLE.parquet`: rows of a table. The metadata of the file has the primary key
//!   (`pkey_col`), the time (`time_col`) and the foreign keys (`fkey_col_to_pkey_table`) as JSON.
//! - `tasks/NAME/train.parquet`, `val.parquet` and `test.parquet`: rows of an entity, a time and a
//!   target, with the same metadata. The rows that test may lack the target.
//! - Tasks that recommend nodes have rows of a source, a time and a list of destinations.
//! - Later versions have `manifest.json` in the directory and in those of the tasks, and no
//!   metadata.
//!
//! # Algorithm
//!
//! Each table is a node type. Each foreign key is an edge type with its reverse, from the time of
//! the row that has the key. Each task with one target per row is a table of targets, and each task
//! that recommends nodes a table of links, whose splits their files give.
//!
//! # Cost
//!
//! One read of the metadata of all files, and of the targets whose kind no manifest states.
//!
//! # Deviations
//!
//! If the database has the target of a task as a column of its entity, that column is not a
//! feature: RelBench removes such columns when it loads the task.

mod database;
mod recommend;
#[cfg(test)]
mod tests;

use std::path::Path;

use database::{Database, DatabaseTable, DatabaseTask};
use graphmill_core::{Error, Result};

use super::{
    faults::Faults,
    profile::{Profile, Shape},
    readings::Sought,
    rule::ColumnRule,
    schema::{CATEGORY_LIMIT, ForeignKey, LinkTable, Names, NodeTable, TableSchema, Target, TargetTable},
    source::{Dialect, Table, TableFile},
};

/// Options of [`relbench`].
#[derive(Clone, Debug, Default)]
pub struct RelBenchOptions {
    /// Names of the tasks; empty for all tasks that can be imported.
    pub tasks: Vec<String>,
    /// Kind of the target of a task, or without a name of all tasks. A name precedes.
    pub kinds: Vec<(Option<String>, Target)>,
    /// Treatment of columns, by their names `TABLE.COLUMN`.
    pub columns: Vec<(String, ColumnRule)>,
}

/// Directory of RelBench as tables of an import.
#[derive(Clone, Debug)]
pub struct RelBench {
    /// Schema for [`import_tables`](super::import_tables).
    pub schema: TableSchema,
    /// Tasks that are left out, and columns that are not features.
    pub notes: Vec<String>,
}

/// Describes the directory `dir`, as RelBench keeps one per dataset in its cache, as tables of an
/// import. Reads the descriptions of all tables, and the targets of the tasks.
///
/// # Errors
/// The directory is not one of RelBench; a foreign key leads to no table; a task or table of the
/// options is unknown; a named task cannot be imported; the kind of a target is ambiguous.
pub fn relbench(dir: impl AsRef<Path>, options: &RelBenchOptions) -> Result<RelBench> {
    let db = Database::read(dir.as_ref())?;
    let tasks = db.tasks()?;
    let names: Vec<&str> = tasks.iter().map(|task| &task.name[..]).collect();
    let named = options.tasks.iter().chain(options.kinds.iter().filter_map(|(name, _)| name.as_ref()));
    if let Some(unknown) = named.into_iter().find(|name| !names.contains(&&name[..])) {
        return Err(Error::Unknown { axis: "task", name: unknown.clone(), known: names.join(", ") });
    }
    let mut kinds = options.kinds.iter().filter_map(|(name, _)| name.as_ref());
    if let Some(name) = kinds.find(|name| !options.tasks.is_empty() && !options.tasks.contains(name)) {
        return Err(Error::invalid(format!(
            "the kind of task '{name}' is given, but it is not imported; name it as a task, too"
        )));
    }
    let (mut targets, mut links) = (Vec::new(), Vec::new());
    let (mut notes, mut faults) = (Vec::new(), Vec::new());
    let mut hidden: Vec<(String, String)> = Vec::new();
    for task in &tasks {
        let is_named = options.tasks.contains(&task.name);
        if !is_named && !options.tasks.is_empty() {
            continue;
        }
        let table = match task_table(&db, task, options, &mut faults)? {
            Ok(table) => table,
            Err(why) if is_named => {
                let others: Vec<&str> = names.iter().copied().filter(|other| *other != task.name).collect();
                let others = if others.is_empty() { "none".into() } else { others.join(", ") };
                let name = &task.name;
                return Err(Error::invalid(format!("task '{name}': {why}; other tasks: {others}")));
            }
            Err(why) => {
                notes.push(format!("task '{}' is left out: {why}", task.name));
                continue;
            }
        };
        for (of, column) in hidden_columns(&db, task, &table) {
            let is_given = options.columns.iter().any(|(name, _)| *name == format!("{of}.{column}"));
            if !is_given && !hidden.contains(&(of.clone(), column.clone())) {
                let name = &task.name;
                notes.push(format!("column '{of}.{column}' is not a feature: the task '{name}' hides it"));
                hidden.push((of, column));
            }
        }
        match table {
            TaskTable::Targets(table) => targets.push(table),
            TaskTable::Links(table) => links.push(table),
        }
    }
    if !faults.is_empty() {
        return Err(Error::invalid(faults.join("\n")));
    }
    let nodes: Result<_> = db.tables.iter().map(|table| node_table(table, &hidden)).collect();
    let mut schema = TableSchema { nodes: nodes?, targets, links, ..TableSchema::default() };
    add_rules(&mut schema, options)?;
    Ok(RelBench { schema, notes })
}

/// Node table of a table of the database, without the columns `hidden` of tables.
fn node_table(table: &DatabaseTable, hidden: &[(String, String)]) -> Result<NodeTable> {
    let DatabaseTable { name, path, relations, .. } = table;
    let is_hidden = |column: &&String| hidden.contains(&(name.clone(), (*column).clone()));
    let foreign = relations.foreign.iter().filter(|(column, _)| !is_hidden(column));
    let foreign = foreign.map(|(column, to)| ForeignKey {
        column: Names::One(column.clone()),
        to: to.clone(),
        kind: None,
        time: relations.time.clone(),
        reverse: Some(format!("rev_{column}")),
    });
    Ok(NodeTable {
        kind: name.clone(),
        files: file(path)?,
        id: relations.key.clone().map_or(Names::None, Names::One),
        time: relations.time.clone(),
        ignore: table.columns.iter().filter(is_hidden).cloned().collect(),
        category_limit: CATEGORY_LIMIT,
        foreign_keys: foreign.collect(),
        ..NodeTable::default()
    })
}

/// Columns of tables that models of a task must not see: those that RelBench removes, and the
/// target, if its entity has it. Keys and times stay.
fn hidden_columns(db: &Database, task: &DatabaseTask, table: &TaskTable) -> Vec<(String, String)> {
    let (on, label) = match table {
        TaskTable::Targets(targets) => (targets.on.as_ref(), targets.label.list()),
        TaskTable::Links(_) => (None, Vec::new()),
    };
    let entity = on.into_iter().flat_map(|on| label.iter().map(move |c| (on.clone(), c.clone())));
    let is_there = |(of, column): &(String, String)| {
        db.table(of).is_some_and(|table| {
            let role = |of: &Option<String>| of.as_ref() == Some(column);
            table.columns.contains(column) && !role(&table.relations.key) && !role(&table.relations.time)
        })
    };
    task.hidden.iter().cloned().chain(entity).filter(is_there).collect()
}

/// Table of a task.
enum TaskTable {
    /// One target per row.
    Targets(TargetTable),
    /// Recommended nodes.
    Links(LinkTable),
}

/// Table of a task, or the reason for which it has none. An ambiguous kind is added to `faults`.
///
/// # Errors
/// A file cannot be read.
fn task_table(
    db: &Database,
    task: &DatabaseTask,
    options: &RelBenchOptions,
    faults: &mut Vec<String>,
) -> Result<Result<TaskTable, String>> {
    if task.entities.len() > 1 {
        return Ok(recommend::link_table(db, task)?.map(TaskTable::Links));
    }
    Ok(target_table(db, task, options, faults)?.map(TaskTable::Targets))
}

/// Refuses entities that are no nodes with keys.
fn check_entity(db: &Database, to: &str) -> Result<(), String> {
    match db.table(to) {
        None => Err(db.no_table(to)),
        Some(table) if table.relations.key.is_none() => {
            Err(format!("its entities are rows of '{to}', which has no primary key"))
        }
        Some(_) => Ok(()),
    }
}

/// Entity of a task with one: column and table; or the reason for which its rows have none.
fn entity<'a>(db: &Database, task: &'a DatabaseTask) -> Result<(&'a str, &'a str), String> {
    let Some((column, to)) = task.entities.iter().next() else {
        return Err("its table records no entity".into());
    };
    check_entity(db, to).map(|()| (&column[..], &to[..]))
}

/// Table of targets of a task, or the reason for which it has none. An ambiguous kind is added to
/// `faults`.
///
/// # Errors
/// A file cannot be read.
fn target_table(
    db: &Database,
    task: &DatabaseTask,
    options: &RelBenchOptions,
    faults: &mut Vec<String>,
) -> Result<Result<TargetTable, String>> {
    let name = &task.name;
    let (id, on) = match entity(db, task) {
        Ok((id, on)) => (id.to_string(), on.to_string()),
        Err(why) => return Ok(Err(why)),
    };
    let is_role = |column: &String| *column == id || task.time.as_ref() == Some(column);
    let others: Vec<&String> = task.columns.iter().filter(|column| !is_role(column)).collect();
    let label = match (&task.target, &others[..]) {
        (Some(label), _) => label.clone(),
        (None, [label]) => (*label).clone(),
        (None, []) => return Ok(Err("its table has no column of a target".into())),
        (None, others) => {
            let others: Vec<&str> = others.iter().map(|name| &name[..]).collect();
            return Ok(Err(format!("several columns may be its target: {}", others.join(", "))));
        }
    };
    let given = |of: Option<&String>| options.kinds.iter().rev().find(|(name, _)| name.as_ref() == of);
    let given = given(Some(name)).or_else(|| given(None)).map(|(_, kind)| *kind);
    let recorded = match task.kind.as_deref() {
        Some("regression") => Some(Target::Regression),
        Some("binary_classification" | "multiclass_classification") => Some(Target::Classification),
        Some(other) => return Ok(Err(format!("tasks of the type '{other}' are not imported"))),
        None => None,
    };
    let profile = profile_of(task, &label)?;
    let kind = match given.or(recorded) {
        _ if profile.shape().is_some_and(|(shape, _)| shape == Shape::List) => {
            return Ok(Err(format!("its target '{label}' is a list per row")));
        }
        Some(kind) => Some(kind),
        None => kind_of(&profile).unwrap_or_else(|count| {
            faults.push(format!(
                "task '{name}': its target '{label}' has {count} different whole numbers, which are values \
                 or classes; choose by --target-task {name}=regression or {name}=classification"
            ));
            None
        }),
    };
    let part = |part: usize| task.parts[part].as_deref().map_or(Ok(Names::None), file);
    Ok(Ok(TargetTable {
        name: Some(name.clone()),
        train: part(0)?,
        valid: part(1)?,
        test: part(2)?,
        on: Some(on),
        id: Names::One(id),
        time: task.time.clone(),
        label: Names::One(label),
        task: kind,
        ..TargetTable::default()
    }))
}

/// Values of the target of a task, in all files that have it.
fn profile_of(task: &DatabaseTask, label: &str) -> Result<Profile> {
    let mut profile = Profile::new(Sought::None);
    let files = task.parts.iter().flatten().cloned().map(TableFile::Local).collect();
    let table = Table::open(&task.name, files, (Dialect::default(), &[label.to_string()]), 0)?;
    // A missing column is a fault of the import.
    let Ok(c) = table.position(label) else { return Ok(profile) };
    table.scan(&table.only([c]), &mut Faults::default(), |batch, _| {
        profile.add(batch, c, &table.before_place(batch));
        Ok(())
    })?;
    Ok(profile)
}

/// Kind of a target: up to two different values are classes, and fractions are values. `None`
/// without values.
///
/// # Errors
/// The number of different whole numbers, if there are more than two.
fn kind_of(profile: &Profile) -> Result<Option<Target>, String> {
    let Some((shape, _)) = profile.shape() else { return Ok(None) };
    match (shape, profile.distinct(shape)) {
        (Shape::Number, _) if profile.has_fractions => Ok(Some(Target::Regression)),
        (Shape::Number, Some(values)) if values.len() > 2 => Err(values.len().to_string()),
        (Shape::Number, None) => Err(format!("more than {}", super::profile::MAX_DISTINCT)),
        _ => Ok(Some(Target::Classification)),
    }
}

/// Adds the rules of columns to their tables.
fn add_rules(schema: &mut TableSchema, options: &RelBenchOptions) -> Result<()> {
    let known: Vec<String> = schema.nodes.iter().map(|table| table.kind.clone()).collect();
    for (name, rule) in &options.columns {
        if !name.contains('.') {
            return Err(Error::invalid(format!(
                "column '{name}': write TABLE.COLUMN, such as {name}.COLUMN"
            )));
        }
        let of = |table: &&mut NodeTable| name.strip_prefix(&table.kind).is_some_and(|c| c.starts_with('.'));
        let Some(table) = schema.nodes.iter_mut().find(of) else {
            let table = name.split('.').next().unwrap_or_default().to_string();
            return Err(Error::Unknown { axis: "table", name: table, known: known.join(", ") });
        };
        let column = name[table.kind.len() + 1..].to_string();
        table.columns.insert(column, rule.clone());
    }
    Ok(())
}

/// Path of a file as a schema has it.
fn file(path: &Path) -> Result<Names> {
    let text = path.to_str().ok_or_else(|| {
        Error::format(path, "path", "it is not UTF-8, as paths of a schema are; rename the directory")
    })?;
    Ok(Names::One(text.into()))
}
