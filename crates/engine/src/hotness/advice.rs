//! Advice that follows from hit rates: a policy and a size, or no cache.

use serde::Serialize;

use super::{Report, Row};

/// Smallest gain over a random cache of the same size that is worth a policy.
const MIN_GAIN: f64 = 0.05;

/// Difference in hit rates below which the policy that comes first is good enough.
const TIE: f64 = 0.01;

/// Bounds of static caches, which no run can choose.
const BOUNDS: [&str; 2] = ["random", "optimal"];

/// Advice for one sampler.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Advice {
    /// Name of the sampler.
    pub sampler: String,
    /// Policy to choose; `None` if none is worth it.
    pub policy: Option<String>,
    /// Cached fraction of the rows at which the policy gains most.
    pub ratio: Option<f64>,
    /// The advice and its reason, in words.
    pub text: String,
}

/// Advice for each sampler of a report; empty if it compares no policies that a run can choose.
pub(super) fn advise(report: &Report) -> Vec<Advice> {
    report.samplers.iter().filter_map(|reads| of_sampler(report, &reads.sampler)).collect()
}

fn of_sampler(report: &Report, sampler: &str) -> Option<Advice> {
    let of_sampler = || report.results.iter().filter(|row| row.sampler == sampler);
    let usable = || of_sampler().filter(|row| !BOUNDS.contains(&row.policy.as_str()) && row.ratio < 1.0);
    let gain = |row: &&Row| row.hit_rate - row.ratio;
    let best = usable().max_by(|a, b| gain(a).total_cmp(&gain(b)))?;
    let percent = |x: f64| format!("{:.1} %", 100.0 * x);
    if gain(&best) < MIN_GAIN {
        let text = format!(
            "no cache policy: the best, {}, serves {} of the reads from {} of the rows, hardly more than any \
             rows would; leave --cache as it is, and choose a size by the memory",
            best.policy,
            percent(best.hit_rate),
            percent(best.ratio)
        );
        return Some(Advice { sampler: sampler.into(), policy: None, ratio: None, text });
    }
    // policies come in the order of their cost, unless the user chose another
    let chosen = usable().find(|row| row.ratio == best.ratio && row.hit_rate >= best.hit_rate - TIE)?;
    let mut text = format!(
        "--cache {} for {} of the rows (--cache-ratio {} on a device): it serves {} of the reads",
        chosen.policy,
        percent(chosen.ratio),
        chosen.ratio,
        percent(chosen.hit_rate)
    );
    if let Some(bound) = of_sampler().find(|row| row.policy == "optimal" && row.ratio == chosen.ratio) {
        text += &format!("; no choice of rows serves more than {}", percent(bound.hit_rate));
    }
    if chosen.policy != best.policy {
        text += &format!("; {} serves {}, but costs more to compute", best.policy, percent(best.hit_rate));
    }
    Some(Advice {
        sampler: sampler.into(),
        policy: Some(chosen.policy.clone()),
        ratio: Some(chosen.ratio),
        text,
    })
}

#[cfg(test)]
mod tests {
    use super::{super::SamplerReads, *};

    fn report(rates: &[(&str, f64, f64)]) -> Report {
        let row = |&(policy, ratio, hit_rate): &(&str, f64, f64)| Row {
            policy: policy.into(),
            sampler: "neighbor".into(),
            ratio,
            hit_rate,
        };
        let reads = SamplerReads { sampler: "neighbor".into(), rows_per_epoch: 1.0, similarity: None };
        let results = rates.iter().map(row).collect();
        Report { dataset: "d".into(), rows: 9, row_bytes: 4, results, samplers: vec![reads], advice: vec![] }
    }

    #[test]
    fn the_cheapest_policy_near_the_best_is_chosen_at_the_size_of_the_largest_gain() {
        let rates = [
            ("random", 0.1, 0.1),
            ("random", 0.5, 0.5),
            ("degree", 0.1, 0.598),
            ("degree", 0.5, 0.9),
            ("presc:1", 0.1, 0.6),
            ("presc:1", 0.5, 0.91),
            ("optimal", 0.1, 0.7),
        ];
        let advice = advise(&report(&rates));
        assert_eq!((advice[0].policy.as_deref(), advice[0].ratio), (Some("degree"), Some(0.1)));
        assert!(advice[0].text.contains("presc:1 serves 60.0 %, but costs more"), "{}", advice[0].text);
        assert!(advice[0].text.contains("no choice of rows serves more than 70.0 %"), "{}", advice[0].text);
    }

    #[test]
    fn even_reads_need_no_policy() {
        let advice = advise(&report(&[("random", 0.1, 0.1), ("degree", 0.1, 0.12), ("lru", 0.1, 0.11)]));
        assert_eq!((advice[0].policy.as_deref(), advice[0].ratio), (None, None));
        assert!(advice[0].text.starts_with("no cache policy: the best, degree"), "{}", advice[0].text);
        assert_eq!(advise(&report(&[("random", 0.1, 0.1)])), []);
    }
}
