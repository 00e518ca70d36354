//! Mutation tests: cargo-mutants changes one expression at a time in the modules that carry an
//! invariant of `ARCHITECTURE.md`, and runs the tests that the invariant names. A change that no
//! test notices is a finding.
//!
//! It changes a copy of the sources (`target/audit/mutants/tree`), so an interrupted run leaves the
//! working tree as it was. Only changed files are copied, and one build directory serves all runs,
//! so a change costs one incremental build of a crate. Crates are built without optimisation,
//! because compiling them takes longer than their tests.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::Instant,
};

use anyhow::{Context, Result, ensure};

use super::choose;
use crate::target_dir;

/// A module with an invariant.
pub(super) struct Module {
    pub(super) name: &'static str,
    /// Numbers of the invariants in `ARCHITECTURE.md`.
    pub(super) invariants: &'static [u8],
    pub(super) package: &'static str,
    pub(super) files: &'static [&'static str],
    /// Words of `cargo test` that select the program of the tests.
    pub(super) target: &'static [&'static str],
    /// Parts of the names of the invariant's tests in it.
    pub(super) tests: &'static [&'static str],
    /// Patterns of changes that change no result, with reasons.
    pub(super) equivalent: &'static [(&'static str, &'static str)],
    pub(super) is_short: bool,
}

/// Row with tests of the library; the others override fields.
const LIBRARY: Module = Module {
    name: "",
    invariants: &[],
    package: "",
    files: &[],
    target: &["--lib"],
    tests: &[],
    equivalent: &[],
    is_short: false,
};

/// All modules.
pub(super) const MODULES: &[Module] = &[
    Module {
        name: "keyed randomness",
        invariants: &[1],
        package: "graphmill-core",
        files: &["crates/core/src/keyed.rs"],
        tests: &["keyed::"],
        is_short: true,
        ..LIBRARY
    },
    Module {
        name: "alias tables",
        invariants: &[1],
        package: "graphmill-core",
        files: &["crates/core/src/alias.rs", "crates/core/src/alias/rows.rs"],
        tests: &["alias::"],
        ..LIBRARY
    },
    Module {
        name: "uniform draws",
        invariants: &[1],
        package: "graphmill-loader",
        files: &[
            "crates/loader/src/sampler/neighbor.rs",
            "crates/loader/src/sampler/neighbor/offsets.rs",
            "crates/loader/src/sampler/neighbor/redraw.rs",
        ],
        tests: &["sampler::neighbor::", "sampler::remaining::"],
        ..LIBRARY
    },
    Module {
        name: "draws without replacement",
        invariants: &[1],
        package: "graphmill-loader",
        files: &["crates/loader/src/sampler/reservoir.rs", "crates/loader/src/time/draw.rs"],
        tests: &["sampler::reservoir", "time::draw"],
        ..LIBRARY
    },
    Module {
        name: "sums in parts",
        invariants: &[2],
        package: "graphmill-nn",
        files: &["crates/nn/src/backend/cpu/parallel.rs", "crates/nn/src/backend/cpu/split_sum.rs"],
        tests: &["cpu::parallel::", "cpu::split_sum::"],
        ..LIBRARY
    },
    Module {
        name: "checkpoints",
        invariants: &[3],
        package: "graphmill-engine",
        files: &[
            "crates/engine/src/checkpoint/mod.rs",
            "crates/engine/src/checkpoint/directory.rs",
            "crates/engine/src/checkpoint/tensors.rs",
            "crates/engine/src/checkpoint/assign.rs",
        ],
        tests: &["checkpoint::"],
        ..LIBRARY
    },
    Module {
        name: "atomic writes",
        invariants: &[5],
        package: "graphmill-data",
        files: &[
            "crates/data/src/atomic.rs",
            "crates/data/src/atomic/directories.rs",
            "crates/data/src/atomic/lock.rs",
            "crates/data/src/atomic/sibling.rs",
        ],
        tests: &["atomic::"],
        ..LIBRARY
    },
    Module {
        name: "resumed imports",
        invariants: &[6],
        package: "graphmill-data",
        files: &[
            "crates/data/src/tables/kept.rs",
            "crates/data/src/tables/finished.rs",
            "crates/data/src/tables/parts.rs",
        ],
        target: &["--lib", "--features=tables"],
        tests: &["tables::kept::", "tables::resume_tests::"],
        ..LIBRARY
    },
    Module {
        name: "verified chunks",
        invariants: &[8],
        package: "graphmill-core",
        files: &["crates/core/src/verifier.rs"],
        tests: &["verifier::"],
        ..LIBRARY
    },
    Module {
        name: "slots of caches",
        invariants: &[8],
        package: "graphmill-loader",
        files: &[
            "crates/loader/src/policy/mod.rs",
            "crates/loader/src/policy/slot_map.rs",
            "crates/loader/src/policy/links.rs",
            "crates/loader/src/policy/fifo.rs",
            "crates/loader/src/policy/lru.rs",
        ],
        tests: &["policy::"],
        ..LIBRARY
    },
    Module {
        name: "rows of caches",
        invariants: &[8],
        package: "graphmill-loader",
        files: &["crates/loader/src/feature/cached/rows.rs"],
        tests: &["feature::cached::"],
        ..LIBRARY
    },
    Module {
        name: "scheduler",
        invariants: &[9, 10],
        package: "graphmill-engine",
        files: &["crates/engine/src/strategy/scheduler.rs"],
        tests: &["strategy::scheduler::"],
        ..LIBRARY
    },
    Module {
        name: "reused rows",
        invariants: &[11],
        package: "graphmill-engine",
        files: &[
            "crates/engine/src/reuse/embeddings.rs",
            "crates/engine/src/reuse/exchange.rs",
            "crates/engine/src/reuse/history.rs",
            "crates/engine/src/reuse/hot_queue.rs",
            "crates/engine/src/reuse/row_slots.rs",
        ],
        tests: &["reuse::"],
        ..LIBRARY
    },
    Module {
        name: "sealed messages",
        invariants: &[12],
        package: "graphmill-distributed",
        files: &["crates/distributed/src/messenger/seal.rs"],
        tests: &["messenger::seal"],
        equivalent: &[(r"replace \| with \^ in checksum", "the low byte of a shifted rank is zero")],
        ..LIBRARY
    },
    Module {
        name: "sums on devices",
        invariants: &[13],
        package: "graphmill-cuda",
        files: &["crates/cuda/src/backend/aggregate.rs", "crates/cuda/src/backend/work.rs"],
        target: &["--features=shim", "--test=main"],
        tests: &["backend::"],
        ..LIBRARY
    },
    Module {
        name: "sources of rows",
        invariants: &[14],
        package: "graphmill-nn",
        files: &["crates/nn/src/backend/cpu/source.rs", "crates/nn/src/layer/propagation.rs"],
        target: &["--test=main"],
        tests: &["gradients::", "backend_cpu::wide_rows", "backend_cpu::empty"],
        ..LIBRARY
    },
    Module {
        name: "excluded edges",
        invariants: &[16],
        package: "graphmill-loader",
        files: &["crates/loader/src/link/excluded.rs", "crates/loader/src/link/places.rs"],
        tests: &["link::excluded", "link::places"],
        ..LIBRARY
    },
    Module {
        name: "known edges",
        invariants: &[16],
        package: "graphmill-loader",
        files: &["crates/loader/src/link/known.rs"],
        tests: &["link::known"],
        ..LIBRARY
    },
    Module {
        name: "edges in time",
        invariants: &[17],
        package: "graphmill-loader",
        files: &[
            "crates/loader/src/time/index.rs",
            "crates/loader/src/time/options.rs",
            "crates/loader/src/time/own_rows.rs",
            "crates/loader/src/time/relation.rs",
        ],
        tests: &["time::"],
        ..LIBRARY
    },
];

