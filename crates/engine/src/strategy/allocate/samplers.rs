//! Number of Samplers among the devices, and the profit of a standby Trainer.
//!
//! # Algorithm
//!
//! [`num_samplers`] balances sampling and training. A Sampler that has finished may become a
//! standby Trainer; it takes a task while its [`profit`] is positive.
//!
//! # Source
//!
//! Yang et al., *GNNLab: A Factored System for Sample-based GNN Training over GPUs*, EuroSys 2022,
//! section 5.3, "Flexible Scheduling".
//!
//! # Cost
//!
//! O(1).
//!
//! # Memory
//!
//! None.
//!
//! # Deviations
//!
//! The number of Samplers is rounded up after subtracting a tolerance for rounding errors.

/// Tolerance of the division, so that a rounding error does not add a Sampler.
const ROUNDING: f64 = 1e-9;

/// Number of Samplers: `N_s = ceil(N_g / (K + 1))` with `K = T_t / T_s`; the other devices are
/// Trainers.
///
/// `t_sampler` and `t_trainer` are the seconds of one minibatch. If a Trainer overlaps extraction
/// and training, `t_trainer` is the longer of the two, otherwise their sum. At least one device
/// samples. If Trainers are so fast that the formula leaves them no device, all devices sample
/// first and then train. The ceiling favours Samplers, because a Sampler can train for the rest of
/// an epoch, but a Trainer cannot sample: it would have to load the topology first.
pub fn num_samplers(devices: usize, t_sampler: f64, t_trainer: f64) -> usize {
    let share = devices as f64 * t_sampler / (t_sampler + t_trainer);
    // NaN if both are 0; the cast makes it 0
    ((share - ROUNDING).ceil() as usize).clamp(1, devices.max(1))
}

/// Seconds gained if a standby Trainer takes one of the `remaining` tasks: `P = M_r T_t / N_t -
/// T_t'`, the remaining time of the Trainers less the time of the standby Trainer for one task.
/// Infinite without Trainers. The standby Trainer takes the task if the profit is positive; compute
/// it before each task.
pub fn profit(remaining: usize, t_trainer: f64, num_trainers: usize, t_standby: f64) -> f64 {
    if num_trainers == 0 {
        return f64::INFINITY;
    }
    remaining as f64 * t_trainer / num_trainers as f64 - t_standby
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_number_of_samplers_balances_sampling_and_training() {
        // K = 4 of 8 devices: 8 / 5
        assert_eq!(num_samplers(8, 1.0, 4.0), 2);
        // exact although 0.3 / 0.1 is rounded to less than 3
        assert_eq!(num_samplers(8, 0.1, 0.3), 2);
        assert_eq!(num_samplers(8, 1.0, 1.0), 4);
        assert_eq!(num_samplers(1, 1.0, 9.0), 1);
        for devices in 1..20 {
            let counts: Vec<usize> = (0..50).map(|t| num_samplers(devices, 1.0, f64::from(t))).collect();
            assert!(counts.is_sorted_by(|a, b| a >= b), "more training, fewer Samplers: {counts:?}");
            assert_eq!(counts[0], devices, "nothing to train: all sample");
            // with one Sampler fewer, sampling would be slower than the then larger number of
            // Trainers
            for (t, &samplers) in counts.iter().enumerate().filter(|(_, samplers)| **samplers > 1) {
                let (fewer, trainers) = ((samplers - 1) as f64, (devices + 1 - samplers) as f64);
                assert!(1.0 / fewer > t as f64 / trainers, "{devices} devices, K = {t}");
            }
        }
    }

    #[test]
    fn without_measurements_one_device_samples() {
        assert_eq!(num_samplers(8, 0.0, 0.0), 1);
        assert_eq!(num_samplers(8, 0.0, 1.0), 1);
        assert_eq!(num_samplers(0, 1.0, 1.0), 1);
    }

    #[test]
    fn a_task_is_profitable_while_the_trainers_need_longer() {
        assert_eq!(profit(6, 2.0, 3, 3.0), 1.0);
        assert!(profit(4, 2.0, 3, 3.0) < 0.0);
        assert_eq!(profit(0, 1.0, 0, 9.0), f64::INFINITY);
    }
}
