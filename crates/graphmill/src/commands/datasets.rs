//! `graphmill datasets` lists public datasets; `graphmill datasets download NAME` downloads one.

mod text;

use std::io::IsTerminal;

use clap::{Arg, ArgMatches, Command};
use graphmill_data::download::{Check, Entry, Got, Options, catalogue};
use graphmill_engine::Error;
use serde::Serialize;

use crate::{args, cancel, output, work};

/// The subcommand with its arguments.
pub(crate) fn command() -> Command {
    let download = Command::new("download")
        .about("Download a dataset's files, verify and unpack them")
        .long_about(
            "Download a dataset's files, verify and unpack them.\n\n\
             An interrupted download resumes when the same command runs again. The last line printed is the \
             command that imports the files.",
        )
        .after_long_help(
            "Examples:\n  \
             graphmill datasets download cora\n  \
             graphmill datasets download ogbn-arxiv raw",
        )
        .arg(args::explain(
            Arg::new("name").value_name("NAME").required(true),
            "Name of the dataset",
            "As graphmill datasets lists it; case does not matter",
        ))
        .arg(args::explain(
            args::path("dir", "DIR", ""),
            "Directory for the files [default: NAME-raw]",
            "Created if missing",
        ))
        .arg(args::option(
            "mirror",
            "URL",
            "Web server to use instead of the original sources",
            "Files come from URL/NAME/FILE: any web server on a directory of earlier downloads, such as \
             --mirror http://10.0.0.2:8000",
        ))
        .arg(args::flag(
            "no-verify",
            "Accept files whose length or checksum differs",
            "Use it only if the source has published a newer version of a file",
        ))
        .arg(args::json());
    Command::new("datasets")
        .about("List and download public datasets")
        .after_help(
            "Examples:\n  \
             graphmill datasets                   list all datasets\n  \
             graphmill datasets cora              files, sizes, licence, citation, import command\n  \
             graphmill datasets download cora     download, verify and unpack the files",
        )
        .args_conflicts_with_subcommands(true)
        .disable_help_subcommand(true)
        .arg(args::explain(
            Arg::new("name").value_name("NAME"),
            "Show one dataset",
            "Its files, sizes, licence, citation, published scores and import command",
        ))
        .arg(args::json())
        .subcommand(download)
}

/// Lists the datasets, shows one or downloads one.
pub(crate) fn run(matches: &ArgMatches) -> anyhow::Result<()> {
    if let Some(("download", matches)) = matches.subcommand() {
        return download(matches);
    }
    let json = matches.get_flag("json");
    match matches.get_one::<String>("name") {
        Some(name) => {
            let entry = find(name)?;
            if json {
                output::json(&EntryDocument::new(entry))
            } else {
                output::text(&text::details(entry, width()))
            }
        }
        None if json => {
            let datasets: Vec<_> = catalogue::all().iter().map(EntryDocument::new).collect();
            output::json(&serde_json::json!({ "datasets": datasets }))
        }
        None => output::text(&text::list(catalogue::all(), width())),
    }
}

/// Columns of the terminal on standard output; `None` for a file or a pipe.
fn width() -> Option<usize> {
    let out = std::io::stdout();
    if !out.is_terminal() {
        return None;
    }
    Some(terminal_size::terminal_size_of(out).map_or(80, |(width, _)| usize::from(width.0)))
}

/// The dataset of the catalogue called `name`.
fn find(name: &str) -> Result<&'static Entry, Error> {
    catalogue::find(name).map_err(|error| Error::usage(error.to_string()))
}

/// JSON of a catalogue entry, with its derived sizes and commands.
#[derive(Serialize)]
struct EntryDocument {
    #[serde(flatten)]
    entry: &'static Entry,
    download_bytes: Option<u64>,
    imported_bytes: u64,
    download: String,
    import: String,
}

impl EntryDocument {
    fn new(entry: &'static Entry) -> Self {
        Self {
            entry,
            download_bytes: entry.download_bytes(),
            imported_bytes: entry.imported_bytes(),
            download: text::line(&["datasets".into(), "download".into(), entry.name.clone()]),
            import: text::line(&entry.import(&default_dir(entry))),
        }
    }
}

