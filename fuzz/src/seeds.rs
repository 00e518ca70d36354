//! Seeds that are made rather than cut from real files: small inputs that their readers accept.

#[cfg(feature = "fetch")]
mod downloads;
mod imports;
#[cfg(feature = "tables")]
mod own_tables;
mod partitions;
#[cfg(feature = "tables")]
mod relbench;
#[cfg(feature = "parquet")]
pub(crate) mod tables;
mod typed;
mod typed_imports;

use std::{fs, path::Path};

use graphmill_core::{
    Buffer, EdgeOptions, Features, Labels, SparseRows, Split, build, features::FeatureData,
};
use graphmill_data::{
    Dataset,
    dataset::{NamedGraph, Normalization},
    npy,
};
use half::f16;

use crate::input::{join, members};

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

/// A seed: its target, its name, its bytes.
pub type Seed = (&'static str, String, Vec<u8>);

/// Every made seed; files are written to the empty directory `dir` on the way.
///
/// # Errors
/// `dir` cannot be written.
pub fn all(dir: &Path) -> Result<Vec<Seed>> {
    let mut seeds = Vec::new();
    let mut add = |target: &'static str, name: &str, bytes: Vec<u8>| {
        seeds.push((target, format!("made-{name}"), bytes));
    };
    let arrays = [
        ("f4", array("<f4", false, &[3, 2], &[0; 24])),
        ("f2", array("<f2", false, &[2], &[0, 60, 0, 64])),
        ("big", array(">i8", false, &[1], &[0, 0, 0, 0, 0, 0, 0, 5])),
        ("fortran", array("<i4", true, &[2, 2], &[1, 0, 0, 0, 2, 0, 0, 0, 3, 0, 0, 0, 4, 0, 0, 0])),
        ("bool", array("|b1", false, &[3], &[1, 0, 1])),
        ("single", array("<f8", false, &[], &[0; 8])),
        ("empty", array("|u1", false, &[0, 7], &[])),
    ];
    for (name, bytes) in &arrays {
        add("npy_header", name, bytes.clone());
        add("npy", name, bytes.clone());
        add("npz", name, join("", &[("a.npz", &members(&[("a.npy", bytes), ("b.npy", &arrays[4].1)]))]));
    }
    let text = [("narrow", array("|S3", false, &[], b"csr")), ("wide", array("<U1", false, &[], b"c\0\0\0"))];
    for (name, bytes) in &text {
        add("npz", name, join("", &[("a.npz", &members(&[("format.npy", bytes)]))]));
    }
    native(dir, &mut add)?;
    typed::add(dir, &mut add)?;
    partitions::add(dir, &mut add)?;
    imports::add(&mut add)?;
    typed_imports::add(&mut add)?;
    resume(&mut add);
    for (i, rule) in ["given:0", "planetoid:20,30", "random:0.5,0.25,0.25", "standard", "graphs:a/b,c/"]
        .into_iter()
        .enumerate()
    {
        add("rules", &i.to_string(), rule.as_bytes().to_vec());
    }
    #[cfg(feature = "parquet")]
    tables::add(&mut add)?;
    #[cfg(feature = "tables")]
    own_tables::add(&mut add)?;
    #[cfg(feature = "tables")]
    relbench::add(&mut add);
    #[cfg(feature = "fetch")]
    downloads::add(&mut add)?;
    #[cfg(feature = "plan")]
    plan_files(&mut add);
    #[cfg(feature = "serve")]
    serve_bodies(&mut add);
    #[cfg(feature = "engine")]
    engine(dir, &mut add)?;
    Ok(seeds)
}

/// An `.npy` file.
fn array(descr: &str, fortran: bool, shape: &[usize], data: &[u8]) -> Vec<u8> {
    let axes: String = shape.iter().map(|n| format!("{n},")).collect();
    let fortran = if fortran { "True" } else { "False" };
    let text = format!("{{'descr': '{descr}', 'fortran_order': {fortran}, 'shape': ({axes}), }}");
    let aligned = (10 + text.len() + 1).next_multiple_of(16); // as NumPy before 1.14; later ones align to 64
    let text = format!("{text:width$}\n", width = aligned - 11);
    [b"\x93NUMPY\x01\0", &(text.len() as u16).to_le_bytes()[..], text.as_bytes(), data].concat()
}

fn numbers<T: npy::Element>(data: &[T], shape: &[usize]) -> Vec<u8> {
    array(&T::DTYPE.to_string(), false, shape, bytemuck::cast_slice(data))
}

