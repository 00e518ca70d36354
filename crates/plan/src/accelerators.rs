//! NVIDIA devices of each of several machines: their shares of minibatches, and the options that
//! describe them.
//!
//! # Algorithm
//!
//! Over several machines the processor of each draws neighbours, and gathers the rows that a device
//! does not cache: own ones, and those that other machines sent. They cross the link of the device,
//! which trains on them. The processor is this one, as without devices; the speed of a device, its
//! memory and its link are those of `--hardware`. Every device has a cache of its own, so it serves
//! own rows as well.
//!
//! # Source
//!
//! Ours; the costs of a device are those of plans for one machine.
//!
//! # Cost
//!
//! Constant.
//!
//! # Deviations
//!
//! Steps are not measured on a device, so the memory is compared with the cached rows alone. All
//! devices of a machine sum gradients, also those that sample in `factored`.

use graphmill_engine::{Error, Result, TrainConfig, config::Devices, partition::RankCache};

use crate::{
    hardware::Hardware,
    memory::{gb, left},
};

/// NVIDIA devices of each machine that trains.
#[derive(Clone, Debug, PartialEq)]
pub struct Accelerators {
    /// The devices and their links.
    pub hardware: Hardware,
    /// Number of devices.
    pub count: usize,
    /// Seconds in which the rows of a share reach a device, after the host has gathered its part.
    pub copy: f64,
    /// Bytes of the gradients that devices of a machine sum.
    pub gradients: f64,
}

/// Sizes of a minibatch on all machines.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BatchBytes {
    /// Feature rows of all shares.
    pub(crate) rows: f64,
    /// Gradients.
    pub(crate) gradients: f64,
}

impl Accelerators {
    /// Seconds of a step of `train` seconds on devices of which `trainers` train: it waits for the
    /// others, and gradients are summed.
    pub(crate) fn step(&self, train: f64, trainers: usize) -> f64 {
        train * self.hardware.waits(trainers) + self.hardware.reduce(trainers, self.gradients)
    }
}

/// Devices that predictions for several machines read from `--hardware`: with NVIDIA devices, they
/// and their number.
///
/// # Errors
/// NVIDIA devices without `hardware`, with too few devices or with devices that are cores; or
/// `hardware` without NVIDIA devices.
pub(crate) fn devices_of(
    config: &TrainConfig,
    hardware: Option<Hardware>,
) -> Result<Option<(Hardware, usize)>> {
    let count = config.cuda_devices().len();
    let of_devices = |why: String| Err(Error::usage(format!("--devices {}: {why}", config.devices)));
    let of_hardware = |name: &str, why: &str| Err(Error::usage(format!("--hardware {name}: {why}")));
    match (&*config.devices, hardware) {
        (Devices::Cuda(_), None) => of_devices(
            "predictions for several machines measure the processor, and take the speed and the link of \
             NVIDIA devices from --hardware; add --hardware NAME, or use virtual:N, which divides the cores"
                .into(),
        ),
        (Devices::Cuda(_), Some(of)) if of.devices.shared => of_hardware(
            &of.name,
            "its devices are cores of the host (devices.shared = true); use --devices virtual:N without \
             --hardware",
        ),
        (Devices::Cuda(_), Some(of)) if count > of.devices.count => of_devices(format!(
            "--hardware {} has {} devices; name as many, or describe another machine",
            of.name, of.devices.count
        )),
        (Devices::Cuda(_), Some(of)) => Ok(Some((of, count))),
        (_, None) => Ok(None),
        (devices, Some(of)) => of_hardware(
            &of.name,
            &format!(
                "predictions for several machines read it for NVIDIA devices, and a run with --devices \
                 {devices} uses the processor; add --devices cuda:0, or leave it out"
            ),
        ),
    }
}

/// Refuses a cache that exceeds a device's memory.
pub(crate) fn check_cache(hardware: &Hardware, cache: &RankCache) -> Result<()> {
    let parts = [("cached rows", cache.bytes)];
    left("a device", hardware.devices.memory, &parts).map(|_| ()).map_err(|error| {
        Error::usage(format!(
            "--cache-ratio: {error} (--hardware {}); use a ratio whose rows take less than {}",
            hardware.name,
            gb(hardware.devices.memory as f64)
        ))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hardware_describes_the_named_devices() {
        let v100 = Hardware::find("v100x8").unwrap();
        let mut shared = v100.clone();
        shared.devices.shared = true;
        let of = |devices: &str, hardware: Option<&Hardware>| {
            let config = TrainConfig { devices: devices.parse().unwrap(), ..TrainConfig::default() };
            devices_of(&config, hardware.cloned()).map_err(|error| error.to_string())
        };
        assert_eq!(of("cuda:0,1", Some(&v100)), Ok(Some((v100.clone(), 2))));
        assert_eq!(of("virtual:2", None), Ok(None));
        for (devices, hardware, part) in [
            ("cuda:0", None, "add --hardware NAME"),
            ("cuda:0", Some(&shared), "use --devices virtual:N"),
            ("cuda:0,1,2,3,4,5,6,7,8", Some(&v100), "--hardware v100x8 has 8 devices"),
            ("cpu", Some(&v100), "add --devices cuda:0"),
        ] {
            let refused = of(devices, hardware).unwrap_err();
            assert!(refused.contains(part), "{devices}: {refused}");
        }
        let large = RankCache { bytes: 2e10, ..RankCache::default() };
        assert!(check_cache(&v100, &large).unwrap_err().to_string().contains("cached rows 20.0 GB"));
        assert!(check_cache(&v100, &RankCache::default()).is_ok());
    }
}
