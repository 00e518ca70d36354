//! Two processes in network namespaces, each connected to a bridge by a rate-limited link.
//!
//! This cannot be a definition, because it changes the machine's network before a run and must
//! restore it afterwards. It needs root, `ip` and `tc`.

use std::{fs, os::unix::fs::PermissionsExt, path::Path, process::Command};

use anyhow::{Context, Result, bail, ensure};

/// Number of processes: one for each namespace.
const COUNT: usize = 2;

/// Namespaces, which are removed when this value is dropped.
pub(crate) struct Link {
    /// Substitute for `ssh` that enters a host's namespace.
    agent: String,
}

/// Runs a script.
fn sh(script: &str) -> Result<()> {
    let output = Command::new("sh").args(["-ec", script]).output()?;
    if !output.status.success() {
        bail!("{script}: {} (needs root, ip and tc)", String::from_utf8_lossy(&output.stderr));
    }
    Ok(())
}

impl Link {
    /// Creates the namespaces with links of this rate; `directory` gets the agent.
    ///
    /// # Errors
    /// The rate is not a number, the process lacks the rights, or a program is missing.
    pub(crate) fn new(megabits: &str, directory: &Path) -> Result<Self> {
        let megabits: u64 = megabits.parse().with_context(|| format!("network: {megabits} megabits"))?;
        let path = directory.join("agent.sh");
        let script = "#!/bin/sh\nhost=$1; shift\ni=$(( ${host##*.} - 1 ))\n\
                      exec ip netns exec gm$i unshare -u sh -c \"hostname gm$i; $*\"\n";
        fs::write(&path, script)?;
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755))?;
        let this = Self { agent: fs::canonicalize(&path)?.display().to_string() };
        this.remove();
        sh("ip link add gmbr type bridge; ip addr add 10.99.0.254/24 dev gmbr; ip link set gmbr up")?;
        for i in 0..COUNT {
            let address = i + 1;
            // A queue of a few round trips; both directions are limited. Faster links need bursts
            // of a millisecond, because the timer that refills a bucket runs about as often.
            let burst = (megabits * 125).max(128 << 10);
            let limit = format!("root tbf rate {megabits}mbit burst {burst} latency 100ms");
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
        Ok(this)
    }

    /// Arguments of `mpirun` for processes in the namespaces.
    pub(crate) fn arguments(&self, count: &str) -> Vec<String> {
        let hosts = (1..=COUNT).map(|i| format!("10.99.0.{i}:1")).collect::<Vec<_>>().join(",");
        let agent = &self.agent;
        let line = format!(
            "--mca plm rsh --mca plm_rsh_agent {agent} --mca plm_rsh_no_tree_spawn 1 \
             --mca oob_tcp_if_include 10.99.0.0/24 --mca btl tcp,self \
             --mca btl_tcp_if_include 10.99.0.0/24 -H {hosts} -n {count} --bind-to none"
        );
        line.split_whitespace().map(str::to_string).collect()
    }

    /// Checks that a command runs as many processes as there are namespaces.
    ///
    /// # Errors
    /// It runs another number.
    pub(crate) fn check(line: &str) -> Result<()> {
        let expected = format!("mpirun {COUNT} graphmill ");
        ensure!(line.starts_with(&expected), "{line}: with a network it must begin with {expected}");
        Ok(())
    }

    fn remove(&self) {
        let ends = (0..COUNT).map(|i| format!("ip netns del gm{i}; ip link del gmv{i};")).collect::<String>();
        let _ = Command::new("sh").args(["-c", &format!("{ends} ip link del gmbr")]).output();
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        self.remove();
    }
}
