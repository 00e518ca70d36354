//! Attributes of a generated graph: random classes, Gaussian features, a random split.
//!
//! Everything is keyed by (seed, purpose, node), so any thread can fill any node in any order.

use graphmill_core::{
    Error, Features, NodeId, Result, Split,
    keyed::{Stream, key},
};
use rayon::prelude::*;

use super::{GenerateOptions, draw};
use crate::external::Scratch;

/// Purpose of a keyed stream, the second part of its key.
#[derive(Clone, Copy, Debug)]
pub(super) enum Purpose {
    Edge = 1,
    Class,
    ClassMean,
    Feature,
    Split,
    Weight,
    LabelNoise,
    Shuffle,
}

/// Key shared by all streams of one purpose.
pub(super) fn domain(seed: u64, purpose: Purpose) -> u64 {
    key(&[seed, purpose as u64])
}

/// Draws a uniformly random class per node, `V`.
pub(super) fn random_classes(nodes: usize, classes: usize, seed: u64) -> Vec<i32> {
    let domain = domain(seed, Purpose::Class);
    (0..nodes)
        .into_par_iter()
        .with_min_len(1 << 12)
        .map(|v| Stream::new(key(&[domain, v as u64])).below(classes as u64) as i32)
        .collect()
}

/// Draws features `V x F`: standard normal noise, plus `signal` times the mean of the node's class
/// if `class` is given. The class means are standard normal. The rows have a name that is unique
/// within the scratch.
///
/// # Errors
/// Writing to the scratch directory fails.
pub(super) fn gaussian_features(
    nodes: usize,
    options: &GenerateOptions,
    scratch: (&Scratch, &str),
    class: Option<&[i32]>,
) -> Result<Features> {
    let dim = options.dim;
    let noise = domain(options.seed, Purpose::Feature);
    let mean_domain = domain(options.seed, Purpose::ClassMean);
    let mut means = vec![0.0f32; if class.is_some() { options.classes * dim } else { 0 }];
    for (c, mean) in means.chunks_exact_mut(dim.max(1)).enumerate() {
        fill_normal(&mut Stream::new(key(&[mean_domain, c as u64])), mean);
        mean.iter_mut().for_each(|x| *x *= options.signal as f32);
    }
    draw::features(options, scratch, nodes, |v, row| {
        fill_normal(&mut Stream::new(key(&[noise, v as u64])), row);
        if let Some(class) = class {
            let mean = &means[class[v] as usize * dim..][..dim];
            row.iter_mut().zip(mean).for_each(|(x, m)| *x += m);
        }
    })
}

/// Fills a row with standard normals by the Box-Muller transform. Using both values of a pair
/// halves the logarithms of [`Stream::normal`]; single precision cuts the tail off at 6.7 sigma.
fn fill_normal(stream: &mut Stream, row: &mut [f32]) {
    for pair in row.chunks_mut(2) {
        let bits = stream.next_u64();
        // (0, 1] and [0, 1): 32 random bits each.
        let (a, b) = (((bits >> 32) + 1) as f32 * UNIT, (bits as u32) as f32 * UNIT);
        let radius = (-2.0 * a.ln()).sqrt();
        let (sin, cos) = (std::f32::consts::TAU * b).sin_cos();
        pair[0] = radius * cos;
        if let Some(second) = pair.get_mut(1) {
            *second = radius * sin;
        }
    }
}

/// 2^-32.
const UNIT: f32 = 1.0 / 4_294_967_296.0;

/// Draws random disjoint parts with the shares `options.{train, valid, test}` of the nodes, rounded
/// so that shares that sum to 1 use every node. Training nodes are drawn from those for which
/// `may_train` holds.
///
/// # Errors
/// Too few nodes may train.
pub(super) fn random_split(
    nodes: usize,
    options: &GenerateOptions,
    may_train: impl Fn(NodeId) -> bool,
) -> Result<Split> {
    let mut order: Vec<NodeId> = (0..nodes as NodeId).collect();
    Stream::new(domain(options.seed, Purpose::Split)).shuffle(&mut order);
    let at = |share: f64| ((share * nodes as f64).round() as usize).min(nodes);
    let ends = [
        0,
        at(options.train),
        at(options.train + options.valid),
        at(options.train + options.valid + options.test),
    ];
    let mut wanted = ends[1];
    let (train, others): (Vec<NodeId>, Vec<NodeId>) = order.into_iter().partition(|&v| {
        let trains = wanted > 0 && may_train(v);
        wanted -= usize::from(trains);
        trains
    });
    if wanted > 0 {
        return Err(Error::invalid(format!(
            "train-communities: these communities have {} nodes, but {} are to train; increase \
             train-communities or reduce the training share",
            train.len(),
            ends[1]
        )));
    }
    let part = |mut ids: Vec<NodeId>| {
        ids.par_sort_unstable();
        ids.into()
    };
    let [valid, test] = [1, 2].map(|i| part(others[ends[i] - ends[1]..ends[i + 1] - ends[1]].to_vec()));
    Ok(Split { train: part(train), valid, test })
}

