//! A command in a directory of its own, attacked again and again, and what must hold afterwards.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    os::unix::process::CommandExt,
    path::{Path, PathBuf},
    process::{Command, ExitStatus, Stdio},
    time::{Duration, SystemTime},
};

use anyhow::{Context, Result, bail};

use super::{
    client::{Answers, attended},
    containers::{IMPOSSIBLE, Limit, end_with_parent},
    rows::{COMMON, FILES, Scenario},
    tracer::{self, Effect, End, Fault, Kind},
};

/// Attack on a run of a command.
#[derive(Clone, Copy, Debug)]
pub(super) enum Attack {
    /// A system call of this kind fails, or the process is killed there.
    Call(Kind, Effect),
    /// An allocation of 4 KiB or more fails.
    Allocation,
}

/// Variable with which a program with debug assertions refuses an allocation.
const REFUSE: &str = "GRAPHMILL_REFUSE_ALLOCATION";

/// Line of such a program when it refuses the allocation.
const REFUSED: &str = "refused by GRAPHMILL_REFUSE_ALLOCATION";

/// Directory for temporary files.
const TEMPORARY: &str = "temporary";

/// Files of a run or a sweep that do not depend on the clock.
const OF_RUN: [&str; 3] =
    ["best.safetensors", "checkpoint/model.safetensors", "checkpoint/optimizer.safetensors"];

/// Start of the names of event files of TensorBoard. The time follows, so every run has others.
const EVENTS: &str = "events.out.tfevents.";

/// Panic of the standard library if a new thread gets no memory for its signal handlers.
const START_OF_THREAD: &str = "failed to allocate an alternative stack";

/// Files with their contents, by path.
type Files = BTreeMap<PathBuf, Vec<u8>>;

/// Directory with the inputs, in which a command runs again and again.
pub(super) struct Sandbox<'s> {
    dir: tempfile::TempDir,
    binary: &'s Path,
    scenario: &'s Scenario,
    /// Paths of the inputs.
    inputs: BTreeSet<PathBuf>,
    /// Target before the command; empty if there is none.
    earlier: Files,
    /// True if the target may be missing after a fault: it was, or is a directory on a file system
    /// that cannot exchange directories.
    may_be_missing: bool,
    /// Target of a run without faults.
    reference: Files,
    /// Answers of a service without faults.
    answers: Answers,
    /// All paths of the directory after a run without faults.
    whole: BTreeSet<PathBuf>,
}

impl Attack {
    /// Words for messages.
    pub(super) fn name(self) -> String {
        match self {
            Self::Call(kind, Effect::Error) => kind.name.to_string(),
            Self::Call(kind, Effect::KillBefore) => format!("kill before {}", kind.name),
            Self::Call(kind, Effect::KillAfter) => format!("kill after {}", kind.name),
            Self::Allocation => "allocation".to_string(),
        }
    }
}

impl<'s> Sandbox<'s> {
    /// Makes the inputs, and runs the command without faults.
    pub(super) fn new(binary: &'s Path, scenario: &'s Scenario) -> Result<Self> {
        let dir = tempfile::tempdir()?;
        let mut sandbox = Self {
            dir,
            binary,
            scenario,
            inputs: BTreeSet::new(),
            earlier: Files::new(),
            may_be_missing: true,
            reference: Files::new(),
            answers: Answers::new(),
            whole: BTreeSet::new(),
        };
        for (name, text) in FILES {
            let path = sandbox.path(name);
            fs::create_dir_all(path.parent().context("a name without a directory")?)?;
            fs::write(path, text)?;
        }
        fs::create_dir(sandbox.path(TEMPORARY))?;
        for arguments in COMMON.iter().chain(scenario.inputs) {
            sandbox.must(arguments)?;
        }
        sandbox.inputs = sandbox.paths()?;
        if let Some(earlier) = scenario.earlier {
            sandbox.must(earlier)?;
            sandbox.earlier = sandbox.result()?;
            let is_file = sandbox.earlier.keys().any(|name| name.as_os_str().is_empty());
            sandbox.may_be_missing = !is_file && !exchanges_directories(sandbox.dir.path())?;
        }
        sandbox.answers = sandbox.must(scenario.arguments)?;
        sandbox.reference = sandbox.result()?;
        sandbox.whole = sandbox.paths()?;
        Ok(sandbox)
    }

