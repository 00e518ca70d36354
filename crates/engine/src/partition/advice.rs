//! Advice that follows from the comparison of methods: a method with its reason.

use serde::Serialize;

use super::{Outcome, Report};

/// Largest part of the training nodes, relative to the mean, that a method may give a part: an
/// epoch waits for the rank with the most.
const MAX_TRAIN: f64 = 1.15;

/// Share of the communication of a random partition that a method must save to be worth its time.
const MIN_SAVING: f64 = 0.05;

/// Share of the communication below which the faster method is preferred.
const TIE: f64 = 0.02;

/// Method to choose, with the reason.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Advice {
    /// Name of the method.
    pub method: String,
    /// The advice and its reason, in words.
    pub text: String,
}

/// Advice of a report on several methods; `None` for a single one.
pub(super) fn advise(report: &Report) -> Option<Advice> {
    if report.results.len() < 2 {
        return None;
    }
    let is_balanced = |outcome: &&Outcome| outcome.statistics.balance.train <= MAX_TRAIN;
    let mut usable: Vec<&Outcome> = report.results.iter().filter(is_balanced).collect();
    if usable.is_empty() {
        usable = report.results.iter().collect();
    }
    let least = usable.iter().copied().min_by(|a, b| cost(a).total_cmp(&cost(b)))?;
    let near = usable.iter().copied().filter(|outcome| cost(outcome) <= cost(least) * (1.0 + TIE));
    let best = near.min_by(|a, b| a.seconds.total_cmp(&b.seconds))?;
    let amount = |outcome: &Outcome| match &outcome.statistics.cross_requests {
        Some(requests) => format!("{:.0} remote rows an epoch", requests.rows_per_epoch),
        None => format!("{:.1} % of the edges cut", 100.0 * outcome.statistics.edge_cut),
    };
    let random = report.results.iter().find(|outcome| outcome.method == "random");
    let balance =
        format!("the largest part has {:.2} times the mean of training nodes", best.statistics.balance.train);
    if let Some(random) = random.filter(|random| cost(best) > cost(random) * (1.0 - MIN_SAVING)) {
        let text = format!(
            "--method random: no method saves a twentieth of its communication ({}; {} {}), so the fastest \
             will do",
            amount(random),
            best.method,
            amount(best)
        );
        return Some(Advice { method: random.method.clone(), text });
    }
    let mut text = format!("--method {}: {}", best.method, amount(best));
    if let Some(random) = random {
        text += &format!(", {:.0} % less than random", 100.0 * (1.0 - cost(best) / cost(random)));
    }
    text += &format!("; {balance}");
    let skipped = report.results.iter().filter(|outcome| cost(outcome) < cost(best) && !is_balanced(outcome));
    for outcome in skipped {
        text += &format!(
            "; {} has {}, but a part with {:.2} times the mean, for which the others wait",
            outcome.method,
            amount(outcome),
            outcome.statistics.balance.train
        );
    }
    Some(Advice { method: best.method.clone(), text })
}

/// Communication of training: rows from other parts, or without training nodes the cut edges.
fn cost(outcome: &Outcome) -> f64 {
    let requests = outcome.statistics.cross_requests.as_ref();
    requests.map_or(outcome.statistics.edge_cut, |requests| requests.rows_per_epoch)
}

#[cfg(test)]
mod tests {
    use super::{
        super::{Balance, Statistics},
        *,
    };

    fn report(methods: &[(&str, f64, f64, f64)]) -> Report {
        let outcome = |&(method, edge_cut, train, seconds): &(&str, f64, f64, f64)| Outcome {
            method: method.into(),
            parts: 2,
            statistics: Statistics {
                edge_cut,
                balance: Balance { nodes: 1.0, train },
                locality: None,
                cross_requests: None,
            },
            seconds,
        };
        let results = methods.iter().map(outcome).collect();
        Report { dataset: "d".into(), nodes: 9, edges: 9, results, advice: None }
    }

    #[test]
    fn the_least_communication_with_balanced_parts_is_advised() {
        let advice = advise(&report(&[
            ("random", 0.75, 1.0, 0.1),
            ("metis", 0.30, 1.02, 9.0),
            ("bgl", 0.302, 1.05, 3.0),
            ("ldg", 0.10, 1.9, 0.1),
        ]));
        let advice = advice.unwrap();
        assert_eq!(advice.method, "bgl", "nearly as good, and faster");
        assert!(advice.text.contains("60 % less than random"), "{}", advice.text);
        assert!(advice.text.contains("ldg has 10.0 % of the edges cut, but a part"), "{}", advice.text);
    }

    #[test]
    fn graphs_without_communities_take_the_fastest_method() {
        let advice = advise(&report(&[("random", 0.5, 1.0, 0.0), ("metis", 0.49, 1.0, 1.0)])).unwrap();
        assert!(advice.method == "random" && advice.text.contains("the fastest will do"), "{}", advice.text);
        assert_eq!(advise(&report(&[("metis", 0.49, 1.0, 1.0)])), None);
    }
}
