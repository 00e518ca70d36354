//! Losses against their definitions and finite differences.

use proptest::prelude::*;

use super::*;

/// Value and gradients of a loss.
fn run(loss: LinkLoss, scores: &LinkScores, options: &LinkLossOptions) -> (f64, Vec<f32>, Vec<f32>) {
    let (mut positive, mut negative) = (vec![9.0; scores.positive.len()], vec![9.0; scores.negative.len()]);
    let value = loss(scores, options, LinkGrads { positive: &mut positive, negative: &mut negative });
    (value, positive, negative)
}

/// The definition of a loss for one positive, by plain formulas; `fixed` are the scores from which
/// weights without gradient are computed.
fn definition(
    name: &str,
    s: f64,
    n: &[f64],
    fixed: &[f64],
    log_expected: &[f64],
    o: &LinkLossOptions,
) -> f64 {
    let mean = |f: &dyn Fn(f64) -> f64| n.iter().map(|&x| f(x)).sum::<f64>() / n.len() as f64;
    let log_sigmoid = |x: f64| (1.0 / (1.0 + (-x).exp())).ln();
    match name {
        "bce" => -(log_sigmoid(s) + n.iter().map(|&x| log_sigmoid(-x)).sum::<f64>()) / (n.len() + 1) as f64,
        "margin" => mean(&|x| (o.margin - s + x).max(0.0)),
        "bpr" => mean(&|x| -log_sigmoid(s - x)),
        "sampled-softmax" => {
            let others: f64 = n.iter().zip(log_expected).map(|(x, q)| (x - q).exp()).sum();
            -(s.exp() / (s.exp() + others)).ln()
        }
        "info-nce" => {
            let t = o.temperature;
            let others: f64 = n.iter().map(|x| (x / t).exp()).sum();
            -((s / t).exp() / ((s / t).exp() + others)).ln()
        }
        "self-adversarial" => {
            let sum: f64 = fixed.iter().map(|x| (o.adversarial * x).exp()).sum();
            let p = |x: f64| (o.adversarial * x).exp() / sum;
            let others = n.iter().zip(fixed).map(|(&x, &fixed)| p(fixed) * log_sigmoid(-x));
            -0.5 * (log_sigmoid(s) + others.sum::<f64>())
        }
        _ => unreachable!("{name}"),
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn losses_and_gradients_match_their_definitions(
        values in prop::collection::vec((-3.0f32..3.0, 0.1f32..2.0), 3..4),
        negatives in prop::collection::vec((-3.0f32..3.0, -1.0f32..1.0), 6..7),
        weighted in any::<bool>(),
    ) {
        let (positive, weight): (Vec<f32>, Vec<f32>) = values.into_iter().unzip();
        let (negative, log_expected): (Vec<f32>, Vec<f32>) = negatives.into_iter().unzip();
        let options = LinkLossOptions { margin: 0.7, temperature: 0.5, adversarial: 0.8 };
        let weight = if weighted { weight } else { Vec::new() };
        let scores = LinkScores {
            positive: &positive,
            negative: &negative,
            weight: &weight,
            log_expected: &log_expected,
        };
        let wide = |x: &[f32]| x.iter().map(|&x| f64::from(x)).collect::<Vec<f64>>();
        for entry in &TABLE {
            let (value, p_grad, n_grad) = run(entry.make.loss, &scores, &options);
            let objective = |positive: &[f64], negative: &[f64]| -> f64 {
                let share = |p: usize| match &weight[..] {
                    [] => 1.0 / 3.0,
                    weight => f64::from(weight[p]) / wide(weight).iter().sum::<f64>(),
                };
                (0..3).map(|p| {
                    let of = |x: &[f64]| x[2 * p..2 * p + 2].to_vec();
                    let (n, fixed, q) = (of(negative), of(&wide(scores.negative)), of(&wide(&log_expected)));
                    share(p) * definition(entry.name, positive[p], &n, &fixed, &q, &options)
                }).sum()
            };
            let (p, n) = (wide(&positive), wide(&negative));
            prop_assert!((value - objective(&p, &n)).abs() < 1e-9, "{}", entry.name);
            // a hinge has no derivative at its kink
            let near_kink = entry.name == "margin"
                && (0..6).any(|i| (0.7 - p[i / 2] + n[i]).abs() < 1e-3);
            if near_kink {
                continue;
            }
            let moved = |x: &[f64], i: usize, by: f64| { let mut x = x.to_vec(); x[i] += by; x };
            let h = 1e-5;
            for (i, grad) in p_grad.iter().enumerate() {
                let slope = (objective(&moved(&p, i, h), &n) - objective(&moved(&p, i, -h), &n)) / (2.0 * h);
                prop_assert!((f64::from(*grad) - slope).abs() < 1e-5, "{} positive {i}", entry.name);
            }
            for (i, grad) in n_grad.iter().enumerate() {
                let slope = (objective(&p, &moved(&n, i, h)) - objective(&p, &moved(&n, i, -h))) / (2.0 * h);
                prop_assert!((f64::from(*grad) - slope).abs() < 1e-5, "{} negative {i}", entry.name);
            }
        }
    }
}

#[test]
fn large_scores_stay_finite() {
    let scores =
        LinkScores { positive: &[-500.0, 500.0], negative: &[800.0, -800.0], ..LinkScores::default() };
    for entry in &TABLE {
        let (value, p, n) = run(entry.make.loss, &scores, &LinkLossOptions::default());
        assert!(value.is_finite() && p.iter().chain(&n).all(|x| x.is_finite()), "{}", entry.name);
    }
    for entry in &TABLE {
        let (value, _, _) = run(entry.make.loss, &LinkScores::default(), &LinkLossOptions::default());
        assert_eq!(value, 0.0, "{} of no pairs", entry.name);
    }
}

/// The option that a row states, and no other, changes its value.
#[test]
fn rows_state_the_option_that_they_read() {
    let scores =
        LinkScores { positive: &[0.3, 1.4], negative: &[0.2, 0.9, -0.4, 1.1], ..LinkScores::default() };
    let shifted = LinkScores { log_expected: &[0.5, -1.0, 0.2, 0.9], ..scores };
    let value = |loss, scores: &LinkScores, options: &LinkLossOptions| run(loss, scores, options).0;
    for entry in &TABLE {
        let kind = entry.make;
        let base = LinkLossOptions::default();
        for (name, options) in [
            ("margin", LinkLossOptions { margin: 2.0, ..base }),
            ("temperature", LinkLossOptions { temperature: 0.7, ..base }),
            ("adversarial", LinkLossOptions { adversarial: 0.4, ..base }),
        ] {
            let changes = value(kind.loss, &scores, &options) != value(kind.loss, &scores, &base);
            assert_eq!(changes, kind.option == Some(name), "{} {name}", entry.name);
        }
        let corrects = value(kind.loss, &scores, &base) != value(kind.loss, &shifted, &base);
        assert_eq!(corrects, kind.corrects_draws, "{}", entry.name);
    }
}
