//! Datasets for people: the list as a table that fits the terminal, and one dataset's sheet.

use graphmill_core::units::count;
use graphmill_data::download::{Entry, catalogue::Task};

/// The list. `width` is the terminal's, `None` for a file or a pipe, which gets every column in
/// full.
///
/// A terminal gets the first of these that fits: every column; without the import command; with
/// rounded figures.
pub(super) fn list(entries: &[Entry], width: Option<usize>) -> String {
    let fits =
        |table: &String| width.is_none_or(|width| table.lines().all(|line| line.chars().count() <= width));
    let full = [(true, true), (true, false)].map(|(exact, import)| table(entries, exact, import));
    let mut text = full.into_iter().find(fits).unwrap_or_else(|| table(entries, false, false));
    if width.is_some() {
        text += "\ngraphmill datasets NAME           all about one, with its import command\n\
                 graphmill datasets download NAME  fetch its files\n";
    }
    text
}

fn table(entries: &[Entry], exact: bool, import: bool) -> String {
    let figure = |n: u64| match (n, exact) {
        (0, _) => "-".to_string(),
        (n, true) => count(n),
        (n, false) => rounded(n),
    };
    // (heading, aligned to the right)
    let mut columns = vec![
        ("name", false),
        ("task", false),
        ("nodes", true),
        ("edges", true),
        ("features", true),
        ("classes", true),
        ("download", true),
        ("format", false),
    ];
    if import {
        columns.push(("import", false));
    }
    let rows = entries.iter().map(|entry| {
        let mut row = vec![
            entry.name.clone(),
            entry.task.name().into(),
            figure(entry.nodes),
            figure(entry.edges),
            figure(entry.features),
            figure(entry.classes),
            download(entry),
            entry.format.clone(),
        ];
        if import {
            row.push(line(&entry.import(&super::default_dir(entry))));
        }
        row
    });
    let heading = columns.iter().map(|(name, _)| (*name).to_string()).collect();
    let rows: Vec<Vec<String>> = std::iter::once(heading).chain(rows).collect();
    let widths: Vec<usize> = (0..columns.len())
        .map(|column| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0))
        .collect();
    let mut text = String::new();
    for row in rows {
        let cells = row.iter().zip(&columns).zip(&widths).map(|((cell, &(_, right)), &width)| {
            if right { format!("{cell:>width$}") } else { format!("{cell:<width$}") }
        });
        text += cells.collect::<Vec<_>>().join("  ").trim_end();
        text.push('\n');
    }
    text
}

/// What is to be fetched, in short.
fn download(entry: &Entry) -> String {
    match (&entry.manual, entry.download_bytes()) {
        (Some(_), _) => "by hand".into(),
        (None, Some(bytes)) if is_exact(entry) => size(bytes),
        (None, Some(bytes)) => format!("~{}", about(bytes)),
        (None, None) => "?".into(),
    }
}

/// All about one dataset.
pub(super) fn details(entry: &Entry, width: Option<usize>) -> String {
    let width = width.unwrap_or(100).clamp(40, 100);
    let mut text = format!("{}: {}\n", entry.name, entry.title);
    let mut say = |name: &str, value: &str| text += &paragraph(name, value, width);
    say("from", &format!("{}, {}", entry.collection, entry.home));
    say("nodes", &count(entry.nodes));
    let direction = if entry.directed { "directed" } else { "undirected, counted once" };
    say("edges", &format!("{}, {direction}", count(entry.edges)));
    say("features", &if entry.features == 0 { "none".into() } else { count(entry.features) });
    say(
        "classes",
        &match entry.task {
            Task::Single => format!("{}, one a node", entry.classes),
            Task::Multi => format!("{} labels, several a node", entry.classes),
            Task::None => "none: a graph for sampling, caching and partitioning".into(),
        },
    );
    for (name, value) in
        [("scored by", &entry.metric), ("published", &entry.published), ("note", &entry.note)]
    {
        if let Some(value) = value {
            say(name, value);
        }
    }
    say("licence", &entry.licence);
    say("cite", &entry.citation);
    say("disk", &disk(entry));
    match &entry.manual {
        Some(how) => say("by hand", how),
        None => text += &files(entry),
    }
    let dir = super::default_dir(entry);
    text.push('\n');
    if entry.manual.is_none() {
        text += &format!("{}\n", line(&["datasets".into(), "download".into(), entry.name.clone()]));
    }
    text + &format!("{}\n", line(&entry.import(&dir)))
}

/// How much room it takes, and for what.
fn disk(entry: &Entry) -> String {
    let fetched = match entry.download_bytes() {
        Some(bytes) if is_exact(entry) => format!("{} to fetch", size(bytes)),
        Some(bytes) => format!("about {} to fetch", about(bytes)),
        None => "the files' sizes are not known".into(),
    };
    let unpacked = entry.unpacked.map_or(String::new(), |bytes| format!(", about {} unpacked", about(bytes)));
    format!("{fetched}{unpacked}, about {} imported", about(entry.imported_bytes()))
}

/// Whether the length of every file is known, and not only about.
fn is_exact(entry: &Entry) -> bool {
    entry.files.iter().all(|file| file.bytes.is_some())
}

