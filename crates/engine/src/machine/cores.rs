//! Cores: which there are, and pools of threads that stay on some of them.

use graphmill_core::Error as GraphError;
use rayon::{ThreadPool, ThreadPoolBuilder};

use crate::{Error, Result};

/// The cores that this process may use, by number; empty where the system does not tell.
pub fn available() -> Vec<usize> {
    #[cfg(target_os = "linux")]
    if let Ok(set) = rustix::thread::sched_getaffinity(None) {
        return (0..rustix::thread::CpuSet::MAX_CPU).filter(|&core| set.is_set(core)).collect();
    }
    Vec::new()
}

/// Keeps this thread on those cores, where there are any and the system can.
fn pin(cores: &[usize]) {
    #[cfg(target_os = "linux")]
    if !cores.is_empty() {
        let mut set = rustix::thread::CpuSet::new();
        cores.iter().for_each(|&core| set.set(core));
        // a container may forbid it: the thread is then where the system puts it, which costs time
        // and nothing else
        let _ = rustix::thread::sched_setaffinity(None, &set);
    }
    #[cfg(not(target_os = "linux"))]
    let _ = cores;
}

/// A pool of so many threads, on those cores if any are named.
///
/// # Errors
/// The system refuses the threads.
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

/// Seconds of processor time that this process has used, all threads together.
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
    fn a_pool_stays_on_its_cores() {
        let all = available();
        let one = &all[..all.len().min(1)];
        let seen = pool("test", 2, one).unwrap().install(available);
        assert_eq!(seen, one);
        assert_eq!(available(), all, "this thread is where it was");
        let before = busy_seconds();
        let mut x = 0_u64;
        while busy_seconds() <= before {
            x = x.wrapping_add(1);
        }
        assert!(x > 0 || busy_seconds() > before);
    }
}