/// Crates that are built without optimisation: those of the project.
const PLAIN: [&str; 4] = ["graphmill-core", "graphmill-loader", "graphmill-nn", "graphmill-engine"];

/// Seconds after which the tests of a change count as endless, if five times their usual time is
/// less.
const TIMEOUT: &str = "10";

impl Module {
    /// Numbers of the invariants, for people.
    fn numbers(&self) -> String {
        self.invariants.iter().map(u8::to_string).collect::<Vec<_>>().join(", ")
    }
}

/// Results of a module.
#[derive(Debug, Default, PartialEq, Eq)]
struct Counts {
    caught: usize,
    /// Changes that do not compile.
    unviable: usize,
    missed: Vec<String>,
}

/// Runs the chosen modules.
///
/// # Errors
/// cargo-mutants is missing, a module's tests fail without a change, or changes are missed; these
/// are reported after all modules have run.
pub(super) fn run(chosen: &[&str], short: bool) -> Result<()> {
    let modules = choose(MODULES, |module| (module.name, module.is_short), chosen, short)?;
    let mut command = Command::new("cargo");
    command.args(["mutants", "--version"]).stdout(Stdio::null()).stderr(Stdio::null());
    let works = command.status().is_ok_and(|status| status.success());
    ensure!(works, "cargo-mutants is missing: cargo install cargo-mutants --locked");
    let directory = target_dir().join("audit/mutants");
    let tree = directory.join("tree");
    copy_sources(&tree)?;
    println!("| module | invariants | changes | caught | do not compile | equivalent | missed | seconds |");
    println!("| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |");
    let mut missed = Vec::new();
    for module in modules {
        let started = Instant::now();
        let all = list(module, &tree, false)?;
        let equivalent = all - list(module, &tree, true)?;
        let Counts { caught, unviable, missed: found } = mutate(module, &tree, &directory)?;
        let seconds = started.elapsed().as_secs_f64();
        println!(
            "| {} | {} | {all} | {caught} | {unviable} | {equivalent} | {} | {seconds:.0} |",
            module.name,
            module.numbers(),
            found.len()
        );
        missed.extend(found);
    }
    ensure!(missed.is_empty(), "no test notices {} changes:\n{}", missed.len(), missed.join("\n"));
    Ok(())
}

