//! Commands of the pages.
//!
//! A block of the language `console` holds lines that start with `$ `, each a command for bash, and
//! the output of the command below it. `> ` continues a command on the next line. A page's commands
//! run one after the other in one temporary directory; pages run side by side. `graphmill` is the
//! program under test.
//!
//! A command must succeed. If output stands below it, its standard output and error must match,
//! with `...` for anything ([`crate::pattern`]). A comment directly above a block changes this:
//!
//! | comment | effect |
//! | --- | --- |
//! | `<!-- not run: REASON -->` | the block is not run, and counted |
//! | `<!-- needs: PROGRAM -->` | the block is run if the program is on the path |
//! | `<!-- fails -->` | the last command must fail |

use std::{
    cmp::Reverse,
    env,
    ffi::OsString,
    fs::{self, File},
    ops::Range,
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

/// New output of a command for its page.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Update {
    /// Path of the page.
    path: String,
    /// Lines of the page that it replaces, from 0.
    lines: Range<usize>,
    output: Vec<String>,
}

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
    /// Outputs that differ from the page, if they were asked for in the place of faults.
    pub(crate) updates: Vec<Update>,
}

/// Scope of a run.
#[derive(Clone, Copy, Default)]
pub(crate) struct Scope<'a> {
    /// Program whose blocks are skipped, also if it is installed.
    pub(crate) missing: Option<&'a str>,
    /// Collects other output as updates instead of faults.
    pub(crate) collects_updates: bool,
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

/// Outcome of a command.
enum Outcome {
    Matches,
    /// Its output differs from the page.
    Differs {
        output: String,
        message: String,
    },
    /// Its status is wrong, or it took too long.
    Fails(String),
}

impl Step<'_> {
    /// Returns true if the expected output leaves out whole lines.
    fn elides_lines(&self) -> bool {
        self.output.iter().any(|line| line.trim() == pattern::ANY)
    }

    /// Update of the page at `path` with this output.
    fn update(&self, path: &str, output: &str) -> Update {
        let first = self.line + self.command.lines().count() - 1;
        let shown = self.output.iter().rposition(|line| !line.is_empty()).map_or(0, |last| last + 1);
        let output = pattern::renewed(&self.output[..shown], output);
        Update { path: path.to_owned(), lines: first..first + shown, output }
    }
}

/// Writes new outputs into their pages.
///
/// # Errors
/// A page cannot be read or written.
pub(crate) fn apply(root: &Path, mut updates: Vec<Update>) -> Result<()> {
    // from the last line on, so that the lines of the others stay valid
    updates.sort_by_key(|update| Reverse(update.lines.start));
    for Update { path, lines, output } in updates {
        let file = root.join(&path);
        let text = fs::read_to_string(&file).with_context(|| path.clone())?;
        let mut page: Vec<&str> = text.lines().collect();
        let line = lines.start;
        page.splice(lines, output.iter().map(String::as_str));
        fs::write(&file, page.join("\n") + "\n").with_context(|| path.clone())?;
        eprintln!("── book: {path}:{line}: new output");
    }
    Ok(())
}

/// Runs the commands of all pages.
///
/// # Errors
/// A directory cannot be created, or bash cannot be run.
pub(crate) fn run(pages: &[Page], program: &Path, scope: Scope<'_>) -> Result<Run> {
    let queue = Mutex::new(pages.iter());
    let total = Mutex::new(Run::default());
    let worker = || -> Result<()> {
        loop {
            let Some(page) = queue.lock().expect("no worker panics").next() else { return Ok(()) };
            let run = run_page(page, program, scope).with_context(|| page.path.clone())?;
            let mut total = total.lock().expect("no worker panics");
            total.commands += run.commands;
            total.faults.extend(run.faults);
            total.skipped.extend(run.skipped);
            total.shell_blocks += run.shell_blocks;
            total.updates.extend(run.updates);
        }
    };
    thread::scope(|scope| {
        let workers: Vec<_> = (0..WORKERS).map(|_| scope.spawn(worker)).collect();
        workers.into_iter().try_for_each(|worker| worker.join().expect("no worker panics"))
    })?;
    Ok(total.into_inner().expect("no worker panics"))
}

