//! Directory for the files of a target, in memory if the system has such a place.

use std::{
    cell::RefCell,
    collections::BTreeMap,
    fs::{self, File},
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
};

/// Files by name. They stay open and are rewritten only if they changed, because a mutation changes
/// one of many.
struct Scratch {
    dir: PathBuf,
    files: BTreeMap<String, (File, Vec<u8>)>,
}

thread_local! {
    static SCRATCH: RefCell<BTreeMap<&'static str, Scratch>> = const { RefCell::new(BTreeMap::new()) };
}

/// Writes exactly `files` to the directory of `target` and passes it to `work`.
///
/// # Panics
/// The directory cannot be written.
pub fn with_files<T>(
    target: &'static str,
    files: &[(&str, impl AsRef<[u8]>)],
    work: impl FnOnce(&Path) -> T,
) -> T {
    let dir = SCRATCH.with_borrow_mut(|all| {
        let scratch = all.entry(target).or_insert_with(|| Scratch::new(target));
        scratch.lay(files);
        scratch.dir.clone()
    });
    work(&dir)
}

/// Variant of [`with_files`] for a reader that changes or removes files: everything is rewritten
/// each time.
///
/// # Panics
/// The directory cannot be written.
pub fn with_fresh_files<T>(
    target: &'static str,
    files: &[(&str, impl AsRef<[u8]>)],
    work: impl FnOnce(&Path) -> T,
) -> T {
    let old = SCRATCH.with_borrow_mut(|all| all.remove(target));
    if let Some(old) = old {
        fs::remove_dir_all(old.dir).expect("the scratch directory cannot be removed");
    }
    with_files(target, files, work)
}

impl Scratch {
    fn new(target: &str) -> Self {
        let root = Path::new("/dev/shm");
        let root = if root.is_dir() { root.to_path_buf() } else { std::env::temp_dir() };
        remove_stale(&root);
        let thread = format!("{:?}", std::thread::current().id());
        let digits: String = thread.chars().filter(char::is_ascii_digit).collect();
        let name = format!("{PREFIX}{}", std::process::id());
        let dir = root.join(name).join(format!("{target}-{digits}"));
        fs::create_dir_all(&dir).expect("the scratch directory cannot be made");
        Self { dir, files: BTreeMap::new() }
    }

    fn lay(&mut self, files: &[(&str, impl AsRef<[u8]>)]) {
        let dir = &self.dir;
        self.files.retain(|name, _| {
            let stays = files.iter().any(|(there, _)| there == name);
            if !stays {
                let path = dir.join(name);
                fs::remove_file(&path).expect("a scratch file cannot be removed");
                // readers list directories, so one without a file must not stay
                let above = path.ancestors().skip(1).take_while(|above| above != dir);
                let _ = above.map(fs::remove_dir).all(|removed| removed.is_ok());
            }
            stays
        });
        for (name, bytes) in files {
            let bytes = bytes.as_ref();
            if !self.files.contains_key(*name) {
                let path = dir.join(name);
                fs::create_dir_all(path.parent().unwrap_or(dir)).expect("a scratch directory cannot be made");
                let file = File::create(path).expect("a scratch file cannot be made");
                self.files.insert(name.to_string(), (file, Vec::new()));
            }
            let Some((file, last)) = self.files.get_mut(*name) else { continue };
            if last == bytes {
                continue;
            }
            file.write_all_at(bytes, 0)
                .and_then(
                    |()| if bytes.len() < last.len() { file.set_len(bytes.len() as u64) } else { Ok(()) },
                )
                .expect("a scratch file cannot be written");
            last.clear();
            last.extend_from_slice(bytes);
        }
    }
}

const PREFIX: &str = "graphmill-fuzz-";

/// A fuzzer ends without cleaning up, so the next one removes the directories of dead processes.
fn remove_stale(root: &Path) {
    for entry in fs::read_dir(root).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let process = name.to_str().and_then(|name| name.strip_prefix(PREFIX));
        if process.is_some_and(|id| Path::new("/proc/self").exists() && !Path::new("/proc").join(id).exists())
        {
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_directory_contains_exactly_the_requested_files() {
        let read = |dir: &Path, name: &str| fs::read(dir.join(name)).ok();
        with_files("scratch", &[("a", "long text"), ("b/c", "1")], |dir| {
            assert_eq!(
                (read(dir, "a"), read(dir, "b/c")),
                (Some(b"long text".to_vec()), Some(b"1".to_vec()))
            );
        });
        with_files("scratch", &[("a", "text")], |dir| {
            assert_eq!((read(dir, "a"), read(dir, "b/c")), (Some(b"text".to_vec()), None));
            assert!(!dir.join("b").exists(), "a directory without a file");
        });
    }
}
