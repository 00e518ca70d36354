//! A child process whose n-th system call of a kind fails, or which is killed there.
//!
//! The child is traced (ptrace(2)): at the entry of the chosen call its number is replaced by that
//! of no call, and at the exit the result by the error. A kill (SIGKILL) comes at the entry, with
//! the number replaced, or at the exit after a call that was made. Calls before [`MARK`] are left
//! alone: they belong to the loader and the start of the runtime, where nothing can be reported.

#![allow(unsafe_code, reason = "system calls")]

use std::{
    collections::HashSet,
    fs, io,
    os::unix::process::{CommandExt, ExitStatusExt},
    process::{Command, ExitStatus},
    ptr,
};

use anyhow::{Context, Result, bail};

/// The program's first own system call: it ignores SIGXFSZ.
const MARK: (i64, u64) = (libc::SYS_rt_sigaction, libc::SIGXFSZ as u64);

/// Calls that may act on descriptors by which the threads of a process wake each other.
const MESSAGES: &[i64] = &[
    libc::SYS_read,
    libc::SYS_readv,
    libc::SYS_write,
    libc::SYS_writev,
    libc::SYS_sendto,
    libc::SYS_recvfrom,
    libc::SYS_sendmsg,
    libc::SYS_recvmsg,
];

/// Kind of system calls, and the error with which one fails.
#[derive(Clone, Copy, Debug)]
pub(super) struct Kind {
    pub(super) name: &'static str,
    calls: &'static [i64],
    error: i32,
    /// True if a kill at such a call may tear what the program writes.
    pub(super) changes_files: bool,
    /// True if such calls fail in the long form only: they are many, or few rows make them.
    pub(super) is_long: bool,
}

/// Event at the chosen call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Effect {
    /// The call is not made and returns the error of its kind.
    Error,
    /// The process is killed instead of the call.
    KillBefore,
    /// The process is killed when the call has been made.
    KillAfter,
}

