//! Ranks that are killed or stopped at random moments.

use std::{
    env, fs,
    path::Path,
    process::{Child, Output},
    thread,
    time::{Duration, Instant},
};

use graphmill_core::keyed::Stream;

use super::{TIMEOUT, datasets, end, losses, mpirun, pid_of_rank, send, train};

/// Number of runs, without and with `GRAPHMILL_SOAK`.
const RUNS: [u64; 2] = [3, 200];
/// Time within which the ranks meet, and a run ends thereafter.
const LIMIT: Duration = Duration::from_secs(60 + TIMEOUT.as_secs());
/// Time within which the launcher ends a process whose job has failed.
const ALONE: Duration = Duration::from_secs(5);
const OPTIONS: &str = "--epochs 6 --peer-timeout 1 --checkpoint-batches 3";

/// A signal to a rank of a run.
#[derive(Debug)]
struct Moment {
    signal: &'static str,
    rank: usize,
    /// Time between the start of the processes, or of the training, and the signal.
    after: Duration,
    in_training: bool,
}

impl Moment {
    /// Draws a moment of a run that usually takes this long.
    fn draw(usual: Duration, in_training: bool, stream: &mut Stream) -> Self {
        let signal = if stream.below(2) == 0 { "-KILL" } else { "-STOP" };
        let after = usual.mul_f64(stream.uniform() * if in_training { 0.7 } else { 1.0 });
        Self { signal, rank: stream.below(2) as usize, after, in_training }
    }

    /// Sends the signal, if the run has not ended before, and waits for the end of the run.
    fn disturb(&self, mut run: Child, out: &Path) -> Output {
        let began = Instant::now();
        let (mut pid, mut since) = (None, (!self.in_training).then_some(began));
        while pid.is_none() || since.is_none_or(|since| since.elapsed() < self.after) {
            if since.is_none() && out.join("dataset.json").is_file() {
                since = Some(Instant::now());
            }
            if run.try_wait().unwrap().is_some() {
                return run.wait_with_output().unwrap();
            }
            pid = pid.or_else(|| pid_of_rank(out, self.rank));
            thread::sleep(Duration::from_millis(1));
        }
        let pid = pid.expect("looked for until found");
        send(self.signal, pid);
        let mut alone = None;
        while run.try_wait().unwrap().is_none() {
            // A rank that was stopped after both had parted: the launcher waits for it.
            if alone.is_none() && pid_of_rank(out, 1 - self.rank).is_none() {
                alone = Some(Instant::now());
            }
            if alone.is_some_and(|since| since.elapsed() > ALONE) && out.join("summary.json").is_file() {
                send("-CONT", pid);
            }
            if began.elapsed() > LIMIT {
                send("-KILL", pid);
                run.kill().unwrap();
                panic!("the run hangs: {self:?}");
            }
            thread::sleep(Duration::from_millis(20));
        }
        run.wait_with_output().unwrap()
    }
}

#[test]
fn runs_whose_ranks_are_killed_or_stopped_end_and_resume_to_the_same_bits() {
    let dir = tempfile::tempdir().unwrap();
    let [_, parts] = datasets(dir.path());
    let start = |out: &Path| mpirun(2, &train(&parts, out, OPTIONS)).spawn().unwrap();
    let began = Instant::now();
    let expected = losses(&end(start(&dir.path().join("reference"))));
    let usual = began.elapsed();

    let mut stream = Stream::new(1);
    let mut ended = [0, 0];
    let soaks = env::var_os("GRAPHMILL_SOAK").is_some();
    for number in 0..RUNS[usize::from(soaks)] {
        // Ranks that have not met wait for a minute.
        let moment = Moment::draw(usual, !soaks || number % 2 == 0, &mut stream);
        let out = dir.path().join(number.to_string());
        let output = moment.disturb(start(&out), &out);
        let text = String::from_utf8_lossy(&output.stderr);
        println!("{moment:?}: {:?}\n{text}", output.status);
        ended[usize::from(output.status.success())] += 1;
        if output.status.success() {
            assert_eq!(losses(&output), expected, "{moment:?}");
            continue;
        }
        assert!(!text.contains("panicked"), "{moment:?}: {text}");
        let again = if out.join("config.toml").is_file() {
            let words = ["train", "--resume", "--json", "--out", out.to_str().unwrap()];
            mpirun(2, &words.map(str::to_string)).spawn().unwrap()
        } else {
            start(&out)
        };
        assert_eq!(losses(&end(again)), expected, "{moment:?}");
        fs::remove_dir_all(&out).unwrap();
    }
    println!("{} runs failed, {} completed", ended[0], ended[1]);
}
