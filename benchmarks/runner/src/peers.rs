//! Environments of the peers: Python with DGL, or with PyTorch Geometric.

use std::{
    env, fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context, Result, ensure};

use crate::definition::root;

/// A Python environment with a peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Peer {
    Dgl,
    Pyg,
}

impl Peer {
    const ALL: [Self; 2] = [Self::Dgl, Self::Pyg];

    /// Name in commands, of its requirements and of its environment.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Dgl => "dgl",
            Self::Pyg => "pyg",
        }
    }

    /// Environment variable that names another interpreter.
    fn variable(self) -> &'static str {
        match self {
            Self::Dgl => "GRAPHMILL_PEERS_DGL",
            Self::Pyg => "GRAPHMILL_PEERS_PYG",
        }
    }

    pub(crate) fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|peer| peer.name() == name)
    }

    fn directory(self) -> PathBuf {
        root().join("target/peers").join(self.name())
    }

    /// Interpreter, if it exists.
    pub(crate) fn python(self) -> Option<PathBuf> {
        let named = env::var_os(self.variable()).map(PathBuf::from);
        let python = named.unwrap_or_else(|| self.directory().join("bin/python"));
        python.exists().then_some(python)
    }
}

/// Creates the environments with the pinned versions, or updates them; `compile` adds extensions
/// that are compiled here.
///
/// # Errors
/// A name is unknown, or Python or a package is missing.
pub(crate) fn setup(names: &[String], compile: bool) -> Result<()> {
    let named = |name: &String| Peer::named(name).with_context(|| format!("{name}: known are dgl and pyg"));
    let chosen = names.iter().map(named).collect::<Result<Vec<_>>>()?;
    for peer in if chosen.is_empty() { Peer::ALL.to_vec() } else { chosen } {
        let directory = peer.directory();
        let requirements = |suffix: &str| {
            let file = format!("requirements-{}{suffix}.txt", peer.name());
            root().join("benchmarks/peers").join(file)
        };
        if !directory.join("bin/python").exists() {
            fs::create_dir_all(&directory)?;
            // The pinned wheels exist for this version.
            let python = env::var_os("PYTHON").unwrap_or_else(|| "python3.11".into());
            run(Command::new(&python).args(["-m", "venv"]).arg(&directory))?;
        }
        let install = |file: &Path, options: &[&str]| {
            let mut command = Command::new(directory.join("bin/python"));
            command.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check"]).args(options);
            run(command.arg("-r").arg(file).env("FORCE_ONLY_CPU", "1"))
        };
        install(&requirements(""), &[])?;
        // Extensions are compiled against the installed PyTorch: some ten minutes of two cores.
        let compiled = requirements("-compiled");
        if compile && compiled.exists() {
            install(&compiled, &["--no-build-isolation", "--no-deps"]).context(
                "without these extensions PyTorch Geometric does not sample; pass --quick to do so",
            )?;
        }
        eprintln!("{}: {}", peer.name(), directory.display());
    }
    Ok(())
}

fn run(command: &mut Command) -> Result<()> {
    eprintln!("{command:?}");
    let status = command.status().with_context(|| format!("{command:?} cannot be started"))?;
    ensure!(status.success(), "{command:?}: {status}");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scripts_are_python_and_short() {
        let mut scripts = Vec::new();
        for entry in fs::read_dir(root().join("benchmarks/peers")).unwrap() {
            let path = entry.unwrap().path();
            if path.extension().is_some_and(|extension| extension == "py") {
                let lines = fs::read_to_string(&path).unwrap().lines().count();
                assert!(lines < 500, "{}: {lines} lines, at most 499", path.display());
                scripts.push(path);
            }
        }
        assert!(scripts.len() > 3);
        let program = "import ast, sys\nfor path in sys.argv[1:]: ast.parse(open(path).read(), path)";
        let output = Command::new("python3").args(["-c", program]).args(&scripts).output();
        // Tests of the Python package skip themselves without Python, too.
        let Ok(output) = output else { return };
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }

    #[test]
    fn every_peer_has_pinned_requirements() {
        for peer in Peer::ALL {
            let file = root().join(format!("benchmarks/peers/requirements-{}.txt", peer.name()));
            let text = fs::read_to_string(file).unwrap();
            let lines = text.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
            assert!(lines.clone().all(|line| line.contains("==")), "{text}");
            assert!(lines.count() > 1);
        }
    }
}
