//! Names of files and directories of a typed dataset.

use std::collections::BTreeSet;

use super::EdgeType;

/// Directories of node types, edge types and tasks.
pub(super) const NODES: &str = "nodes";
pub(super) const EDGES: &str = "edges";
pub(super) const TASKS: &str = "tasks";
/// Document of the operations that were applied to columns.
pub(crate) const PREPROCESSING: &str = "preprocessing.json";

pub(super) const FEATURES: &str = "features.npy";
pub(super) const FEATURES_INDPTR: &str = "features_indptr.npy";
pub(super) const FEATURES_INDICES: &str = "features_indices.npy";
pub(super) const FEATURES_VALUES: &str = "features_values.npy";
pub(super) const FEATURE_MEAN: &str = "feature_mean.npy";
pub(super) const FEATURE_DEVIATION: &str = "feature_deviation.npy";
pub(super) const KEYS: &str = "keys.npy";
pub(super) const KEYS_OFFSETS: &str = "keys_offsets.npy";
pub(super) const KEYS_BYTES: &str = "keys_bytes.npy";
pub(super) const TIME: &str = "time.npy";
pub(super) const ORIGINAL_IDS: &str = "original_ids.npy";
pub(super) const INDPTR: &str = "indptr.npy";
pub(super) const INDICES: &str = "indices.npy";
pub(super) const WEIGHTS: &str = "weights.npy";
pub(super) const SEEDS: &str = "seeds.npy";
pub(super) const TARGETS: &str = "targets.npy";
/// Parts of a split, and the stems of their negatives.
pub(super) const SPLIT: [&str; 3] = ["train.npy", "valid.npy", "test.npy"];
pub(super) const NEGATIVE_PAIRS: [&str; 3] =
    ["train_negatives.npy", "valid_negatives.npy", "test_negatives.npy"];
pub(super) const NEGATIVE_DESTINATIONS: [&str; 3] =
    ["train_negative_destinations.npy", "valid_negative_destinations.npy", "test_negative_destinations.npy"];
pub(super) const NEGATIVE_SOURCES: [&str; 3] =
    ["train_negative_sources.npy", "valid_negative_sources.npy", "test_negative_sources.npy"];
pub(super) const NEGATIVE_LISTS: [&str; 3] =
    ["train_negative_lists.npy", "valid_negative_lists.npy", "test_negative_lists.npy"];
pub(super) const NEGATIVE_STARTS: [&str; 3] =
    ["train_negative_starts.npy", "valid_negative_starts.npy", "test_negative_starts.npy"];

/// Files of a node type.
const NODE_FILES: [&str; 11] = [
    FEATURES,
    FEATURES_INDPTR,
    FEATURES_INDICES,
    FEATURES_VALUES,
    FEATURE_MEAN,
    FEATURE_DEVIATION,
    KEYS,
    KEYS_OFFSETS,
    KEYS_BYTES,
    TIME,
    ORIGINAL_IDS,
];
/// Files of an edge type.
const EDGE_FILES: [&str; 8] =
    [INDPTR, INDICES, WEIGHTS, TIME, FEATURES, FEATURES_INDPTR, FEATURES_INDICES, FEATURES_VALUES];
/// Files of a task, beside its split and negatives.
const TASK_FILES: [&str; 3] = [SEEDS, TIME, TARGETS];

/// Returns true if this version of the format has a file of that name in the directory of `kind`
/// ([`NODES`], [`EDGES`] or [`TASKS`]).
pub(super) fn is_known(kind: &str, name: &str) -> bool {
    match kind {
        NODES => NODE_FILES.contains(&name),
        EDGES => EDGE_FILES.contains(&name),
        TASKS => {
            let lists = [
                &SPLIT,
                &NEGATIVE_PAIRS,
                &NEGATIVE_DESTINATIONS,
                &NEGATIVE_SOURCES,
                &NEGATIVE_LISTS,
                &NEGATIVE_STARTS,
            ];
            TASK_FILES.contains(&name) || lists.iter().any(|list| list.contains(&name))
        }
        _ => false,
    }
}

/// Longest escaped name of a type, in bytes: three of them, and a number, make a file name.
const MAX_NAME_LEN: usize = 60;

/// Name of a type as a part of a file name. Letters of ASCII, digits, `-`, `.` and `_` stay; the
/// other bytes become `%` and two hexadecimal digits, as in addresses. So do a leading `.`, and
/// underscores that would read as the separator `__` of an edge type's parts.
pub(crate) fn escape(name: &str) -> String {
    let bytes = name.as_bytes();
    let mut out = String::new();
    for (i, &byte) in bytes.iter().enumerate() {
        let next_to = |j: Option<usize>| j.and_then(|j| bytes.get(j)).is_none_or(|&other| other == b'_');
        let stays = match byte {
            b'_' => !next_to(i.checked_sub(1)) && !next_to(Some(i + 1)),
            b'.' => i > 0,
            _ => byte.is_ascii_alphanumeric() || byte == b'-',
        };
        if stays {
            out.push(char::from(byte));
        } else {
            out.push_str(&format!("%{byte:02X}"));
        }
    }
    out.truncate(MAX_NAME_LEN);
    out
}

/// Directory of an edge type within [`EDGES`], unless an earlier type has the same.
pub(super) fn edge_directory(edge_type: &EdgeType) -> String {
    [&edge_type.source, &edge_type.name, &edge_type.destination].map(|name| escape(name)).join("__")
}

/// Name for a directory that no earlier one has, also where upper and lower case are the same: the
/// given name, or `NAME~2`, `NAME~3` and so on.
pub(crate) fn unique(name: String, taken: &mut BTreeSet<String>) -> String {
    let mut found = name.clone();
    let mut number = 2;
    while !taken.insert(found.to_ascii_lowercase()) {
        found = format!("{name}~{number}");
        number += 1;
    }
    found
}

/// Returns true if `name` may be the name of a type's directory.
pub(super) fn is_directory_name(name: &str) -> bool {
    !name.is_empty()
        && name.len() < 255
        && !name.starts_with('.')
        && name.bytes().all(|b| b.is_ascii_alphanumeric() || b"-._%~".contains(&b))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escaped_names_are_plain_file_names() {
        for (name, escaped) in [
            ("paper", "paper"),
            ("rev_writes", "rev_writes"),
            ("a__b", "a%5F%5Fb"),
            ("_a_", "%5Fa%5F"),
            ("..", "%2E."),
            ("has topic/é", "has%20topic%2F%C3%A9"),
            ("http://x#y", "http%3A%2F%2Fx%23y"),
        ] {
            assert_eq!(escape(name), escaped);
            assert!(is_directory_name(&escape(name)), "{name}");
        }
        assert_eq!(escape(&"x".repeat(100)).len(), MAX_NAME_LEN);
        for name in ["", ".", "..", "a/b", "a\\b", "a b"] {
            assert!(!is_directory_name(name), "{name}");
        }
    }

    #[test]
    fn directories_differ_where_case_does_not_count() {
        let mut taken = BTreeSet::new();
        let names = ["Paper", "paper", "PAPER", "author"].map(|name| unique(name.into(), &mut taken));
        assert_eq!(names, ["Paper", "paper~2", "PAPER~3", "author"]);
    }
}
