//! Limits of containers, under which every command must give the same bytes as without them.

#![allow(unsafe_code, reason = "system calls")]

use std::{io, os::unix::process::CommandExt, path::Path, process::Command};

use anyhow::{Context, Result};

/// Exit status of a script that cannot set up its limit here.
pub(super) const IMPOSSIBLE: i32 = 125;

/// Limit of a container.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limit {
    pub(super) name: &'static str,
    setup: Setup,
}

/// Way in which a limit is set.
#[derive(Clone, Copy, Debug)]
enum Setup {
    /// Shell commands in a mount namespace of their own, before the program.
    Shell(&'static str),
    /// A control group: its controller, the file and value of version 1, and those of version 2.
    Group { controller: &'static str, v1: (&'static str, &'static str), v2: (&'static str, &'static str) },
    /// System calls of io_uring are not permitted.
    NoRing,
    /// The process gets no transparent huge pages.
    NoHugePages,
}

/// All limits. The working directory of a shell has the inputs and takes the result.
pub(super) const LIMITS: &[Limit] = &[
    shell("no /proc/meminfo", "mount --bind /dev/null /proc/meminfo"),
    shell("no /proc", "mount -t tmpfs tmpfs /proc"),
    shell("no /sys", "mount -t tmpfs tmpfs /sys"),
    shell("4 KiB of shared memory", "mount -t tmpfs -o size=4k tmpfs /dev/shm"),
    shell("a read-only dataset", "mount --bind data data && mount -o remount,ro,bind data"),
    shell("a read-only root", "mount --bind . . && mount -o remount,ro,bind / && cd \"$PWD\""),
    shell("no directory for temporary files", "export TMPDIR=/nonexistent"),
    shell("64 open files", "ulimit -n 64"),
    shell("one core", "taskset -p -c 0 $$ >/dev/null"),
    Limit {
        name: "128 MiB of memory",
        setup: Setup::Group {
            controller: "memory",
            v1: ("memory.limit_in_bytes", "128M"),
            v2: ("memory.max", "128M"),
        },
    },
    Limit {
        name: "half the time of a core",
        setup: Setup::Group {
            controller: "cpu",
            v1: ("cpu.cfs_quota_us", "50000"),
            v2: ("cpu.max", "50000 100000"),
        },
    },
    Limit { name: "no io_uring", setup: Setup::NoRing },
    Limit { name: "no huge pages", setup: Setup::NoHugePages },
];

const fn shell(name: &'static str, script: &'static str) -> Limit {
    Limit { name, setup: Setup::Shell(script) }
}

/// Arguments of unshare(1) with which this process may make a mount namespace, if it may.
pub(super) fn namespace() -> Option<&'static str> {
    ["--mount", "--mount --map-root-user"].into_iter().find(|arguments| {
        let words = arguments.split(' ').chain(["mount", "-t", "tmpfs", "tmpfs", "/sys"]);
        Command::new("unshare").args(words).output().is_ok_and(|output| output.status.success())
    })
}

impl Limit {
    /// Command that runs `program` under this limit, in a mount namespace that `namespace` makes.
    pub(super) fn command(&self, program: &Path, namespace: &str) -> Result<Command> {
        let script = match self.setup {
            Setup::Shell(script) => format!("{{ {script}; }} || exit {IMPOSSIBLE}; exec \"$0\" \"$@\""),
            Setup::Group { controller, v1, v2 } => group(controller, v1, v2),
            Setup::NoRing => return Ok(restricted(program, forbid_rings)),
            Setup::NoHugePages => return Ok(restricted(program, forbid_huge_pages)),
        };
        let mut command = Command::new("unshare");
        command.args(namespace.split(' ')).args(["sh", "-c", &script]);
        command.arg(program.to_str().context("the program's path is not UTF-8")?);
        Ok(command)
    }
}

/// Script that runs the program in a new control group, which it removes at the end. The signal
/// that ends a service does not end the script.
fn group(controller: &str, v1: (&str, &str), v2: (&str, &str)) -> String {
    format!(
        "root=/sys/fs/cgroup; file={}; value='{}'
if [ -d $root/{controller} ]; then root=$root/{controller}; file={}; value='{}'; fi
mkdir $root/graphmill-$$ 2>/dev/null || exit {IMPOSSIBLE}
group=$root/graphmill-$$
trap '' TERM
status={IMPOSSIBLE}
if (echo \"$value\" > $group/$file && echo $$ > $group/cgroup.procs) 2>/dev/null; then
    \"$0\" \"$@\"
    status=$?
fi
echo $$ > $root/cgroup.procs; rmdir $group
exit $status",
        v2.0, v2.1, v1.0, v1.1
    )
}

/// `program` after `restrict`, which must be safe between fork and exec.
fn restricted(program: &Path, restrict: fn() -> io::Result<()>) -> Command {
    let mut command = Command::new(program);
    // SAFETY: the functions of this module call prctl with constants and memory of their own stack
    // only, which is safe between fork and exec.
    unsafe { command.pre_exec(restrict) };
    command
}

/// Lets the program end with this process, however it ends.
pub(super) fn end_with_parent(command: &mut Command) {
    let restrict = || control(libc::PR_SET_PDEATHSIG, libc::SIGKILL as libc::c_ulong, 0);
    // SAFETY: calls prctl with constants only, which is safe between fork and exec.
    unsafe { command.pre_exec(restrict) };
}

/// Calls prctl(2) and returns its error.
fn control(option: i32, first: libc::c_ulong, second: libc::c_ulong) -> io::Result<()> {
    // SAFETY: the callers pass what the option takes: numbers, or a program that outlives the call.
    match unsafe { libc::prctl(option, first, second, 0, 0) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Lets the system calls of io_uring fail as containers do, by a filter that the program inherits.
fn forbid_rings() -> io::Result<()> {
    let statement = |code: u32, k: u32| libc::sock_filter { code: code as u16, jt: 0, jf: 0, k };
    let is_call = |number: libc::c_long, skip: u8| libc::sock_filter {
        code: (libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K) as u16,
        jt: skip,
        jf: 0,
        k: number as u32,
    };
    let mut filter = [
        statement(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0), // number of the call
        is_call(libc::SYS_io_uring_setup, 3),
        is_call(libc::SYS_io_uring_enter, 2),
        is_call(libc::SYS_io_uring_register, 1),
        statement(libc::BPF_RET | libc::BPF_K, libc::SECCOMP_RET_ALLOW),
        statement(libc::BPF_RET | libc::BPF_K, libc::SECCOMP_RET_ERRNO | libc::EPERM as u32),
    ];
    let program = libc::sock_fprog { len: filter.len() as u16, filter: filter.as_mut_ptr() };
    control(libc::PR_SET_NO_NEW_PRIVS, 1, 0)?;
    let mode = libc::SECCOMP_MODE_FILTER as libc::c_ulong;
    control(libc::PR_SET_SECCOMP, mode, &raw const program as libc::c_ulong)
}

/// Forbids transparent huge pages to this process and its program.
fn forbid_huge_pages() -> io::Result<()> {
    control(libc::PR_SET_THP_DISABLE, 1, 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Output of a program under the limit of this name; `None` if it cannot be set here.
    fn prints(name: &str, program: &str, arguments: &[&str]) -> Option<String> {
        let limit = LIMITS.iter().find(|limit| limit.name == name).expect("a limit of this name");
        let mut command = limit.command(Path::new(program), namespace()?).unwrap();
        let output = command.args(arguments).output().unwrap();
        if output.status.code() == Some(IMPOSSIBLE) {
            return None;
        }
        assert!(output.status.success(), "{name}: {output:?}");
        Some(String::from_utf8(output.stdout).unwrap())
    }

    #[test]
    fn limits_hold_for_the_program() {
        let shell = |name, script| prints(name, "/bin/sh", &["-c", script]);
        let is = |found: Option<String>, expected: &str| {
            assert!(found.as_deref().is_none_or(|text| text.trim() == expected), "{found:?}");
        };
        is(shell("no /proc/meminfo", "cat /proc/meminfo"), "");
        is(shell("no /proc", "ls /proc"), "");
        is(shell("no /sys", "ls /sys"), "");
        is(shell("64 open files", "ulimit -n"), "64");
        is(shell("one core", "nproc"), "1");
        is(shell("no directory for temporary files", "echo $TMPDIR"), "/nonexistent");
        let status = |name| prints(name, "/bin/cat", &["/proc/self/status"]);
        assert!(status("no io_uring").is_none_or(|text| text.contains("Seccomp:\t2")));
        assert!(status("no huge pages").is_none_or(|text| text.contains("THP_enabled:\t0")));
    }

    #[test]
    fn groups_are_removed_and_give_the_program_s_status() {
        let Some(namespace) = namespace() else { return };
        let limit = LIMITS.iter().find(|limit| limit.name == "128 MiB of memory").unwrap();
        let mut command = limit.command(Path::new("/bin/sh"), namespace).unwrap();
        let output = command.args(["-c", "grep -o 'graphmill-[0-9]*' /proc/self/cgroup; exit 7"]).output();
        let output = output.unwrap();
        if output.status.code() == Some(IMPOSSIBLE) {
            return;
        }
        assert_eq!(output.status.code(), Some(7), "{output:?}");
        let group = String::from_utf8(output.stdout).unwrap();
        assert!(group.starts_with("graphmill-"), "{group}");
        for root in ["/sys/fs/cgroup", "/sys/fs/cgroup/memory"] {
            assert!(!Path::new(root).join(group.trim()).exists(), "{root}/{group}");
        }
    }
}
