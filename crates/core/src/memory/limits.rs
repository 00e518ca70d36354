//! Limits below the machine's memory: control groups of containers and schedulers (versions 1 and
//! 2, proc_pid_cgroup(5), cgroups(7)), and the address space of the process (`ulimit -v`).

use std::{
    fs,
    path::{Path, PathBuf},
};

use super::bytes_of;

/// A limit and the bytes that count against it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Limit {
    pub(super) bytes: u64,
    pub(super) used: u64,
}

impl Limit {
    /// Bytes that the limit leaves.
    pub(super) fn left(&self) -> u64 {
        self.bytes.saturating_sub(self.used)
    }
}

/// All limits of this process that the system reports.
pub(super) fn all() -> Vec<Limit> {
    let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
    let mut limits = of_groups(&read("/proc/self/cgroup"), Path::new("/sys/fs/cgroup"));
    if let Some(bytes) = address_space(&read("/proc/self/limits")) {
        limits.push(Limit { bytes, used: bytes_of(&read("/proc/self/status"), "VmSize").unwrap_or(0) });
    }
    limits
}

/// Limits of the control groups that `membership`, the text of `/proc/self/cgroup`, names, and of
/// the groups around them. `root` is the directory of the group file systems.
fn of_groups(membership: &str, root: &Path) -> Vec<Limit> {
    let mut limits = Vec::new();
    for line in membership.lines() {
        let mut fields = line.splitn(3, ':').skip(1);
        let (Some(controllers), Some(path)) = (fields.next(), fields.next()) else { continue };
        let (root, files) = match controllers {
            "" => (root.to_path_buf(), &VERSION_2),
            _ if controllers.split(',').any(|name| name == "memory") => (root.join("memory"), &VERSION_1),
            _ => continue,
        };
        let mut group: PathBuf = path.trim_start_matches('/').into();
        loop {
            limits.extend(files.limit(&root.join(&group)));
            if !group.pop() {
                break;
            }
        }
    }
    limits
}

/// Names of a group's files.
struct Files {
    limits: &'static [&'static str],
    usage: &'static str,
    /// Line of `memory.stat` with the pages of files, which the system can take back.
    cache: &'static str,
}

const VERSION_1: Files =
    Files { limits: &["memory.limit_in_bytes"], usage: "memory.usage_in_bytes", cache: "total_cache" };
const VERSION_2: Files =
    Files { limits: &["memory.max", "memory.high"], usage: "memory.current", cache: "file" };

impl Files {
    /// Smallest limit of the group in the directory `dir`, if it has one.
    fn limit(&self, dir: &Path) -> Option<Limit> {
        let number = |name: &str| fs::read_to_string(dir.join(name)).ok()?.trim().parse::<u64>().ok();
        let bytes = self.limits.iter().filter_map(|name| number(name)).min()?;
        let stat = fs::read_to_string(dir.join("memory.stat")).unwrap_or_default();
        let mut lines = stat.lines().filter_map(|line| line.split_once(' '));
        let cache = lines.find(|(name, _)| *name == self.cache).and_then(|(_, n)| n.trim().parse().ok());
        Some(Limit { bytes, used: number(self.usage).unwrap_or(0).saturating_sub(cache.unwrap_or(0)) })
    }
}

/// Soft limit of the address space in bytes, in the text of `/proc/self/limits`.
fn address_space(text: &str) -> Option<u64> {
    let values = text.lines().find_map(|line| line.strip_prefix("Max address space"))?;
    values.split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(dir: &Path, files: &[(&str, &str)]) {
        fs::create_dir_all(dir).unwrap();
        files.iter().for_each(|(name, text)| fs::write(dir.join(name), text).unwrap());
    }

    #[test]
    fn the_limits_of_a_group_and_of_those_around_it_are_found() {
        let root = tempfile::tempdir().unwrap();
        let of = |bytes, used| Limit { bytes, used };
        let [job, parent] = ["jobs/one", "jobs"].map(|name| root.path().join(name));
        write(&job, &[("memory.max", "max\n"), ("memory.high", "3000\n"), ("memory.current", "900\n")]);
        write(
            &parent,
            &[
                ("memory.max", "5000\n"),
                ("memory.high", "max\n"),
                ("memory.current", "1000\n"),
                ("memory.stat", "anon 300\nfile 600\nfile_mapped 5\n"),
            ],
        );
        assert_eq!(of_groups("0::/jobs/one\n", root.path()), [of(3000, 900), of(5000, 400)]);
        // inside a container the group is the root
        write(root.path(), &[("memory.max", "700\n")]);
        assert_eq!(of_groups("0::/\n", root.path()), [of(700, 0)]);
        assert_eq!(of(700, 0).left(), 700);
        assert_eq!(of(700, 800).left(), 0);
        // version 1: the path of the host is missing in a container
        let memory = root.path().join("memory");
        write(
            &memory,
            &[
                ("memory.limit_in_bytes", "4096\n"),
                ("memory.usage_in_bytes", "96\n"),
                ("memory.stat", "cache 1\ntotal_cache 32\n"),
            ],
        );
        let text = "5:cpu,cpuacct:/docker/x\n4:hugetlb,memory:/docker/x\n1:name=systemd:/\n";
        assert_eq!(of_groups(text, root.path()), [of(4096, 64)]);
        for text in ["", "x", "0::/../..", "0:"] {
            let _ = of_groups(text, root.path());
        }
    }

    #[test]
    fn the_limit_of_the_address_space_is_read() {
        let text = "Limit                     Soft Limit           Hard Limit           Units     \n\
                    Max file size             1                    2                    bytes     \n\
                    Max address space         100000               unlimited            bytes     \n";
        assert_eq!(address_space(text), Some(100_000));
        assert_eq!(address_space(&text.replace("100000 ", "unlimited ")), None);
        assert_eq!(address_space(""), None);
    }
}
