//! Replays files through a target without a fuzzer: `cargo run -p graphmill-fuzz --example replay
//! -- TARGET FILE...`

use std::{env, fs, process::ExitCode};

use graphmill_fuzz::targets::TABLE;

fn main() -> ExitCode {
    let words: Vec<String> = env::args().skip(1).collect();
    let Some((target, files)) = words.split_first() else {
        eprintln!("usage: replay TARGET FILE...");
        return ExitCode::from(2);
    };
    let Some(target) = TABLE.iter().find(|row| row.name == target) else {
        let names: Vec<&str> = TABLE.iter().map(|row| row.name).collect();
        eprintln!("no target '{target}'; known: {}", names.join(", "));
        return ExitCode::from(2);
    };
    for file in files {
        let data = match fs::read(file) {
            Ok(data) => data,
            Err(e) => {
                eprintln!("{file}: cannot be read: {e}");
                return ExitCode::FAILURE;
            }
        };
        match (target.run)(&data) {
            Ok(()) => println!("{file}: {} bytes, accepted", data.len()),
            Err(e) => println!("{file}: {} bytes, refused: {e}", data.len()),
        }
    }
    ExitCode::SUCCESS
}
