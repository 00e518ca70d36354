//! Commands under test, their inputs, and what must hold after a fault.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use anyhow::{Context, Result, bail};

use super::{
    containers::{IMPOSSIBLE, Limit},
    tracer::{self, End, Fault},
};

/// Command under test.
#[derive(Debug)]
pub(super) struct Scenario {
    /// Arguments, separated by spaces.
    pub(super) arguments: &'static str,
    /// File or directory that the command writes, if it writes any.
    target: Option<&'static str>,
    /// True for a training run, which `train --resume` continues.
    pub(super) is_run: bool,
    /// True if the short form has it.
    pub(super) is_short: bool,
}

/// Inputs: dataset `data`, edge list `edges.txt`, tables `nodes.csv` and `links.csv`, run
/// `trained`.
const INPUTS: [&str; 5] = ["data", "edges.txt", "nodes.csv", "links.csv", "trained"];

pub(super) const SCENARIOS: &[Scenario] = &[
    row("info data", None, true),
    row("generate sbm new --nodes 300 --degree 6 --classes 4 --feature-dim 8", Some("new"), true),
    row("import edges edges.txt new", Some("new"), false),
    row(
        "import tables new --nodes nodes.csv --id id --label kind --edges links.csv --src a --dst b",
        Some("new"),
        true,
    ),
    row("export data npz new.npz", Some("new.npz"), false),
    row("export data csv new", Some("new"), false),
    row("partition data new --parts 2", Some("new"), false),
    row("reorder data new --by degree", Some("new"), false),
    row("hotness data --fanout 5,5", None, false),
    row("predict trained --out new.csv", Some("new.csv"), false),
    row("eval trained", None, false),
    Scenario {
        arguments: "train data --epochs 2 --hidden 8 --fanout 5,5 --batch-size 50 --checkpoint-batches 1 \
                    --out new",
        target: Some("new"),
        is_run: true,
        is_short: true,
    },
    Scenario {
        arguments: "train data --epochs 1 --hidden 8 --fanout 5,5 --batch-size 50 --host-budget 8K --out new",
        target: Some("new"),
        is_run: true,
        is_short: false,
    },
];

const fn row(arguments: &'static str, target: Option<&'static str>, is_short: bool) -> Scenario {
    Scenario { arguments, target, is_run: false, is_short }
}

/// Files of a run that do not depend on the clock.
const OF_RUN: [&str; 3] =
    ["best.safetensors", "checkpoint/model.safetensors", "checkpoint/optimizer.safetensors"];

/// Panic of the standard library if a new thread gets no memory for its signal handlers.
const START_OF_THREAD: &str = "failed to allocate an alternative stack";

/// Files with their contents, by path.
type Files = BTreeMap<PathBuf, Vec<u8>>;

/// Directory with the inputs, in which a command runs again and again.
pub(super) struct Sandbox<'s> {
    dir: tempfile::TempDir,
    binary: &'s Path,
    scenario: &'s Scenario,
    /// Target of a run without faults.
    reference: Files,
}

impl<'s> Sandbox<'s> {
    /// Makes the inputs, and runs the command without faults.
    pub(super) fn new(binary: &'s Path, scenario: &'s Scenario) -> Result<Self> {
        let dir = tempfile::tempdir()?;
        let mut sandbox = Self { dir, binary, scenario, reference: Files::new() };
        let path = |name: &str| sandbox.dir.path().join(name);
        fs::write(path("edges.txt"), "0 1\n1 2\n2 3\n3 0\n")?;
        fs::write(path("nodes.csv"), "id,kind,size\nx,a,1\ny,b,2\nz,a,\n")?;
        fs::write(path("links.csv"), "a,b\nx,y\ny,z\nz,x\n")?;
        sandbox.must("generate sbm data --nodes 300 --degree 6 --classes 4 --feature-dim 8")?;
        sandbox.must("train data --epochs 1 --hidden 8 --fanout 5,5 --out trained")?;
        sandbox.must(scenario.arguments)?;
        sandbox.reference = sandbox.result()?;
        Ok(sandbox)
    }

    fn command(&self, arguments: &str) -> Result<Command> {
        self.prepared(Command::new(self.binary), arguments)
    }

    /// `command` with the arguments and streams of a run.
    fn prepared(&self, mut command: Command, arguments: &str) -> Result<Command> {
        let messages = fs::File::create(self.dir.path().join("messages"))?;
        command.args(arguments.split_whitespace()).current_dir(self.dir.path());
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(messages);
        // few threads: each of their calls stops twice
        command.env("RAYON_NUM_THREADS", "2").env("RUST_BACKTRACE", "0").env("GRAPHMILL_PROGRESS", "none");
        Ok(command)
    }

