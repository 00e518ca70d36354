//! Record of the machine of a run.

use graphmill_core::memory;
use serde::{Deserialize, Serialize};

/// Processor, memory and system of a machine.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct MachineRecord {
    /// Model name of the processor; empty if the system does not report it.
    pub processor: String,
    /// Number of cores that the process may use.
    pub cores: usize,
    /// Memory in bytes; 0 if the system does not report it.
    pub memory_bytes: u64,
    /// Operating system and architecture, such as `linux x86_64`.
    pub system: String,
}

impl MachineRecord {
    /// Record of this machine.
    pub fn here() -> Self {
        let info = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        Self {
            processor: model_name(&info),
            cores: std::thread::available_parallelism().map_or(0, usize::from),
            memory_bytes: memory::total().unwrap_or(0),
            system: format!("{} {}", std::env::consts::OS, std::env::consts::ARCH),
        }
    }
}

/// Model name of the first processor in the text of `/proc/cpuinfo`; empty if it has none.
fn model_name(info: &str) -> String {
    let line = info.lines().find(|line| line.starts_with("model name"));
    line.and_then(|line| line.split_once(':')).map_or(String::new(), |(_, name)| name.trim().to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_processor_is_named_by_its_first_core() {
        let info = "processor\t: 0\nmodel name\t: A : B 9\nflags : x\n\nprocessor\t: 1\nmodel name\t: C\n";
        assert_eq!(model_name(info), "A : B 9");
        assert_eq!(model_name("processor : 0\n"), "");
        let here = MachineRecord::here();
        assert!(here.cores > 0 && here.system.contains(' '), "{here:?}");
    }
}