/// Runs the commands of a page up to the first fault.
fn run_page(page: &Page, program: &Path, scope: Scope<'_>) -> Result<Run> {
    let is_shell = |block: &&Block| ["sh", "bash", "shell"].contains(&block.language.as_str());
    let mut run = Run { shell_blocks: page.blocks.iter().filter(is_shell).count(), ..Run::default() };
    let directory = tempfile::tempdir()?;
    let started = Instant::now();
    for block in page.blocks.iter().filter(|block| block.language == "console") {
        let comment = block.comment.as_deref().unwrap_or_default();
        if let Some(reason) = skip_reason(comment, scope.missing) {
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
        let mut fault = None;
        for (at, step) in steps.iter().enumerate() {
            run.commands += 1;
            let must_fail = comment == "fails" && at + 1 == steps.len();
            match execute(step, must_fail, directory.path(), program)? {
                Outcome::Matches => {}
                Outcome::Differs { output, .. } if scope.collects_updates && !step.elides_lines() => {
                    run.updates.push(step.update(&page.path, &output));
                }
                Outcome::Differs { message, .. } | Outcome::Fails(message) => {
                    fault = Some((step.line, message));
                    break;
                }
            }
        }
        if let Some((line, message)) = fault {
            run.faults.push(page.fault(line, message));
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

/// Runs a command and compares its output.
fn execute(step: &Step<'_>, must_fail: bool, directory: &Path, program: &Path) -> Result<Outcome> {
    let log = tempfile::NamedTempFile::new()?;
    let file = File::options().append(true).open(log.path())?;
    let mut command = Command::new("bash");
    command.args(["-e", "-o", "pipefail", "-c", &step.command]).current_dir(directory);
    command.env("PATH", path_with(program)?).env("LC_ALL", "C.UTF-8").env("COLUMNS", "100");
    // epochs have other speeds in every run
    command.env("GRAPHMILL_PROGRESS", "none");
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
    let message = |reason: String| format!("`{}` {reason}; its output:\n{output}", step.command);
    let Some(status) = status else {
        return Ok(Outcome::Fails(message(format!("was ended after {} s", MAX_TIME.as_secs()))));
    };
    if status.success() == must_fail {
        let reason = if must_fail { "does not fail".into() } else { format!("failed ({status})") };
        return Ok(Outcome::Fails(message(reason)));
    }
    if !step.output.is_empty() && !pattern::matches(&step.output, &output) {
        let message = message("printed other lines than the page shows".into());
        return Ok(Outcome::Differs { output, message });
    }
    Ok(Outcome::Matches)
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
        run(&[Page::parse("p.md".into(), text)], Path::new("/bin/true"), Scope::default()).unwrap()
    }

    fn faults(text: &str) -> Vec<String> {
        run_text(text).faults.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn commands_share_a_directory_and_output_is_compared() {
        let page = "```console\n$ echo a > f\n\n$ cat f\na\n```\n\n```console\n$ cat <<E\n> b ...\n> E\nb \
                    ...\n$ cat f; echo c >&2\n...\nc\n```\n";
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

    #[test]
    fn other_output_replaces_the_lines_of_the_page_on_request() {
        let text = "# T\n\n```console\n$ echo new; echo 2 s\nold\n... s\n\n\
                    $ cat <<E\n> x\n> E\ny\n$ echo z\n...\nw\n```\n";
        let root = tempfile::tempdir().unwrap();
        fs::write(root.path().join("p.md"), text).unwrap();
        let pages = [Page::parse("p.md".into(), text)];
        let scope = Scope { collects_updates: true, ..Scope::default() };
        let run = run(&pages, Path::new("/bin/true"), scope).unwrap();
        apply(root.path(), run.updates).unwrap();
        let expected = text.replace("old", "new").replace("\ny\n", "\nx\n");
        assert_eq!(fs::read_to_string(root.path().join("p.md")).unwrap(), expected);
        // lines that the page leaves out cannot be distinguished from new ones
        assert_eq!(run.faults.len(), 1);
    }
}
