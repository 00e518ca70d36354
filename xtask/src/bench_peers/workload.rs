//! The workloads: made by the peers' `gen.py`, imported into our format.

use std::{fs, path::PathBuf, process::Command};

use anyhow::{Result, ensure};
use serde_json::Value;

use super::options::{Options, Peer};
use crate::graphmill;

/// Directory of a workload in our format.
pub(super) fn imported(options: &Options, name: &str) -> PathBuf {
    options.data.join(format!("{name}-graphmill"))
}

/// Makes the workload with `gen.py` and imports it, unless both are there.
pub(super) fn prepare(options: &Options, peer: Peer, name: &str) -> Result<()> {
    fs::create_dir_all(&options.data)?;
    let data = fs::canonicalize(&options.data)?;
    let (source, target) = (data.join(name), imported(options, name));
    let python = &options.python[&peer];
    let run = |command: &mut Command, what: &str| -> Result<()> {
        eprintln!("{name}: {what}");
        let output = command.env("BENCH_DATA", &data).output()?;
        ensure!(output.status.success(), "{name}: {what}: {}", String::from_utf8_lossy(&output.stderr));
        Ok(())
    };
    // meta.json is written last
    if !source.join("meta.json").exists() {
        run(Command::new(python).arg(options.peers.join("gen.py")).arg(name), "generate")?;
    }
    if !target.exists() {
        let edges = source.join("edges.npy");
        run(Command::new(python).current_dir(&source).args(["-c", EDGES]), "write the edges as pairs")?;
        let part = |file: &str| source.join(file).display().to_string();
        let words = [
            "import",
            "edges",
            &edges.display().to_string(),
            &target.display().to_string(),
            "--name",
            name,
            "--features",
            &part("feat.npy"),
            "--labels",
            &part("label.npy"),
            "--train",
            &part("train_idx.npy"),
            "--valid",
            &part("val_idx.npy"),
            "--test",
            &part("test_idx.npy"),
            "--json",
        ]
        .map(String::from);
        eprintln!("{name}: import");
        let info: Value = serde_json::from_str(&graphmill(&words)?)?;
        fs::remove_file(&edges)?;
        let meta: Value = serde_json::from_str(&fs::read_to_string(source.join("meta.json"))?)?;
        for field in ["nodes", "edges", "train"] {
            let (ours, theirs) = (&info[field], &meta[field]);
            ensure!(
                ours == theirs,
                "{name}: {ours} {field} imported of {theirs}; remove {}",
                target.display()
            );
        }
    }
    Ok(())
}

/// From CSC arrays to pairs (source, destination).
const EDGES: &str = "\
import numpy as np
indptr, indices = np.load('indptr.npy'), np.load('indices.npy')
pairs = np.empty((2, len(indices)), np.uint32)
pairs[0] = indices
pairs[1] = np.repeat(np.arange(len(indptr) - 1), np.diff(indptr))
np.save('edges.npy', pairs)
";
