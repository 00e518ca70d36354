//! Import of GNNLab's directory of raw little-endian arrays (Yang et al., GNNLab, EuroSys 2022;
//! `datagen/README.md` of its repository):
//!
//! ```text
//! meta.txt                                  NUM_NODE, NUM_EDGE, FEAT_DIM, NUM_CLASS, NUM_{TRAIN,VALID,TEST}_SET
//! indptr.bin    u32 [V + 1]                 or indptr64.bin u64: row starts of the CSC graph
//! indices.bin   u32 [E]                     or indices64.bin u64: in-neighbours
//! feat.bin      f32 [V, F]                  optional: without it GNNLab trains on random features
//! label.bin     u64 [V]                     optional; a value with its highest bit set is unknown
//! train_set.bin valid_set.bin test_set.bin  u32: ids
//! ```
//!
//! Arrays are mapped, not read into memory.

use std::{
    fs::File,
    path::{Path, PathBuf},
};

use bytemuck::Pod;
use graphmill_core::{
    Buffer, Error, Features, Labels, NodeId, Result, Split, location::Location, memory, progress::Unit,
};

use super::super::super::{ImportOptions, ImportReport, Raw, blocks::Blocks, features, labels, splits};
use crate::external::{Edges, Needs, Scratch};

/// Files that are read; 64-bit files replace their 32-bit variants.
const FILES: [&str; 10] = [
    "meta.txt",
    "indptr.bin",
    "indptr64.bin",
    "indices.bin",
    "indices64.bin",
    "feat.bin",
    "label.bin",
    "train_set.bin",
    "valid_set.bin",
    "test_set.bin",
];

/// Maximum length of `meta.txt`.
const MAX_META: u64 = 1 << 16;

/// Counts of `meta.txt`.
struct Meta {
    path: PathBuf,
    counts: Vec<(String, u64)>,
}

impl Meta {
    fn read(path: PathBuf) -> Result<Self> {
        let size = std::fs::metadata(&path).map_err(|e| Error::io(&path, "open", e))?.len();
        if size > MAX_META {
            return Err(Location::new(&path, "contents").error(format!("{size} bytes; a few lines expected")));
        }
        let text = std::fs::read_to_string(&path).map_err(|e| Error::io(&path, "read", e))?;
        let mut counts = Vec::new();
        for (i, line) in text.lines().enumerate() {
            let mut words = line.split_ascii_whitespace();
            let Some(name) = words.next() else { continue };
            let Some(count) = words.next().and_then(|word| word.parse().ok()) else {
                let message = format!("'{}': a name and a number expected", line.escape_debug());
                return Err(Location::new(&path, format!("line {}", i + 1)).error(message));
            };
            counts.push((name.to_string(), count));
        }
        Ok(Self { path, counts })
    }

    /// Value of the count `name`.
    fn get(&self, name: &str) -> Result<usize> {
        let found = self.counts.iter().find(|(known, _)| known == name);
        let count = found.and_then(|(_, count)| usize::try_from(*count).ok());
        count.ok_or_else(|| Location::new(&self.path, "contents").error(format!("a line '{name}' expected")))
    }
}

/// Reads the directory `src`.
pub(in super::super) fn read(src: &Path, options: &ImportOptions, scratch: &Scratch) -> Result<Raw> {
    let meta = Meta::read(src.join("meta.txt"))?;
    let num_nodes = meta.get("NUM_NODE")?;
    let count = meta.get("NUM_EDGE")?;
    let edges = scratch.edges(options.edge_options(false));
    let features = std::fs::metadata(src.join("feat.bin")).map_or(0, |data| data.len());
    scratch.expect(&Needs {
        nodes: num_nodes as u64,
        edges: edges.directions().saturating_mul(count as u64),
        features,
        weighted: false,
        estimated: false,
    })?;
    let edges = read_edges(src, num_nodes, count, Blocks::new(edges), scratch)?;
    let name = src.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let features = read_features(&src.join("feat.bin"), num_nodes, &meta, scratch)?;
    let labels = read_labels(&src.join("label.bin"), num_nodes, &meta, scratch)?;
    let part = |file: &str, count: &str| read_part(&src.join(file), meta.get(count)?, num_nodes);
    let split = Split {
        train: part("train_set.bin", "NUM_TRAIN_SET")?,
        valid: part("valid_set.bin", "NUM_VALID_SET")?,
        test: part("test_set.bin", "NUM_TEST_SET")?,
    };
    let none = split.parts().iter().all(|(_, ids)| ids.is_empty());
    let splits = if none { Vec::new() } else { vec![split] };
    let mut report = ImportReport::default();
    let read = |name: &str| {
        FILES.contains(&name) && !(name.contains("64") && src.join(name.replace("64", "")).is_file())
    };
    report.ignore_unread(src, read)?;
    Ok(Raw { name, num_nodes, edges, features, labels, splits, report, ..Raw::default() })
}

