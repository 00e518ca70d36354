//! Examination of the machine: parts that a run can use, parts that it cannot, and remedies.

#![forbid(unsafe_code)]

use std::{env, fmt, fs, path::Path, thread};

use graphmill_core::{matrix::TableType, memory, units};
use graphmill_data::atomic::TemporaryFile;
use graphmill_loader::feature::disk::{Disk, DiskOptions, ReaderKind};
use graphmill_nn::backend::cpu::Level;
use serde::Serialize;

use crate::{
    accelerator::{Arithmetic, Gpu},
    machine::cores,
};

/// Number of open files from which large datasets in many parts need no higher limit.
const ENOUGH_FILES: u64 = 1024;
/// Memory below which training is not useful.
const LEAST_MEMORY: u64 = 256 << 20;
/// Size of a file whose rows are read to try the interfaces of the system.
const TRIAL_BYTES: usize = 1 << 16;

/// State of a finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum State {
    /// It works as well as it can.
    Good,
    /// It is absent or slower, and everything else works.
    Note,
    /// Runs fail or are killed until it is repaired.
    Fault,
}

/// Finding about one part of the machine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// Part of the machine.
    pub part: &'static str,
    /// State of the part.
    pub state: State,
    /// Value that was found.
    pub found: String,
    /// Remedy, if there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub remedy: Option<String>,
}

impl Finding {
    /// A part that works.
    pub fn good(part: &'static str, found: impl Into<String>) -> Self {
        Self { part, state: State::Good, found: found.into(), remedy: None }
    }

    /// A part that is absent or slower, with what to do about it.
    pub fn note(part: &'static str, found: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self { part, state: State::Note, found: found.into(), remedy: Some(remedy.into()) }
    }

    /// A part that makes runs fail, with its repair.
    pub fn fault(part: &'static str, found: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self { part, state: State::Fault, found: found.into(), remedy: Some(remedy.into()) }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mark = match self.state {
            State::Good => "ok",
            State::Note => "note",
            State::Fault => "fault",
        };
        writeln!(f, "{mark:<6} {:<16} {}", self.part, self.found)?;
        if let Some(remedy) = &self.remedy {
            writeln!(f, "{:<23} -> {remedy}", "")?;
        }
        Ok(())
    }
}

/// Examines the machine for runs that write below the directory `dir`.
///
/// ```
/// let findings = graphmill_engine::doctor::examine(&std::env::temp_dir());
/// assert!(findings.iter().any(|finding| finding.part == "processor"));
/// ```
pub fn examine(dir: &Path) -> Vec<Finding> {
    vec![
        processor(),
        memory_of(memory::installed(), memory::total(), memory::available()),
        huge_pages(&read("/sys/kernel/mm/transparent_hugepage/enabled")),
        open_files(&read("/proc/self/limits")),
        disk(dir),
        reads(dir),
        nvidia(),
        variables(
            env::vars_os()
                .filter_map(|(name, value)| Some(format!("{}={}", name.to_str()?, value.to_string_lossy()))),
        ),
    ]
}

/// Version of the program, and the optional parts that it was built with and without; `remedy` says
/// how to get the latter.
pub fn version(parts: &[(&str, bool)], remedy: &str) -> Finding {
    let of = |wanted: bool| {
        let names = parts.iter().filter(|(_, is_built)| *is_built == wanted).map(|(name, _)| *name);
        names.collect::<Vec<_>>().join(", ")
    };
    let (built, absent) = (of(true), of(false));
    let with = if built.is_empty() { String::new() } else { format!(", with {built}") };
    let found = format!(
        "graphmill {} for {} {}{with}",
        env!("CARGO_PKG_VERSION"),
        env::consts::OS,
        env::consts::ARCH
    );
    let remedy = (!absent.is_empty()).then(|| format!("not built: {absent}; {remedy}"));
    Finding { remedy, ..Finding::good("version", found) }
}

fn read(path: &str) -> String {
    fs::read_to_string(path).unwrap_or_default()
}