/// All kinds.
///
/// Others are left out. `futex` fails only for arguments that the standard library never passes,
/// and the library may not return then. `brk` has no error for the C library to see: a failed call
/// returns the old end. Reads and writes of the counters and socket pairs by which threads wake
/// each other (eventfd(2), socketpair(2)) fail only for arguments that the runtime of the service
/// never passes, and it may panic then. Results of `close`, `munmap` and calls on signals are of no
/// use to the program, which can only go on or end. Waiting calls (`poll`, `epoll_wait`,
/// `nanosleep`) are repeated by their callers.
pub(super) const KINDS: &[Kind] = &[
    kind("open", &[libc::SYS_openat, libc::SYS_open], libc::EIO),
    kind(
        "read",
        &[libc::SYS_read, libc::SYS_pread64, libc::SYS_readv, libc::SYS_preadv, libc::SYS_preadv2],
        libc::EIO,
    ),
    kind("list", &[libc::SYS_getdents64], libc::EIO),
    change(
        "write",
        &[libc::SYS_write, libc::SYS_pwrite64, libc::SYS_writev, libc::SYS_pwritev, libc::SYS_pwritev2],
        libc::ENOSPC,
    ),
    change("copy", &[libc::SYS_copy_file_range, libc::SYS_sendfile], libc::EIO),
    change("sync", &[libc::SYS_fsync, libc::SYS_fdatasync, libc::SYS_msync], libc::EIO),
    change("rename", &[libc::SYS_rename, libc::SYS_renameat, libc::SYS_renameat2], libc::EIO),
    change("link", &[libc::SYS_link, libc::SYS_linkat, libc::SYS_symlink, libc::SYS_symlinkat], libc::EIO),
    change("mkdir", &[libc::SYS_mkdir, libc::SYS_mkdirat], libc::ENOSPC),
    change("remove", &[libc::SYS_unlink, libc::SYS_unlinkat, libc::SYS_rmdir], libc::EIO),
    change("size", &[libc::SYS_ftruncate, libc::SYS_fallocate], libc::ENOSPC),
    kind("stat", &[libc::SYS_statx, libc::SYS_newfstatat, libc::SYS_fstat], libc::EIO),
    kind("space", &[libc::SYS_statfs, libc::SYS_fstatfs], libc::EIO),
    kind("seek", &[libc::SYS_lseek], libc::EIO),
    kind("lock", &[libc::SYS_flock], libc::ENOLCK),
    // large allocations and maps of files
    kind("map", &[libc::SYS_mmap], libc::ENOMEM),
    kind("remap", &[libc::SYS_mremap], libc::ENOMEM),
    // starts of threads; no program is started
    kind("thread", &[libc::SYS_clone3, libc::SYS_clone], libc::EAGAIN),
    // hints to the kernel, and ends of regions that the allocator or a thread extends
    long("advise", &[libc::SYS_madvise, libc::SYS_fadvise64], libc::EINVAL),
    long("protect", &[libc::SYS_mprotect], libc::ENOMEM),
    long("mode", &[libc::SYS_chmod, libc::SYS_fchmod, libc::SYS_fchmodat], libc::EPERM),
    long("resolve", &[libc::SYS_readlink, libc::SYS_readlinkat], libc::EIO),
    long("access", &[libc::SYS_access, libc::SYS_faccessat, libc::SYS_faccessat2], libc::EACCES),
    long("descriptor", &[libc::SYS_fcntl, libc::SYS_dup, libc::SYS_dup2, libc::SYS_dup3], libc::EMFILE),
    // as filters of containers answer; the standard library then reads /dev/urandom
    long("random", &[libc::SYS_getrandom], libc::ENOSYS),
    long(
        "ring",
        &[libc::SYS_io_uring_setup, libc::SYS_io_uring_enter, libc::SYS_io_uring_register],
        libc::EIO,
    ),
    long(
        "socket",
        &[
            libc::SYS_socket,
            libc::SYS_bind,
            libc::SYS_listen,
            libc::SYS_accept4,
            libc::SYS_connect,
            libc::SYS_sendto,
            libc::SYS_recvfrom,
            libc::SYS_sendmsg,
            libc::SYS_recvmsg,
        ],
        libc::ENOBUFS,
    ),
];

const fn kind(name: &'static str, calls: &'static [i64], error: i32) -> Kind {
    Kind { name, calls, error, changes_files: false, is_long: false }
}

/// Kind of calls that change files.
const fn change(name: &'static str, calls: &'static [i64], error: i32) -> Kind {
    Kind { changes_files: true, ..kind(name, calls, error) }
}

/// Kind of calls that fail in the long form only.
const fn long(name: &'static str, calls: &'static [i64], error: i32) -> Kind {
    Kind { is_long: true, ..kind(name, calls, error) }
}

/// Event at a system call: the `number`-th of a kind, from 1.
#[derive(Clone, Copy, Debug)]
pub(super) struct Fault {
    pub(super) kind: Kind,
    pub(super) number: u64,
    pub(super) effect: Effect,
}

/// End of a traced process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    Status(i32),
    Signal(i32),
}

impl End {
    /// End of a process that was not traced.
    pub(super) fn of(status: ExitStatus) -> Self {
        match status.code() {
            Some(code) => Self::Status(code),
            None => Self::Signal(status.signal().unwrap_or_default()),
        }
    }
}

/// Returns false if this process may not trace its children, as in some containers.
pub(super) fn is_permitted() -> Result<bool> {
    let fault = Fault { kind: KINDS[0], number: u64::MAX, effect: Effect::Error };
    match run(&mut Command::new("true"), fault, &|_| {}) {
        Ok(_) => Ok(true),
        Err(error) => match error.downcast_ref::<io::Error>().map(io::Error::kind) {
            Some(io::ErrorKind::PermissionDenied) => Ok(false),
            _ => Err(error),
        },
    }
}

