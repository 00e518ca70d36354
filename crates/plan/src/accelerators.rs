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

use graphmill_engine::{
    Error, Result, TrainConfig, bench::machine::Machine, config::Devices, partition::RankCache,
};

use crate::{
    hardware::Hardware,
    memory::{gb, left},
    network::Machines,
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

impl Machines {
    /// The same machines, whose shares train on `count` devices of `hardware` each, which are
    /// `speed` times as fast as this processor. A device caches rows of which it serves the share
    /// `served`.
    pub(crate) fn on_devices(
        self,
        (hardware, count): (Hardware, usize),
        speed: f64,
        served: f64,
        batch: BatchBytes,
    ) -> Self {
        let missed = 1.0 - served;
        // seconds of the link, and of gathering cached rows on the device
        let copy = |bytes: f64, gather: f64| hardware.link.seconds(missed * bytes) + served * gather / speed;
        let [sample, gather, train] = self.share;
        let of_share = copy(batch.rows / self.num_trainers().max(1) as f64, gather);
        let [drawn, gathered, trained] = self.alone;
        let of_batch = copy(batch.rows, gathered);
        Self {
            share: [sample, missed * gather, train / speed],
            alone: [drawn, missed * gathered + of_batch, trained / speed],
            accelerators: Some(Accelerators { count, copy: of_share, gradients: batch.gradients, hardware }),
            ..self
        }
    }

    /// [`Machines::on_devices`] of these devices, if there are some, relative to this processor.
    ///
    /// # Errors
    /// The speed of the devices is unknown, or the memory's bandwidth cannot be measured.
    pub(crate) fn with_devices(
        self,
        devices: Option<(Hardware, usize)>,
        served: f64,
        batch: BatchBytes,
    ) -> Result<Self> {
        let Some((hardware, count)) = devices else { return Ok(self) };
        let bandwidth = match hardware.devices.speed {
            None => Some(1e9 * Machine::new(3).copy()?),
            Some(_) => None,
        };
        let speed = hardware.speed(bandwidth)?;
        Ok(self.on_devices((hardware, count), speed, served, batch))
    }

    /// Seconds in which the rows of a share reach the device that trains; none on the processor.
    pub(crate) fn copied(&self) -> f64 {
        self.accelerators.as_ref().map_or(0.0, |on| on.copy)
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
    use graphmill_loader::feature::LinkOptions;

    use super::*;
    use crate::{
        cores::Cores,
        network::{Stores, Wire},
    };

    /// Two machines over a link without bytes, and with devices of ten times the speed, whose rows
    /// of a share have 10 MB.
    fn machines(count: usize, served: f64) -> [Machines; 2] {
        let on_cores = Machines {
            count: 2,
            stores: None,
            batches: 100,
            alone: [0.02, 0.02, 0.16],
            share: [0.01, 0.01, 0.08],
            talk: 0.0,
            wire: Wire { hops: vec![0.0], skew: 1.0, ..Wire::default() },
            network: LinkOptions { bandwidth: 1e12, latency: 0.0, ..LinkOptions::default() },
            cores: Cores { count, rounds_by_device: true, ..Cores::default() },
            cached: 0.0,
            caches_on_devices: false,
            accelerators: None,
        };
        let mut hardware = Hardware::find("v100x8").unwrap();
        (hardware.link.bandwidth, hardware.link.latency) = (1e9, 0.0);
        let batch = BatchBytes { rows: 2e7, gradients: 1e6 };
        let on_devices = on_cores.clone().on_devices((hardware, count), 10.0, served, batch);
        [on_cores, on_devices]
    }

    fn seconds(machines: &Machines) -> [f64; 4] {
        let [factored, sharing] = [machines.factored().unwrap(), machines.time_sharing()];
        [machines.sequential(), machines.pipelined(), sharing, factored].map(|epoch| epoch.epoch_seconds)
    }

    #[test]
    fn devices_train_on_rows_that_cross_their_link() {
        let [on_cores, on_devices] = machines(1, 0.0);
        let network = on_cores.sequential().epoch_seconds - 100.0 * 0.1;
        // 8 ms of training, and 10 ms of the link, in the place of 80 ms
        let expected = network + 100.0 * (0.01 + 0.01 + 0.01 + 0.008);
        let [sequential, pipelined, sharing, _] = seconds(&on_devices);
        assert!((sequential - expected).abs() < 1e-9, "{sequential} {expected}");
        assert!((sharing - sequential).abs() < 1e-6, "one device takes turns: {sharing} {sequential}");
        // the processor works beside the device and its link
        assert!(pipelined < sequential && pipelined > 100.0 * 0.02, "{pipelined}");
    }

    #[test]
    fn cached_rows_are_gathered_by_the_device() {
        let ([_, without], [_, half]) = (machines(1, 0.0), machines(1, 0.5));
        let less = without.sequential().epoch_seconds - half.sequential().epoch_seconds;
        // half of 10 ms on the host and of 10 ms on the link, but 0.5 ms on the device
        assert!((less - 100.0 * (0.005 + 0.005 - 0.0005)).abs() < 1e-6, "{less}");
        assert!(half.sequential().efficiency > 0.0);
    }

    #[test]
    fn several_devices_share_the_processor_and_sum_their_gradients() {
        let ([_, one], [_, four]) = (machines(1, 0.0), machines(4, 0.0));
        let [one, of_four] = [&one, &four].map(|of| of.time_sharing().epoch_seconds);
        // each of four rounds samples and gathers four shares on the same cores
        assert!(of_four < one && of_four > 100.0 * 0.02, "{of_four} {one}");
        let mut free = four.clone();
        if let Some(on) = &mut free.accelerators {
            on.gradients = 0.0;
        }
        // a ring of four devices moves one and a half times the gradients
        let more = of_four - free.time_sharing().epoch_seconds;
        assert!((more - 25.0 * 1.5e-3).abs() < 1e-9, "{more}");
        let stores = Stores { count: 1, draws: 0.0, reads: 0.0, work: 1.0 };
        let waiting = Machines { stores: Some(stores), ..four };
        assert_eq!(waiting.time_sharing().bottleneck, "graph stores");
    }

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
