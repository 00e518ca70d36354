//! Commands of the pages.
//!
//! A block of the language `console` holds lines that start with `$ `, each a command for bash, and
//! the output of the command below it. `> ` continues a command on the next line. A page's commands
//! run one after the other in one temporary directory; pages run side by side. `graphmill` is the
//! program under test.
//!
//! A command must succeed. If output stands below it, its standard output and error must match, with
//! `...` for anything ([`crate::pattern`]). A comment directly above a block changes this:
//!
//! | comment | effect |
//! | --- | --- |
//! | `<!-- not run: REASON -->` | the block is not run, and counted |
//! | `<!-- needs: PROGRAM -->` | the block is run if the program is on the path |
//! | `<!-- fails -->` | the last command must fail |

use std::{
    env,
    ffi::OsString,
    fs::{self, File},
    os::unix::process::CommandExt,
    path::Path,
    process::{Command, Stdio},
    sync::Mutex,
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail};

use crate::{
    page::{Block, Fault, Page},
    pattern,
};

/// Time after which a command is ended.
const MAX_TIME: Duration = Duration::from_secs(120);
/// Pages whose commands run side by side.
const WORKERS: usize = 2;

/// Result of all commands.
#[derive(Default)]
pub(crate) struct Run {
    /// Number of commands that were run.
    pub(crate) commands: usize,
    pub(crate) faults: Vec<Fault>,
    /// Blocks that were not run, with their reasons.
    pub(crate) skipped: Vec<String>,
    /// Number of blocks of shell commands in other languages than `console`, which are not run.
    pub(crate) shell_blocks: usize,
}

/// Command of a block.
#[derive(Debug, PartialEq, Eq)]
struct Step<'a> {
    /// Line of the page, from 1.
    line: usize,
    command: String,
    /// Expected output; none to compare if empty.
    output: Vec<&'a str>,
}

/// Runs the commands of all pages, without blocks that need the program `missing`.
///
/// # Errors
/// A directory cannot be created, or bash cannot be run.
pub(crate) fn run(pages: &[Page], program: &Path, missing: Option<&str>) -> Result<Run> {
    let queue = Mutex::new(pages.iter());
    let total = Mutex::new(Run::default());
    let worker = || -> Result<()> {
        loop {
            let Some(page) = queue.lock().expect("no worker panics").next() else { return Ok(()) };
            let run = run_page(page, program, missing).with_context(|| page.path.clone())?;
            let mut total = total.lock().expect("no worker panics");
            total.commands += run.commands;
            total.faults.extend(run.faults);
            total.skipped.extend(run.skipped);
            total.shell_blocks += run.shell_blocks;
        }
    };
    thread::scope(|scope| {
        let workers: Vec<_> = (0..WORKERS).map(|_| scope.spawn(worker)).collect();
        workers.into_iter().try_for_each(|worker| worker.join().expect("no worker panics"))
    })?;
    Ok(total.into_inner().expect("no worker panics"))
}

/// Runs the commands of a page up to the first fault.
fn run_page(page: &Page, program: &Path, missing: Option<&str>) -> Result<Run> {
    let is_shell = |block: &&Block| ["sh", "bash", "shell"].contains(&block.language.as_str());
    let mut run = Run { shell_blocks: page.blocks.iter().filter(is_shell).count(), ..Run::default() };
    let directory = tempfile::tempdir()?;
    let started = Instant::now();
    for block in page.blocks.iter().filter(|block| block.language == "console") {
        let comment = block.comment.as_deref().unwrap_or_default();
        if let Some(reason) = skip_reason(comment, missing) {
            run.skipped.push(format!("{}:{}: {reason}", page.path, block.line));
            continue;
        }
        let steps = match steps(block) {
            Ok(steps) => steps,
            Err(error) => {
                run.faults.push(page.fault(block.line, error.to_string()));
                break;
            }
        };
        let fault = steps.iter().enumerate().find_map(|(at, step)| {
            run.commands += 1;
            let must_fail = comment == "fails" && at + 1 == steps.len();
            execute(step, must_fail, directory.path(), program).transpose().map(|fault| (step.line, fault))
        });
        if let Some((line, message)) = fault {
            run.faults.push(page.fault(line, message?));
            break;
        }
    }
    if run.commands > 0 {
        eprintln!(
            "   {:<40} {:>3} commands {:>6.1} s",
            page.path,
            run.commands,
            started.elapsed().as_secs_f64()
        );
    }
    Ok(run)
}

/// Reason not to run a block, from the comment above it.
fn skip_reason(comment: &str, missing: Option<&str>) -> Option<String> {
    if let Some(reason) = comment.strip_prefix("not run: ") {
        return Some(reason.to_owned());
    }
    let program = comment.strip_prefix("needs: ")?;
    let path = env::var_os("PATH").unwrap_or_default();
    let is_installed = env::split_paths(&path).any(|directory| directory.join(program).is_file());
    (!is_installed || missing == Some(program)).then(|| format!("{program} is not installed"))
}

