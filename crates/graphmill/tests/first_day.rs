//! The newcomer's first day: a script that installs the program, works with it and uninstalls it.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Output},
};

const PROGRAM: &str = env!("CARGO_BIN_EXE_graphmill");

/// Runs `scripts/first-day` with these words.
fn first_day<S: AsRef<std::ffi::OsStr>>(words: &[S]) -> Output {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scripts/first-day");
    Command::new("bash").arg(script).args(words).output().expect("there is a bash")
}

/// Archive with the layout of a release's, but not compressed.
fn archive(directory: &Path) -> PathBuf {
    let prefix = directory.join("graphmill-test");
    let [programs, completions, pages] =
        ["bin", "share/bash-completion/completions", "share/man/man1"].map(|path| prefix.join(path));
    for path in [&programs, &completions, &pages] {
        fs::create_dir_all(path).unwrap();
    }
    fs::copy(PROGRAM, programs.join("graphmill")).unwrap();
    let written = Command::new(PROGRAM).args(["completions", "bash"]).output().unwrap();
    fs::write(completions.join("graphmill"), written.stdout).unwrap();
    assert!(Command::new(PROGRAM).arg("man").arg(pages).output().unwrap().status.success());
    let path = directory.join("graphmill-test.tar");
    let mut pack = Command::new("tar");
    pack.arg("-cf").arg(&path).arg("-C").arg(directory).arg("graphmill-test");
    assert!(pack.status().unwrap().success());
    path
}

#[test]
fn a_newcomer_installs_trains_imports_resumes_serves_and_uninstalls() {
    let directory = tempfile::tempdir().unwrap();
    let output = first_day(&["--archive".as_ref(), archive(directory.path()).as_os_str()]);
    let text = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && text.ends_with("first-day: done\n"), "{text}\n{errors}");
}

#[test]
fn missing_files_and_unknown_ways_are_refused() {
    let refusal = |words: &[&str]| {
        let output = first_day(words);
        (output.status.code(), String::from_utf8(output.stderr).unwrap())
    };
    let (status, text) = refusal(&["--deb", "no/such.deb"]);
    assert!(status == Some(1) && text == "first-day: no/such.deb does not exist; build it first\n", "{text}");
    for words in [&[][..], &["--cargo", PROGRAM], &["--snap", PROGRAM], &["--wheel"]] {
        let (status, text) = refusal(words);
        assert!(status == Some(2) && text.contains("--archive FILE"), "{words:?}: {text}");
    }
}