/// Name, cores and vector instructions of the processor, as far as the program uses them.
pub fn processor() -> Finding {
    let text = read("/proc/cpuinfo");
    let field = text.lines().filter_map(|line| line.split_once(':'));
    let mut names = field.filter(|(name, _)| name.trim() == "model name").map(|(_, value)| value.trim());
    let name = names.next().unwrap_or(env::consts::ARCH);
    let limit = thread::available_parallelism().map_or(1, usize::from);
    let found = format!("{name}, {}", cores_of(cores::available().len().max(1), limit));
    match Level::best() {
        Level::Avx512 => Finding::good("processor", format!("{found}, AVX-512")),
        Level::Avx2 => Finding::good("processor", format!("{found}, AVX2")),
        Level::Portable => Finding::note(
            "processor",
            format!("{found}, without AVX2"),
            "training works with portable code and is slower; an x86-64 processor since 2013 has AVX2",
        ),
    }
}

/// Cores on which this process may run, and the lower number that a quota of processor time allows.
fn cores_of(cores: usize, limit: usize) -> String {
    let plural = |count: usize| if count == 1 { "" } else { "s" };
    let found = format!("{cores} core{} for this process", plural(cores));
    if limit >= cores {
        return found;
    }
    format!("{found}, limited to the time of {limit} core{} by a container", plural(limit))
}

fn memory_of(installed: Option<u64>, limit: Option<u64>, free: Option<u64>) -> Finding {
    let (Some(installed), Some(limit), Some(free)) = (installed, limit, free) else {
        let found = "the system does not report its memory";
        return Finding::note("memory", found, "give commands a budget: --memory, --host-budget");
    };
    let mut found = format!("{}, {} free", units::bytes(installed), units::bytes(free));
    if limit < installed {
        found += &format!(", limited to {} by a container or ulimit", units::bytes(limit));
    }
    if free < LEAST_MEMORY {
        let remedy = "end other programs, or raise the limit of the container";
        return Finding::fault("memory", found, remedy);
    }
    Finding::good("memory", found)
}

fn huge_pages(enabled: &str) -> Finding {
    let chosen = enabled.split('[').nth(1).and_then(|rest| rest.split(']').next());
    match chosen {
        Some(chosen @ ("always" | "madvise")) => Finding::good("huge pages", chosen),
        Some(chosen) => Finding::note(
            "huge pages",
            chosen,
            "large tables are read faster after: echo madvise > /sys/kernel/mm/transparent_hugepage/enabled \
             (as root)",
        ),
        None => Finding { state: State::Note, ..Finding::good("huge pages", "unknown on this system") },
    }
}

fn open_files(limits: &str) -> Finding {
    let line = limits.lines().find_map(|line| line.strip_prefix("Max open files"));
    let word = line.and_then(|line| line.split_whitespace().next());
    match word.map(|word| (word, word.parse::<u64>().unwrap_or(u64::MAX))) {
        None => Finding { state: State::Note, ..Finding::good("open files", "unknown on this system") },
        Some((word, limit)) if limit < ENOUGH_FILES => Finding::note(
            "open files",
            format!("at most {word}"),
            format!("raise the limit for graphs in many parts: ulimit -n {ENOUGH_FILES}"),
        ),
        Some((word, _)) => Finding::good("open files", format!("at most {word}")),
    }
}

fn disk(dir: &Path) -> Finding {
    match (graphmill_core::disk::free(dir), trial_file(dir).and_then(TemporaryFile::remove)) {
        (Ok(free), Ok(())) => {
            Finding::good("disk", format!("{} free in {}", units::bytes(free), dir.display()))
        }
        (Err(error), Ok(())) if error.kind() == std::io::ErrorKind::Unsupported => {
            Finding::good("disk", format!("{} can be written", dir.display()))
        }
        (Err(error), _) => Finding::fault("disk", format!("{}: {error}", dir.display()), "check the mount"),
        (_, Err(error)) => Finding::fault(
            "disk",
            error.to_string(),
            "change to a directory of your own, or write elsewhere with --out",
        ),
    }
}

/// File with zeros, which is removed when it is dropped.
fn trial_file(dir: &Path) -> Result<TemporaryFile, graphmill_core::Error> {
    TemporaryFile::new(&dir.join("graphmill-doctor"), |file| file.write_all(&[0; TRIAL_BYTES]))
}