/// Maps the file, which holds `count` values.
fn map<T: Pod>(path: &Path, count: usize) -> Result<Buffer<T>> {
    let file = File::open(path).map_err(|e| Error::io(path, "open", e))?;
    let size = file.metadata().map_err(|e| Error::io(path, "read the size of", e))?.len();
    let expected = (count as u128) * size_of::<T>() as u128;
    if u128::from(size) != expected {
        return Err(Location::new(path, format!("byte {size}")).error(format!(
            "{size} bytes, but by meta.txt there are {count} values of {} bytes",
            size_of::<T>()
        )));
    }
    Buffer::map(&file, path, 0, count)
}

/// Array of either width.
enum Either {
    Narrow(Buffer<u32>),
    Wide(Buffer<u64>),
}

impl Either {
    /// Maps `{stem}.bin`, or `{stem}64.bin`.
    fn map(src: &Path, stem: &str, count: usize) -> Result<(Self, PathBuf)> {
        let wide = src.join(format!("{stem}64.bin"));
        let narrow = src.join(format!("{stem}.bin"));
        if wide.is_file() && !narrow.is_file() {
            return Ok((Self::Wide(map(&wide, count)?), wide));
        }
        Ok((Self::Narrow(map(&narrow, count)?), narrow))
    }

    #[inline]
    fn get(&self, i: usize) -> u64 {
        match self {
            Self::Narrow(data) => u64::from(data[i]),
            Self::Wide(data) => data[i],
        }
    }
}

fn read_edges(src: &Path, nodes: usize, count: usize, mut edges: Blocks, scratch: &Scratch) -> Result<Edges> {
    let ids = Location::new(src, "meta.txt");
    if nodes > NodeId::MAX as usize {
        return Err(ids.error(format!("{nodes} nodes: too many for 32-bit ids")));
    }
    let (indptr, indptr_path) = Either::map(src, "indptr", nodes + 1)?;
    let (indices, indices_path) = Either::map(src, "indices", count)?;
    scratch.stage("reading indices.bin", Some(count as u64), Unit::Edges);
    let mut e = indptr.get(0);
    if e != 0 {
        return Err(
            Location::new(&indptr_path, "entry 0").error(format!("row starts begin at {e}, not at 0"))
        );
    }
    for v in 0..nodes {
        let end = indptr.get(v + 1);
        if end < e || end > count as u64 {
            let place = format!("entry {}", v + 1);
            let message =
                format!("row starts go from {e} to {end}, but ascend to {count}, the number of edges");
            return Err(Location::new(&indptr_path, place).error(message));
        }
        for i in e..end {
            let u = indices.get(i as usize);
            if u >= nodes as u64 {
                let message = format!("node {u}, but there are {nodes} nodes");
                return Err(Location::new(&indices_path, format!("entry {i}")).error(message));
            }
            edges.push(u as NodeId, v as NodeId)?;
        }
        e = end;
        if v % (1 << 16) == 0 {
            scratch.done(e);
        }
    }
    if e != count as u64 {
        let message = format!("row starts end at {e}, but there are {count} edges");
        return Err(Location::new(&indptr_path, format!("entry {nodes}")).error(message));
    }
    edges.finish()
}

