//! How many devices sample, and when one that has finished sampling is to train (FGNN section 5.3,
//! "Flexible Scheduling": "FGNN: A Factored System for Sample-based GNN Training over GPUs",
//! published as GNNLab, Yang et al., EuroSys 2022).

/// Rounding that does not make one Sampler more.
const ROUNDING: f64 = 1e-9;

/// Devices that become Samplers: `N_s = ceil(N_g / (K + 1))` with `K = T_t / T_s`; the others
/// become Trainers.
///
/// `t_sampler` and `t_trainer` are the seconds of one minibatch; a Trainer's are those of the
/// longer of extraction and training where it overlaps them, of both where it does not. At least
/// one device samples; where Trainers are so much faster that the formula leaves them no device,
/// all sample first and then train. The ceiling favours Samplers, since a Sampler can train for the
/// rest of an epoch, but a Trainer cannot sample: it would have to load the topology first.
pub fn num_samplers(devices: usize, t_sampler: f64, t_trainer: f64) -> usize {
    let share = devices as f64 * t_sampler / (t_sampler + t_trainer);
    // not a number where both are 0: the cast makes that 0
    ((share - ROUNDING).ceil() as usize).clamp(1, devices.max(1))
}

/// Seconds gained where a standby Trainer takes one of the `remaining` tasks:
/// `P = M_r T_t / N_t - T_t'`, what the Trainers still have before them less what the standby
/// Trainer needs for one task. Infinite where there are no Trainers. The task is to be taken if it
/// is above 0; it is to be computed before each one.
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
    fn samplers_and_trainers_keep_pace() {
        // K = 4 of 8 devices: 8 / 5
        assert_eq!(num_samplers(8, 1.0, 4.0), 2);
        // exact, also where the quotient of the two is not: 0.3 / 0.1 is below 3
        assert_eq!(num_samplers(8, 0.1, 0.3), 2);
        assert_eq!(num_samplers(8, 1.0, 1.0), 4);
        assert_eq!(num_samplers(1, 1.0, 9.0), 1);
        for devices in 1..20 {
            let counts: Vec<usize> = (0..50).map(|t| num_samplers(devices, 1.0, f64::from(t))).collect();
            assert!(counts.is_sorted_by(|a, b| a >= b), "more training, fewer Samplers: {counts:?}");
            assert_eq!(counts[0], devices, "nothing to train: all sample");
            // neither side alone: with one Sampler fewer, sampling would hold up the Trainers that
            // there would be
            for (t, &samplers) in counts.iter().enumerate().filter(|(_, samplers)| **samplers > 1) {
                let (fewer, trainers) = ((samplers - 1) as f64, (devices + 1 - samplers) as f64);
                assert!(1.0 / fewer > t as f64 / trainers, "{devices} devices, K = {t}");
            }
        }
    }

    #[test]
    fn nothing_measured_is_one_sampler() {
        assert_eq!(num_samplers(8, 0.0, 0.0), 1);
        assert_eq!(num_samplers(8, 0.0, 1.0), 1);
        assert_eq!(num_samplers(0, 1.0, 1.0), 1);
    }

    #[test]
    fn a_task_pays_while_the_trainers_have_more_before_them() {
        assert_eq!(profit(6, 2.0, 3, 3.0), 1.0);
        assert!(profit(4, 2.0, 3, 3.0) < 0.0);
        assert_eq!(profit(0, 1.0, 0, 9.0), f64::INFINITY);
    }
}
