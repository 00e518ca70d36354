//! Degree-corrected stochastic block model with learnable labels.
//!
//! # Algorithm
//!
//! Classes are communities, degrees follow a power law, and features carry a weak signal of the
//! class, so that a model improves by aggregating the neighbours.
//!
//! Node `v` has weight `w_v`, and an edge's first end is drawn in proportion to the weights. With
//! probability `p_in` its second end comes from the same class, otherwise from another one, again
//! in proportion to the weights. The expected degree of a node is therefore proportional to its
//! weight up to the sizes of the classes, and the share of edges within a class is `p_in`. There
//! may be more communities than classes: then several share a class.
//!
//! Weights are `w = (1 - x)^(-1 / (degree_exponent - 1))` with `x` uniform: a Pareto distribution
//! with that density exponent, cut off at [`MAX_WEIGHT`] times the minimum, so that no hub has a
//! sizeable share of all edges.
//!
//! Reads the options `nodes`, `classes`, `communities`, `train_communities`, `edges`, `degree`,
//! `degree_exponent`, `p_in`, `directed`, `dim`, `signal`, `label_noise`, the split and `seed`.
//!
//! # Source
//!
//! Karrer and Newman, *Stochastic blockmodels and community structure in networks*, Physical Review
//! E 83 (2011), in its edge-by-edge form.
//!
//! # Cost
//!
//! O(V + E), by one alias table over all nodes and one per class.
//!
//! # Deviations
//!
//! Duplicate edges and, in an undirected graph, self-loops are lost, more of them with denser
//! classes and larger hubs: 2.4 % in [`super::demo`], 5.0 % with 200,000 nodes, 40 classes, degree
//! 51 and exponent 2.2.

use graphmill_core::{
    Error, Labels, NodeId, Result,
    alias::Alias,
    keyed::{Stream, key},
};
use rayon::prelude::*;

use super::{
    FeatureType, GenerateOptions,
    attributes::{Purpose, domain, gaussian_features, random_classes, random_split},
    draw,
    options::{check_nodes, check_share},
};
use crate::{Dataset, external::Scratch};

/// Ratio of the largest weight to the smallest.
const MAX_WEIGHT: f64 = 200.0;

/// Largest signal that 16-bit floats (up to 65504) represent: a class mean is at most 6.7 times the
/// signal, and so is the noise.
const MAX_HALF_SIGNAL: f64 = 8192.0;

/// Default average degree.
const DEFAULT_DEGREE: f64 = 16.0;

/// Generates the block model of `options`.
///
/// # Errors
/// The number of nodes, a share, the exponent or the signal is out of range, or [`GenerateOptions`]
/// are invalid.
pub(super) fn generate(options: &GenerateOptions, scratch: &Scratch) -> Result<Dataset> {
    let nodes = options.nodes;
    check_nodes(nodes)?;
    check_share("p_in", options.p_in)?;
    check_share("label_noise", options.label_noise)?;
    if !(options.degree_exponent > 1.0 && options.degree_exponent.is_finite()) {
        return Err(Error::invalid(format!(
            "degree_exponent is {}: a power law needs an exponent above 1",
            options.degree_exponent
        )));
    }
    if !options.signal.is_finite() || options.signal.abs() > f64::from(f32::MAX) / 16.0 {
        return Err(Error::invalid(format!(
            "signal is {}: it must be finite and fit a float",
            options.signal
        )));
    }
    if options.feature_type == FeatureType::F16 && options.signal.abs() > MAX_HALF_SIGNAL {
        return Err(Error::invalid(format!(
            "signal is {}: with f16 features it may be {MAX_HALF_SIGNAL} at most",
            options.signal
        )));
    }
    let expected = (DEFAULT_DEGREE * nodes as f64).min(nodes as f64 * nodes as f64);
    let draws = options.edges_to_draw(nodes, expected, scratch)?;

    let communities = if options.communities == 0 { options.classes } else { options.communities };
    if communities < options.train_communities || communities > i32::MAX as usize {
        return Err(Error::invalid(format!(
            "{communities} communities: there must be at least the {} that train, and at most {}",
            options.train_communities,
            i32::MAX
        )));
    }
    let community = random_classes(nodes, communities, options.seed);
    let ends = Ends::new(&community, communities, options)?;
    let graph = draw::graph(options, scratch, nodes, draws, |e| ends.edge(e))?;
    drop(ends);

    let first = if options.train_communities == 0 { communities } else { options.train_communities };
    let split = random_split(nodes, options, |v| (community[v as usize] as usize) < first)?;
    let mut class = community;
    class.par_iter_mut().with_min_len(1 << 12).for_each(|class| *class %= options.classes as i32);
    let features = gaussian_features(nodes, options, (scratch, "features"), Some(&class))?;
    let class = replace_some(class, options);
    Ok(Dataset {
        name: "sbm".into(),
        graph,
        features,
        labels: Labels::Single { class: class.into(), classes: options.classes },
        split,
        graphs: Vec::new(),
        metric: Some("accuracy".into()),
        checksum: None,
        normalization: None,
        directory: None,
        original_ids: None,
        keys: None,
    })
}

