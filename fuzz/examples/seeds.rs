//! Writes the generated seeds to `fuzz/seeds/TARGET/made-*` and the dictionaries to
//! `fuzz/dictionaries/TARGET.dict`.

use std::{fs, path::Path};

use graphmill_fuzz::{seeds, targets::TABLE};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let scratch = tempfile::tempdir()?;
    for (target, name, bytes) in seeds::all(scratch.path())? {
        let dir = root.join("seeds").join(target);
        fs::create_dir_all(&dir)?;
        fs::write(dir.join(name), bytes)?;
    }
    let dictionaries = root.join("dictionaries");
    fs::create_dir_all(&dictionaries)?;
    for target in TABLE {
        let mut text = String::from("# Written by the program `seeds` from the target's tokens.\n");
        for token in target.tokens {
            text += &format!("\"{}\"\n", quoted(token));
        }
        fs::write(dictionaries.join(format!("{}.dict", target.name)), text)?;
    }
    Ok(())
}

/// Formats a word for libFuzzer's dictionaries.
fn quoted(token: &[u8]) -> String {
    let letter = |&b: &u8| match b {
        b'"' | b'\\' => format!("\\{}", char::from(b)),
        b' '..=b'~' => char::from(b).to_string(),
        _ => format!("\\x{b:02x}"),
    };
    token.iter().map(letter).collect()
}
