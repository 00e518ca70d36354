//! A child process whose n-th system call of a kind fails.
//!
//! The child is traced (ptrace(2)): at the entry of the chosen call its number is replaced by that
//! of no call, and at the exit the result by the error. Calls before [`MARK`] are left alone: they
//! belong to the loader and the start of the runtime, where nothing can be reported.

#![allow(unsafe_code, reason = "system calls")]

use std::{
    collections::HashSet,
    io,
    os::unix::process::CommandExt,
    process::{Child, Command},
    ptr,
};

use anyhow::{Context, Result, bail};

/// The program's first own system call: it ignores SIGXFSZ.
const MARK: (i64, u64) = (libc::SYS_rt_sigaction, libc::SIGXFSZ as u64);

/// Kind of system calls, and the error with which one fails.
#[derive(Clone, Copy, Debug)]
pub(super) struct Kind {
    pub(super) name: &'static str,
    calls: &'static [i64],
    error: i32,
}

/// All kinds.
pub(super) const KINDS: &[Kind] = &[
    Kind { name: "open", calls: &[libc::SYS_openat, libc::SYS_open], error: libc::EIO },
    Kind {
        name: "read",
        calls: &[libc::SYS_read, libc::SYS_pread64, libc::SYS_copy_file_range],
        error: libc::EIO,
    },
    Kind {
        name: "write",
        calls: &[libc::SYS_write, libc::SYS_pwrite64, libc::SYS_writev],
        error: libc::ENOSPC,
    },
    Kind { name: "sync", calls: &[libc::SYS_fsync, libc::SYS_fdatasync], error: libc::EIO },
    Kind {
        name: "rename",
        calls: &[libc::SYS_rename, libc::SYS_renameat, libc::SYS_renameat2],
        error: libc::EIO,
    },
    Kind { name: "mkdir", calls: &[libc::SYS_mkdir, libc::SYS_mkdirat], error: libc::ENOSPC },
    Kind {
        name: "remove",
        calls: &[libc::SYS_unlink, libc::SYS_unlinkat, libc::SYS_rmdir],
        error: libc::EIO,
    },
    Kind { name: "size", calls: &[libc::SYS_ftruncate, libc::SYS_fallocate], error: libc::ENOSPC },
    Kind { name: "stat", calls: &[libc::SYS_statx, libc::SYS_newfstatat], error: libc::EIO },
    Kind { name: "lock", calls: &[libc::SYS_flock], error: libc::ENOLCK },
    // large allocations and maps of files
    Kind { name: "map", calls: &[libc::SYS_mmap], error: libc::ENOMEM },
];

/// System call that fails: the `number`-th of a kind, from 1.
#[derive(Clone, Copy, Debug)]
pub(super) struct Fault {
    pub(super) kind: Kind,
    pub(super) number: u64,
}

/// End of a traced process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    Status(i32),
    Signal(i32),
}

/// Returns false if this process may not trace its children, as in some containers.
pub(super) fn is_permitted() -> Result<bool> {
    let fault = Fault { kind: KINDS[0], number: u64::MAX };
    match run(&mut Command::new("true"), fault) {
        Ok(_) => Ok(true),
        Err(error) => match error.downcast_ref::<io::Error>().map(io::Error::kind) {
            Some(io::ErrorKind::PermissionDenied) => Ok(false),
            _ => Err(error),
        },
    }
}

/// Runs `command` with `fault` and returns how it ended, and whether it came to the fault. Only one
/// process may be traced at a time, and the caller may have no other children.
pub(super) fn run(command: &mut Command, fault: Fault) -> Result<(End, bool)> {
    // SAFETY: between fork and exec the closure calls ptrace only, which is safe there.
    unsafe {
        command.pre_exec(|| match libc::ptrace(libc::PTRACE_TRACEME, 0, ptr::null_mut::<u8>(), 0) {
            -1 => Err(io::Error::last_os_error()),
            _ => Ok(()),
        });
    }
    let child = command.spawn().context("cannot start the program")?;
    Tracer { fault, counted: 0, is_marked: false, is_hit: false, inside: HashSet::new(), injected: None }
        .follow(&child)
}

struct Tracer {
    fault: Fault,
    /// Calls of the kind so far.
    counted: u64,
    is_marked: bool,
    is_hit: bool,
    /// Threads between the entry and the exit of a call.
    inside: HashSet<i32>,
    /// Thread whose present call fails.
    injected: Option<i32>,
}

impl Tracer {
    fn follow(mut self, child: &Child) -> Result<(End, bool)> {
        let leader = child.id().cast_signed();
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
        self.counted += 1;
        if self.counted == self.fault.number {
            self.is_hit = true;
            self.injected = Some(thread);
            registers.orig_rax = u64::MAX;
            set_registers(thread, &registers)?;
        }
        Ok(())
    }
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
