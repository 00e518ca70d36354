//! The importer `graphbolt`: `metadata.yaml` and the files it names.

use super::{Answer, import_files};

pub(super) const TOKENS: &[&[u8]] = &[
    crate::input::FILE,
    b"metadata.yaml\n",
    b"edges.csv\n",
    b"edges.npy\n",
    b"feat.npy\n",
    b"label.npy\n",
    b"train.npy\n",
    b"train_labels.npy\n",
    b"valid.npy\n",
    b"graph:\n  nodes:\n    - num: 3\n  edges:\n    - format: csv\n      path: edges.csv\n",
    b"feature_data:\n  - domain: node\n    name: feat\n    format: numpy\n    path: feat.npy\n",
    b"tasks:\n  - name: node_classification\n    num_classes: 2\n",
    b"    train_set:\n      - data:\n        - name: seeds\n          format: numpy\n          path: \
        train.npy\n",
    b"        - name: labels\n          format: numpy\n          path: train_labels.npy\n",
    b"graph_topology:",
    b"dataset_name: ",
    b"&a ",
    b"*a",
    b"<<: *a",
    b"!!binary ",
    b"format: torch",
    b"18446744073709551615",
    b"---\n",
];

const NAMES: &[&str] = &[
    "metadata.yaml",
    "edges.csv",
    "edges.npy",
    "feat.npy",
    "label.npy",
    "train.npy",
    "train_labels.npy",
    "valid.npy",
    "valid_labels.npy",
];

/// One input: options of an import, and files of the directory.
pub fn run(data: &[u8]) -> Answer {
    import_files("import_graphbolt", "graphbolt", NAMES, "", data)
}