/// The files of a directory, by their paths in `root`.
fn files(root: &Path, dir: &Path) -> Result<Vec<(String, Vec<u8>)>> {
    let mut all = Vec::new();
    for entry in fs::read_dir(dir)? {
        let path = entry?.path();
        if path.is_dir() {
            all.extend(files(root, &path)?);
        } else {
            all.push((path.strip_prefix(root)?.to_string_lossy().into_owned(), fs::read(&path)?));
        }
    }
    all.sort();
    Ok(all)
}

fn joined(files: &[(String, Vec<u8>)]) -> Vec<u8> {
    let files: Vec<(&str, &[u8])> = files.iter().map(|(name, bytes)| (&name[..], &bytes[..])).collect();
    join("", &files)
}

/// Three nodes; single labels, then several, weights and 16-bit features.
fn native(dir: &Path, add: &mut impl FnMut(&'static str, &str, Vec<u8>)) -> Result<()> {
    let ids = |ids: &[u32]| -> Buffer<u32> { ids.to_vec().into() };
    let graph = build(3, &[0, 1, 2], &[1, 2, 2], EdgeOptions::DIRECTED)?;
    let single = Dataset {
        name: "tiny".into(),
        graph: graph.clone(),
        features: Features::f32(2, vec![0.0, 1.0, 2.0, 3.0, 4.0, 5.0]),
        labels: Labels::Single { class: vec![0, 1, -1].into(), classes: 2 },
        split: Split { train: ids(&[0]), valid: ids(&[1]), test: ids(&[]) },
        metric: Some("accuracy".into()),
        ..Dataset::default()
    };
    let several = Dataset {
        graph: graph.with_edge_weight(vec![0.5f32, 1.0, 2.0].into())?,
        labels: Labels::Multi { member: vec![0, 1, 1, 1, 0, 0].into(), classes: 2 },
        features: Features::default(),
        metric: None,
        ..single.clone()
    };
    let union = Dataset {
        graph: build(3, &[0], &[1], EdgeOptions::DIRECTED)?,
        graphs: vec![NamedGraph::new("a", 0..2), NamedGraph::new("b", 2..3)],
        features: Features { dim: 1, data: FeatureData::F16(vec![f16::ONE; 3].into()) },
        ..single.clone()
    };
    let table = SparseRows::from_dense(2, &[0.0, 1.0, 0.0, 0.0, 2.5, 3.0])?;
    let sparse = Dataset { features: Features { dim: 2, data: FeatureData::Csr(table) }, ..single.clone() };
    let scaled = Dataset {
        features: Features::f32(1, vec![0.5, -0.5, 2.0]),
        normalization: Some(Normalization::Standard { mean: Some(vec![1.5]), deviation: vec![0.25] }),
        ..single.clone()
    };
    let all =
        [("single", single), ("several", several), ("union", union), ("sparse", sparse), ("scaled", scaled)];
    for (name, dataset) in all {
        let place = dir.join(name);
        dataset.save(&place)?;
        let files = files(&place, &place)?;
        add("native", name, joined(&files));
        let manifest = files.iter().find(|(name, _)| name == "graphmill.json").ok_or("no manifest")?;
        add("manifest", name, manifest.1.clone());
        let text = String::from_utf8(manifest.1.clone())?;
        let at = text.rfind("\"checksum\": \"").ok_or("no checksum")? + 13;
        let unsigned = [&text[..at], super::targets::manifest::UNSIGNED, &text[at + 32..]].concat();
        add("manifest", &format!("{name}-unsigned"), unsigned.into_bytes());
    }
    Ok(())
}

/// Three edges in two parts, collected but not sorted yet, and then with the first part sorted.
fn resume(add: &mut impl FnMut(&'static str, &str, Vec<u8>)) {
    let keys: Vec<u8> =
        [(0u64, 1u64), (3, 0), (2, 5)].iter().flat_map(|(u, v)| (v << 32 | u).to_le_bytes()).collect();
    let edges = br#"{"splitters":[8589934592],"symmetric":false,"weighted":false,"drop_self_loops":false,"blocks":[[0,2],[1,1]],"edges":3,"largest":5,"complete":true,"counts":{"self_loops":0,"dropped":0}}"#;
    let mut files: Vec<(&str, &[u8])> = vec![
        ("work/work.json", br#"{"format":"graphmill-scratch-1","work":"fuzz"}"#),
        ("work/scratch-edges.json", edges),
        ("work/scratch-edges.bin", &keys),
    ];
    add("resume", "collected", join("", &files));
    let indptr = array("<u8", false, &[2], &[0u64.to_le_bytes(), 1u64.to_le_bytes()].concat());
    let indices = array("<u4", false, &[2], &[3u32.to_le_bytes(), 0u32.to_le_bytes()].concat());
    let padded = |array: &[u8], data: usize| -> Vec<u8> {
        let (head, data) = array.split_at(array.len() - data);
        let mut head = head.to_vec();
        head.resize(128, 0); // the writer's header, which is filled in at the end
        [&head, data].concat()
    };
    let (indptr, indices) = (padded(&indptr, 16), padded(&indices, 8));
    files.extend([
        ("work/scratch-csc.json", &br#"{"parts":1,"edges":2,"rows":2}"#[..]),
        ("work/scratch-indptr.npy", &indptr),
        ("work/scratch-indptr.json", br#"{"columns":null,"dtype":"<u8","values":2}"#),
        ("work/scratch-indices.npy", &indices),
        ("work/scratch-indices.json", br#"{"columns":null,"dtype":"<u4","values":2}"#),
    ]);
    add("resume", "sorting", join("", &files));
}

/// A machine and a profile, in both notations.
#[cfg(feature = "plan")]
fn plan_files(add: &mut impl FnMut(&'static str, &str, Vec<u8>)) {
    let hardware = "name = \"two\"\ndevices = { count = 2, memory = \"16G\", bandwidth = 9e11 }\n\
                    link = { bandwidth = 12e9, latency = 1e-5 }\npeer_link = { bandwidth = 5e10 }\nhost = { \
                    cores = 8, memory = \"64G\", gathers = 2.0 }\n";
    let profile = "batches = 4\nlast_batch = 0.5\ncores = 2\nbandwidth = 2e10\nseconds = { sample = 0.1, \
                   gather = 0.05, near = 0.01, train = 0.2 }\nbytes = { topology = 6e9, features = 5e10, \
                   batch_rows = 1e8, sample = 1e9, train = 3e9 }\nhit_rates = [{ ratio = 0.05, rate = 0.9 }, \
                   { ratio = 0.2, rate = 0.99 }]\n";
    let texts = [("hardware.toml", hardware.as_bytes()), ("profile.toml", profile.as_bytes())];
    add("plan_files", "toml", join("", &texts));
    let hardware = br#"{"devices": {"count": 1, "memory": 8589934592, "speed": 4, "shared": true},
        "link": {"bandwidth": 1e10}, "host": {"cores": 4, "memory": "32G"}}"#;
    let profile =
        br#"{"batches": 3, "cores": 4, "seconds": {"sample": 1, "gather": 1, "near": 1, "train": 1},
        "bytes": {"topology": 1, "features": 8, "batch_rows": 1, "sample": 1, "train": 1}}"#;
    add("plan_files", "json", join("", &[("hardware.json", hardware), ("profile.json", profile)]));
}

/// A body for every endpoint, and several forms of new nodes.
#[cfg(feature = "serve")]
fn serve_bodies(add: &mut impl FnMut(&'static str, &str, Vec<u8>)) {
    let bodies = [
        ("predict", "known", r#"{"keys": ["a", 3], "ids": [0, 7], "seed": 5, "top_k": 2}"#),
        (
            "predict",
            "rows",
            r#"{"new": {"rows": [{"x": 1, "y": null}, {"x": 0.5}], "edges": [{"a": "u", "b": 3}]}}"#,
        ),
        ("predict", "features", r#"{"new": {"features": [[0.5, 1]], "edges": [[0, 9], ["u", 9, 0.5]]}}"#),
        (
            "predict",
            "types",
            r#"{"new": {"features": {"a": [[0.5]]}, "edges": {"a:to:b": [[0, 1]]}}, "exact": true}"#,
        ),
        (
            "top",
            "top",
            r#"{"keys": ["a"], "ids": [7], "top_k": 10, "relation": "r", "sources": true, "at": 5}"#,
        ),
        ("score", "score", r#"{"keys": [["a", 3]], "ids": [[0, 7]], "at": -5}"#),
        ("embed", "embed", r#"{"ids": [0, 7], "node_type": "a"}"#),
        ("events", "events", r#"{"ids": [[0, 7]], "times": [1700000000], "features": [[0.5, 1]]}"#),
    ];
    for (endpoint, name, body) in bodies {
        add("serve_body", name, join(endpoint, &[("body", body.as_bytes())]));
    }
}

/// Inputs of the engine: options, files of a run, lists of nodes.
#[cfg(feature = "engine")]
fn engine(dir: &Path, add: &mut impl FnMut(&'static str, &str, Vec<u8>)) -> Result<()> {
    use graphmill_engine::{
        TrainConfig,
        checkpoint::{save_model, save_tensors},
        record::{EpochRecord, RunDir, Summary},
    };

    use crate::targets::safetensors::model;

    add(
        "options",
        "train",
        b"layers=3\nlr=0.01\nseed=18446744073709551615\nmodel=gat\ninput-layer=on".to_vec(),
    );
    add("options", "fanout", b"fanout=15,10,-1\ndropout=0.25\nbatch-size=0".to_vec());
    let nodes = array("<i8", false, &[2], &[[7, 0, 0, 0, 0, 0, 0, 0], [0; 8]].concat());
    add("nodes", "text", join("", &[("a.txt", b"3\n# none\n 99\n\n")]));
    add("nodes", "array", join("", &[("a.npy", &nodes)]));
    let toml = TrainConfig::default().to_toml();
    add("config", "default", toml.clone().into_bytes());
    add("config", "short", b"fanout = [5, 5, 5]\nmodel = \"gat\"\nlr = 1e-2\ninput_layer = true\n".to_vec());
    let sweep = br#"{"graphmill": "0.1.0", "config": {"hidden": 8}, "given": ["hidden"],
        "tried": ["lr=0.001,0.01"], "trials": [{"trial": 1, "run": "trial-001", "values": {"lr": 0.001},
        "scores": [{"epochs": 3, "best_epoch": 2, "valid": 0.5, "judged": 0.5}]}]}"#;
    add("sweep", "grid", sweep.to_vec());
    let sweep = br#"{"graphmill": "0.1.0", "config": {"hidden": 8}, "given": [],
        "tried": ["lr=log:1e-4..1e-1", "fanout=5,5|10,10"], "options": {"trials": 3}}"#;
    add("sweep", "drawn", sweep.to_vec());
    let file = dir.join("model.safetensors");
    save_model(&file, &model())?;
    add("safetensors", "model", fs::read(&file)?);

    let place = dir.join("saved");
    fs::create_dir(&place)?;
    let tensor = ("w".to_string(), [1, 2], &[1.0f32, 2.0][..]);
    let state = serde_json::json!({ "epoch": 3, "best": null });
    save_tensors(
        &place.join("checkpoint"),
        std::slice::from_ref(&tensor),
        &[],
        std::slice::from_ref(&tensor),
        7,
        &[("3.0".to_string(), [1, 2], &[0.5, -1.0][..])],
        &state,
    )?;
    add("checkpoint", "state", joined(&files(&place, &place)?));

    let place = dir.join("run");
    let run = RunDir::create(&place)?;
    run.write_config(&TrainConfig::default())?;
    let epochs: Vec<EpochRecord> = (1..=2)
        .map(|epoch| EpochRecord {
            epoch,
            loss: 0.5,
            valid_score: Some(0.25),
            seconds: 1.0,
            ..Default::default()
        })
        .collect();
    for epoch in &epochs {
        run.append_epoch(epoch)?;
    }
    let short = |all: Vec<(String, Vec<u8>)>| -> Vec<(String, Vec<u8>)> {
        let known = |name: &str| ["config.toml", "metrics.jsonl", "summary.json"].contains(&name);
        all.into_iter()
            .filter(|(name, _)| known(name))
            .map(
                |(name, bytes)| {
                    if name == "config.toml" { (name, b"hidden = 8\n".to_vec()) } else { (name, bytes) }
                },
            )
            .collect()
    };
    add("run_dir", "going", joined(&short(files(&place, &place)?)));
    run.write_summary(&Summary { epochs, ..Summary::default() })?;
    add("run_dir", "finished", joined(&short(files(&place, &place)?)));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seeds_are_the_same_in_every_run_and_directory() {
        let made = || {
            let dir = tempfile::tempdir().unwrap();
            let mut seeds = all(dir.path()).unwrap();
            seeds.sort();
            // names of files are a part of a seed, and no path, time or number of this machine is
            let place = dir.path().file_name().unwrap().to_string_lossy().into_owned();
            for (target, name, bytes) in &seeds {
                let is_in = bytes.windows(place.len()).any(|word| word == place.as_bytes());
                assert!(!is_in, "{target}/{name} names its directory");
            }
            seeds
        };
        let (once, again) = (made(), made());
        assert_eq!(once.len(), again.len());
        for (one, other) in once.iter().zip(&again) {
            assert!(one == other, "{}/{} differs from one run to the next", one.0, one.1);
        }
    }
}
