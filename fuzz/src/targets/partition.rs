//! Directory of a partitioned dataset, of one node type or several: its manifest, shared arrays and
//! parts. The sizes and checksums in all manifests are corrected to match the files, unless an
//! option is `raw`.

use std::{path::Path, sync::OnceLock};

use graphmill_data::{
    partition::{PartitionDir, TypedPartitionDir},
    typed::Verify,
};
use serde_json::Value;

use super::{Answer, manifest::sign_files, native, typed};
use crate::{alloc::limited, input::Input, scratch::with_fresh_files};

pub(super) use super::ARRAY_TOKENS as TOKENS;

const MANIFEST: &str = "partition.json";

/// Directories that are datasets: all nodes and all edges of a partition of several types, and the
/// parts.
const DATASETS: [&str; 4] = ["whole", "topology", "part-0000", "part-0001"];

/// Files beside those of datasets.
const SHARED: &[&str] = &[
    MANIFEST,
    "book.npy",
    "degrees.npy",
    "train.npy",
    "valid.npy",
    "test.npy",
    "searches.npy",
];

/// Files of a part beside those of its dataset.
const OF_PART: &[&str] = &[
    "nodes.npy",
    "neighbors/indptr.npy",
    "neighbors/indices.npy",
    "neighbors/edge_weight.npy",
    "neighbors/0/indptr.npy",
    "neighbors/0/indices.npy",
    "neighbors/0/weights.npy",
    "neighbors/0/time.npy",
    "neighbors/0/features.npy",
    "neighbors/1/indptr.npy",
    "neighbors/1/indices.npy",
    "nodes/a/original_ids.npy",
    "nodes/b/original_ids.npy",
    "original_ids.npy",
];

/// Paths of all files.
fn names() -> &'static [&'static str] {
    static NAMES: OnceLock<Vec<&'static str>> = OnceLock::new();
    NAMES.get_or_init(|| {
        let of_datasets = DATASETS.iter().flat_map(|dir| {
            let files = [native::NAMES, typed::NAMES, OF_PART].concat();
            files.into_iter().map(move |file| &*format!("{dir}/{file}").leak())
        });
        SHARED.iter().copied().chain(of_datasets).collect()
    })
}

/// One input: options, and files of the directory.
pub fn run(data: &[u8]) -> Answer {
    let mut input = Input::read(data, names());
    if !input.has("raw") {
        sign(&mut input);
    }
    // Opening records what it verified beside the files.
    with_fresh_files("partition", &input.files, |dir| {
        limited(input.unpacked, || if TypedPartitionDir::is_in(dir) { open_types(dir) } else { open(dir) })
    })
}

fn open(dir: &Path) -> Answer {
    let all = PartitionDir::open(dir)?;
    all.searches()?;
    if let Some(graph) = all.topology(Verify::All)? {
        assert_eq!((graph.num_nodes(), graph.num_edges()), (all.num_nodes(), all.num_edges()));
    }
    for part in 0..all.parts() {
        let part = all.part_with(part, Verify::All)?;
        assert!(part.dataset.validate().is_ok(), "the dataset of a part is sound");
    }
    Ok(())
}

fn open_types(dir: &Path) -> Answer {
    let all = TypedPartitionDir::open(dir)?;
    assert!(all.whole.validate().is_ok(), "the dataset of all nodes is sound");
    let parts = (0..all.parts()).map(|part| all.part(part, Verify::All)).collect::<Result<Vec<_>, _>>()?;
    assert!(parts.iter().all(|part| part.dataset.validate().is_ok()), "the dataset of a part is sound");
    if let Some(edges) = all.topology(Verify::All)? {
        assert!(edges.validate().is_ok(), "the dataset of all edges is sound");
    }
    all.graph_of(&parts)?;
    for r in 0..all.schema().num_relations() {
        all.edge_times(&parts, r)?;
        all.edge_features(&parts, r, Verify::All)?;
    }
    Ok(())
}

/// Signs the datasets, and then the manifest that names their checksums.
fn sign(input: &mut Input) {
    let [whole, topology, parts @ ..] =
        DATASETS.map(|dir| sign_files(input, &format!("{dir}/graphmill.json"), |_| ()));
    sign_files(input, MANIFEST, |manifest| {
        for (name, signed) in [("whole", whole), ("topology", topology)] {
            if let (Some(of), Some(signed)) = (manifest.get_mut(name), signed) {
                *of = signed.into();
            }
        }
        let Some(Value::Array(each)) = manifest.get_mut("each") else { return };
        for (counts, part) in each.iter_mut().zip(parts) {
            if let (Value::Object(counts), Some(part)) = (counts, part) {
                counts.insert("checksum".into(), part.into());
            }
        }
    });
}
