//! A step that runs beside others: its output goes to a file and is printed if the step fails.

use std::{
    fs::{self, File},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail};

use super::table::Table;

/// A running step. Dropping it ends its process.
pub(super) struct Background {
    name: &'static str,
    child: Child,
    log: PathBuf,
    started: Instant,
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
        let child = command.spawn().with_context(|| format!("{name} does not start"))?;
        eprintln!("── {name}: beside the next steps, output in {}", log.display());
        Ok(Self { name, child, log, started: Instant::now() })
    }

    /// Waits for the end and adds a row to the table.
    ///
    /// # Errors
    /// The step failed. Its output is printed first.
    pub(super) fn finish(mut self, table: &mut Table) -> Result<()> {
        let waiting = Instant::now();
        let status = loop {
            match self.child.try_wait()? {
                Some(status) => break status,
                None => thread::sleep(Duration::from_millis(50)),
            }
        };
        table.add_beside(self.name, self.started.elapsed(), waiting.elapsed());
        if !status.success() {
            eprintln!("{}", fs::read_to_string(&self.log).unwrap_or_default());
            bail!("{} failed", self.name);
        }
        Ok(())
    }
}

impl Drop for Background {
    fn drop(&mut self) {
        // both fail if the process has ended, which is fine
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