#[cfg(test)]
mod tests {
    use graphmill_core::features::FeatureData;

    use super::*;

    #[test]
    fn normals_have_the_moments_of_a_normal() {
        let mut row = vec![0.0f32; 400_001];
        fill_normal(&mut Stream::new(key(&[3])), &mut row);
        let n = row.len() as f64;
        let moment = |power: i32| row.iter().map(|&x| f64::from(x).powi(power)).sum::<f64>() / n;
        // Standard errors: sqrt(1/n), sqrt(2/n), sqrt(15/n), sqrt(96/n); five of each.
        let expected = [(1, 0.0, 1.0f64), (2, 1.0, 2.0), (3, 0.0, 15.0), (4, 3.0, 96.0)];
        for (power, mean, variance) in expected {
            assert!(
                (moment(power) - mean).abs() < 5.0 * (variance / n).sqrt(),
                "moment {power}: {}",
                moment(power)
            );
        }
        let pairs = row.chunks_exact(2).map(|p| f64::from(p[0] * p[1])).sum::<f64>() / (n / 2.0);
        assert!(pairs.abs() < 5.0 * (2.0 / n).sqrt());
        assert!(row.iter().all(|x| x.is_finite()));
    }

    #[test]
    fn features_shift_by_signal_times_the_class_mean() {
        let options = GenerateOptions { classes: 2, dim: 3, signal: 2.0, ..Default::default() };
        let plain = GenerateOptions { signal: 0.0, ..options.clone() };
        let class = [0, 1, 0];
        let made = |options: &GenerateOptions, class: Option<&[i32]>| {
            gaussian_features(3, options, (&Scratch::in_memory(), "features"), class).unwrap()
        };
        let values = |options: &GenerateOptions, class: Option<&[i32]>| match made(options, class).data {
            FeatureData::F32(data) => data.to_vec(),
            FeatureData::F16(_) | FeatureData::Csr(_) => unreachable!(),
        };
        let (noise, shifted) = (values(&plain, Some(&class)), values(&options, Some(&class)));
        assert_eq!(noise, values(&options, None));
        let shift: Vec<f32> = shifted.iter().zip(&noise).map(|(a, b)| a - b).collect();
        for i in 0..3 {
            assert!((shift[i] - shift[6 + i]).abs() < 1e-5, "nodes 0 and 2 are of one class");
            assert!((shift[i] - shift[3 + i]).abs() > 1e-3, "nodes 0 and 1 are not");
        }
    }

    #[test]
    fn shares_that_sum_to_one_use_every_node() {
        let options = GenerateOptions { train: 0.1, valid: 0.2, test: 0.7, ..Default::default() };
        for nodes in [1, 2, 3, 5, 7, 10, 101] {
            let split = random_split(nodes, &options, |_| true).unwrap();
            let mut all: Vec<u32> = split.parts().iter().flat_map(|(_, ids)| ids.to_vec()).collect();
            all.sort_unstable();
            assert_eq!(all, (0..nodes as u32).collect::<Vec<_>>());
        }
        assert_eq!(
            random_split(10, &options, |_| true).unwrap().parts().map(|(_, ids)| ids.len()),
            [1, 2, 7]
        );
        let none = GenerateOptions { train: 0.5, valid: 0.0, test: 0.0, ..options };
        assert_eq!(random_split(10, &none, |_| true).unwrap().parts().map(|(_, ids)| ids.len()), [5, 0, 0]);
    }

    #[test]
    fn training_nodes_come_from_the_training_communities() {
        let options = GenerateOptions { train: 0.2, valid: 0.3, test: 0.5, ..Default::default() };
        let split = random_split(50, &options, |v| v % 4 == 1).unwrap();
        assert!(split.train.len() == 10 && split.train.iter().all(|v| v % 4 == 1));
        let mut all: Vec<u32> = split.parts().iter().flat_map(|(_, ids)| ids.to_vec()).collect();
        all.sort_unstable();
        assert_eq!(all, (0..50).collect::<Vec<u32>>());
        let few = random_split(50, &options, |v| v < 9).unwrap_err().to_string();
        assert!(few.starts_with("train-communities: these communities have 9 nodes"), "{few}");
    }
}