/// Runs `command` with `fault` and returns how it ended, and whether it came to the fault.
/// `started` receives the process. Only one process may be traced at a time, and the caller may
/// have no other children.
pub(super) fn run(command: &mut Command, fault: Fault, started: &dyn Fn(u32)) -> Result<(End, bool)> {
    // SAFETY: between fork and exec the closure calls ptrace only, which is safe there.
    unsafe {
        command.pre_exec(|| match libc::ptrace(libc::PTRACE_TRACEME, 0, ptr::null_mut::<u8>(), 0) {
            -1 => Err(io::Error::last_os_error()),
            _ => Ok(()),
        });
    }
    let child = command.spawn().context("cannot start the program")?;
    started(child.id());
    let leader = child.id().cast_signed();
    let tracer = Tracer {
        fault,
        leader,
        counted: 0,
        is_marked: false,
        is_hit: false,
        inside: HashSet::new(),
        injected: None,
    };
    tracer.follow()
}

struct Tracer {
    fault: Fault,
    leader: i32,
    /// Calls of the kind so far.
    counted: u64,
    is_marked: bool,
    is_hit: bool,
    /// Threads between the entry and the exit of a call.
    inside: HashSet<i32>,
    /// Thread that is in the chosen call.
    injected: Option<i32>,
}

impl Tracer {
    fn follow(mut self) -> Result<(End, bool)> {
        let leader = self.leader;
        let (mut thread, mut status) = wait(leader)?;
        if thread != leader || !libc::WIFSTOPPED(status) {
            bail!("the program did not stop at its start");
        }
        let options = libc::PTRACE_O_TRACESYSGOOD
            | libc::PTRACE_O_TRACECLONE
            | libc::PTRACE_O_TRACEFORK
            | libc::PTRACE_O_EXITKILL;
        trace(libc::PTRACE_SETOPTIONS, leader, options as usize)?;
        resume(leader, 0);
        loop {
            (thread, status) = wait(-1)?;
            if thread == leader && libc::WIFEXITED(status) {
                return Ok((End::Status(libc::WEXITSTATUS(status)), self.is_hit));
            }
            if thread == leader && libc::WIFSIGNALED(status) {
                return Ok((End::Signal(libc::WTERMSIG(status)), self.is_hit));
            }
            if !libc::WIFSTOPPED(status) {
                continue;
            }
            let signal = libc::WSTOPSIG(status);
            let passed = match signal {
                _ if signal == libc::SIGTRAP | 0x80 => {
                    // a thread that is killed meanwhile has no registers
                    let _ = self.on_call(thread);
                    0
                }
                // events of tracing, and the first stop of a new thread
                libc::SIGTRAP | libc::SIGSTOP => 0,
                signal => signal,
            };
            resume(thread, passed);
        }
    }

    /// Handles the entry or the exit of a system call.
    fn on_call(&mut self, thread: i32) -> Result<()> {
        let mut registers = registers(thread)?;
        if !self.inside.insert(thread) {
            self.inside.remove(&thread);
            if self.injected == Some(thread) {
                self.injected = None;
                if self.fault.effect == Effect::KillAfter {
                    return self.kill();
                }
                registers.rax = i64::from(-self.fault.kind.error).cast_unsigned();
                return set_registers(thread, &registers);
            }
            return Ok(());
        }
        let call = registers.orig_rax.cast_signed();
        if !self.is_marked {
            self.is_marked = (call, registers.rdi) == MARK;
            return Ok(());
        }
        // messages about the fault must arrive
        let is_message = call == libc::SYS_write && registers.rdi == libc::STDERR_FILENO as u64;
        if is_message || !self.fault.kind.calls.contains(&call) {
            return Ok(());
        }
        if MESSAGES.contains(&call) && wakes_threads(self.leader, registers.rdi) {
            return Ok(());
        }
        self.counted += 1;
        if self.counted == self.fault.number {
            self.is_hit = true;
            self.injected = Some(thread);
            if self.fault.effect != Effect::KillAfter {
                registers.orig_rax = u64::MAX;
                set_registers(thread, &registers)?;
            }
            if self.fault.effect == Effect::KillBefore {
                self.kill()?;
            }
        }
        Ok(())
    }

