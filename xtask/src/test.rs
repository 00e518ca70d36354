//! `cargo xtask test`: everything that a change must pass. What is made over MPI is tested where MPI is there, the package where Python is.

use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::{cargo, cuda, mpi, python};

/// What a step is done with where the machine has it.
enum With {
    Mpi,
    Python,
}

impl With {
    /// The features for it.
    fn features(&self) -> [&'static str; 2] {
        match self {
            Self::Mpi => ["--features", "graphmill/mpi"],
            Self::Python => python::FEATURES,
        }
    }
}

/// A call of cargo: what it is for, its arguments, what it is done with, and what follows the features for that.
struct Step {
    name: &'static str,
    arguments: &'static [&'static str],
    with: &'static [With],
    rest: &'static [&'static str],
}

/// The package's code is linted with the rest: one set of features, so every crate is looked at once.
const STEPS: &[Step] = &[
    Step { name: "formatting", arguments: &["fmt", "--all", "--check"], with: &[], rest: &[] },
    Step {
        name: "lints",
        arguments: &["clippy", "--workspace", "--all-targets"],
        with: &[With::Mpi, With::Python],
        rest: &["--", "-D", "warnings"],
    },
    Step { name: "documentation", arguments: &["doc", "--workspace", "--no-deps"], with: &[], rest: &[] },
    Step { name: "tests", arguments: &["test", "--workspace"], with: &[With::Mpi], rest: &[] },
];

/// Formatting, lints, documentation, tests, the CUDA kernels, the Python package's tests: stops at the first that fails.
pub(crate) fn run() -> Result<()> {
    let mpi = mpi::is_there();
    if !mpi {
        eprintln!("── MPI is not there, so training over it is not tested: cargo xtask setup installs it");
    }
    let python = python::find_python().is_some();
    let is_there = |with: &&With| match with {
        With::Mpi => mpi,
        With::Python => python,
    };
    for Step { name, arguments, with, rest } in STEPS {
        let features: Vec<&str> = with.iter().filter(is_there).flat_map(With::features).collect();
        let arguments = [arguments, &features[..], rest].concat();
        eprintln!("── {name}: cargo {}", arguments.join(" "));
        let status = Command::new(cargo())
            .args(&arguments)
            .env("RUSTDOCFLAGS", "-D warnings")
            .status()
            .with_context(|| format!("cannot run cargo for {name}"))?;
        if !status.success() {
            bail!("{name} failed");
        }
    }
    cuda::check()?;
    python::test_wheel(&[])
}