fn read_features(path: &Path, nodes: usize, meta: &Meta, scratch: &Scratch) -> Result<Features> {
    if !path.is_file() {
        scratch.note("feat.bin is missing: the dataset has no features");
        return Ok(Features::default());
    }
    let dim = meta.get("FEAT_DIM")?;
    let data: Buffer<f32> = map(path, nodes.saturating_mul(dim))?;
    features::from_array(data, &[nodes, dim], nodes, &Location::new(path, "features"))
}

fn read_labels(path: &Path, nodes: usize, meta: &Meta, scratch: &Scratch) -> Result<Labels> {
    if !path.is_file() {
        scratch.note("label.bin is missing: all nodes are unlabelled");
        return labels::unknown(nodes);
    }
    let classes = meta.get("NUM_CLASS")?;
    let at = Location::new(path, "labels");
    if classes > i32::MAX as usize {
        return Err(Location::new(&meta.path, "NUM_CLASS").error(format!("{classes} classes")));
    }
    let mut class = memory::reserve(nodes)?;
    for (v, &label) in map::<u64>(path, nodes)?.iter().enumerate() {
        class.push(match label {
            label if label < classes as u64 => label as i32,
            label if label >> 63 == 1 => -1,
            label => {
                return Err(
                    at.error(format!("the label of node {v} is {label}, outside the {classes} classes"))
                );
            }
        });
    }
    Ok(Labels::Single { class: class.into(), classes })
}

fn read_part(path: &Path, count: usize, nodes: usize) -> Result<Buffer<NodeId>> {
    if count == 0 {
        return Ok(Buffer::default());
    }
    let ids = map::<u32>(path, count)?;
    splits::from_ids(ids.iter().map(|&v| v.into()).collect(), nodes, &Location::new(path, "ids"))
}

#[cfg(test)]
mod tests {
    use graphmill_core::features::FeatureData;

    use super::{
        super::testing::{damage, edges, run},
        *,
    };

    const META: &str = "NUM_NODE\t3\nNUM_EDGE\t3\nFEAT_DIM\t2\nNUM_CLASS\t2\n\
                        NUM_TRAIN_SET\t1\nNUM_VALID_SET\t0\nNUM_TEST_SET\t2\n";

    fn put<T: Pod>(dir: &Path, name: &str, data: &[T]) {
        std::fs::write(dir.join(name), bytemuck::cast_slice(data)).unwrap();
    }

    /// Writes 0 -> 1, 2 -> 1, 1 -> 2.
    fn furnish(dir: &Path) {
        std::fs::write(dir.join("meta.txt"), META).unwrap();
        put(dir, "indptr.bin", &[0u32, 0, 2, 3]);
        put(dir, "indices.bin", &[2u32, 0, 1]);
        put(dir, "feat.bin", &[1f32, 2., 3., 4., 5., 6.]);
        put(dir, "label.bin", &[1u64, 1 << 63, 0]);
        put(dir, "train_set.bin", &[2u32]);
        put(dir, "test_set.bin", &[2u32, 0]);
    }

    #[test]
    fn complete_directories_are_imported() {
        let dir = tempfile::tempdir().unwrap();
        let src = dir.path();
        furnish(src);
        put(src, "test_set.bin", &[0u32]);
        std::fs::write(src.join("meta.txt"), META.replace("TEST_SET\t2", "TEST_SET\t1")).unwrap();
        let check = || {
            let dataset = run(src, &ImportOptions::default()).unwrap();
            assert_eq!(edges(&dataset), [(0, 1), (2, 1), (1, 2)]);
            let Labels::Single { class, classes: 2 } = &dataset.labels else { panic!() };
            assert_eq!(class[..], [1, -1, 0]);
            assert_eq!((&dataset.split.train[..], &dataset.split.test[..]), (&[2][..], &[0][..]));
            assert!(dataset.split.valid.is_empty());
            dataset
        };
        let FeatureData::F32(data) = check().features.data else { panic!() };
        assert_eq!((data.is_mapped(), data[5]), (true, 6.));
        // The 64-bit arrays, without features.
        for name in ["indptr.bin", "indices.bin", "feat.bin"] {
            std::fs::remove_file(src.join(name)).unwrap();
        }
        put(src, "indptr64.bin", &[0u64, 0, 2, 3]);
        put(src, "indices64.bin", &[2u64, 0, 1]);
        assert_eq!(check().features.dim, 0);
    }

