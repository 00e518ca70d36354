//! Simulation of the time-sharing strategy.
//!
//! # Algorithm
//!
//! Each device samples a batch, extracts its rows and trains on it, one after the other. With one
//! device this is also the sequential strategy.
//!
//! ```text
//!   device 0:  sample b0 ─► extract b0 ─► train b0 ─► sample b2 ..
//!   device 1:  sample b1 ─► extract b1 ─► train b1 ─► sample b3 ..
//! ```
//!
//! # Source
//!
//! Yang et al., *GNNLab: a factored system for sample-based GNN training over GPUs*, EuroSys 2022,
//! section 3 (the conventional design).
//!
//! # Cost
//!
//! O(B log B) for B batches.

use super::{
    Batches, Epoch, Trainer, Updates,
    clock::{Clock, Next},
    updates::Model,
};

/// Durations of the devices.
#[derive(Clone, Copy, Debug)]
pub struct Sharing {
    /// Number of devices.
    pub devices: usize,
    /// Seconds of a device to sample a batch.
    pub sample: f64,
    /// Durations of its other stages.
    pub trainer: Trainer,
    /// Number of gathers that the host serves at full speed.
    pub gathers: f64,
    /// Batches that train on the same parameters.
    pub updates: Updates,
}

enum Event {
    Sampled(usize),
    Copied(usize),
    Trained(usize),
}

/// Simulates an epoch of devices that take the next batch when they are idle.
pub fn sharing(batches: Batches, setting: Sharing) -> Epoch {
    let Sharing { devices, sample, trainer, gathers, updates } = setting;
    let mut clock = Clock::new(gathers);
    let mut numbers = vec![0; devices];
    let mut since = vec![0.0; devices];
    let mut waiting = Vec::new();
    let mut model = Model::new(updates, batches.count);
    let mut epoch = Epoch::default();
    let mut next = 0;
    let mut begin = |clock: &mut Clock<Event>, epoch: &mut Epoch, numbers: &mut [u64], device: usize| {
        if next < batches.count {
            numbers[device] = next;
            let seconds = sample * batches.size(next);
            next += 1;
            epoch.sample += seconds;
            clock.after(seconds, Event::Sampled(device));
        }
    };
    (0..devices).for_each(|device| begin(&mut clock, &mut epoch, &mut numbers, device));
    while let Some(event) = clock.next() {
        match event {
            Next::Event(Event::Sampled(device)) => {
                since[device] = clock.now();
                clock.gather(device, trainer.gather * batches.size(numbers[device]));
            }
            Next::Gathered(device) => {
                let seconds = trainer.copy * batches.size(numbers[device]);
                epoch.gather += clock.now() - since[device];
                epoch.copy += seconds;
                clock.after(seconds, Event::Copied(device));
            }
            Next::Event(Event::Copied(device)) => waiting.push(device),
            Next::Event(Event::Trained(device)) => {
                model.add(numbers[device]);
                begin(&mut clock, &mut epoch, &mut numbers, device);
            }
        }
        waiting.retain(|&device| {
            let may_train = model.may_train(numbers[device]);
            if may_train {
                let seconds = trainer.train * batches.size(numbers[device]);
                epoch.train += seconds;
                clock.after(seconds, Event::Trained(device));
            }
            !may_train
        });
    }
    epoch.seconds = clock.now();
    let all = (epoch.seconds * devices as f64).max(f64::MIN_POSITIVE);
    for part in [&mut epoch.sample, &mut epoch.gather, &mut epoch.copy, &mut epoch.train] {
        *part /= all;
    }
    epoch
}
