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
    Batches, Epoch, Trainer,
    clock::{Clock, Next},
};

enum Event {
    Sampled(usize),
    Copied(usize),
    Trained(usize),
}

/// Simulates an epoch on `devices` devices, each of which takes the next batch when it is idle.
pub fn sharing(batches: Batches, devices: usize, sample: f64, trainer: Trainer, gathers: f64) -> Epoch {
    let mut clock = Clock::new(gathers);
    let mut sizes = vec![0.0; devices];
    let mut since = vec![0.0; devices];
    let mut epoch = Epoch::default();
    let mut next = 0;
    let mut begin = |clock: &mut Clock<Event>, epoch: &mut Epoch, sizes: &mut [f64], device: usize| {
        if next < batches.count {
            sizes[device] = batches.size(next);
            next += 1;
            epoch.sample += sample * sizes[device];
            clock.after(sample * sizes[device], Event::Sampled(device));
        }
    };
    (0..devices).for_each(|device| begin(&mut clock, &mut epoch, &mut sizes, device));
    while let Some(event) = clock.next() {
        match event {
            Next::Event(Event::Sampled(device)) => {
                since[device] = clock.now();
                clock.gather(device, trainer.gather * sizes[device]);
            }
            Next::Gathered(device) => {
                epoch.gather += clock.now() - since[device];
                epoch.copy += trainer.copy * sizes[device];
                clock.after(trainer.copy * sizes[device], Event::Copied(device));
            }
            Next::Event(Event::Copied(device)) => {
                epoch.train += trainer.train * sizes[device];
                clock.after(trainer.train * sizes[device], Event::Trained(device));
            }
            Next::Event(Event::Trained(device)) => begin(&mut clock, &mut epoch, &mut sizes, device),
        }
    }
    epoch.seconds = clock.now();
    let all = (epoch.seconds * devices as f64).max(f64::MIN_POSITIVE);
    for part in [&mut epoch.sample, &mut epoch.gather, &mut epoch.copy, &mut epoch.train] {
        *part /= all;
    }
    epoch
}