    #[test]
    fn errors_contain_the_file() {
        let dir = tempfile::tempdir().unwrap();
        let src = dir.path();
        type Change = Box<dyn Fn()>;
        let meta = |from: &'static str, to: &'static str| -> Change {
            let path = src.join("meta.txt");
            Box::new(move || std::fs::write(&path, META.replace(from, to)).unwrap())
        };
        let array = |name: &'static str, data: Vec<u32>| -> Change {
            let src = src.to_path_buf();
            Box::new(move || put(&src, name, &data))
        };
        let cases: Vec<(Change, &str)> = vec![
            (meta("NUM_NODE\t3\n", ""), "meta.txt: contents: a line 'NUM_NODE' expected"),
            (meta("NUM_EDGE\t3", "NUM_EDGE\tx"), "meta.txt: line 2: 'NUM_EDGE\\tx'"),
            (meta("NUM_NODE\t3", "NUM_NODE\t18446744073709551615"), "nodes: too many for 32-bit ids"),
            (
                meta("NUM_NODE\t3", "NUM_NODE\t4"),
                "indptr.bin: byte 16: 16 bytes, but by meta.txt there are 5",
            ),
            (meta("NUM_EDGE\t3", "NUM_EDGE\t4000000000000"), "indices.bin: byte 12"),
            (meta("FEAT_DIM\t2", "FEAT_DIM\t9223372036854775807"), "feat.bin: byte 24"),
            (meta("NUM_CLASS\t2", "NUM_CLASS\t1"), "label.bin: labels: the label of node 0 is 1, outside"),
            (meta("TRAIN_SET\t1", "TRAIN_SET\t2"), "train_set.bin: byte 4"),
            (array("indptr.bin", vec![1, 1, 2, 3]), "indptr.bin: entry 0: row starts begin at 1"),
            (array("indptr.bin", vec![0, 2, 1, 3]), "indptr.bin: entry 2: row starts go from 2 to 1"),
            (array("indptr.bin", vec![0, 0, 9, 3]), "indptr.bin: entry 2"),
            (array("indptr.bin", vec![0, 0, 1, 2]), "indptr.bin: entry 3: row starts end at 2"),
            (array("indices.bin", vec![2, 3, 1]), "indices.bin: entry 1: node 3"),
            (array("feat.bin", vec![0, 0, 0, f32::NAN.to_bits(), 0, 0]), "feature 1 of node 1 is NaN"),
            (array("test_set.bin", vec![0, 3]), "test_set.bin: ids: entry 1 is node 3"),
            (array("test_set.bin", vec![2, 0]), "node 2 is in 'test' and in 'train'"),
            (array("test_set.bin", vec![0, 1]), "node 1 is in 'test' but has no label"),
        ];
        for (change, why) in cases {
            furnish(src);
            change();
            let error = run(src, &ImportOptions::default()).unwrap_err();
            assert!(error.contains(why), "{why}: {error}");
        }
        let flavour = ImportOptions { flavour: "gnnlab".parse().unwrap(), ..Default::default() };
        assert!(run(&src.join("absent"), &flavour).unwrap_err().contains("meta.txt: cannot open"));
    }

    #[test]
    fn damage_is_an_error_or_harmless() {
        let dir = tempfile::tempdir().unwrap();
        let src = dir.path();
        furnish(src);
        std::fs::write(src.join("meta.txt"), META.replace("TEST_SET\t2", "TEST_SET\t1")).unwrap();
        put(src, "test_set.bin", &[0u32]);
        for name in ["indptr.bin", "indices.bin", "feat.bin", "label.bin", "train_set.bin", "test_set.bin"] {
            damage(&src.join(name), src, false);
        }
        damage(&src.join("meta.txt"), src, true); // complete even without its last line break
    }
}
