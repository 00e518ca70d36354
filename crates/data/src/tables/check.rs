//! Checks of a schema alone, without its tables.

use graphmill_core::{Error, Result};

use super::{
    schema::{TableSchema, TargetTable},
    schema_parts::{TableEnd, TaskFiles},
};

impl TableSchema {
    /// Checks the schema alone, without its tables.
    ///
    /// # Errors
    /// All faults at once.
    pub fn check(&self) -> Result<()> {
        let mut faults = Vec::new();
        if self.nodes.is_empty() {
            faults.push("there is no node type; add [[nodes]]".to_string());
        }
        let known: Vec<&str> = self.nodes.iter().map(|table| table.kind.as_str()).collect();
        for (i, table) in self.nodes.iter().enumerate() {
            if known[..i].contains(&table.kind.as_str()) {
                faults.push(format!("two node tables have the type '{}'; name each type once", table.kind));
            }
            if table.is_numbered()
                && let Some(place) = self.place_of_keys(&table.kind)
            {
                faults.push(format!(
                    "nodes '{}': id is missing: name the column of the key, by which {place} name the nodes",
                    table.kind
                ));
            }
            let unknown = table.foreign_keys.iter().filter(|key| !known.contains(&key.to.as_str()));
            faults
                .extend(unknown.map(|key| unknown_type(&format!("nodes '{}'", table.kind), &key.to, &known)));
        }
        let mut relations = Vec::new();
        for table in &self.edges {
            let place = format!("edges '{}'", table.kind);
            check_ends(table.ends(), &place, &known, &mut faults);
            if table.undirected && table.source != table.destination {
                faults.push(format!(
                    "{place}: undirected needs one node type at both ends; use reverse = \"NAME\" instead"
                ));
            }
            let relation = (&table.source, &table.kind, &table.destination);
            if relations.contains(&relation) {
                faults.push(format!(
                    "two edge tables have the type '{}' between the same node types",
                    table.kind
                ));
            }
            relations.push(relation);
        }
        self.check_tasks(&known, &mut faults);
        if faults.is_empty() { Ok(()) } else { Err(Error::invalid(faults.join("\n"))) }
    }

    /// Adds the faults of the tables of targets, and of the names of all tasks, to `faults`.
    fn check_tasks(&self, known: &[&str], faults: &mut Vec<String>) {
        for table in &self.targets {
            let place = format!("targets '{}'", table.task_name());
            check_type(table.end(), &place, known, faults);
            for (name, columns) in [("id", &table.id), ("label", &table.label)] {
                if columns.is_empty() {
                    faults.push(format!("{place}: {name} is missing: name its column"));
                }
            }
            check_files(table.task_files(), &place, faults);
        }
        self.check_links(known, faults);
        let labels = self.nodes.iter().map(|table| &table.label);
        let labels = labels.chain(self.edges.iter().map(|table| &table.label));
        let of_labels = labels.filter(|label| !label.is_empty()).map(|label| label.list().join("-"));
        let mut names: Vec<String> =
            of_labels.chain(self.targets.iter().map(TargetTable::task_name)).collect();
        names.extend(self.links.iter().map(|table| table.name.clone()));
        names.sort_unstable();
        let mut twice: Vec<&str> =
            names.windows(2).filter(|pair| pair[0] == pair[1]).map(|pair| &pair[0][..]).collect();
        twice.dedup();
        let message = |name| {
            format!(
                "two tasks are called '{name}'; give the table of targets another name (name = \"NAME\"), \
                 or rename the column of a label"
            )
        };
        faults.extend(twice.into_iter().map(message));
    }

    /// Adds the faults of the tables of links to `faults`.
    fn check_links(&self, known: &[&str], faults: &mut Vec<String>) {
        for table in &self.links {
            let place = format!("links '{}'", table.name);
            if table.name.is_empty() {
                faults.push(format!("{place}: name is empty: name the task"));
            }
            check_ends(table.ends(), &place, known, faults);
            check_files(table.task_files(), &place, faults);
        }
    }

    /// First table that names nodes of the type `kind` by their keys, for a message.
    fn place_of_keys(&self, kind: &str) -> Option<String> {
        let is_only = self.nodes.len() == 1;
        let is_of = |end: TableEnd| end.is_of(kind, is_only);
        let foreign = self.nodes.iter().find(|table| table.foreign_keys.iter().any(|key| key.to == kind));
        let edges = self.edges.iter().find(|table| table.ends().into_iter().any(is_of));
        let targets = self.targets.iter().find(|table| is_of(table.end()));
        let links = self.links.iter().find(|table| table.ends().into_iter().any(is_of));
        foreign
            .map(|table| format!("foreign keys of '{}'", table.kind))
            .or_else(|| edges.map(|table| format!("edges '{}'", table.kind)))
            .or_else(|| targets.map(|table| format!("targets '{}'", table.task_name())))
            .or_else(|| links.map(|table| format!("links '{}'", table.name)))
    }
}

/// Adds the faults of the ends of a table of edges or links, which is called `place`.
fn check_ends(ends: [TableEnd; 2], place: &str, known: &[&str], faults: &mut Vec<String>) {
    ends.iter().for_each(|end| check_type(*end, place, known, faults));
    for TableEnd { key, columns, .. } in ends {
        if columns.is_empty() {
            faults.push(format!("{place}: {key} is missing: name the column of the key"));
        }
    }
    let [src, dst] = ends;
    if src.node_type == dst.node_type && !src.columns.is_empty() && src.columns == dst.columns {
        faults.push(format!(
            "{place}: src and dst are both '{}', which would join each node to itself; name the column of \
             the other end",
            src.columns.list().join(", ")
        ));
    }
}

/// Adds a fault if the node type of an end of a table, which is called `place`, is unknown, or is
/// missing although there are several.
fn check_type(end: TableEnd, place: &str, known: &[&str], faults: &mut Vec<String>) {
    match end.node_type {
        Some(name) if !known.contains(&name.as_str()) => faults.push(unknown_type(place, name, known)),
        None if known.len() > 1 => {
            faults.push(format!("{place}: {} is missing: name one of {}", end.name, known.join(", ")));
        }
        _ => {}
    }
}

/// Adds the faults of the files of a table of a task, which is called `place`.
fn check_files(of: TaskFiles, place: &str, faults: &mut Vec<String>) {
    let TaskFiles { all: files, parts, has_rule, .. } = of;
    let Some([train, ..]) = parts else {
        if files.is_empty() {
            faults.push(format!(
                "{place}: files is missing: name the table, or the tables train, valid and test"
            ));
        }
        return;
    };
    if train.is_empty() {
        faults.push(format!("{place}: train is missing: name the file of the rows that train"));
    }
    if !files.is_empty() {
        faults.push(format!("{place}: files stands beside train, valid and test; leave one of them out"));
    }
    if has_rule {
        let message = "the files train, valid and test are the split already; leave the rule out";
        faults.push(format!("{place}: {message}"));
    }
}

fn unknown_type(place: &str, name: &str, known: &[&str]) -> String {
    format!("{place}: '{name}' is not a node type; the node types are: {}", known.join(", "))
}
