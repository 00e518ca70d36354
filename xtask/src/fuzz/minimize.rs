//! Minimization of a target's corpus: the inputs that together cover what all inputs cover. Some
//! small ones are kept in the repository, as `fuzz/seeds/TARGET/found-*`.

use std::{
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result, bail};

use super::program::Programs;

/// Maximum number of bytes of found inputs that are kept for a target.
const MAX_BYTES: u64 = 64 << 10;
/// Maximum number of them: the first 64 KiB of most corpora hold hundreds.
const MAX_INPUTS: usize = 24;
/// Start of the names of found inputs. A reader may refuse these, but no other seeds.
const FOUND: &str = "found-";

/// Minimizes the corpus of a target. Returns the number of inputs in the corpus, and of those kept
/// in the repository.
///
/// # Errors
/// The target did not run, or files cannot be written.
pub(super) fn minimize(root: &Path, target: &str, programs: &Programs) -> Result<[usize; 2]> {
    let [seeds, corpus, regressions] =
        ["seeds", "corpus", "regressions"].map(|dir| root.join(dir).join(target));
    let merged = tempfile::tempdir()?;
    let own = copy_others(&seeds, merged.path())?;
    let mut command = programs.command(target, &[merged.path(), &seeds, &corpus, &regressions]);
    let output = command.arg("-merge=1").output().with_context(|| format!("cannot run {target}"))?;
    if !output.status.success() {
        bail!("{target} did not merge its corpus:\n{}", String::from_utf8_lossy(&output.stderr));
    }
    let mut found: Vec<(u64, PathBuf)> = Vec::new();
    for entry in fs::read_dir(merged.path())? {
        let entry = entry?;
        if !own.iter().any(|name| *name == entry.file_name()) {
            found.push((entry.metadata()?.len(), entry.path()));
        }
    }
    found.sort();
    let kept = replace_found(&seeds, &found)?;
    replace_corpus(&corpus, &found)?;
    Ok([found.len(), kept])
}

/// Copies the inputs that the fuzzer did not find, and returns their names.
fn copy_others(seeds: &Path, to: &Path) -> Result<Vec<std::ffi::OsString>> {
    let mut names = Vec::new();
    for entry in fs::read_dir(seeds).with_context(|| format!("{} has no seeds", seeds.display()))? {
        let entry = entry?;
        if !is_found(&entry.path()) {
            fs::copy(entry.path(), to.join(entry.file_name()))?;
            names.push(entry.file_name());
        }
    }
    Ok(names)
}

fn is_found(path: &Path) -> bool {
    path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(FOUND))
}

/// Replaces the found inputs in `seeds` by some of `found`, of which the smallest are first: at
/// equal distances in this order, because the smallest alone cover only refusals, and as far as
/// they fit. Returns their number.
fn replace_found(seeds: &Path, found: &[(u64, PathBuf)]) -> Result<usize> {
    for entry in fs::read_dir(seeds)? {
        let path = entry?.path();
        if is_found(&path) {
            fs::remove_file(path)?;
        }
    }
    let mut bytes = 0;
    let step = found.len().div_ceil(MAX_INPUTS).max(1);
    let fitting = found.iter().step_by(step).take_while(|(length, _)| {
        bytes += length;
        bytes <= MAX_BYTES
    });
    let mut kept = 0;
    for (_, path) in fitting {
        let name = path.file_name().context("an input without a name")?.to_string_lossy();
        // the fuzzer names inputs by their hashes, of which the start is enough
        let short: String = name.chars().take(12).collect();
        fs::copy(path, seeds.join(format!("{FOUND}{short}")))?;
        kept += 1;
    }
    Ok(kept)
}

/// Replaces the corpus by `found`. A run that ends meanwhile leaves some inputs in the seeds.
fn replace_corpus(corpus: &Path, found: &[(u64, PathBuf)]) -> Result<()> {
    if corpus.is_dir() {
        fs::remove_dir_all(corpus)?;
    }
    fs::create_dir_all(corpus)?;
    for (_, path) in found {
        fs::copy(path, corpus.join(path.file_name().context("an input without a name")?))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_inputs_of_all_sizes_replace_the_earlier_ones() {
        let dir = tempfile::tempdir().unwrap();
        let [seeds, merged, corpus] = ["seeds", "merged", "corpus"].map(|name| dir.path().join(name));
        [&seeds, &merged].into_iter().for_each(|dir| fs::create_dir(dir).unwrap());
        for name in ["made-a", "found-old"] {
            fs::write(seeds.join(name), name).unwrap();
        }
        let names = copy_others(&seeds, &merged).unwrap();
        assert_eq!(names, ["made-a"]);
        // three inputs, of which the largest two do not fit together
        let found: Vec<(u64, PathBuf)> = [(10, "0123456789abcdef"), (40_000, "b"), (50_000, "c")]
            .into_iter()
            .map(|(length, name)| {
                fs::write(merged.join(name), vec![0; length]).unwrap();
                (length as u64, merged.join(name))
            })
            .collect();
        assert_eq!(replace_found(&seeds, &found).unwrap(), 2);
        let list = |dir: &Path| -> Vec<String> {
            let entries = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().file_name());
            let mut names: Vec<String> = entries.map(|name| name.into_string().unwrap()).collect();
            names.sort();
            names
        };
        assert_eq!(list(&seeds), ["found-0123456789ab", "found-b", "made-a"]);
        replace_corpus(&corpus, &found).unwrap();
        assert_eq!(list(&corpus), ["0123456789abcdef", "b", "c"]);
        // of many small inputs, every third
        let many: Vec<(u64, PathBuf)> =
            (0..3 * MAX_INPUTS - 1).map(|i| (1, merged.join(format!("many-{i:03}")))).collect();
        many.iter().for_each(|(_, path)| fs::write(path, "x").unwrap());
        assert_eq!(replace_found(&seeds, &many).unwrap(), MAX_INPUTS);
        assert_eq!(list(&seeds)[..2], ["found-many-000", "found-many-003"]);
    }
}