/// Default directory of a download.
fn default_dir(entry: &Entry) -> String {
    format!("{}-raw", entry.name)
}

/// Result of a download.
#[derive(Serialize)]
struct Download {
    name: &'static str,
    directory: String,
    files: Vec<Got>,
    unpacked_bytes: u64,
    import: String,
}

fn download(matches: &ArgMatches) -> anyhow::Result<()> {
    let entry = find(matches.get_one::<String>("name").expect("required"))?;
    let mirror = matches.get_one::<String>("mirror").cloned();
    if let Some(url) =
        mirror.as_ref().filter(|url| !url.starts_with("http://") && !url.starts_with("https://"))
    {
        return Err(
            Error::usage(format!("--mirror {url}: the address must start with http:// or https://")).into()
        );
    }
    let dir =
        args::get_path(matches, "dir").map_or_else(|| default_dir(entry).into(), |dir| dir.to_path_buf());
    let directory = dir.to_str().map(str::to_string);
    let directory = directory.ok_or_else(|| {
        Error::usage(format!("{dir:?}: the directory's path must be valid UTF-8; choose another"))
    })?;
    let options = Options { mirror, verify: !matches.get_flag("no-verify"), ..Options::default() };
    let progress = cancel::until_signal(work::on_stderr(false))?;
    let report = graphmill_data::download::download(entry, &dir, &options, &*progress)?;
    drop(progress);
    let import = text::line(&entry.import(&directory));
    let done = Download {
        name: &entry.name,
        directory,
        files: report.files,
        unpacked_bytes: report.unpacked_bytes,
        import,
    };
    if matches.get_flag("json") { output::json(&done) } else { output::text(&format_download(&done)) }
}

/// Text of a finished download.
fn format_download(done: &Download) -> String {
    let bytes: u64 = done.files.iter().map(|file| file.bytes).sum();
    let count = |check| done.files.iter().filter(|file| file.checked == check).count();
    let verified = [
        (count(Check::Published), "verified against published checksums"),
        (count(Check::Recorded), "verified against checksums of the first download"),
        (count(Check::Nothing), "not verified"),
    ];
    let verified: Vec<_> =
        verified.iter().filter(|(n, _)| *n > 0).map(|(n, what)| format!("{n} {what}")).collect();
    let unpacked = match done.unpacked_bytes {
        0 => String::new(),
        n => format!(", {} unpacked", text::size(n)),
    };
    format!(
        "{}: {} file{}, {}{unpacked}; {}\nimport: {}\n",
        done.directory,
        done.files.len(),
        if done.files.len() == 1 { "" } else { "s" },
        text::size(bytes),
        verified.join(", "),
        done.import
    )
}

#[cfg(test)]
mod tests {
    use graphmill_data::{dataset::import::TABLE, typed::import};

    use super::*;

    #[test]
    fn every_import_command_parses() {
        for entry in catalogue::all() {
            let is_typed = import::TABLE.iter().any(|format| format.name == entry.format);
            let is_known = is_typed || TABLE.iter().any(|format| format.name == entry.format);
            assert!(is_known, "{}: {}", entry.name, entry.format);
            let mut words = vec!["graphmill".to_string()];
            words.extend(entry.import(&default_dir(entry)));
            let matches = crate::commands::cli().try_get_matches_from(&words);
            let matches = matches.unwrap_or_else(|error| panic!("{}: {error}", entry.name));
            let (command, matches) = matches.subcommand().unwrap();
            assert_eq!(command, "import");
            if is_typed {
                crate::commands::import::check_kind(matches, &entry.format, true).unwrap();
                crate::commands::import::typed_options(matches).unwrap().check(&entry.format).unwrap();
            } else {
                crate::commands::import::options(matches).unwrap().check(&entry.format).unwrap();
            }
        }
    }

    #[test]
    fn every_download_command_parses() {
        for entry in catalogue::all() {
            let words = ["graphmill", "datasets", "download", &entry.name];
            let matches = crate::commands::cli().try_get_matches_from(words).unwrap();
            let (_, matches) = matches.subcommand().unwrap();
            assert_eq!(matches.subcommand().unwrap().0, "download");
        }
    }
}
