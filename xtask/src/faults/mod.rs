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
//!
//! Before, every command runs under every limit of [`containers`], and must give the same bytes.

#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
mod containers;
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
    use anyhow::Context;
    use scenario::{SCENARIOS, Sandbox};

    let binary = std::fs::canonicalize(binary).with_context(|| format!("no program {}", binary.display()))?;
    let mut problems = limits(&binary, short)?;
    if !tracer::is_permitted()? {
        eprintln!("faults: this process may not trace another one here, so no call failed");
        return conclusion(&problems);
    }
    let mut runs = 0;
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
    conclusion(&problems)
}

/// Fails if there were problems.
#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
fn conclusion(problems: &[String]) -> Result<()> {
    anyhow::ensure!(problems.is_empty(), "faults: {}", problems.join("; "));
    Ok(())
}

/// Runs the commands under the limits of containers, and returns the problems. Names the limits
/// that cannot be set here.
#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
fn limits(binary: &Path, short: bool) -> Result<Vec<String>> {
    use containers::{LIMITS, namespace};
    use scenario::{SCENARIOS, Sandbox};

    let Some(namespace) = namespace() else {
        eprintln!("faults: this process may not make a mount namespace, so no limit was tried");
        return Ok(Vec::new());
    };
    let (mut runs, mut problems) = (0, Vec::new());
    let mut impossible = std::collections::BTreeSet::new();
    for scenario in SCENARIOS.iter().filter(|scenario| !short || scenario.is_short || scenario.is_run) {
        let sandbox = Sandbox::new(binary, scenario)?;
        for limit in LIMITS {
            match sandbox.try_limit(limit, namespace)? {
                None => _ = impossible.insert(limit.name),
                Some(found) => {
                    runs += 1;
                    problems.extend(found.map(|what| {
                        let problem = format!("{}, {}: {what}", scenario.arguments, limit.name);
                        eprintln!("fault: {problem}");
                        problem
                    }));
                }
            }
        }
    }
    if !impossible.is_empty() {
        eprintln!("faults: cannot be set here: {}", impossible.into_iter().collect::<Vec<_>>().join(", "));
    }
    eprintln!("{runs} runs under the limits of containers, {} problems", problems.len());
    Ok(problems)
}