/// Replaces the share `label_noise` of the labels by a uniformly random class (so one in `C` of
/// those keeps its value).
pub(super) fn replace_some(mut class: Vec<i32>, options: &GenerateOptions) -> Vec<i32> {
    let domain = domain(options.seed, Purpose::LabelNoise);
    class.par_iter_mut().with_min_len(1 << 12).enumerate().for_each(|(v, class)| {
        let mut stream = Stream::new(key(&[domain, v as u64]));
        if stream.uniform() < options.label_noise {
            *class = stream.below(options.classes as u64) as i32;
        }
    });
    class
}

/// Distribution of nodes by weight; empty for no nodes.
fn distribution(weights: &[f64]) -> Result<Alias> {
    if weights.is_empty() { Ok(Alias::default()) } else { Alias::in_one(weights) }
}

/// Sampler of the two ends of an edge.
struct Ends<'a> {
    domain: u64,
    class: &'a [i32],
    p_in: f64,
    everywhere: Alias,
    /// Nodes of each nonempty class and their distribution; empty for the others.
    within: Vec<(Vec<NodeId>, Alias)>,
    /// True if all nodes have one class, so that no edge can leave it.
    alone: bool,
}

impl<'a> Ends<'a> {
    fn new(class: &'a [i32], classes: usize, options: &GenerateOptions) -> Result<Self> {
        let domain_of_weights = domain(options.seed, Purpose::Weight);
        let exponent = -1.0 / (options.degree_exponent - 1.0);
        let weight: Vec<f64> = (0..class.len())
            .into_par_iter()
            .with_min_len(1 << 12)
            .map(|v| {
                let x = Stream::new(key(&[domain_of_weights, v as u64])).uniform();
                (1.0 - x).powf(exponent).min(MAX_WEIGHT)
            })
            .collect();
        let mut members: Vec<Vec<NodeId>> = vec![Vec::new(); classes];
        for (v, &c) in class.iter().enumerate() {
            members[c as usize].push(v as NodeId);
        }
        let alone = members.iter().filter(|nodes| !nodes.is_empty()).count() < 2;
        let within = members
            .into_par_iter()
            .map(|nodes| {
                let weights: Vec<f64> = nodes.iter().map(|&v| weight[v as usize]).collect();
                Ok((nodes, distribution(&weights)?))
            })
            .collect::<Result<_>>()?;
        Ok(Self {
            domain: domain(options.seed, Purpose::Edge),
            class,
            p_in: options.p_in,
            everywhere: distribution(&weight)?,
            within,
            alone,
        })
    }

