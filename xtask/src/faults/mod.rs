//! `cargo xtask faults BINARY [--short] [--only WORDS] [--attack WORDS]`: everything that can end a
//! command early happens to every command once.
//!
//! For each command (of a row that contains WORDS) and each attack (whose name contains WORDS), a
//! run that is attacked at the first occasion, a run at the second, and so on until a run has no
//! such occasion. The attacks:
//!
//! - a system call of a kind fails,
//! - the process is killed before, or after, a system call of a kind that changes files,
//! - an allocation of 4 KiB or more fails, if the program has debug assertions.
//!
//! A client asks the service (`serve`) its questions, and ends it.
//!
//! After each:
//!
//! 1. The command was killed, or ended by itself, with status 0 or 1, and an `error:` line if 1,
//!    which names memory if an allocation failed. A panic, an abort or another signal is a fault of
//!    the program. A service that ended with status 0 gave every answer of a run without faults,
//!    if not at once then to the same question again; none gave another.
//! 2. Its target has all the bytes that it had before (is missing, if it was), or all those of a
//!    run without faults. The directory of a training run may be incomplete, and a replaced
//!    directory may be missing on a file system that cannot exchange directories.
//! 3. The same command without faults, for a training run `train --resume`, gives those bytes, and
//!    leaves nothing else behind.
//!
//! With `--short`, the numbers grow by a half, those of kills by a factor of two. Without `--only`,
//! it takes the attacks that the rows have for it, no kinds of calls that are for the long form,
//! and of the kills after a call only those after a rename: the tests' form.
//!
//! Before, every command runs under every limit of [`containers`], and must give the same bytes.

#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
mod client;
#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
mod containers;
#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
mod rows;
#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
mod scenario;
#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
mod tracer;

use std::path::Path;

use anyhow::Result;

/// Parts of the audit.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[cfg_attr(not(all(target_os = "linux", target_arch = "x86_64")), allow(dead_code, reason = "not run"))]
struct Parts<'w> {
    is_short: bool,
    /// Words of the commands.
    only: &'w str,
    /// Words of the attacks.
    attack: &'w str,
}

/// Reads the options.
fn parse<'w>(mut words: &[&'w str]) -> Result<Parts<'w>> {
    let mut parts = Parts::default();
    loop {
        words = match *words {
            [] => return Ok(parts),
            ["--short", ref rest @ ..] => {
                parts.is_short = true;
                rest
            }
            ["--only", only, ref rest @ ..] => {
                parts.only = only;
                rest
            }
            ["--attack", attack, ref rest @ ..] => {
                parts.attack = attack;
                rest
            }
            [word, ..] => anyhow::bail!("faults: '{word}' is not an option with its value"),
        };
    }
}

/// Runs the audit of the program `binary`, with the options in `words`.
#[cfg(not(all(target_os = "linux", target_arch = "x86_64")))]
pub(crate) fn run(_binary: &Path, words: &[&str]) -> Result<()> {
    parse(words)?;
    anyhow::bail!("faults: injection is written for Linux on x86-64")
}

/// Runs the audit of the program `binary`, with the options in `words`.
#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
pub(crate) fn run(binary: &Path, words: &[&str]) -> Result<()> {
    use anyhow::Context;
    use rows::SCENARIOS;
    use scenario::Sandbox;

    let Parts { is_short, only, attack: wanted } = parse(words)?;
    let binary = std::fs::canonicalize(binary).with_context(|| format!("no program {}", binary.display()))?;
    let mut chosen: Vec<_> = SCENARIOS.iter().filter(|scenario| scenario.arguments.contains(only)).collect();
    let built = scenario::parts(&binary)?;
    let is_built = |part: &str| built.iter().any(|there| there == part);
    for row in chosen.extract_if(.., |row| row.part.is_some_and(|part| !is_built(part))) {
        eprintln!("faults: this program was built without the part for '{}'", row.arguments);
    }
    let is_test = is_short && only.is_empty();
    let mut problems = if wanted.is_empty() { limits(&binary, &chosen, is_test)? } else { Vec::new() };
    if !tracer::is_permitted()? {
        eprintln!("faults: this process may not trace another one here, so no call failed");
        return conclusion(&problems);
    }
    let mut counts = [0; 3];
    for scenario in chosen {
        let mut attacks = attacks(scenario, is_test);
        attacks.retain(|(_, attack)| attack.name().contains(wanted));
        if attacks.is_empty() {
            continue;
        }
        let sandbox = Sandbox::new(&binary, scenario)?;
        if !only.is_empty() {
            eprintln!("{}", scenario.arguments);
        }
        for (group, attack) in attacks {
            let mut number = 1_u64;
            let before = counts[group as usize];
            while let Some(found) = sandbox.attack(attack, number)? {
                counts[group as usize] += 1;
                problems.extend(found.map(|what| {
                    let problem = format!("{}, {} {number}: {what}", scenario.arguments, attack.name());
                    eprintln!("fault: {problem}");
                    problem
                }));
                number += match group {
                    _ if !is_short => 1,
                    rows::Attacks::Kills => number,
                    _ => number.div_ceil(2),
                };
            }
            // a long form that is stopped has counts, too
            if !only.is_empty() {
                eprintln!("  {}: {} runs", attack.name(), counts[group as usize] - before);
            }
        }
    }
    let [calls, kills, allocations] = counts;
    if calls > 0 && allocations == 0 && wanted.is_empty() {
        eprintln!("faults: this program has no debug assertions, so no allocation failed");
    }
    eprintln!(
        "{calls} runs with a failing call, {kills} kills, {allocations} refused allocations, {} problems",
        problems.len()
    );
    conclusion(&problems)
}