/// Splits a block into commands.
///
/// # Errors
/// The block starts with output, or has no command.
fn steps(block: &Block) -> Result<Vec<Step<'_>>> {
    let mut steps: Vec<Step<'_>> = Vec::new();
    for (at, text) in block.text.lines().enumerate() {
        let line = block.line + 1 + at;
        match (text.strip_prefix("$ "), steps.last_mut()) {
            (Some(command), _) => steps.push(Step { line, command: command.to_owned(), output: Vec::new() }),
            (None, None) => bail!("a console block starts with a line that does not begin with '$ '"),
            (None, Some(step)) => match text.strip_prefix("> ").or((text == ">").then_some("")) {
                Some(more) if step.output.is_empty() => {
                    step.command.push('\n');
                    step.command.push_str(more);
                }
                _ => step.output.push(text),
            },
        }
    }
    // an empty line between two commands is not output
    steps
        .iter_mut()
        .filter(|step| step.output.iter().all(|line| line.is_empty()))
        .for_each(|step| step.output.clear());
    if steps.is_empty() {
        bail!("a console block has no command");
    }
    Ok(steps)
}

/// Runs a command; returns the fault, if there is one.
fn execute(step: &Step<'_>, must_fail: bool, directory: &Path, program: &Path) -> Result<Option<String>> {
    let log = tempfile::NamedTempFile::new()?;
    let file = File::options().append(true).open(log.path())?;
    let mut command = Command::new("bash");
    command.args(["-e", "-o", "pipefail", "-c", &step.command]).current_dir(directory);
    command.env("PATH", path_with(program)?).env("LC_ALL", "C.UTF-8").env("COLUMNS", "100");
    command.env("OMPI_ALLOW_RUN_AS_ROOT", "1").env("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1");
    command.stdin(Stdio::null()).stdout(file.try_clone()?).stderr(file).process_group(0);
    let mut child = command.spawn().context("cannot run bash")?;
    let started = Instant::now();
    let status = loop {
        if let Some(status) = child.try_wait()? {
            break Some(status);
        }
        if started.elapsed() > MAX_TIME {
            // ends the whole group, also what the command started in the background
            let group = format!("-{}", child.id());
            let _ = Command::new("kill").args(["-9", "--", &group]).status();
            child.wait()?;
            break None;
        }
        thread::sleep(Duration::from_millis(5));
    };
    let output = fs::read_to_string(log.path())?;
    let shown = |reason: String| Some(format!("`{}` {reason}; its output:\n{output}", step.command));
    let Some(status) = status else {
        return Ok(shown(format!("was ended after {} s", MAX_TIME.as_secs())));
    };
    if status.success() == must_fail {
        return Ok(shown(if must_fail { "does not fail".into() } else { format!("failed ({status})") }));
    }
    if !step.output.is_empty() && !pattern::matches(&step.output, &output) {
        return Ok(shown("printed other lines than the page shows".into()));
    }
    Ok(None)
}

/// `PATH` with the program's directory in front.
fn path_with(program: &Path) -> Result<OsString> {
    let own = program.parent().context("the program has no directory")?;
    let path = env::var_os("PATH").unwrap_or_default();
    Ok(env::join_paths([own.to_path_buf()].into_iter().chain(env::split_paths(&path)))?)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run_text(text: &str) -> Run {
        run(&[Page::parse("p.md".into(), text)], Path::new("/bin/true"), None).unwrap()
    }

    fn faults(text: &str) -> Vec<String> {
        run_text(text).faults.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn commands_share_a_directory_and_output_is_compared() {
        let page = "```console\n$ echo a > f\n\n$ cat f\na\n```\n\n```console\n$ cat <<E\n> b ...\n> E\nb ...\n\
                    $ cat f; echo c >&2\n...\nc\n```\n";
        let run = run_text(page);
        assert_eq!(run.faults, []);
        assert_eq!(run.commands, 4);
    }

    #[test]
    fn a_failing_command_ends_its_page_with_its_line_and_output() {
        let found =
            faults("# T\n\n```console\n$ echo why; false\n$ false\n```\n\n```console\n$ false\n```\n");
        assert_eq!(found, ["p.md:4: `echo why; false` failed (exit status: 1); its output:\nwhy\n"]);
        assert_eq!(faults("<!-- fails -->\n```console\n$ true\n$ false\n```\n"), [""; 0]);
        let found = faults("<!-- fails -->\n```console\n$ true\n```\n");
        assert_eq!(found, ["p.md:3: `true` does not fail; its output:\n"]);
    }

    #[test]
    fn other_output_is_a_fault() {
        let found = faults("```console\n$ echo b\na\n```\n");
        assert_eq!(found, ["p.md:2: `echo b` printed other lines than the page shows; its output:\nb\n"]);
    }

    #[test]
    fn blocks_with_a_reason_are_not_run() {
        let run = run_text(
            "<!-- not run: slow -->\n```console\n$ false\n```\n<!-- needs: no-such-program -->\n\
                            ```console\n$ false\n```\n\n```sh\nfalse\n```\n",
        );
        assert_eq!(run.faults, []);
        assert_eq!(run.skipped, ["p.md:2: slow", "p.md:6: no-such-program is not installed"]);
        assert_eq!((run.commands, run.shell_blocks), (0, 1));
    }

    #[test]
    fn blocks_without_commands_are_faults() {
        let message = "p.md:1: a console block starts with a line that does not begin with '$ '";
        assert_eq!(faults("```console\ntrue\n```\n"), [message]);
    }
}
