//! The command line of the builder. Cargo builds the program, which `cargo xtask test` runs,
//! because these tests do.

use std::process::{Command, Output};

fn builder(words: &[&str]) -> (Option<i32>, String) {
    let output: Output = Command::new(env!("CARGO_BIN_EXE_graphmill-book")).args(words).output().unwrap();
    (output.status.code(), String::from_utf8(output.stderr).unwrap())
}

#[test]
fn unknown_forms_print_the_usage() {
    let usage = "error: usage: graphmill-book build | write | check [--without PROGRAM] [PAGE ...]\n";
    for words in [&[][..], &["paint"], &["build", "x"]] {
        assert_eq!(builder(words), (Some(1), usage.to_owned()));
    }
}
