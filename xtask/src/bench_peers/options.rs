//! Options of the command, and the interpreters that have the peers.

use std::{
    collections::HashMap,
    env,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context, Result, bail, ensure};

/// Options and words of the command line.
pub(super) struct Options {
    pub(super) peers: PathBuf,
    pub(super) data: PathBuf,
    /// Interpreters that were named.
    pub(super) named: HashMap<Place, PathBuf>,
    /// Interpreters of the peers that are installed.
    pub(super) python: HashMap<Peer, PathBuf>,
    pub(super) threads: Vec<usize>,
    pub(super) rounds: usize,
    pub(super) quick: bool,
    pub(super) words: Vec<String>,
}

/// A library to compare with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Peer {
    Dgl,
    Pyg,
    /// PyTorch alone, from either environment: PyG's is newer.
    Torch,
}

impl Peer {
    pub(super) const ALL: [Self; 3] = [Self::Dgl, Self::Pyg, Self::Torch];

    /// Name in the table.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Dgl => "DGL",
            Self::Pyg => "PyG",
            Self::Torch => "PyTorch",
        }
    }

    /// Its name among the versions that `peers.py` reports.
    pub(super) fn package(self) -> &'static str {
        match self {
            Self::Dgl => "dgl",
            Self::Pyg => "torch_geometric",
            Self::Torch => "torch",
        }
    }

    /// Modules that its interpreter must be able to import.
    pub(super) fn import(self) -> &'static str {
        match self {
            Self::Dgl => "import dgl, dgl.graphbolt",
            Self::Pyg => "import torch_geometric, torch_sparse",
            Self::Torch => "import torch",
        }
    }

    /// Environments to search.
    pub(super) fn places(self) -> &'static [Place] {
        match self {
            Self::Dgl => &[Place::Dgl],
            Self::Pyg => &[Place::Pyg],
            Self::Torch => &[Place::Pyg, Place::Dgl],
        }
    }
}

/// A Python environment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Place {
    Dgl,
    Pyg,
}

/// Reads the command line.
pub(super) fn parse(words: &[&str]) -> Result<Options> {
    let mut options = Options {
        peers: PathBuf::new(),
        data: "target/bench-peers".into(),
        named: HashMap::new(),
        python: HashMap::new(),
        threads: vec![1, 2],
        rounds: 3,
        quick: false,
        words: Vec::new(),
    };
    for (place, variable) in [(Place::Dgl, "VENV_DGL"), (Place::Pyg, "VENV_PEERS")] {
        if let Some(venv) = env::var_os(variable) {
            options.named.insert(place, Path::new(&venv).join("bin/python"));
        }
    }
    let mut rest = words.iter().copied();
    while let Some(word) = rest.next() {
        let mut value = || rest.next().with_context(|| format!("{word} wants a value"));
        match word {
            "--data" => options.data = value()?.into(),
            "--dgl" => drop(options.named.insert(Place::Dgl, value()?.into())),
            "--pyg" => drop(options.named.insert(Place::Pyg, value()?.into())),
            "--rounds" => options.rounds = value()?.parse().context("--rounds wants a number")?,
            "--threads" => {
                let list = value()?.split(',').map(str::parse).collect::<Result<_, _>>();
                options.threads = list.context("--threads wants numbers, such as 1,2")?;
            }
            "--quick" => options.quick = true,
            _ if word.starts_with('-') => bail!("no option {word}: see the top of xtask/src/bench_peers.rs"),
            _ if options.peers.as_os_str().is_empty() => options.peers = word.into(),
            _ => options.words.push(word.to_string()),
        }
    }
    let script = options.peers.join("peers.py");
    ensure!(
        script.is_file(),
        "{} is missing: PEERS_DIR is the directory of peers.py and gen.py",
        script.display()
    );
    ensure!(options.rounds > 0, "--rounds: at least 1");
    if options.quick {
        options.rounds = 1;
    }
    Ok(options)
}

/// Reports whether an interpreter exists and runs this.
pub(super) fn imports(python: &Path, import: &str) -> bool {
    let output = Command::new(python).args(["-c", import]).env("DGLBACKEND", "pytorch").output();
    output.is_ok_and(|output| output.status.success())
}
