//! Tables and tasks of a directory, as RelBench describes them.

use std::{
    collections::BTreeMap,
    fs, io,
    path::{Path, PathBuf},
};

use graphmill_core::{Error, Result, error::nearest, location::Location};
use serde::{Deserialize, de::DeserializeOwned};

use crate::dataset::import::parquet::described;

/// Description of a directory or a task, of later versions of RelBench.
const MANIFEST: &str = "manifest.json";
/// Files of the parts of a task's split.
const PARTS: [&str; 3] = ["train.parquet", "val.parquet", "test.parquet"];

/// Tables of a directory.
pub(super) struct Database {
    dir: PathBuf,
    pub(super) tables: Vec<DatabaseTable>,
}

/// Table of a database.
pub(super) struct DatabaseTable {
    pub(super) name: String,
    pub(super) path: PathBuf,
    pub(super) columns: Vec<String>,
    pub(super) relations: Relations,
}

/// Keys and time of a table.
#[derive(Clone, Debug, Default, Deserialize)]
pub(super) struct Relations {
    /// Column of the primary key.
    #[serde(default, rename = "pkey")]
    pub(super) key: Option<String>,
    /// Column of the time.
    #[serde(default, rename = "time_col")]
    pub(super) time: Option<String>,
    /// Columns of foreign keys, with the tables whose keys they are.
    #[serde(default, rename = "fkeys")]
    pub(super) foreign: BTreeMap<String, String>,
}

/// Task of a directory.
pub(super) struct DatabaseTask {
    pub(super) name: String,
    /// Files of the rows that train, validate and test.
    pub(super) parts: [Option<PathBuf>; 3],
    /// Columns of the rows that train.
    pub(super) columns: Vec<String>,
    /// Columns of keys, with their tables: one, or source and destination of a recommendation.
    pub(super) entities: BTreeMap<String, String>,
    pub(super) time: Option<String>,
    /// Column of the target, if it is recorded.
    pub(super) target: Option<String>,
    /// Type of the task, if it is recorded.
    pub(super) kind: Option<String>,
    /// Tables and columns that models of the task must not see.
    pub(super) hidden: Vec<(String, String)>,
    /// Columns of source and destination of a recommendation, if they are recorded.
    pub(super) recommends: Option<[String; 2]>,
    /// Number of recommended nodes that the metrics of the task judge, if it is recorded.
    pub(super) cutoff: Option<usize>,
}

/// Description of a directory, of which other fields are not read.
#[derive(Deserialize)]
struct DatasetManifest {
    tables: BTreeMap<String, Relations>,
}

/// Description of a task, of which other fields are not read.
#[derive(Deserialize)]
struct TaskManifest {
    task_type: String,
    #[serde(default)]
    kind: String,
    entity_table: Option<String>,
    entity_col: Option<String>,
    src_entity_table: Option<String>,
    src_entity_col: Option<String>,
    dst_entity_table: Option<String>,
    dst_entity_col: Option<String>,
    target_col: Option<String>,
    time_col: Option<String>,
    #[serde(default)]
    remove_columns: Vec<(String, String)>,
    eval_k: Option<usize>,
}

impl Database {
    /// Reads the descriptions of all tables.
    ///
    /// # Errors
    /// The directory is not one of RelBench, or a foreign key leads nowhere.
    pub(super) fn read(dir: &Path) -> Result<Self> {
        if dir.to_str().is_some_and(crate::object_storage::is_address) {
            let message = "addresses are not read; copy the directory to this machine first";
            return Err(Error::format(dir, "directory", message));
        }
        let db = dir.join("db");
        if !db.is_dir() {
            if !dir.exists() {
                return Err(Error::io(dir, "look into", io::ErrorKind::NotFound.into()));
            }
            let message = "it is missing; name the directory of a dataset in the cache of RelBench, which \
                           holds db and tasks";
            return Err(Error::format(dir, "directory 'db'", message));
        }
        let manifest = manifest::<DatasetManifest>(dir)?;
        let mut tables = Vec::new();
        for path in entries(&db)? {
            let Some(name) = path.file_name().and_then(|name| name.to_str()?.strip_suffix(".parquet")) else {
                continue;
            };
            let (columns, recorded) = described(&path)?;
            let relations = match &manifest {
                None => relations(&path, &recorded)?,
                Some(manifest) => manifest.tables.get(name).cloned().ok_or_else(|| {
                    let message = format!("it does not describe '{name}'; add the table, or remove its file");
                    Error::format(dir.join(MANIFEST), "tables", message)
                })?,
            };
            tables.push(DatabaseTable { name: name.into(), path, columns, relations });
        }
        if tables.is_empty() {
            let message = "no file TABLE.parquet is there; save the database with RelBench";
            return Err(Error::format(&db, "directory", message));
        }
        let db = Self { dir: dir.into(), tables };
        db.tables.iter().try_for_each(|table| db.check(table))?;
        Ok(db)
    }

    /// Table called `name`.
    pub(super) fn table(&self, name: &str) -> Option<&DatabaseTable> {
        self.tables.iter().find(|table| table.name == name)
    }

