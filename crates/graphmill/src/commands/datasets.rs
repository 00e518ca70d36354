//! `graphmill datasets`: which public datasets there are, and `graphmill datasets download NAME`:
//! their files, here.

mod text;

use std::io::IsTerminal;

use clap::{Arg, ArgAction, ArgMatches, Command};
use graphmill_data::download::{Check, Entry, Got, Options, catalogue};
use graphmill_engine::Error;
use serde::Serialize;

use crate::{args, output, work};

/// The arguments.
pub(crate) fn command() -> Command {
    let download = Command::new("download")
        .about("Fetch a dataset's files, check and unpack them; a second run goes on where the first ended")
        .arg(Arg::new("name").value_name("NAME").required(true).help("The dataset, as the list has it"))
        .arg(args::path("dir", "DIR", "Directory for the files [default: NAME-raw]"))
        .arg(
            Arg::new("mirror")
                .long("mirror")
                .value_name("URL")
                .help("Fetch URL/NAME/FILE instead: any web server on a directory of downloads"),
        )
        .arg(
            Arg::new("no-verify")
                .long("no-verify")
                .action(ArgAction::SetTrue)
                .help("Take files whose length or checksum is not the known one"),
        )
        .arg(args::json());
    Command::new("datasets")
        .about("List public datasets and how to import them; with a NAME, all about it")
        .after_help(
            "datasets                      the list\n\
             datasets NAME                 files, sizes, licence, citation, scores and the import command\n\
             datasets download NAME [DIR]  the files, checked and unpacked, and then what imports them",
        )
        .args_conflicts_with_subcommands(true)
        .disable_help_subcommand(true)
        .arg(Arg::new("name").value_name("NAME").help("A dataset of the list"))
        .arg(args::json())
        .subcommand(download)
}

/// Lists, shows or fetches.
pub(crate) fn run(matches: &ArgMatches) -> anyhow::Result<()> {
    if let Some(("download", matches)) = matches.subcommand() {
        return download(matches);
    }
    let json = matches.get_flag("json");
    match matches.get_one::<String>("name") {
        Some(name) => {
            let entry = find(name)?;
            if json { output::json(&Shown::of(entry)) } else { output::text(&text::details(entry, width())) }
        }
        None if json => {
            let datasets: Vec<_> = catalogue::all().iter().map(Shown::of).collect();
            output::json(&serde_json::json!({ "datasets": datasets }))
        }
        None => output::text(&text::list(catalogue::all(), width())),
    }
}

/// The columns of the terminal that standard output is; `None` where it is a file or a pipe.
fn width() -> Option<usize> {
    let out = std::io::stdout();
    if !out.is_terminal() {
        return None;
    }
    Some(terminal_size::terminal_size_of(out).map_or(80, |(width, _)| usize::from(width.0)))
}

fn find(name: &str) -> Result<&'static Entry, Error> {
    catalogue::find(name).map_err(|error| Error::usage(error.to_string()))
}

/// A dataset with what follows from its figures.
#[derive(Serialize)]
struct Shown {
    #[serde(flatten)]
    entry: &'static Entry,
    download_bytes: Option<u64>,
    imported_bytes: u64,
    download: String,
    import: String,
}

impl Shown {
    fn of(entry: &'static Entry) -> Self {
        Self {
            entry,
            download_bytes: entry.download_bytes(),
            imported_bytes: entry.imported_bytes(),
            download: text::line(&["datasets".into(), "download".into(), entry.name.clone()]),
            import: text::line(&entry.import(&default_dir(entry))),
        }
    }
}

/// Where the files go if nobody says where.
fn default_dir(entry: &Entry) -> String {
    format!("{}-raw", entry.name)
}

/// What a download reports.
#[derive(Serialize)]
struct Done {
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
            Error::usage(format!("--mirror {url}: an address begins with http:// or https://")).into()
        );
    }
    let dir =
        args::get_path(matches, "dir").map_or_else(|| default_dir(entry).into(), |dir| dir.to_path_buf());
    let directory = dir.to_str().map(str::to_string);
    let directory =
        directory.ok_or_else(|| Error::usage(format!("{dir:?}: the directory's path must be UTF-8")))?;
    let options = Options { mirror, verify: !matches.get_flag("no-verify"), ..Options::default() };
    let progress = work::until_signal(work::on_stderr(false))?;
    let report = graphmill_data::download::download(entry, &dir, &options, &*progress)?;
    drop(progress);
    let import = text::line(&entry.import(&directory));
    let done = Done {
        name: &entry.name,
        directory,
        files: report.files,
        unpacked_bytes: report.unpacked_bytes,
        import,
    };
    if matches.get_flag("json") { output::json(&done) } else { output::text(&told(&done)) }
}

/// A finished download, for a person.
fn told(done: &Done) -> String {
    let bytes: u64 = done.files.iter().map(|file| file.bytes).sum();
    let count = |check| done.files.iter().filter(|file| file.checked == check).count();
    let verified = [
        (count(Check::Published), "verified against published checksums"),
        (count(Check::Recorded), "verified against those of the first download"),
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
    use graphmill_data::dataset::import::TABLE;

    use super::*;

    #[test]
    fn every_import_command_is_one() {
        for entry in catalogue::all() {
            let known = TABLE.iter().any(|format| format.name == entry.format);
            assert!(known, "{}: {}", entry.name, entry.format);
            let mut words = vec!["graphmill".to_string()];
            words.extend(entry.import(&default_dir(entry)));
            let matches = crate::commands::cli().try_get_matches_from(&words);
            let matches = matches.unwrap_or_else(|error| panic!("{}: {error}", entry.name));
            let (command, matches) = matches.subcommand().unwrap();
            assert_eq!(command, "import");
            crate::commands::import::options(matches).unwrap().check(&entry.format).unwrap();
        }
    }

    #[test]
    fn every_download_command_is_one() {
        for entry in catalogue::all() {
            let words = ["graphmill", "datasets", "download", &entry.name];
            let matches = crate::commands::cli().try_get_matches_from(words).unwrap();
            let (_, matches) = matches.subcommand().unwrap();
            assert_eq!(matches.subcommand().unwrap().0, "download");
        }
    }
}
