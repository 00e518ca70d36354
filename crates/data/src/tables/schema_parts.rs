//! Parts that several kinds of tables of a schema have: the nodes that their rows name, and the
//! files of tasks.
//!
//! The tables themselves repeat the fields, because serde cannot refuse unknown fields of a struct
//! that includes another one (`flatten` and `deny_unknown_fields`).

use super::schema::{EdgeTable, LinkTable, Names, TargetTable};

/// Nodes that the rows of a table name, under the names that the fields have in a schema.
#[derive(Clone, Copy)]
pub(super) struct TableEnd<'a> {
    /// Field of the node type.
    pub(super) name: &'static str,
    /// The node type; the only one if missing.
    pub(super) node_type: &'a Option<String>,
    /// Field of the columns.
    pub(super) key: &'static str,
    /// Columns of the key.
    pub(super) columns: &'a Names,
}

impl<'a> TableEnd<'a> {
    /// Sources and destinations of these node types, with these columns.
    fn pair([source, destination]: [&'a Option<String>; 2], [src, dst]: [&'a Names; 2]) -> [Self; 2] {
        [
            Self { name: "source", node_type: source, key: "src", columns: src },
            Self { name: "destination", node_type: destination, key: "dst", columns: dst },
        ]
    }

    /// Returns true if the nodes are of the type `kind`, which is the only one if `is_only`.
    pub(super) fn is_of(&self, kind: &str, is_only: bool) -> bool {
        self.node_type.as_ref().map_or(is_only, |name| name == kind)
    }

    /// Number of the node type among `types`; the first if it is missing or unknown, which is a
    /// fault of the schema.
    pub(super) fn number(&self, types: &[String]) -> usize {
        let given = self.node_type.as_ref();
        given.and_then(|name| types.iter().position(|kind| kind == name)).unwrap_or(0)
    }
}

/// Files of the table of a task.
#[derive(Clone, Copy)]
pub(super) struct TaskFiles<'a> {
    /// Files of all rows.
    pub(super) all: &'a Names,
    /// Files of the rows that train, validate and test, if files give the split.
    pub(super) parts: Option<[&'a Names; 3]>,
    /// True if there is a rule of the split.
    pub(super) has_rule: bool,
    /// Separator and quote of a CSV file.
    pub(super) dialect: (Option<char>, Option<char>),
}

/// Files of the parts of a split, if there are some.
fn parts(parts: [&Names; 3]) -> Option<[&Names; 3]> {
    parts.iter().any(|names| !names.is_empty()).then_some(parts)
}

impl EdgeTable {
    /// Sources and destinations.
    pub(super) fn ends(&self) -> [TableEnd<'_>; 2] {
        TableEnd::pair([&self.source, &self.destination], [&self.src, &self.dst])
    }
}

impl TargetTable {
    /// Files of the rows that train, validate and test; `None` if a rule divides the rows.
    pub fn parts(&self) -> Option<[&Names; 3]> {
        self.task_files().parts
    }

    /// Files of the table.
    pub(super) fn task_files(&self) -> TaskFiles<'_> {
        TaskFiles {
            all: &self.files,
            parts: parts([&self.train, &self.valid, &self.test]),
            has_rule: self.split.is_some(),
            dialect: (self.separator, self.quote),
        }
    }

    /// The nodes that the rows name.
    pub(super) fn end(&self) -> TableEnd<'_> {
        TableEnd { name: "on", node_type: &self.on, key: "id", columns: &self.id }
    }
}

impl LinkTable {
    /// Files of the rows that train, validate and test; `None` if a rule divides the rows.
    pub fn parts(&self) -> Option<[&Names; 3]> {
        self.task_files().parts
    }

    /// Files of the table.
    pub(super) fn task_files(&self) -> TaskFiles<'_> {
        TaskFiles {
            all: &self.files,
            parts: parts([&self.train, &self.valid, &self.test]),
            has_rule: self.split.is_some(),
            dialect: (self.separator, self.quote),
        }
    }

    /// Sources and destinations.
    pub(super) fn ends(&self) -> [TableEnd<'_>; 2] {
        TableEnd::pair([&self.source, &self.destination], [&self.src, &self.dst])
    }
}
