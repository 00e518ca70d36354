//! Seeds of datasets of format 2.

use std::path::Path;

use graphmill_core::SparseRows;
use graphmill_data::{
    dataset::Normalization,
    typed::{CandidateLists, EdgeType, Negatives, TypedBuilder, TypedDataset},
};

use super::{Result, files, joined};

/// Datasets of two types and of one, with every kind of column.
pub(super) fn add(dir: &Path, add: &mut impl FnMut(&'static str, &str, Vec<u8>)) -> Result<()> {
    for (name, data) in [("two", two()?), ("one", one()?), ("links", links()?)] {
        let place = dir.join(format!("typed-{name}"));
        data.save(&place)?;
        let mut files = files(&place, &place)?;
        // The padding of headers only makes an input long.
        for (_, bytes) in files.iter_mut().filter(|(name, _)| name.ends_with(".npy")) {
            *bytes = unpadded(bytes);
        }
        add("typed", name, joined(&files));
    }
    Ok(())
}

/// Array with the shortest header.
pub(super) fn unpadded(array: &[u8]) -> Vec<u8> {
    let (head, data) = array.split_at(10 + usize::from(u16::from_le_bytes([array[8], array[9]])));
    let text = String::from_utf8_lossy(&head[10..]);
    let text = text.trim_end();
    let length = (10 + text.len() + 1).next_multiple_of(16) - 10;
    let mut short = head[..8].to_vec();
    short.extend((length as u16).to_le_bytes());
    short.extend(format!("{text:width$}\n", width = length - 1).bytes());
    short.extend(data);
    short
}

pub(super) fn two() -> Result<TypedDataset> {
    let mut builder = TypedBuilder::new("two");
    let a = builder.node_type("a", 3).features(1, vec![0.5f32, -0.5, 2.0]).text_keys(["x", "", "é"]);
    a.normalization(Normalization::Standard { mean: Some(vec![1.5]), deviation: vec![0.25] });
    let sparse = SparseRows::from_dense(2, &[0.0, 1.0, 2.0, 0.0])?;
    builder.node_type("b", 2).sparse_features(sparse).integer_keys(vec![7, -7]).time(vec![1, 2]);
    let edges = builder.edge_type("a", "to", "b").edges(vec![2, 0, 1], vec![1, 0, 1]);
    edges.weights(vec![0.5, 1.0, 2.0]).time(vec![3, 2, 1]).features(1, vec![1u8, 2, 3]).reverse_of("from");
    builder.edge_type("b", "from", "a").edges(vec![0, 1, 1], vec![0, 1, 2]).reverse_of("to");
    let task = builder.task("t").on_nodes("b").node_seeds(vec![1, 1, 0]).time(vec![5, 6, 7]);
    task.values(1, vec![0.5, f32::NAN, 1.0]).split([0], [], [2]);
    builder.preprocessing(serde_json::json!({ "version": 1 }));
    Ok(builder.build()?)
}

fn one() -> Result<TypedDataset> {
    let mut builder = TypedBuilder::new("one");
    builder.node_type("a", 3).features(1, vec![0.5f32, -0.5, 2.0]).original_ids(vec![2, 0, 1]);
    builder.edge_type("a", "e", "a").edges(vec![0, 1], vec![1, 0]).reverse_of("e");
    builder.task("t").on_nodes("a").classes(2, vec![0, 1, -1]).names(["no", "yes"]).split([0], [1], []);
    Ok(builder.build()?)
}

fn links() -> Result<TypedDataset> {
    let mut builder = TypedBuilder::new("links");
    builder.node_type("a", 3);
    builder.node_type("b", 2);
    builder.edge_type("a", "to", "b").edges(vec![2, 0], vec![1, 0]);
    let task = builder.task("t").on_edges(EdgeType::new("a", "to", "b"));
    task.positives([vec![2, 1], vec![0, 0], vec![1, 1]]).negatives([
        Some(Negatives::Pairs(vec![0, 1, 1, 0].into())),
        Some(Negatives::Destinations { each: 2, nodes: vec![1, 0].into() }),
        Some(Negatives::Sources { each: 1, nodes: vec![2].into() }),
    ]);
    let task = builder.task("lists").on_edges(EdgeType::new("a", "to", "b"));
    task.positives([vec![], vec![0, 0, 1, 1], vec![]]).negatives([
        None,
        Some(Negatives::Lists(CandidateLists::new([vec![1, 0], vec![]]))),
        None,
    ]);
    Ok(builder.build()?)
}