    fn path(&self, name: impl AsRef<Path>) -> PathBuf {
        self.dir.path().join(name)
    }

    fn command(&self, arguments: &str) -> Result<Command> {
        self.prepared(Command::new(self.binary), arguments)
    }

    /// `command` with the arguments and streams of a run.
    fn prepared(&self, mut command: Command, arguments: &str) -> Result<Command> {
        let messages = fs::File::create(self.path("messages"))?;
        command.args(arguments.split_whitespace()).current_dir(self.dir.path());
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(messages);
        // few threads: each of their calls stops twice
        command.env("TMPDIR", self.path(TEMPORARY));
        command.env("RAYON_NUM_THREADS", "2").env("RUST_BACKTRACE", "0").env("GRAPHMILL_PROGRESS", "none");
        if self.is_service(arguments) {
            // its client signals the group, of which a shell that sets a limit is the first process
            command.env_remove("GRAPHMILL_TOKEN").process_group(0);
            end_with_parent(&mut command);
        }
        Ok(command)
    }

    /// Returns true if the arguments are those of the service under test.
    fn is_service(&self, arguments: &str) -> bool {
        !self.scenario.questions.is_empty() && arguments == self.scenario.arguments
    }

    /// Runs `work` beside the client of the service, if the arguments are those of one.
    fn attended<T>(
        &self,
        arguments: &str,
        work: impl FnOnce(&dyn Fn(u32)) -> Result<T>,
    ) -> Result<(T, Answers)> {
        let questions = if self.is_service(arguments) { self.scenario.questions } else { &[] };
        attended(questions, &self.path("messages"), work)
    }

    /// Runs a prepared command to its end. Returns the answers of a service, too.
    fn status(&self, mut command: Command, arguments: &str) -> Result<(ExitStatus, Answers)> {
        self.attended(arguments, |started| {
            let mut child = command.spawn().context("cannot start the program")?;
            started(child.id());
            Ok(child.wait()?)
        })
    }

    /// Runs a command, which must succeed. Returns the answers of a service, which must give all.
    fn must(&self, arguments: &str) -> Result<Answers> {
        let (status, answers) = self.status(self.command(arguments)?, arguments)?;
        if !status.success() {
            bail!("graphmill {arguments}: {status}: {}", self.messages());
        }
        if answers.contains(&None) {
            bail!("graphmill {arguments}: a question has no answer: {answers:?}");
        }
        Ok(answers)
    }

    /// Text on standard error.
    fn text(&self) -> String {
        fs::read_to_string(self.path("messages")).unwrap_or_default()
    }

    /// Last line on standard error.
    fn messages(&self) -> String {
        self.text().trim_end().lines().last().unwrap_or_default().to_string()
    }

    /// The target's files; of a run those that must be equal.
    fn result(&self) -> Result<Files> {
        let mut files = Files::new();
        if let Some(target) = self.scenario.target {
            let target = self.path(target);
            read_all(&target, &target, &mut files)?;
        }
        if self.scenario.resume.is_some() {
            files.retain(|path, _| OF_RUN.iter().any(|name| path.ends_with(name)));
        }
        Ok(files)
    }

    /// Runs the command under a limit of a container. Returns `None` if the limit cannot be set
    /// here, and otherwise the problem, if any.
    pub(super) fn try_limit(&self, limit: &Limit, namespace: &str) -> Result<Option<Option<String>>> {
        self.reset()?;
        let arguments = self.scenario.arguments;
        let command = self.prepared(limit.command(self.binary, namespace)?, arguments)?;
        let (status, answers) = self.status(command, arguments)?;
        if status.code() == Some(IMPOSSIBLE) {
            return Ok(None);
        }
        let says = self.messages();
        let is_finding = self.scenario.examines && status.code() == Some(1) && says.starts_with("error: ");
        Ok(Some(match self.left(&says)? {
            _ if !status.success() && !is_finding => {
                Some(format!("{status}, and the last message is '{says}'"))
            }
            _ if self.result()? != self.reference => Some(format!("it gives other bytes; {says}")),
            _ if answers != self.answers => Some(format!("it gives other answers: {answers:?}; {says}")),
            left => left,
        }))
    }

