//! Compiler of `cargo xtask test`: cargo runs it in the place of rustc for the workspace's own
//! targets, and it compiles a target, lints it and writes its documentation.
//!
//! `cargo clippy` and `cargo doc` check all dependencies before, and build nothing that the tests
//! use. Clippy and rustdoc read the libraries of the tests as well. Cargo keeps the results of this
//! compiler apart from those of rustc, so a target that was not linted is never taken for built.
//!
//! | target | compiled | linted | documented |
//! | --- | --- | --- | --- |
//! | library, `xtask` | yes | yes | yes |
//! | other program, build script, tests | yes | yes | |
//! | unit tests of a crate in [`UNIT_LEVELS`] | at its level there | yes | |
//! | example, which a test compiles as well | an empty file | yes | yes |
//! | benchmark | an empty file | yes | |

use std::{
    env,
    ffi::OsStr,
    fs::{self, File},
    io,
    path::{Path, PathBuf},
    process::{Child, Command, ExitCode, Stdio},
};

use anyhow::{Context, Result, anyhow};

/// Name under which this program is the compiler.
const NAME: &str = "checked-rustc";
/// Environment variable of the directory of the documentation; nothing is documented without it.
const DOCUMENTATION: &str = "GRAPHMILL_XTASK_DOC";
/// Crates with a high level of optimisation that their unit tests do not need, and the level of
/// these tests: it takes longer to optimise them than to run them.
const UNIT_LEVELS: &[(&str, &str)] = &[("graphmill_core", "0"), ("graphmill_nn", "0")];
/// Program whose comments are checked, although it is no library.
const OWN: &str = "xtask";
/// Arguments of rustc that rustdoc does not have, with the numbers of their values.
const UNDOCUMENTED: &[(&str, usize)] = &[("--out-dir", 1), ("--emit", 0), ("-C", 1), ("-l", 1)];

/// Writes the compiler to a directory and returns its path.
///
/// # Errors
/// The program cannot be copied.
pub(crate) fn install(directory: &Path) -> Result<PathBuf> {
    // a copy, because cargo builds xtask while it runs this compiler
    let own = env::current_exe().context("the path of xtask is unknown")?;
    let (new, path) = (directory.join(format!("{NAME}.new")), directory.join(NAME));
    let copied = fs::copy(&own, &new).and_then(|_| fs::rename(&new, &path));
    copied.with_context(|| format!("{} cannot be written", path.display()))?;
    Ok(path)
}

/// Environment of cargo that selects the compiler, and the directory of the documentation.
pub(crate) fn variables<'p>(compiler: &'p Path, documentation: &'p Path) -> [(&'static str, &'p Path); 2] {
    [("RUSTC_WORKSPACE_WRAPPER", compiler), (DOCUMENTATION, documentation)]
}

/// Returns true if cargo started this process as the compiler.
pub(crate) fn is_asked() -> bool {
    env::args_os().next().is_some_and(|own| Path::new(&own).file_name() == Some(OsStr::new(NAME)))
}