    /// Kills all threads of the process.
    fn kill(&self) -> Result<()> {
        // SAFETY: sends a signal to the child, which has not been waited for to its end.
        match unsafe { libc::kill(self.leader, libc::SIGKILL) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()).context("cannot kill the program"),
        }
    }
}

/// Returns true if the threads of a process wake each other by this descriptor: a counter, or a
/// socket of a pair.
fn wakes_threads(process: i32, descriptor: u64) -> bool {
    let Ok(target) = fs::read_link(format!("/proc/{process}/fd/{descriptor}")) else { return false };
    let target = target.to_string_lossy();
    let socket = target.strip_prefix("socket:[").and_then(|rest| rest.strip_suffix(']'));
    let is_local = |number: &str| {
        let sockets = fs::read_to_string(format!("/proc/{process}/net/unix")).unwrap_or_default();
        sockets.lines().any(|line| line.split_whitespace().nth(6) == Some(number))
    };
    target == "anon_inode:[eventfd]" || socket.is_some_and(is_local)
}

/// Waits for a change of one traced thread, or of any if `thread` is -1.
fn wait(thread: i32) -> Result<(i32, i32)> {
    let mut status = 0;
    // SAFETY: the status is valid for writing.
    let changed = unsafe { libc::waitpid(thread, &raw mut status, libc::__WALL) };
    if changed < 0 {
        return Err(io::Error::last_os_error()).context("cannot wait for the traced program");
    }
    Ok((changed, status))
}

/// Makes a request without data to read.
fn trace(request: libc::c_uint, thread: i32, data: usize) -> Result<()> {
    // SAFETY: these requests take an integer and read no memory.
    let done = unsafe { libc::ptrace(request, thread, ptr::null_mut::<u8>(), data) };
    if done < 0 {
        return Err(io::Error::last_os_error()).context("cannot trace the program");
    }
    Ok(())
}

/// Lets a thread run to its next system call, with `signal`. A thread that was killed does not.
fn resume(thread: i32, signal: i32) {
    let _ = trace(libc::PTRACE_SYSCALL, thread, signal as usize);
}

fn registers(thread: i32) -> Result<libc::user_regs_struct> {
    // SAFETY: all-zero registers are valid, and the kernel writes no more than the structure.
    unsafe {
        let mut registers: libc::user_regs_struct = std::mem::zeroed();
        let to = &raw mut registers;
        if libc::ptrace(libc::PTRACE_GETREGS, thread, ptr::null_mut::<u8>(), to) < 0 {
            return Err(io::Error::last_os_error()).context("cannot read registers");
        }
        Ok(registers)
    }
}

fn set_registers(thread: i32, registers: &libc::user_regs_struct) -> Result<()> {
    // SAFETY: the kernel reads the structure.
    let done = unsafe {
        libc::ptrace(libc::PTRACE_SETREGS, thread, ptr::null_mut::<u8>(), ptr::from_ref(registers))
    };
    if done < 0 {
        return Err(io::Error::last_os_error()).context("cannot write registers");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_call_has_one_kind() {
        let mut calls: Vec<i64> = KINDS.iter().flat_map(|kind| kind.calls).copied().collect();
        let count = calls.len();
        calls.sort_unstable();
        calls.dedup();
        assert_eq!(calls.len(), count);
        let mut names: Vec<&str> = KINDS.iter().map(|kind| kind.name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), KINDS.len(), "--attack names a kind");
        assert!(!KINDS.iter().any(|kind| kind.is_long && kind.changes_files), "kills belong to both forms");
    }
}
