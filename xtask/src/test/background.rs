//! A step that runs beside others: its output goes to a file and is printed if the step fails.

use std::{
    fs::{self, File},
    io,
    path::{Path, PathBuf},
    process::{Child, Command, ExitStatus, Stdio},
    sync::{Arc, Mutex, PoisonError},
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use anyhow::{Context, Result, anyhow, bail};

use super::table::Table;

/// Interval at which a step's process is checked for its end.
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// A running step. Dropping it ends its process.
pub(super) struct Background {
    name: &'static str,
    child: Arc<Mutex<Child>>,
    log: PathBuf,
    /// Waits for the process; returns its status and its duration.
    watcher: Option<JoinHandle<io::Result<(ExitStatus, Duration)>>>,
}

impl Background {
    /// Starts a command whose output goes to `NAME.log` of a directory.
    ///
    /// # Errors
    /// The log cannot be written, or the command does not start.
    pub(super) fn start(name: &'static str, command: &mut Command, directory: &Path) -> Result<Self> {
        let log = directory.join(format!("{name}.log"));
        let file = File::create(&log).with_context(|| format!("{} cannot be written", log.display()))?;
        command.stdin(Stdio::null()).stdout(file.try_clone()?).stderr(file);
        let started = Instant::now();
        let child = command.spawn().with_context(|| format!("{name} does not start"))?;
        eprintln!("── {name}: beside the next steps, output in {}", log.display());
        let child = Arc::new(Mutex::new(child));
        let watched = Arc::clone(&child);
        let watcher = thread::spawn(move || {
            loop {
                let ended = watched.lock().unwrap_or_else(PoisonError::into_inner).try_wait()?;
                match ended {
                    Some(status) => return Ok((status, started.elapsed())),
                    None => thread::sleep(POLL_INTERVAL),
                }
            }
        });
        Ok(Self { name, child, log, watcher: Some(watcher) })
    }

    /// Waits for the end and adds a row to the table.
    ///
    /// # Errors
    /// The step failed. Its output is printed first.
    pub(super) fn finish(mut self, table: &mut Table) -> Result<()> {
        let waiting = Instant::now();
        let watcher = self.watcher.take().context("a step is waited for once")?;
        let (status, whole) =
            watcher.join().map_err(|_| anyhow!("the watcher of {} panicked", self.name))??;
        table.add_beside(self.name, whole, waiting.elapsed());
        if !status.success() {
            eprintln!("{}", fs::read_to_string(&self.log).unwrap_or_default());
            bail!("{} failed", self.name);
        }
        Ok(())
    }
}

impl Drop for Background {
    fn drop(&mut self) {
        // Both fail if the process has ended, which is fine.
        let mut child = self.child.lock().unwrap_or_else(PoisonError::into_inner);
        let _ = child.kill();
        let _ = child.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_lasts_until_its_process_ends_and_fails_with_it() {
        let directory = tempfile::tempdir().unwrap();
        let start = |script: &str| {
            Background::start("step", Command::new("sh").args(["-c", script]), directory.path()).unwrap()
        };
        let mut table = Table::default();
        let step = start("exit 0");
        thread::sleep(Duration::from_secs(1));
        step.finish(&mut table).unwrap();
        let text = table.to_string();
        let row = text.lines().find(|line| line.starts_with("step ") && !line.contains("seconds"));
        let seconds: f64 = row.and_then(|row| row.split_whitespace().nth(1)).unwrap().parse().unwrap();
        assert!(seconds < 1.0, "{text}");
        assert!(start("exit 3").finish(&mut table).is_err());
    }
}