/// Compiles a target; the arguments are the path of rustc and those of rustc.
pub(crate) fn run() -> ExitCode {
    let words: Vec<String> = env::args().skip(1).collect();
    let done = match words.split_first() {
        Some((rustc, words)) => compile(rustc, words),
        None => Err(anyhow!("the path of rustc is missing")),
    };
    match done {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("error: {NAME}: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Compiles, lints and documents a target. Returns false if it has faults.
fn compile(rustc: &str, words: &[String]) -> Result<bool> {
    let Some(target) = Target::read(words) else {
        // a question about rustc
        return Ok(Command::new(rustc).args(words).status().context("rustc does not start")?.success());
    };
    let scratch = tempfile::tempdir()?;
    let mut checks = vec![spawn(&mut target.lints(rustc, scratch.path()))?];
    if let (true, Some(directory)) = (target.is_documented(), env::var_os(DOCUMENTATION)) {
        checks.push(spawn(&mut target.documentation(Path::new(&directory)))?);
    }
    let compiled = target.compile(rustc)?;
    // cargo reads the messages of all; those of the checks would repeat the compiler's
    let mut is_faultless = compiled;
    for check in checks {
        let output = check.wait_with_output()?;
        if compiled {
            io::Write::write_all(&mut io::stderr(), &output.stderr)?;
        }
        is_faultless &= output.status.success();
    }
    Ok(is_faultless)
}

/// Starts a check and keeps its messages.
fn spawn(command: &mut Command) -> Result<Child> {
    let name = command.get_program().to_owned();
    command.stderr(Stdio::piped()).spawn().with_context(|| format!("{} does not start", name.display()))
}

/// Target that rustc is asked to compile.
#[derive(Debug, PartialEq)]
struct Target<'w> {
    name: &'w str,
    source: &'w str,
    /// Suffix of the names of its files.
    suffix: &'w str,
    out: &'w str,
    is_test: bool,
    is_library: bool,
    words: &'w [String],
}

impl<'w> Target<'w> {
    /// Reads the arguments of rustc; returns `None` if they compile nothing.
    fn read(words: &'w [String]) -> Option<Self> {
        let value = |name: &str| {
            let at = words.iter().position(|word| word == name)?;
            words.get(at + 1).map(String::as_str)
        };
        let suffix = words.iter().find_map(|word| word.strip_prefix("extra-filename="));
        Some(Self {
            name: value("--crate-name")?,
            source: words.iter().find(|word| word.ends_with(".rs"))?,
            suffix: suffix?,
            out: value("--out-dir")?,
            is_test: words.iter().any(|word| word == "--test"),
            is_library: value("--crate-type").is_some_and(|kind| kind != "bin"),
            words,
        })
    }

    /// Returns true for a program of a directory that holds programs of that kind.
    fn lies_in(&self, directory: &str) -> bool {
        Path::new(self.source).parent().is_some_and(|parent| parent.ends_with(directory))
    }

    fn is_documented(&self) -> bool {
        !self.is_test && (self.is_library || self.name == OWN || self.lies_in("examples"))
    }

    /// Compiles, and returns true if rustc succeeded.
    fn compile(&self, rustc: &str) -> Result<bool> {
        let mut command = Command::new(rustc);
        command.args(self.words);
        // the lints report what rustc would
        command.args(["--cap-lints", "allow"]);
        if self.lies_in("benches") || self.lies_in("examples") {
            // nothing runs it; cargo wants the file
            command.arg("--emit=dep-info");
            File::create(Path::new(self.out).join(format!("{}{}", self.name, self.suffix)))?;
        }
        let is_unit_test = self.is_test && self.source.ends_with("src/lib.rs");
        if let (true, Some((_, level))) =
            (is_unit_test, UNIT_LEVELS.iter().find(|(name, _)| *name == self.name))
        {
            command.arg(format!("-Copt-level={level}"));
        }
        Ok(command.status().context("rustc does not start")?.success())
    }

    /// Clippy for the target; its files go to a directory.
    fn lints(&self, rustc: &str, scratch: &Path) -> Command {
        let mut command = Command::new("clippy-driver");
        command.arg(rustc);
        for word in self.words {
            match word {
                // cargo would take the files for the compiler's
                word if word.starts_with("--json=") => command.arg(word.replace(",artifacts", "")),
                word if word.starts_with("--emit=") => command.arg("--emit=metadata"),
                word if word == self.out => command.arg(scratch),
                word => command.arg(word),
            };
        }
        command.env("CLIPPY_ARGS", "-D__CLIPPY_HACKERY__warnings__CLIPPY_HACKERY__");
        command
    }

    /// Rustdoc for the target.
    fn documentation(&self, directory: &Path) -> Command {
        let mut command = Command::new("rustdoc");
        let mut words = self.words.iter();
        while let Some(word) = words.next() {
            let name = word.split_once('=').map_or(&**word, |(name, _)| name);
            match UNDOCUMENTED.iter().find(|(other, _)| *other == name) {
                Some((_, values)) => words.by_ref().take(*values).for_each(drop),
                // clippy's lints
                None if word.contains("=clippy::") => {}
                None if word.starts_with("--json=") => {
                    command.arg(word.replace(",artifacts", ""));
                }
                None => {
                    command.arg(word);
                }
            }
        }
        if !self.is_library {
            command.arg("--document-private-items");
        }
        command.arg("--out-dir").arg(directory).args(["-D", "warnings"]);
        command
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Arguments of rustc for a file of the crate `graphmill_nn`.
    fn words(kind: &str, source: &str) -> Vec<String> {
        let words = format!(
            "--crate-name graphmill_nn --edition=2024 {source} --error-format=json \
             --json=diagnostic-rendered-ansi,artifacts,future-incompat {kind} --emit=dep-info,metadata,link \
             -C opt-level=3 --warn=missing_docs --warn=clippy::all --cfg feature=\"testing\" \
             -C extra-filename=-00 --out-dir /t/deps --extern rayon=/t/deps/librayon.rmeta -l static=x"
        );
        words.split_whitespace().map(String::from).collect()
    }

    fn arguments(command: &Command) -> String {
        command.get_args().map(|word| word.to_string_lossy() + " ").collect()
    }

    #[test]
    fn targets_are_read_from_the_arguments_of_rustc() {
        let library = words("--crate-type lib", "crates/nn/src/lib.rs");
        let target = Target::read(&library).unwrap();
        assert_eq!((target.name, target.suffix, target.out), ("graphmill_nn", "-00", "/t/deps"));
        assert!(target.is_documented());
        let tests = words("--test", "crates/nn/src/lib.rs");
        assert!(!Target::read(&tests).unwrap().is_documented());
        let example = words("--crate-type bin", "crates/graphmill/../../examples/01-train.rs");
        let example = Target::read(&example).unwrap();
        assert!(example.is_documented() && example.lies_in("examples") && !example.lies_in("benches"));
        let question = ["-", "--crate-name", "___", "--print=file-names"].map(String::from);
        assert_eq!(Target::read(&question), None);
    }

    #[test]
    fn lints_report_no_files_and_documentation_takes_no_code() {
        let library = words("--crate-type lib", "crates/nn/src/lib.rs");
        let target = Target::read(&library).unwrap();
        let lints = arguments(&target.lints("/bin/rustc", Path::new("/scratch")));
        assert!(lints.starts_with("/bin/rustc --crate-name") && !lints.contains("artifacts"), "{lints}");
        assert!(lints.contains("--emit=metadata ") && lints.contains("--out-dir /scratch "), "{lints}");
        let documentation = arguments(&target.documentation(Path::new("/doc")));
        for part in ["-C", "clippy", "--emit", "/t/deps ", "static", "artifacts", "private-items"] {
            assert!(!documentation.contains(part), "{part} in {documentation}");
        }
        for part in ["--cfg feature", "--extern rayon", "src/lib.rs", "--out-dir /doc -D warnings"] {
            assert!(documentation.contains(part), "{part} is not in {documentation}");
        }
    }
}
