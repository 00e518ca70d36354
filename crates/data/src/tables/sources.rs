//! Files of all tables of a schema, and what identifies an import of them.

use std::{process, time::SystemTime};

use graphmill_core::{Error, Result};

use super::{
    base::Base,
    removals::RemovalTable,
    schema::{Names, TableSchema},
    schema_parts::TaskFiles,
    source::{Spool, TableFile, find},
};

/// Files of a table of a task.
pub(super) struct TargetFiles {
    pub(super) files: Vec<TableFile>,
    /// Part of the split of each file, or of each table in memory, if files give the split.
    pub(super) parts: Option<Vec<u8>>,
}

/// Files of all tables.
pub(super) struct Sources {
    /// Files of each node table.
    pub(super) nodes: Vec<Vec<TableFile>>,
    /// Files of each edge table.
    pub(super) edges: Vec<Vec<TableFile>>,
    /// Files of each table of targets.
    pub(super) targets: Vec<TargetFiles>,
    /// Files of each table of links.
    pub(super) links: Vec<TargetFiles>,
    /// Files of each table of ends.
    pub(super) ends: Vec<Vec<TableFile>>,
    /// True if all tables can be read again by another process.
    is_lasting: bool,
}

impl Sources {
    /// Finds the files of all tables, also of those of ends; standard input is stored in `spool`.
    ///
    /// # Errors
    /// A file is not found.
    pub(super) fn find(schema: &TableSchema, ends: &[RemovalTable], spool: &mut Spool) -> Result<Self> {
        let mut is_lasting = true;
        let mut files = |names: &Names| {
            let list = names.list();
            is_lasting &= !list.iter().any(|name| name == "-" || schema.memory.contains_key(name));
            if list.len() == 1 && schema.memory.contains_key(&list[0]) {
                return Ok(Vec::new());
            }
            let found: Result<Vec<_>> =
                list.iter().map(|pattern| find(pattern, &schema.base, spool)).collect();
            Ok(found?.concat())
        };
        let nodes: Result<_> = schema.nodes.iter().map(|table| files(&table.files)).collect();
        let edges: Result<_> = schema.edges.iter().map(|table| files(&table.files)).collect();
        let ends: Result<_> = ends.iter().map(|table| files(&table.files)).collect();
        let mut of_task = |TaskFiles { all: names, parts, .. }: TaskFiles| -> Result<TargetFiles> {
            let Some(lists) = parts else {
                return Ok(TargetFiles { files: files(names)?, parts: None });
            };
            let (mut all, mut parts) = (Vec::new(), Vec::new());
            for (part, names) in (0u8..).zip(lists) {
                let found = files(names)?;
                // A table in memory has no file.
                let is_there = found.is_empty() && !names.is_empty();
                parts.resize(parts.len() + if is_there { 1 } else { found.len() }, part);
                all.extend(found);
            }
            Ok(TargetFiles { files: all, parts: Some(parts) })
        };
        let targets: Result<_> = schema.targets.iter().map(|table| of_task(table.task_files())).collect();
        let links: Result<_> = schema.links.iter().map(|table| of_task(table.task_files())).collect();
        let (nodes, edges, targets) = (nodes?, edges?, targets?);
        Ok(Self { nodes, edges, targets, links: links?, ends: ends?, is_lasting })
    }

    fn all(&self) -> impl Iterator<Item = &TableFile> {
        let targets = self.targets.iter().chain(&self.links).map(|table| &table.files);
        self.nodes.iter().chain(&self.edges).chain(targets).chain(&self.ends).flatten()
    }

    /// Everything that the result depends on, but the directory: an import with the same identity
    /// resumes an interrupted one.
    ///
    /// # Errors
    /// A file is missing.
    pub(super) fn identity(&self, schema: &TableSchema, base: Base) -> Result<String> {
        let like = serde_json::to_string(&base.like).map_err(|e| Error::invalid(e.to_string()))?;
        let mut text = format!("{} tables\n{schema}\nlike {like}", env!("CARGO_PKG_VERSION"));
        if let Some(before) = base.before {
            let (changed, ends) = (base.changed, base.ends);
            text.push_str(&format!("\nbehind {} {changed:?} {ends:?}", before.identity()?));
        }
        for file in self.all() {
            text.push('\n');
            text.push_str(&file.identity()?);
        }
        if !self.is_lasting {
            let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
            text.push_str(&format!("\n{} {}", process::id(), now.map_or(0, |time| time.as_nanos())));
        }
        Ok(text)
    }

    /// Bytes of all files, compressed as they are; 0 if they cannot be read again.
    ///
    /// # Errors
    /// A file is missing.
    pub(super) fn bytes(&self) -> Result<u64> {
        if !self.is_lasting {
            return Ok(0);
        }
        self.all().map(TableFile::size).sum()
    }
}