    /// Source and destination of draw `e`.
    #[inline]
    fn edge(&self, e: u64) -> (NodeId, NodeId) {
        let mut stream = Stream::new(key(&[self.domain, e]));
        let u = self.everywhere.draw(&mut stream);
        let own = self.class[u as usize];
        if self.alone || stream.uniform() < self.p_in {
            let (nodes, alias) = &self.within[own as usize];
            return (u, nodes[alias.draw(&mut stream) as usize]);
        }
        // Rejection sampling of another class: with C classes of about equal weight C / (C - 1)
        // draws. The chance of an outsider is at least 1 / (1 + MAX_WEIGHT V), so this terminates.
        loop {
            let v = self.everywhere.draw(&mut stream);
            if self.class[v as usize] != own {
                return (u, v);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn generate(options: &GenerateOptions) -> Result<Dataset> {
        super::generate(options, &Scratch::in_memory())
    }

    fn options() -> GenerateOptions {
        GenerateOptions {
            nodes: 5000,
            classes: 5,
            degree: Some(20.0),
            p_in: 0.6,
            dim: 0,
            ..Default::default()
        }
    }

    /// Share of edges within a class, and mean degree.
    fn measure(dataset: &Dataset) -> (f64, f64) {
        let Labels::Single { class, .. } = &dataset.labels else { panic!("single labels") };
        let graph = &dataset.graph;
        let inside = (0..graph.num_nodes() as u32)
            .flat_map(|v| graph.in_neighbors(v).iter().map(move |&u| (u, v)))
            .filter(|&(u, v)| class[u as usize] == class[v as usize])
            .count();
        let edges = graph.num_edges() as f64;
        (inside as f64 / edges, edges / graph.num_nodes() as f64)
    }

    #[test]
    fn edges_follow_p_in_and_the_weights() {
        let options = options();
        let class = random_classes(options.nodes, options.classes, options.seed);
        let ends = Ends::new(&class, options.classes, &options).unwrap();
        let draws = 100_000;
        let mut inside = 0;
        let mut first_of_class = [0u32; 5];
        for e in 0..draws {
            let (u, v) = ends.edge(e);
            inside += u32::from(class[u as usize] == class[v as usize]);
            first_of_class[class[u as usize] as usize] += 1;
        }
        let sigma = (draws as f64 * 0.6 * 0.4).sqrt();
        assert!((f64::from(inside) - draws as f64 * 0.6).abs() < 5.0 * sigma, "{inside}");
        assert!(first_of_class.iter().all(|&n| (15_000..25_000).contains(&n)), "{first_of_class:?}");
    }

    /// Without hubs the probability of every pair is known, and so is the loss to duplicates.
    #[test]
    fn remaining_edges_match_the_model_within_and_between_classes() {
        let options = GenerateOptions { degree_exponent: 1e9, ..options() };
        let dataset = generate(&options).unwrap();
        let Labels::Single { class, .. } = &dataset.labels else { panic!("single labels") };
        let (n, draws) = (5000.0, 50_000.0);
        let sizes: Vec<f64> = (0..5).map(|c| class.iter().filter(|&&x| x == c).count() as f64).collect();
        let (mut inside, mut outside) = (0.0, 0.0);
        for (c, size) in sizes.iter().enumerate() {
            // Either end may come first, hence the factor 2; a pair drawn k > 1 times counts once.
            let once = 1.0 - (-draws * 2.0 * 0.6 / (n * size)).exp();
            inside += size * (size - 1.0) / 2.0 * once;
            for other in &sizes[..c] {
                let once = 1.0 - (-draws * 0.4 / n * (1.0 / (n - size) + 1.0 / (n - other))).exp();
                outside += size * other * once;
            }
        }
        let (share, degree) = measure(&dataset);
        let edges = degree * n / 2.0;
        assert!((edges * share - inside).abs() < 5.0 * inside.sqrt(), "{} of {inside}", edges * share);
        assert!((edges - edges * share - outside).abs() < 5.0 * outside.sqrt(), "{outside}");
    }

    #[test]
    fn hubs_lose_duplicates_and_extreme_shares_are_exact() {
        for directed in [false, true] {
            let (inside, degree) = measure(&generate(&GenerateOptions { directed, ..options() }).unwrap());
            assert!(degree < 20.0 && degree > 0.9 * 20.0, "{degree}");
            assert!((0.55..0.61).contains(&inside), "repeated edges fall mostly inside: {inside}");
        }
        let apart = measure(&generate(&GenerateOptions { p_in: 0.0, ..options() }).unwrap());
        assert_eq!(apart.0, 0.0);
        let together = measure(&generate(&GenerateOptions { p_in: 1.0, ..options() }).unwrap());
        assert_eq!(together.0, 1.0);
    }

    #[test]
    fn a_smaller_exponent_makes_larger_hubs() {
        let largest = |degree_exponent| {
            let graph = generate(&GenerateOptions { degree_exponent, ..options() }).unwrap().graph;
            (0..5000).map(|v| graph.in_degree(v)).max().unwrap()
        };
        let (even, skewed) = (largest(20.0), largest(2.0));
        assert!(even < 60 && skewed > 300, "{even} and {skewed}");
    }

    #[test]
    fn label_noise_replaces_its_share_and_nothing_else() {
        let clean = generate(&options()).unwrap();
        let noisy = generate(&GenerateOptions { label_noise: 0.25, ..options() }).unwrap();
        assert_eq!(clean.graph.indices(), noisy.graph.indices());
        let (Labels::Single { class: a, .. }, Labels::Single { class: b, .. }) = (clean.labels, noisy.labels)
        else {
            panic!("single labels")
        };
        let changed = a.iter().zip(b.iter()).filter(|(a, b)| a != b).count() as f64;
        // One in five of the replaced labels keeps its class: binomial(5000, 0.2).
        assert!((changed - 1000.0).abs() < 5.0 * 28.3, "{changed}");
    }

    #[test]
    fn small_and_lopsided_models_work() {
        let tiny = GenerateOptions { degree: Some(1.0), train: 1.0, valid: 0.0, test: 0.0, ..options() };
        for nodes in [1, 2, 3] {
            for classes in [1, 2, 50] {
                for p_in in [0.0, 0.5, 1.0] {
                    generate(&GenerateOptions { nodes, classes, p_in, ..tiny.clone() })
                        .unwrap()
                        .validate()
                        .unwrap();
                }
            }
        }
    }

    #[test]
    fn impossible_options_are_reported() {
        let says = |options: GenerateOptions, word: &str| {
            let message = generate(&options).unwrap_err().to_string();
            assert!(message.contains(word), "{message}");
        };
        says(GenerateOptions { nodes: 0, ..options() }, "0 nodes");
        says(GenerateOptions { nodes: 1 << 40, ..options() }, "nodes");
        says(GenerateOptions { p_in: 1.5, ..options() }, "p_in is 1.5");
        says(GenerateOptions { label_noise: -0.5, ..options() }, "label_noise is -0.5");
        says(GenerateOptions { degree_exponent: 1.0, ..options() }, "exponent");
        says(GenerateOptions { signal: f64::INFINITY, ..options() }, "signal");
    }
}