/// Words of cargo-mutants that select a module's changes.
fn selection(module: &Module, without_equivalent: bool) -> Vec<&'static str> {
    let mut words = vec!["mutants", "--no-config", "--package", module.package];
    words.extend(module.files.iter().flat_map(|file| ["--file", file]));
    if without_equivalent {
        words.extend(module.equivalent.iter().flat_map(|(pattern, _)| ["--exclude-re", pattern]));
    }
    words
}

/// Number of changes of a module.
fn list(module: &Module, tree: &Path, without_equivalent: bool) -> Result<usize> {
    let mut command = Command::new("cargo");
    command.args(selection(module, without_equivalent)).arg("--list").current_dir(tree);
    let output = command.output().context("cannot run cargo mutants")?;
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let count = String::from_utf8_lossy(&output.stdout).lines().count();
    ensure!(count > 0, "{}: no changes; are the paths right?", module.name);
    Ok(count)
}

/// Tries the changes of a module.
fn mutate(module: &Module, tree: &Path, directory: &Path) -> Result<Counts> {
    let results = directory.join(module.name.replace(' ', "-"));
    fs::create_dir_all(&results)?;
    let mut command = Command::new("cargo");
    command.args(selection(module, true)).args(["--in-place", "--minimum-test-timeout", TIMEOUT, "--output"]);
    command.arg(&results).current_dir(tree).env("CARGO_TARGET_DIR", directory.join("build"));
    command.env("CARGO_INCREMENTAL", "1").env_remove("RUSTC").env_remove("CARGO");
    // builds need no other programs
    command.args(module.target.iter().map(|word| format!("--cargo-arg={word}")));
    for package in PLAIN {
        command.arg(format!("--cargo-arg=--config=profile.dev.package.{package}.opt-level=0"));
    }
    command.args(["--", "--"]).args(module.tests);
    eprintln!(
        "── mutants: {}: cargo test -p {} {} -- {}",
        module.name,
        module.package,
        module.target.join(" "),
        module.tests.join(" ")
    );
    // standard output holds the table of results
    let status = command.stdout(Stdio::from(std::io::stderr())).status();
    let status = status.context("cannot run cargo mutants")?;
    // 2: changes were missed, 3: some tests did not end
    let ran = status.success() || matches!(status.code(), Some(2 | 3));
    ensure!(ran, "{}: cargo mutants ended with {status}; its output is above", module.name);
    let read = |name: &str| {
        fs::read_to_string(results.join("mutants.out").join(name)).with_context(|| name.to_owned())
    };
    Ok(counts(&read("caught.txt")?, &read("timeout.txt")?, &read("unviable.txt")?, &read("missed.txt")?))
}

/// Counts from the lists of cargo-mutants, a change in each line. Tests that do not end notice the
/// change.
fn counts(caught: &str, timeout: &str, unviable: &str, missed: &str) -> Counts {
    Counts {
        caught: caught.lines().count() + timeout.lines().count(),
        unviable: unviable.lines().count(),
        missed: missed.lines().map(str::to_owned).collect(),
    }
}

/// Copies the changed ones of the sources that git knows or would add.
fn copy_sources(tree: &Path) -> Result<()> {
    let mut command = Command::new("git");
    command.args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"]);
    let output = command.output().context("cannot run git")?;
    ensure!(output.status.success(), "git ls-files failed; run this in a clone of the repository");
    let names = String::from_utf8(output.stdout).context("a path is not UTF-8")?;
    let names: BTreeSet<PathBuf> = names.split_terminator('\0').map(PathBuf::from).collect();
    for name in names.iter().filter(|name| name.is_file()) {
        let (text, copy) = (fs::read(name)?, tree.join(name));
        // an unchanged file keeps its time, so cargo does not build it again
        if fs::read(&copy).is_ok_and(|old| old == text) {
            continue;
        }
        fs::create_dir_all(copy.parent().context("a file is in a directory")?)?;
        fs::write(&copy, text).with_context(|| copy.display().to_string())?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modules_exist_and_equivalent_changes_have_reasons() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
        let page = fs::read_to_string(root.join("ARCHITECTURE.md")).unwrap();
        for module in MODULES {
            module.files.iter().for_each(|file| assert!(root.join(file).is_file(), "{file}"));
            assert!(!module.invariants.is_empty() && !module.tests.is_empty(), "{}", module.name);
            let is_known = |number: &u8| page.contains(&format!("\n{number}. **"));
            assert!(module.invariants.iter().all(is_known), "{}", module.name);
            assert!(module.equivalent.iter().all(|(_, reason)| !reason.is_empty()), "{}", module.name);
        }
    }

    #[test]
    fn tests_that_do_not_end_notice_the_change() {
        let counts = counts("a\nb\n", "c\n", "", "d.rs:1:2: replace + with -\n");
        assert_eq!((counts.caught, counts.unviable), (3, 0));
        assert_eq!(counts.missed, ["d.rs:1:2: replace + with -"]);
    }
}
