//! Processor cores, and thread pools that are pinned to some of them.

use graphmill_core::Error as GraphError;
use rayon::{ThreadPool, ThreadPoolBuilder};

use crate::{Error, Result};

/// Numbers of the cores that this process may use; empty if the system does not report them.
pub fn available() -> Vec<usize> {
    #[cfg(target_os = "linux")]
    if let Ok(set) = rustix::thread::sched_getaffinity(None) {
        return (0..rustix::thread::CpuSet::MAX_CPU).filter(|&core| set.is_set(core)).collect();
    }
    Vec::new()
}

/// Pins this thread to `cores`, if the list is not empty and the system supports it.
fn pin(cores: &[usize]) {
    #[cfg(target_os = "linux")]
    if !cores.is_empty() {
        let mut set = rustix::thread::CpuSet::new();
        cores.iter().for_each(|&core| set.set(core));
        // a container may forbid it; an unpinned thread only costs time
        let _ = rustix::thread::sched_setaffinity(None, &set);
    }
    #[cfg(not(target_os = "linux"))]
    let _ = cores;
}

/// A pool of `threads` threads, pinned to `cores` unless the list is empty.
///
/// # Errors
/// The system cannot start the threads.
pub fn pool(name: &str, threads: usize, cores: &[usize]) -> Result<ThreadPool> {
    let (name, cores) = (name.to_string(), cores.to_vec());
    ThreadPoolBuilder::new()
        .num_threads(threads)
        .thread_name(move |i| format!("{name} {i}"))
        .start_handler(move |_| pin(&cores))
        .build()
        .map_err(|e| {
            let source = std::io::Error::other(e);
            Error::from(GraphError::io("threads", "start", source))
        })
}

/// Processor time of this process in seconds, summed over its threads; 0 if unsupported.
pub fn busy_seconds() -> f64 {
    #[cfg(unix)]
    {
        let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
        time.tv_sec as f64 + time.tv_nsec as f64 * 1e-9
    }
    #[cfg(not(unix))]
    0.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pool_threads_are_pinned_to_their_cores() {
        let all = available();
        let one = &all[..all.len().min(1)];
        let seen = pool("test", 2, one).unwrap().install(available);
        assert_eq!(seen, one);
        assert_eq!(available(), all, "the affinity of this thread is unchanged");
        let before = busy_seconds();
        let mut x = 0_u64;
        while busy_seconds() <= before {
            x = x.wrapping_add(1);
        }
        assert!(x > 0 || busy_seconds() > before);
    }
}