/// Interfaces through which feature rows are read from a disk.
fn reads(dir: &Path) -> Finding {
    let part = "reads from disk";
    let Ok(file) = trial_file(dir) else {
        return Finding::note(part, "not tried: the directory cannot be written", "see disk");
    };
    let disk = Disk::open(file.path(), 0, 16, TableType::F32, TRIAL_BYTES / 64, &DiskOptions::default());
    let found = disk.map(|disk| (disk.reader(), disk.block().is_some()));
    if let Err(error) = file.remove() {
        return Finding::fault(part, error.to_string(), "remove the file, and check the mount");
    }
    match found {
        Ok((ReaderKind::Uring, true)) => Finding::good(part, "io_uring, past the page cache"),
        Ok((ReaderKind::Uring, false)) => Finding::note(
            part,
            "io_uring, through the page cache",
            "the file system has no direct reads (O_DIRECT); keep large features on ext4 or XFS",
        ),
        Ok((_, _)) => Finding::note(
            part,
            "pread on several threads, because the system does not allow io_uring",
            "containers often forbid it; allow io_uring_setup in the seccomp profile, or set \
             kernel.io_uring_disabled=0",
        ),
        Err(error) => Finding::fault(part, error.to_string(), "report it with this table"),
    }
}

fn nvidia() -> Finding {
    match Gpu::open(0, 0, Arithmetic::F32, false) {
        Ok(gpu) => Finding::good("NVIDIA devices", gpu.describe()),
        Err(error) => Finding::note(
            "NVIDIA devices",
            format!("none: {error}"),
            "train on the processor, or install the driver; --devices virtual:N simulates devices",
        ),
    }
}

/// Variables of the environment that change runs, of `all` as `NAME=VALUE`.
fn variables(all: impl Iterator<Item = String>) -> Finding {
    let reads = ["GRAPHMILL_", "RAYON_NUM_THREADS=", "CUDA_VISIBLE_DEVICES="];
    let mut set: Vec<String> = all.filter(|pair| reads.iter().any(|name| pair.starts_with(name))).collect();
    set.sort_unstable();
    Finding::good("environment", if set.is_empty() { "nothing set".into() } else { set.join(" ") })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_of_the_machine_are_notes_or_faults_with_a_remedy() {
        let gib = |n: u64| Some(n << 30);
        let of = memory_of(gib(24), gib(2), gib(1));
        assert_eq!(of.state, State::Good);
        assert!(of.found.contains("limited to 2.00 GiB"), "{}", of.found);
        assert_eq!(memory_of(gib(24), gib(24), Some(1 << 20)).state, State::Fault);
        assert_eq!(memory_of(None, None, None).state, State::Note);
        assert_eq!(huge_pages("always [madvise] never").found, "madvise");
        assert_eq!(huge_pages("always madvise [never]").state, State::Note);
        assert_eq!(huge_pages("").state, State::Note);
        let limits = |soft: &str| format!("Max open files            {soft}                 4096    files\n");
        assert_eq!(open_files(&limits("256")).state, State::Note);
        assert_eq!(open_files(&limits("unlimited")).state, State::Good);
        assert_eq!(disk(Path::new("/no/such/directory")).state, State::Fault);
        let set = ["HOME=/x", "GRAPHMILL_PROGRESS=none", "RAYON_NUM_THREADS=2"].map(String::from);
        assert_eq!(variables(set.into_iter()).found, "GRAPHMILL_PROGRESS=none RAYON_NUM_THREADS=2");
    }

    #[test]
    fn cores_are_those_of_the_process_and_of_its_quota() {
        assert_eq!(cores_of(8, 8), "8 cores for this process");
        assert_eq!(cores_of(1, 2), "1 core for this process");
        assert_eq!(cores_of(8, 1), "8 cores for this process, limited to the time of 1 core by a container");
    }

    #[test]
    fn every_part_is_examined_and_nothing_is_left_behind() {
        let dir = tempfile::tempdir().unwrap();
        // what a killed process left: no process has this number
        let left = fs::File::create(dir.path().join(".graphmill-doctor.4194305-0.tmp")).unwrap();
        left.set_modified(std::time::SystemTime::now() - std::time::Duration::from_secs(120)).unwrap();
        let findings = examine(dir.path());
        assert!(
            findings
                .iter()
                .all(|of| of.state == State::Good || of.remedy.is_some() || of.found.contains("unknown")),
            "{findings:?}"
        );
        assert!(findings.iter().all(|of| of.state != State::Fault), "{findings:?}");
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
        let text = findings[0].to_string();
        assert!(text.contains("processor") && text.contains("for this process"), "{text}");
    }
}
