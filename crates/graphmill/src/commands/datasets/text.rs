//! Text of `graphmill datasets`: the list as a table that fits the terminal, and a dataset's sheet.

use graphmill_core::units::count;
use graphmill_data::download::{Entry, catalogue::Task};

/// Table of all datasets. `width` is the terminal's, or `None` for a file or a pipe, which gets
/// every column in full.
///
/// A terminal gets the first of these that fits: every column; without the import command; with
/// rounded figures.
pub(super) fn list(entries: &[Entry], width: Option<usize>) -> String {
    let fits =
        |table: &String| width.is_none_or(|width| table.lines().all(|line| line.chars().count() <= width));
    let full = [(true, true), (true, false)].map(|(exact, import)| table(entries, exact, import));
    let mut text = full.into_iter().find(fits).unwrap_or_else(|| table(entries, false, false));
    if width.is_some() {
        text += "\ngraphmill datasets NAME           show one dataset and its import command\n\
                 graphmill datasets download NAME  download its files\n";
    }
    text
}

/// The table; `exact` figures or rounded ones, with the `import` command or without.
fn table(entries: &[Entry], exact: bool, import: bool) -> String {
    let figure = |n: u64| match (n, exact) {
        (0, _) => "-".to_string(),
        (n, true) => count(n),
        (n, false) => rounded(n),
    };
    // (heading, true if the column is aligned to the right)
    let mut columns = vec![
        ("name", false),
        ("task", false),
        ("nodes", true),
        ("edges", true),
        ("features", true),
        ("classes", true),
        (if exact { "download" } else { "size" }, true),
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

/// Size of a download in short.
fn download(entry: &Entry) -> String {
    match (&entry.manual, entry.download_bytes()) {
        (Some(_), _) => "manual".into(),
        (None, Some(bytes)) if is_exact(entry) => size(bytes),
        (None, Some(bytes)) => format!("~{}", about(bytes)),
        (None, None) => "?".into(),
    }
}

/// Sheet of one dataset.
pub(super) fn details(entry: &Entry, width: Option<usize>) -> String {
    let width = width.unwrap_or(100).clamp(40, 100);
    let mut text = format!("{}: {}\n", entry.name, entry.title);
    let mut row = |name: &str, value: &str| text += &paragraph(name, value, width);
    row("from", &format!("{}, {}", entry.collection, entry.home));
    row("nodes", &count(entry.nodes));
    let direction = if entry.directed { "directed" } else { "undirected, each counted once" };
    row("edges", &format!("{}, {direction}", count(entry.edges)));
    row(
        "features",
        &match (entry.features, entry.edge_features) {
            (0, 0) => "none".into(),
            (nodes, 0) => count(nodes),
            (0, edges) => format!("{} of edges", count(edges)),
            (nodes, edges) => format!("{}, and {} of edges", count(nodes), count(edges)),
        },
    );
    row(
        "classes",
        &match entry.task {
            Task::Single => format!("{}, one per node", entry.classes),
            Task::Multi => format!("{} labels, several per node", entry.classes),
            Task::Link => "none: links to predict".into(),
            Task::None => "none: a graph to sample, cache and partition".into(),
        },
    );
    for (name, value) in
        [("scored by", &entry.metric), ("published", &entry.published), ("note", &entry.note)]
    {
        if let Some(value) = value {
            row(name, value);
        }
    }
    row("licence", &entry.licence);
    row("cite", &entry.citation);
    row("disk", &disk(entry));
    match &entry.manual {
        Some(how) => row("manual", how),
        None => text += &files(entry),
    }
    let dir = super::default_dir(entry);
    text.push('\n');
    if entry.manual.is_none() {
        text += &format!("{}\n", line(&["datasets".into(), "download".into(), entry.name.clone()]));
    }
    text + &format!("{}\n", line(&entry.import(&dir)))
}

/// Disk space of the download, the unpacked files and the imported dataset.
fn disk(entry: &Entry) -> String {
    let fetched = match entry.download_bytes() {
        Some(bytes) if is_exact(entry) => format!("{} to download", size(bytes)),
        Some(bytes) => format!("about {} to download", about(bytes)),
        None => "download size unknown".into(),
    };
    let unpacked = entry.unpacked.map_or(String::new(), |bytes| format!(", about {} unpacked", about(bytes)));
    format!("{fetched}{unpacked}, about {} imported", about(entry.imported_bytes()))
}

/// Returns true if the exact length of every file is known.
fn is_exact(entry: &Entry) -> bool {
    entry.files.iter().all(|file| file.bytes.is_some())
}

/// The files; their common address only once, if they have one.
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
            (None, None) => "size unknown".into(),
        };
        let checked = if file.sha256.is_some() { "checksum known" } else { "no checksum published" };
        text += &format!("{:11}{:<longest$}  {length}, {checked}\n", "", file.name);
        if !together {
            text += &format!("{:13}{}\n", "", file.url);
        }
    }
    text
}

/// A name with a text beside it, wrapped at `width` columns between words.
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

/// The command line `graphmill WORDS`, quoted for a shell.
pub(super) fn line(words: &[String]) -> String {
    let plain = |word: &str| {
        !word.is_empty() && word.chars().all(|c| c.is_ascii_alphanumeric() || "-_./:,=+@%".contains(c))
    };
    let quoted = words
        .iter()
        .map(|word| if plain(word) { word.clone() } else { format!("'{}'", word.replace('\'', r"'\''")) });
    std::iter::once("graphmill".to_string()).chain(quoted).collect::<Vec<_>>().join(" ")
}

/// Bytes in decimal units, as disks are sold, with three digits.
pub(super) fn size(bytes: u64) -> String {
    scaled(bytes, 3, &["B", "kB", "MB", "GB", "TB", "PB", "EB"], " ")
}

/// Approximate bytes, with two digits.
fn about(bytes: u64) -> String {
    scaled(bytes, 2, &["B", "kB", "MB", "GB", "TB", "PB", "EB"], " ")
}

/// A count with three digits.
fn rounded(n: u64) -> String {
    scaled(n, 3, &["", "k", "M", "G", "T", "P", "E"], "")
}

/// `n` with at least `digits` digits, in the unit that keeps it below a thousand.
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
    fn sizes_and_counts_have_three_digits_and_a_unit() {
        assert_eq!(
            [0, 999, 1000, 83_058_288, 999_999].map(size),
            ["0 B", "999 B", "1.00 kB", "83.1 MB", "1.00 MB"]
        );
        assert_eq!([6_000_000, 60_300_000_000, 365_000_000].map(about), ["6.0 MB", "60 GB", "365 MB"]);
        assert_eq!([7, 2708, 61_859_140, 1_806_067_135].map(rounded), ["7", "2.71k", "61.9M", "1.81G"]);
    }

    #[test]
    fn command_lines_are_quoted_for_a_shell() {
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
    fn every_sheet_has_the_import_command_and_the_files() {
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
