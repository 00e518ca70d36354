//! `cargo xtask faults [--short] BINARY`: every system call of every command fails once.
//!
//! For each command and each kind of system call, a run in which the first call of that kind fails,
//! a run in which the second fails, and so on until a run has no such call. After each:
//!
//! 1. The command ended by itself, with status 0 or 1, and an `error:` line if 1. A panic, an abort
//!    or a signal is a fault of the program.
//! 2. Its target is missing or has all the bytes of a run without faults. (The directory of a
//!    training run may be incomplete.)
//! 3. The same command without faults, for a training run `train --resume`, gives those bytes, and
//!    leaves nothing else behind.
//!
//! With `--short`, the tests' form, the numbers of the failing calls grow by a half.

#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
mod scenario;
#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
mod tracer;

use std::path::Path;

use anyhow::Result;

/// Runs the audit of the program `binary`.
#[cfg(not(all(target_os = "linux", target_arch = "x86_64")))]
pub(crate) fn run(_binary: &Path, _short: bool) -> Result<()> {
    anyhow::bail!("faults: injection is written for Linux on x86-64")
}

/// Runs the audit of the program `binary`.
#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
pub(crate) fn run(binary: &Path, short: bool) -> Result<()> {
    use anyhow::{Context, bail};
    use scenario::{SCENARIOS, Sandbox};

    if !tracer::is_permitted()? {
        eprintln!("faults: this process may not trace another one here, so nothing was tried");
        return Ok(());
    }
    let binary = std::fs::canonicalize(binary).with_context(|| format!("no program {}", binary.display()))?;
    let (mut runs, mut problems) = (0, Vec::new());
    for scenario in SCENARIOS.iter().filter(|scenario| !short || scenario.is_short) {
        let sandbox = Sandbox::new(&binary, scenario)?;
        for &kind in tracer::KINDS {
            let mut number = 1;
            loop {
                let fault = tracer::Fault { kind, number };
                let Some(found) = sandbox.try_fault(fault)? else { break };
                runs += 1;
                problems.extend(found.map(|what| {
                    let problem = format!("{}, {} {number}: {what}", scenario.arguments, kind.name);
                    eprintln!("fault: {problem}");
                    problem
                }));
                number = if short { number + number.div_ceil(2) } else { number + 1 };
            }
        }
    }
    eprintln!("{runs} runs with a fault, {} problems", problems.len());
    if problems.is_empty() { Ok(()) } else { bail!("faults: {}", problems.join("; ")) }
}