    /// Checks that the foreign keys of a table lead to keys.
    fn check(&self, table: &DatabaseTable) -> Result<()> {
        let at = Location::new(&table.path, "foreign keys");
        for (column, to) in &table.relations.foreign {
            match self.table(to) {
                None => return Err(at.error(format!("column '{column}': {}", self.no_table(to)))),
                Some(to) if to.relations.key.is_none() => {
                    return Err(at.error(format!(
                        "column '{column}': the table '{}' has no primary key; save it with one",
                        to.name
                    )));
                }
                Some(_) => {}
            }
        }
        Ok(())
    }

    /// Message about a table that does not exist.
    pub(super) fn no_table(&self, name: &str) -> String {
        let known: Vec<&str> = self.tables.iter().map(|table| &table.name[..]).collect();
        let near = nearest(name, known.iter().copied());
        let hint = near.map_or_else(String::new, |near| format!(", did you mean '{near}'?"));
        format!("there is no table '{name}'{hint}; the tables are: {}", known.join(", "))
    }

    /// Reads the descriptions of all tasks, by name.
    ///
    /// # Errors
    /// A task has no rows that train, or no description.
    pub(super) fn tasks(&self) -> Result<Vec<DatabaseTask>> {
        let dir = self.dir.join("tasks");
        let dirs = if dir.is_dir() { entries(&dir)? } else { Vec::new() };
        dirs.iter().filter(|dir| dir.is_dir()).map(|dir| self.task(dir)).collect()
    }

    fn task(&self, dir: &Path) -> Result<DatabaseTask> {
        let name = dir.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let parts = PARTS.map(|part| Some(dir.join(part)).filter(|path| path.is_file()));
        let Some(train) = &parts[0] else {
            let message = "the file is missing; let RelBench write the table of the task, or remove the \
                           directory";
            return Err(Error::format(dir, PARTS[0], message));
        };
        let (columns, recorded) = described(train)?;
        let empty = DatabaseTask {
            name,
            parts: parts.clone(),
            columns,
            entities: BTreeMap::new(),
            time: None,
            target: None,
            kind: None,
            hidden: Vec::new(),
            recommends: None,
            cutoff: None,
        };
        let Some(manifest) = manifest::<TaskManifest>(dir)? else {
            let Relations { time, foreign: entities, .. } = relations(train, &recorded)?;
            return Ok(DatabaseTask { entities, time, ..empty });
        };
        let table = manifest.entity_table.as_ref().and_then(|name| self.table(name));
        // Tasks on a column of a table are asked at the time of each row.
        let own = table.filter(|_| manifest.kind == "autocomplete").map(|table| &table.relations);
        let column = manifest.entity_col.or_else(|| own?.key.clone());
        let recommends = manifest.src_entity_col.clone().zip(manifest.dst_entity_col.clone());
        let ends = [
            (column, manifest.entity_table),
            (manifest.src_entity_col, manifest.src_entity_table),
            (manifest.dst_entity_col, manifest.dst_entity_table),
        ];
        Ok(DatabaseTask {
            entities: ends.into_iter().filter_map(|(column, table)| column.zip(table)).collect(),
            time: manifest.time_col.or_else(|| own?.time.clone()),
            target: manifest.target_col,
            kind: Some(manifest.task_type),
            hidden: manifest.remove_columns,
            recommends: recommends.map(<[String; 2]>::from),
            cutoff: manifest.eval_k,
            ..empty
        })
    }
}

/// Entries of a directory, by name, but hidden ones.
fn entries(dir: &Path) -> Result<Vec<PathBuf>> {
    let found = fs::read_dir(dir).map_err(|e| Error::io(dir, "look into", e))?;
    let found: io::Result<Vec<_>> = found.map(|entry| Ok(entry?.path())).collect();
    let mut found = found.map_err(|e| Error::io(dir, "look into", e))?;
    found.retain(|path| !path.file_name().unwrap_or_default().to_string_lossy().starts_with('.'));
    found.sort_unstable();
    Ok(found)
}

/// Manifest of a directory, if it has one.
fn manifest<T: DeserializeOwned>(dir: &Path) -> Result<Option<T>> {
    let path = dir.join(MANIFEST);
    if !path.is_file() {
        return Ok(None);
    }
    let text = fs::read_to_string(&path).map_err(|e| Error::io(&path, "read", e))?;
    let place = |e: &serde_json::Error| format!("line {} column {}", e.line(), e.column());
    let parsed = serde_json::from_str(&text);
    parsed.map_err(|e| Error::format(&path, place(&e), format!("{e}; is it a manifest of RelBench?")))
}

/// Keys and time of a table, which `recorded` beside its columns has.
fn relations(path: &Path, recorded: &BTreeMap<String, String>) -> Result<Relations> {
    fn value<T: DeserializeOwned>(
        at: &Location<'_>,
        recorded: &BTreeMap<String, String>,
        key: &str,
    ) -> Result<T> {
        let text = recorded.get(key).ok_or_else(|| {
            at.error(format!(
                "'{key}' is missing, so that the keys of the table are unknown; write the file with \
                 RelBench, or describe the tables in a schema file of `graphmill import tables`"
            ))
        })?;
        serde_json::from_str(text).map_err(|e| at.error(format!("'{key}' is '{text}': {e}; write it again")))
    }
    let at = Location::new(path, "metadata");
    Ok(Relations {
        key: value(&at, recorded, "pkey_col")?,
        time: value(&at, recorded, "time_col")?,
        foreign: value(&at, recorded, "fkey_col_to_pkey_table")?,
    })
}
