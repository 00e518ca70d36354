//! Tests of the model, and of the functions of the parent module on it.

use super::{super::*, *};

/// States that a loss of power during `work` in a directory with `before` could leave.
fn states(
    before: &[(&str, &str)],
    ignores_syncs: bool,
    work: impl FnOnce(&mut ForgettingDisk, &Path),
    see: &mut dyn FnMut(&Path, usize),
) {
    let [root, scratch] = [(); 2].map(|()| tempfile::tempdir().unwrap());
    for (name, text) in before {
        let path = root.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
    let mut disk = ForgettingDisk::new(root.path()).unwrap();
    disk.ignores_syncs = ignores_syncs;
    work(&mut disk, root.path());
    disk.losses(scratch.path(), see).unwrap();
}

#[test]
fn a_replaced_file_is_the_old_or_the_new_one_whatever_is_lost() {
    let mut finished = false;
    let work = |disk: &mut ForgettingDisk, root: &Path| {
        replace(disk, &root.join("file"), b"new one").unwrap();
    };
    let mut steps = 0;
    states(&[("file", "old")], false, work, &mut |state, cut| {
        let now = fs::read(state.join("file")).unwrap();
        assert!(now == b"old" || now == b"new one", "{now:?} after {cut} steps");
        steps = cut;
        finished = now == b"new one";
    });
    assert!(finished && steps >= 3, "the new file is durable at the end: {steps}");
}

#[test]
fn appended_lines_are_durable_whatever_is_lost() {
    for before in [&[("file", "old\n")][..], &[]] {
        let old = before.first().map_or("", |(_, text)| text);
        let work = |disk: &mut ForgettingDisk, root: &Path| {
            ["one\n", "two\n"].iter().for_each(|line| {
                append(disk, &root.join("file"), line.as_bytes()).unwrap();
            });
        };
        let whole = format!("{old}one\ntwo\n");
        let mut last = String::new();
        states(before, false, work, &mut |state, cut| {
            last = fs::read_to_string(state.join("file")).unwrap_or_default();
            assert!(whole.starts_with(&last) && last.len() >= old.len(), "{last:?} after {cut} steps");
        });
        assert_eq!(last, whole, "durable at the end");
    }
}

/// Names of a finished directory, its place, and the name of the replaced one: beside each
/// other, and as a scratch has them.
const NAMES: [[&str; 3]; 2] = [["fresh", "place", "old"], ["work/fresh", "place", "work/old"]];

/// States that a loss of power during an exchange could leave, and whether the disk has one.
fn exchanges(ignores_syncs: bool, see: &mut dyn FnMut([&Path; 2], usize, bool)) {
    for [fresh, place, old] in NAMES {
        let files = |dir: &str, text| ["a", "b"].map(|name| (format!("{dir}/{name}"), text));
        let before = [files(fresh, "new"), files(place, "old")].concat();
        let before: Vec<_> = before.iter().map(|(name, text)| (name.as_str(), *text)).collect();
        for atomic in [true, false] {
            let work = |disk: &mut ForgettingDisk, root: &Path| {
                let [fresh, place, old] = [fresh, place, old].map(|name| root.join(name));
                let names = [&*fresh, &place, &old];
                if atomic {
                    exchange(disk, names[0], names[1], names[2]).unwrap();
                } else {
                    exchange(&mut WithoutExchange(disk), names[0], names[1], names[2]).unwrap();
                }
            };
            states(&before, ignores_syncs, work, &mut |state, cut| {
                see([&state.join(place), &state.join(old)], cut, atomic);
            });
        }
    }
}

fn is_complete(dir: &Path) -> bool {
    let [a, b] = ["a", "b"].map(|name| fs::read_to_string(dir.join(name)).unwrap_or_default());
    a == b && ["old", "new"].contains(&a.as_str())
}

#[cfg(any(target_os = "linux", target_os = "macos"))]
#[test]
fn an_exchanged_directory_is_complete_whatever_is_lost() {
    exchanges(false, &mut |[place, old], cut, atomic| {
        let complete = if atomic || place.is_dir() { place } else { old };
        assert!(is_complete(complete), "{} after {cut} steps", complete.display());
    });
}

#[cfg(any(target_os = "linux", target_os = "macos"))]
#[test]
fn a_missing_sync_is_noticed() {
    let mut lost = [false; 2];
    exchanges(true, &mut |[place, old], _, atomic| {
        lost[usize::from(atomic)] |= !is_complete(place) && !is_complete(old);
    });
    assert_eq!(lost, [true; 2]);
}