    /// Runs a command, which must succeed.
    fn must(&self, arguments: &str) -> Result<()> {
        let status = self.command(arguments)?.status().context("cannot start the program")?;
        if !status.success() {
            bail!("graphmill {arguments}: {status}: {}", self.messages());
        }
        Ok(())
    }

    /// Text on standard error.
    fn text(&self) -> String {
        fs::read_to_string(self.dir.path().join("messages")).unwrap_or_default()
    }

    /// Last line on standard error.
    fn messages(&self) -> String {
        self.text().trim_end().lines().last().unwrap_or_default().to_string()
    }

    /// The target's files; of a run those that must be equal.
    fn result(&self) -> Result<Files> {
        let mut files = Files::new();
        if let Some(target) = self.scenario.target {
            let target = self.dir.path().join(target);
            read_all(&target, &target, &mut files)?;
        }
        if self.scenario.is_run {
            files.retain(|path, _| OF_RUN.iter().any(|name| path == Path::new(name)));
        }
        Ok(files)
    }

    /// Runs the command under a limit of a container. Returns `None` if the limit cannot be set
    /// here, and otherwise the problem, if any.
    pub(super) fn try_limit(&self, limit: &Limit, namespace: &str) -> Result<Option<Option<String>>> {
        self.clear()?;
        let command = limit.command(self.binary, namespace)?;
        let status = self.prepared(command, self.scenario.arguments)?.status()?;
        if status.code() == Some(IMPOSSIBLE) {
            return Ok(None);
        }
        let says = self.messages();
        Ok(Some(match self.left(&says)? {
            _ if !status.success() => Some(format!("{status}, and the last message is '{says}'")),
            _ if self.result()? != self.reference => Some(format!("it gives other bytes; {says}")),
            left => left,
        }))
    }

    /// Runs the command with a fault. Returns `None` if it did not come to it, and otherwise the
    /// problem that it left, if any.
    pub(super) fn try_fault(&self, fault: Fault) -> Result<Option<Option<String>>> {
        self.clear()?;
        let (end, is_hit) = tracer::run(&mut self.command(self.scenario.arguments)?, fault)?;
        Ok(if is_hit { Some(self.problem(end)?) } else { None })
    }

    /// The first promise that a run which ended so breaks.
    fn problem(&self, end: End) -> Result<Option<String>> {
        let says = self.messages();
        match end {
            End::Status(0) => {}
            End::Status(1) if says.starts_with("error: ") => {}
            // the standard library's start of a thread, before any code of this project
            End::Signal(libc::SIGABRT) if self.text().contains(START_OF_THREAD) => return Ok(None),
            other => return Ok(Some(format!("{other:?}, and the last message is '{says}'"))),
        }
        let found = self.result()?;
        let is_whole = found == self.reference;
        if !is_whole && (end == End::Status(0) || !(found.is_empty() || self.scenario.is_run)) {
            return Ok(Some(format!("{end:?} and an incomplete target: {:?}; {says}", found.keys())));
        }
        if !is_whole || self.scenario.is_run {
            let resumed;
            let arguments = if self.dir.path().join("new/config.toml").exists() {
                resumed = "train --resume --out new";
                resumed
            } else {
                self.scenario.arguments
            };
            if let Err(error) = self.must(arguments) {
                return Ok(Some(format!("after '{says}' it cannot be run again: {error}")));
            }
            if self.result()? != self.reference {
                return Ok(Some(format!("after '{says}' another run gives other bytes")));
            }
        }
        self.left(&says)
    }

    /// Names that a run which says `says` left beside its target, if any.
    fn left(&self, says: &str) -> Result<Option<String>> {
        let known =
            |name: &str| INPUTS.contains(&name) || name == "messages" || Some(name) == self.scenario.target;
        let mut left = names(self.dir.path())?;
        // what a message names is not left in silence
        left.retain(|name| !known(name) && !says.contains(name.as_str()));
        Ok((!left.is_empty()).then(|| format!("{left:?} is left behind after '{says}'")))
    }

    /// Removes everything but the inputs.
    fn clear(&self) -> Result<()> {
        for name in names(self.dir.path())? {
            let path = self.dir.path().join(&name);
            if INPUTS.contains(&&*name) {
                continue;
            }
            if path.is_dir() { fs::remove_dir_all(path)? } else { fs::remove_file(path)? }
        }
        Ok(())
    }
}

fn names(dir: &Path) -> Result<Vec<String>> {
    fs::read_dir(dir)?.map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned())).collect()
}

/// Reads a file, or all files of a directory, by their path below `root`.
fn read_all(root: &Path, path: &Path, files: &mut Files) -> Result<()> {
    if path.is_dir() {
        for name in names(path)? {
            read_all(root, &path.join(name), files)?;
        }
    } else if path.exists() {
        files.insert(path.strip_prefix(root)?.to_path_buf(), fs::read(path)?);
    }
    Ok(())
}