    /// Runs the command with the `number`-th attack. Returns `None` if it did not come to it, and
    /// otherwise the problem that it left, if any.
    pub(super) fn attack(&self, attack: Attack, number: u64) -> Result<Option<Option<String>>> {
        self.reset()?;
        let arguments = self.scenario.arguments;
        let mut command = self.command(arguments)?;
        let ((end, is_hit), answers) = match attack {
            Attack::Call(kind, effect) => {
                let fault = Fault { kind, number, effect };
                self.attended(arguments, |started| tracer::run(&mut command, fault, started))?
            }
            Attack::Allocation => {
                command.env(REFUSE, number.to_string());
                let (status, answers) = self.status(command, arguments)?;
                ((End::of(status), self.text().contains(REFUSED)), answers)
            }
        };
        Ok(if is_hit { Some(self.problem(attack, end, &answers)?) } else { None })
    }

    /// A false answer of a service that ended so, or a missing one of a service that worked to its
    /// end.
    fn wrong_answer(&self, end: End, answers: &Answers) -> Option<String> {
        let is_wrong = |(found, known): (&Option<String>, &Option<String>)| match found {
            Some(_) => found != known,
            None => end == End::Status(0),
        };
        let wrong = answers.iter().zip(&self.answers).position(is_wrong)?;
        let question = self.scenario.questions[wrong];
        Some(format!("{end:?}, and the answer to {question:?} is {:?}", answers[wrong]))
    }

    /// The first promise that a run which ended so breaks.
    fn problem(&self, attack: Attack, end: End, answers: &Answers) -> Result<Option<String>> {
        let says = self.messages();
        let is_kill = matches!(attack, Attack::Call(_, Effect::KillBefore | Effect::KillAfter));
        match (attack, end) {
            _ if is_kill && end == End::Signal(libc::SIGKILL) => {}
            (Attack::Allocation, End::Status(1)) if !says.contains("memory") => {
                return Ok(Some(format!("the message '{says}' does not name memory")));
            }
            (_, End::Status(0)) if !is_kill => {}
            (_, End::Status(1)) if !is_kill && says.starts_with("error: ") => {}
            // the standard library's start of a thread, before any code of this project
            (_, End::Signal(libc::SIGABRT)) if self.text().contains(START_OF_THREAD) => return Ok(None),
            (_, other) => return Ok(Some(format!("{other:?}, and the last message is '{says}'"))),
        }
        if let Some(wrong) = self.wrong_answer(end, answers) {
            return Ok(Some(format!("{wrong}; {says}")));
        }
        let found = self.result()?;
        let is_whole = found == self.reference;
        let is_run = self.scenario.resume.is_some();
        let is_earlier = found == self.earlier || found.is_empty() && self.may_be_missing;
        if !is_whole && (end == End::Status(0) || !(is_earlier || is_run)) {
            return Ok(Some(format!("{end:?} and an incomplete target: {:?}; {says}", found.keys())));
        }
        // a process that ends at once, or cannot remove a temporary file, leaves it to the next one
        let leaves = is_kill
            || matches!(attack, Attack::Allocation) && end != End::Status(0)
            || fs::read_dir(self.path(TEMPORARY))?.next().is_some();
        if !is_whole || is_run || leaves {
            self.age()?;
            let arguments = match self.scenario.resume {
                Some(resume) if self.path(resume.marker).exists() => resume.arguments,
                _ => self.scenario.arguments,
            };
            // a command may refuse to replace its whole target
            let Scenario { target, earlier, .. } = self.scenario;
            let may_refuse = is_whole && !is_run && target.is_some() && earlier.is_none();
            match self.must(arguments) {
                Err(error) if !may_refuse => {
                    return Ok(Some(format!("after '{says}' it cannot be run again: {error}")));
                }
                Ok(answers) if answers != self.answers => {
                    return Ok(Some(format!("after '{says}' another run gives other answers: {answers:?}")));
                }
                _ if self.result()? != self.reference => {
                    return Ok(Some(format!("after '{says}' another run gives other bytes")));
                }
                _ => {}
            }
        }
        self.left(&says)
    }

