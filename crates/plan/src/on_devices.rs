//! Predictions of several machines whose shares of minibatches train on NVIDIA devices
//! ([`Accelerators`]).

use graphmill_engine::{Result, bench::machine::Machine};

use crate::{
    accelerators::{Accelerators, BatchBytes},
    hardware::Hardware,
    network::Machines,
};

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
        // 8 ms of training, and 10 ms of the link, instead of 80 ms of training on the cores
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
}