/// The files, their addresses once where they lie together.
fn files(entry: &Entry) -> String {
    let base = entry.files.first().and_then(|file| file.url.strip_suffix(&file.name)).unwrap_or_default();
    let together =
        !base.is_empty() && entry.files.iter().all(|file| file.url == format!("{base}{}", file.name));
    let mut text =
        format!("{:<10} {}", "files", if together { base } else { "" }).trim_end().to_string() + "\n";
    let longest = entry.files.iter().map(|file| file.name.len()).max().unwrap_or(0);
    for file in &entry.files {
        let length = match (file.bytes, file.about) {
            (Some(bytes), _) => size(bytes),
            (None, Some(bytes)) => format!("about {}", about(bytes)),
            (None, None) => "size not known".into(),
        };
        let checked = if file.sha256.is_some() { "checksum known" } else { "no checksum published" };
        text += &format!("{:11}{:<longest$}  {length}, {checked}\n", "", file.name);
        if !together {
            text += &format!("{:13}{}\n", "", file.url);
        }
    }
    text
}

/// A name and a text beside it, broken between words.
fn paragraph(name: &str, value: &str, width: usize) -> String {
    let mut text = format!("{name:<10}");
    let mut column = 10;
    for word in value.split_whitespace() {
        let length = word.chars().count();
        if column > 10 && column + 1 + length > width {
            text += &format!("\n{:10}", "");
            column = 10;
        }
        text += &format!(" {word}");
        column += 1 + length;
    }
    text.push('\n');
    text
}

/// A command line for a shell.
pub(super) fn line(words: &[String]) -> String {
    let plain = |word: &str| {
        !word.is_empty() && word.chars().all(|c| c.is_ascii_alphanumeric() || "-_./:,=+@%".contains(c))
    };
    let quoted = words
        .iter()
        .map(|word| if plain(word) { word.clone() } else { format!("'{}'", word.replace('\'', r"'\''")) });
    std::iter::once("graphmill".to_string()).chain(quoted).collect::<Vec<_>>().join(" ")
}

/// Bytes in powers of ten, as disks are sold, in three digits.
pub(super) fn size(bytes: u64) -> String {
    scaled(bytes, 3, &["B", "kB", "MB", "GB", "TB", "PB", "EB"], " ")
}

/// Bytes that are known about, in two digits.
fn about(bytes: u64) -> String {
    scaled(bytes, 2, &["B", "kB", "MB", "GB", "TB", "PB", "EB"], " ")
}

/// A count in three digits.
fn rounded(n: u64) -> String {
    scaled(n, 3, &["", "k", "M", "G", "T", "P", "E"], "")
}

/// `n` in at least `digits` digits and the unit that keeps it below a thousand.
fn scaled(n: u64, digits: usize, units: &[&str], space: &str) -> String {
    let (mut value, mut unit) = (n as f64, 0);
    // 999.5 would be written as 1000
    while value >= 999.5 && unit + 1 < units.len() {
        value /= 1000.0;
        unit += 1;
    }
    let before = if value >= 99.95 {
        3
    } else if value >= 9.995 {
        2
    } else {
        1
    };
    let after = if unit == 0 { 0 } else { digits.saturating_sub(before) };
    format!("{value:.after$}{space}{}", units[unit])
}

#[cfg(test)]
mod tests {
    use graphmill_data::download::catalogue;

    use super::*;

    #[test]
    fn sizes_and_counts_read_well() {
        assert_eq!(
            [0, 999, 1000, 83_058_288, 999_999].map(size),
            ["0 B", "999 B", "1.00 kB", "83.1 MB", "1.00 MB"]
        );
        assert_eq!([6_000_000, 60_300_000_000, 365_000_000].map(about), ["6.0 MB", "60 GB", "365 MB"]);
        assert_eq!([7, 2708, 61_859_140, 1_806_067_135].map(rounded), ["7", "2.71k", "61.9M", "1.81G"]);
    }

    #[test]
    fn a_command_line_survives_a_shell() {
        let words = ["import", "npz", "my dir/a.npz", "it's", ""].map(String::from);
        assert_eq!(line(&words), r"graphmill import npz 'my dir/a.npz' 'it'\''s' ''");
    }

    #[test]
    fn the_list_fits_its_terminal() {
        let lines = |width| {
            let text = list(catalogue::all(), width);
            (text.lines().map(|line| line.chars().count()).max().unwrap(), text)
        };
        for width in [80, 100, 120] {
            let (longest, text) = lines(Some(width));
            assert!(longest <= width, "{longest} > {width}");
            assert!(!text.contains("graphmill import") && text.contains("graphmill datasets NAME"));
        }
        let (_, text) = lines(Some(120));
        assert!(text.contains("111,059,956") && !text.contains("111M"));
        let (_, text) = lines(None);
        assert_eq!(text.lines().count(), 1 + catalogue::all().len());
        assert!(text.contains("graphmill import planetoid cora-raw/ind.cora cora --normalize rows\n"));
    }

    #[test]
    fn every_sheet_tells_how_to_get_the_dataset() {
        for entry in catalogue::all() {
            let text = details(entry, Some(80));
            let import = line(&entry.import(&format!("{}-raw", entry.name)));
            assert!(text.ends_with(&format!("{import}\n")), "{text}");
            assert!(text.contains(&entry.licence[..3]) && text.contains("imported"), "{text}");
            match &entry.manual {
                None => assert!(entry.files.iter().all(|file| text.contains(&file.name)), "{text}"),
                Some(_) => assert!(!text.contains("datasets download"), "{text}"),
            }
        }
    }
}
