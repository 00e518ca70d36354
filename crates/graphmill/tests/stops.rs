//! SIGTERM and Ctrl-C in the long work before the first epoch, and in libraries that handle signals
//! themselves: the command ends promptly with the status of the signal.

#![allow(unsafe_code, reason = "system calls")]

use std::{
    io::{BufRead, BufReader},
    process::{Child, Stdio},
    thread,
    time::{Duration, Instant},
};

use crate::common::Sandbox;

/// Longest time from a signal to the end of the process, on a machine that other tests load.
const PROMPT: Duration = Duration::from_secs(20);

/// Starts a command whose errors are read.
fn start(sandbox: &Sandbox, command: &str) -> Child {
    let mut command = sandbox.command(command);
    command.env("GRAPHMILL_PROGRESS", "plain").stderr(Stdio::piped()).stdout(Stdio::null());
    command.spawn().unwrap()
}

/// Sends a signal to the process, waits for its end and returns the status. Fails if the process
/// needs long.
fn signal(child: &mut Child, number: i32) -> Option<i32> {
    // SAFETY: kill(2) takes plain numbers; the process is our child, not yet waited for.
    unsafe { libc::kill(child.id() as i32, number) };
    let began = Instant::now();
    loop {
        if let Some(status) = child.try_wait().unwrap() {
            return status.code();
        }
        if began.elapsed() > PROMPT {
            child.kill().unwrap();
            panic!("the process ignores the signal");
        }
        thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn signals_end_the_work_before_the_first_epoch() {
    let sandbox = Sandbox::new();
    sandbox.ok("generate sbm data --nodes 30000 --classes 3 --feature-dim 4");
    for (options, stage, number) in [
        ("--sampler saint-node --sample-coverage 1000000", "counting subgraphs", libc::SIGTERM),
        (
            "--cache presc:1000 --cache-ratio 0.1 --devices virtual:1 --batch-size 8",
            "ranking the nodes",
            libc::SIGINT,
        ),
    ] {
        let command = format!("train data --hidden 4 --epochs 1 --out run {options}");
        let mut child = start(&sandbox, &command);
        let mut lines = BufReader::new(child.stderr.take().unwrap()).lines().map(Result::unwrap);
        // the stage is announced once it has taken a second
        let announced = lines.find(|line| line.contains(stage));
        assert!(announced.is_some(), "{options}: no '{stage}'");
        assert_eq!(signal(&mut child, number), Some(128 + number), "{options}");
        let rest: Vec<String> = lines.collect();
        assert!(rest.iter().any(|line| line.contains("stopped before the first epoch")), "{rest:?}");
        assert!(!sandbox.path("run/checkpoint").exists(), "{options}");
    }
    // the directory is free for the next run
    sandbox.ok("train data --hidden 4 --epochs 1 --out run");
}

#[test]
fn signals_end_partitioning_by_metis() {
    let sandbox = Sandbox::new();
    sandbox.ok("generate sbm data --nodes 200000 --classes 3 --feature-dim 0 --degree 24");
    for number in [libc::SIGTERM, libc::SIGINT] {
        let mut child = start(&sandbox, "partition data parts --method metis --parts 64");
        thread::sleep(Duration::from_millis(1500));
        assert_eq!(signal(&mut child, number), Some(128 + number));
        let errors = BufReader::new(child.stderr.take().unwrap()).lines().map(Result::unwrap);
        let errors: Vec<String> = errors.collect();
        assert!(errors.iter().any(|line| line.contains("stopped")), "{errors:?}");
        assert!(!errors.iter().any(|line| line.contains("METIS failed")), "{errors:?}");
        assert!(!sandbox.path("parts").exists());
    }
}
