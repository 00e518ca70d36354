//! A small dataset as text files, for the rows that import one.

use std::{fs, path::Path};

use anyhow::Result;

// Size of the dataset that `write_sources` writes.
const NODES: u64 = 600;
const CLASSES: u64 = 4;
const WIDTH: u64 = 96;

/// Writes the sources of an import: weighted edges, sparse features, one or several labels, and a
/// split.
pub(super) fn write_sources(dir: &Path) -> Result<()> {
    fs::create_dir_all(dir)?;
    let mut state = 1;
    let mut below = |limit: u64| {
        // Knuth's MMIX generator, of which the upper bits are good
        state = u64::wrapping_mul(state, 6364136223846793005).wrapping_add(1442695040888963407);
        (state >> 33) % limit
    };
    let mut edges = String::new();
    for _ in 0..8 * NODES {
        // half of the edges stay in a class, and low ids have more edges
        let source = below(NODES).min(below(NODES));
        let target =
            if below(2) == 0 { (source + CLASSES * below(NODES / CLASSES)) % NODES } else { below(NODES) };
        edges += &format!("{source}\t{target}\t{}\n", (1 + below(64)) as f32 / 16.0);
    }
    let (mut features, mut labels, mut members) = (String::new(), String::new(), String::new());
    let mut split = [String::new(), String::new(), String::new()];
    for node in 0..NODES {
        let class = node % CLASSES;
        let mut row = vec!["0".to_string(); WIDTH as usize];
        for _ in 0..4 {
            row[below(WIDTH) as usize] = format!("{}", (1 + below(8)) as f32 / 4.0);
        }
        row[(class + CLASSES * below(WIDTH / CLASSES)) as usize] = "1".to_string();
        features += &(row.join(",") + "\n");
        labels += &format!("{class}\n");
        let other = below(CLASSES);
        let member = (0..CLASSES).map(|c| if c == class || c == other { "1" } else { "0" });
        members += &(member.collect::<Vec<_>>().join(",") + "\n");
        split[[0, 0, 0, 1, 2][below(5) as usize]] += &format!("{node}\n");
    }
    let [train, valid, test] = split;
    for (name, text) in [
        ("edges.txt", edges),
        ("features.csv", features),
        ("labels.csv", labels),
        ("members.csv", members),
        ("train.txt", train),
        ("valid.txt", valid),
        ("test.txt", test),
    ] {
        fs::write(dir.join(name), text)?;
    }
    Ok(())
}
