//! Processes in network namespaces, each connected to a bridge by a rate-limited link.

use std::{fs, os::unix::fs::PermissionsExt, path::Path, process::Command};

use anyhow::{Context, Result, bail};

use super::{Options, mpirun, of_epochs, plan, text};

/// Number of processes: as many as cores, so that each has its own.
const COUNT: usize = 2;
/// Default links in megabits a second.
pub(super) const SPEEDS: [u32; 5] = [50, 100, 200, 500, 1000];
/// Number of warm-up epochs.
const WARM: usize = 1;

/// Runs a setup command.
fn sh(script: &str) -> Result<()> {
    let output = Command::new("sh").args(["-ec", script]).output()?;
    if !output.status.success() {
        bail!("{script}: {} (needs root, ip and tc)", String::from_utf8_lossy(&output.stderr));
    }
    Ok(())
}

/// Namespaces that are removed when this value is dropped.
struct Namespaces;

impl Namespaces {
    fn new(megabits: u32) -> Result<Self> {
        let these = Self;
        these.remove();
        sh("ip link add gmbr type bridge; ip addr add 10.99.0.254/24 dev gmbr; ip link set gmbr up")?;
        for i in 0..COUNT {
            let address = i + 1;
            // A queue of a few round trips; both directions are limited.
            let limit = format!("root tbf rate {megabits}mbit burst 128kb latency 100ms");
            sh(&format!(
                "ip netns add gm{i}
                 ip link add gmv{i} type veth peer name eth0 netns gm{i}
                 ip link set gmv{i} master gmbr up
                 ip netns exec gm{i} ip addr add 10.99.0.{address}/24 dev eth0
                 ip netns exec gm{i} ip link set eth0 up
                 ip netns exec gm{i} ip link set lo up
                 tc qdisc add dev gmv{i} {limit}
                 ip netns exec gm{i} tc qdisc add dev eth0 {limit}"
            ))?;
        }
        Ok(these)
    }

    fn remove(&self) {
        let ends = (0..COUNT).map(|i| format!("ip netns del gm{i}; ip link del gmv{i};")).collect::<String>();
        let _ = Command::new("sh").args(["-c", &format!("{ends} ip link del gmbr")]).output();
    }
}

impl Drop for Namespaces {
    fn drop(&mut self) {
        self.remove();
    }
}

/// Writes a substitute for `ssh` that enters the host's namespace under a name of its own.
fn agent(dir: &Path) -> Result<String> {
    let path = dir.join("agent.sh");
    let script = "#!/bin/sh\nhost=$1; shift\ni=$(( ${host##*.} - 1 ))\n\
                  exec ip netns exec gm$i unshare -u sh -c \"hostname gm$i; $*\"\n";
    fs::write(&path, script)?;
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755))?;
    Ok(text(&path)?.to_string())
}

/// Seconds of an epoch: the minimum after the first.
fn seconds(run: &serde_json::Value) -> f64 {
    of_epochs(run, "seconds").into_iter().skip(WARM).fold(f64::INFINITY, f64::min)
}

/// Prints the table.
pub(super) fn run(options: &Options) -> Result<()> {
    println!(
        "| link, Mbit/s | parts | strategy | epoch, s | predicted | off by | efficiency | predicted | off by \
         |"
    );
    println!("| --- | --- | --- | --- | --- | --- | --- | --- | --- |");
    let agent = agent(&options.dir)?;
    let hosts = (1..=COUNT).map(|i| format!("10.99.0.{i}:1")).collect::<Vec<_>>().join(",");
    let count = COUNT.to_string();
    let words = [
        "--mca",
        "plm",
        "rsh",
        "--mca",
        "plm_rsh_agent",
        &agent,
        "--mca",
        "plm_rsh_no_tree_spawn",
        "1",
        "--mca",
        "oob_tcp_if_include",
        "10.99.0.0/24",
        "--mca",
        "btl",
        "tcp,self",
        "--mca",
        "btl_tcp_if_include",
        "10.99.0.0/24",
        "-H",
        &hosts,
        "-n",
        &count,
        "--bind-to",
        "none",
    ];
    for method in &options.methods {
        let parts = options.partitioned(method, COUNT)?;
        let alone =
            super::processes(1, &options.words(&parts, &["--threads", "1", "--strategy", "sequential"])?)?;
        let alone = seconds(&alone);
        for &megabits in &options.links {
            let network = format!("{},20us", f64::from(megabits) * 1e6 / 8.0);
            let plan = plan(options, &parts, &network, "1")?;
            let _namespaces = Namespaces::new(megabits)?;
            for (strategy, more) in [("sequential", ""), ("pipelined", "1,1,1")] {
                let mut given = vec!["--threads", "1", "--strategy", strategy];
                if !more.is_empty() {
                    given.extend(["--allocation", more]);
                }
                let run = mpirun(&words, &options.words(&parts, &given)?)?;
                let predicted = plan["strategies"].as_array().context("strategies")?;
                let predicted =
                    predicted.iter().find(|row| row["name"] == strategy).context("the strategy")?;
                let number = |name: &str| predicted[name].as_f64().unwrap_or(f64::NAN);
                let (epoch, expected) = (seconds(&run), number("epoch_seconds"));
                let (efficiency, planned) = (alone / (COUNT as f64 * epoch), number("efficiency"));
                println!(
                    "| {megabits} | {method} | {strategy} | {epoch:.3} | {expected:.3} | {:+.0} % | \
                     {efficiency:.3} | {planned:.3} | {:+.0} % |",
                    100.0 * (expected / epoch - 1.0),
                    100.0 * (planned / efficiency - 1.0)
                );
            }
        }
    }
    Ok(())
}