/// Attacks on a command, with their groups; `is_test` for those of the tests' form only.
#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
fn attacks(scenario: &rows::Scenario, is_test: bool) -> Vec<(rows::Attacks, scenario::Attack)> {
    use rows::Attacks;
    use scenario::Attack;
    use tracer::{Effect, KINDS};

    let kinds = KINDS.iter().filter(|kind| !(is_test && kind.is_long));
    let mut attacks: Vec<_> =
        kinds.map(|&kind| (Attacks::Calls, Attack::Call(kind, Effect::Error))).collect();
    for &kind in KINDS.iter().filter(|kind| kind.changes_files) {
        for effect in [Effect::KillBefore, Effect::KillAfter] {
            attacks.push((Attacks::Kills, Attack::Call(kind, effect)));
        }
    }
    attacks.push((Attacks::Allocations, Attack::Allocation));
    attacks.retain(|(group, _)| !is_test || scenario.short.contains(group));
    // a kill after a call is mostly one before the next; a rename is where the state changes
    let is_late =
        |attack: &Attack| matches!(attack, Attack::Call(kind, Effect::KillAfter) if kind.name != "rename");
    attacks.retain(|(_, attack)| !is_test || !is_late(attack));
    attacks
}

/// Fails if there were problems.
#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
fn conclusion(problems: &[String]) -> Result<()> {
    anyhow::ensure!(problems.is_empty(), "faults: {}", problems.join("; "));
    Ok(())
}

/// Runs commands under the limits of containers, and returns the problems. Names the limits that
/// cannot be set here.
#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
fn limits(binary: &Path, chosen: &[&rows::Scenario], is_test: bool) -> Result<Vec<String>> {
    use containers::{LIMITS, namespace};
    use rows::Attacks;
    use scenario::Sandbox;

    let Some(namespace) = namespace() else {
        eprintln!("faults: this process may not make a mount namespace, so no limit was tried");
        return Ok(Vec::new());
    };
    let (mut runs, mut problems) = (0, Vec::new());
    let mut impossible = std::collections::BTreeSet::new();
    for scenario in chosen.iter().filter(|row| !is_test || row.short.contains(&Attacks::Calls)) {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[cfg(all(target_os = "linux", target_arch = "x86_64"))]
    #[test]
    fn the_tests_form_has_no_calls_of_the_long_form() {
        let row = rows::SCENARIOS.iter().find(|row| row.short.contains(&rows::Attacks::Calls)).unwrap();
        let names = |is_test| -> Vec<String> {
            attacks(row, is_test).iter().map(|(_, attack)| attack.name()).collect()
        };
        let has = |is_test, name: &str| names(is_test).iter().any(|there| there == name);
        assert!(has(false, "protect") && !has(true, "protect") && has(true, "open"));
    }

    #[test]
    fn options_are_read_in_any_order() {
        let parts = parse(&["--attack", "kill", "--short", "--only", "train data"]).unwrap();
        assert_eq!(parts, Parts { is_short: true, only: "train data", attack: "kill" });
        assert_eq!(parse(&[]).unwrap(), Parts::default());
        for words in [&["--only"][..], &["--all"]] {
            assert!(parse(words).is_err_and(|e| e.to_string().contains(words[0])));
        }
    }
}
