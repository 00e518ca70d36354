//! Seeds of partitioned datasets, and of the files that commands store beside a dataset.

use std::{fs, path::Path};

use graphmill_core::{Buffer, EdgeOptions, Labels, Split, block::Aggregation, build, progress::Quiet};
use graphmill_data::{
    Dataset, alias_file, bottom_hop,
    partition::{self, Description, PartitionBook, write_types},
    verification::Verify,
};
use serde_json::Value;

use super::{
    Result, files, joined,
    typed::{two, unpadded},
};
use crate::{
    input::join,
    targets::{bottom_hop as stored_rows, edge_alias, features_checksums},
};

pub(super) fn add(dir: &Path, add: &mut impl FnMut(&'static str, &str, Vec<u8>)) -> Result<()> {
    let what = Description { method: "random", ..Description::default() };
    let place = dir.join("partition");
    let searches = [vec![3, 0]];
    let of_one = Description { searches: &searches, ..what.clone() };
    partition::write(&one_type()?, &PartitionBook::new(2, vec![0u16, 0, 1, 1])?, &of_one, &place, &Quiet)?;
    add("partition", "one-type", joined(&shortened(&place)?));
    let place = dir.join("typed-partition");
    write_types(&two()?, &PartitionBook::new(1, vec![0u16; 5])?, &what, &place, &Quiet)?;
    add("partition", "types", joined(&shortened(&place)?));

    let place = dir.join("alias");
    fs::create_dir(&place)?;
    alias_file::fuzz::tables(&place, &edge_alias::graph()?)?;
    add("edge_alias", "tables", joined(&files(&place, &place)?));
    let place = dir.join("bottom");
    fs::create_dir(&place)?;
    let (graph, features) = stored_rows::table()?;
    bottom_hop::stacked(&graph, &features, Aggregation::Mean, Some(&place), Verify::Once)?;
    // the record of its verification depends on the time, and no input has it
    let table = stored_rows::FILE;
    add("bottom_hop", "mean", join("", &[(table, &fs::read(place.join(table))?)]));

    let place = dir.join("chunks");
    features_checksums::write(&place)?;
    add("features_checksums", "chunks", fs::read(place.join(features_checksums::FILE))?);
    Ok(())
}

/// Four nodes on a weighted cycle.
fn one_type() -> Result<Dataset> {
    let ids = |ids: &[u32]| -> Buffer<u32> { ids.to_vec().into() };
    let graph = build(4, &[0, 1, 2, 3], &[1, 2, 3, 0], EdgeOptions::DIRECTED)?;
    Ok(Dataset {
        name: "cycle".into(),
        graph: graph.with_edge_weight(vec![0.5f32, 1.0, 2.0, 0.0].into())?,
        labels: Labels::Single { class: vec![0, 1, 0, 1].into(), classes: 2 },
        split: Split { train: ids(&[0, 3]), valid: ids(&[1]), test: ids(&[2]) },
        ..Dataset::default()
    })
}

/// Files of a partition, without what the target enters again and the padding of headers.
fn shortened(place: &Path) -> Result<Vec<(String, Vec<u8>)>> {
    let mut all = files(place, place)?;
    all.retain(|(name, _)| !name.ends_with("verified.json"));
    for (name, bytes) in &mut all {
        if name.ends_with(".npy") {
            *bytes = unpadded(bytes);
        } else if name.ends_with("partition.json") || name.ends_with("graphmill.json") {
            let mut manifest: Value = serde_json::from_slice(bytes)?;
            for list in ["files", "documents"] {
                let files = manifest.get_mut(list).and_then(Value::as_object_mut);
                for entry in files.into_iter().flat_map(|files| files.values_mut()) {
                    let entry = entry.as_object_mut().ok_or("an entry is not an object")?;
                    ["bytes", "checksum"].into_iter().for_each(|field| drop(entry.remove(field)));
                }
            }
            *bytes = manifest.to_string().into_bytes();
        }
    }
    Ok(all)
}