    /// Paths that a run which says `says` left beside the files of a run without faults, if any.
    fn left(&self, says: &str) -> Result<Option<String>> {
        let mut left = self.paths()?;
        // what a message names, as a whole or by its directory, is not left in silence
        let is_named = |path: &Path| {
            !self.whole.contains(path)
                && path.file_name().is_some_and(|name| says.contains(&*name.to_string_lossy()))
        };
        let is_log =
            |path: &Path| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(EVENTS));
        left.retain(|path| !self.whole.contains(path) && !is_log(path) && !path.ancestors().any(is_named));
        Ok((!left.is_empty()).then(|| format!("{left:?} is left behind after '{says}'")))
    }

    /// Sets the times of new files back: those that a killed process left are removed when they are
    /// a minute old.
    fn age(&self) -> Result<()> {
        let earlier = SystemTime::now() - Duration::from_secs(3600);
        for path in self.paths()?.difference(&self.whole) {
            fs::File::open(self.path(path))?.set_modified(earlier)?;
        }
        Ok(())
    }

    /// Removes everything but the inputs, and restores the earlier target.
    fn reset(&self) -> Result<()> {
        // a directory sorts before its entries
        for path in self.paths()?.into_iter().filter(|path| !self.inputs.contains(path)).rev() {
            let path = self.path(path);
            if path.is_dir() { fs::remove_dir(path)? } else { fs::remove_file(path)? }
        }
        if let Some(target) = self.scenario.target {
            for (name, bytes) in &self.earlier {
                let path =
                    if name.as_os_str().is_empty() { target.into() } else { Path::new(target).join(name) };
                let path = self.path(path);
                fs::create_dir_all(path.parent().context("a target without a directory")?)?;
                fs::write(path, bytes)?;
            }
        }
        Ok(())
    }

    /// Paths of all files and directories, below the directory.
    fn paths(&self) -> Result<BTreeSet<PathBuf>> {
        let mut paths = BTreeSet::new();
        let mut open = vec![self.dir.path().to_path_buf()];
        while let Some(dir) = open.pop() {
            for entry in fs::read_dir(dir)? {
                let path = entry?.path();
                paths.insert(path.strip_prefix(self.dir.path())?.to_path_buf());
                if path.is_dir() {
                    open.push(path);
                }
            }
        }
        Ok(paths)
    }
}

/// Optional parts with which the program was built.
pub(super) fn parts(binary: &Path) -> Result<Vec<String>> {
    let output =
        Command::new(binary).args(["version", "--json"]).output().context("cannot start the program")?;
    let document: serde_json::Value = serde_json::from_slice(&output.stdout)?;
    let found = document["findings"][0]["found"].as_str().context("the program names no parts")?;
    let names = found.split_once(", with ").map_or("", |(_, names)| names);
    Ok(names.split(", ").map(String::from).collect())
}

/// Returns true if the file system of `dir` exchanges two directories in one step.
fn exchanges_directories(dir: &Path) -> Result<bool> {
    use rustix::fs::{CWD, RenameFlags, renameat_with};

    let scratch = tempfile::tempdir_in(dir)?;
    let names = ["one", "other"].map(|name| scratch.path().join(name));
    names.iter().try_for_each(fs::create_dir)?;
    Ok(renameat_with(CWD, &names[0], CWD, &names[1], RenameFlags::EXCHANGE).is_ok())
}

/// Reads a file, or all files of a directory, by their path below `root`.
fn read_all(root: &Path, path: &Path, files: &mut Files) -> Result<()> {
    if path.is_dir() {
        for entry in fs::read_dir(path)? {
            read_all(root, &entry?.path(), files)?;
        }
    } else if path.exists() {
        files.insert(path.strip_prefix(root)?.to_path_buf(), fs::read(path)?);
    }
    Ok(())
}
