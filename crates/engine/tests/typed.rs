//! Typed samplers and typed models together: training by minibatches on graphs whose classes
//! follow from the relations alone.

use graphmill_core::{
    Features, NodeId, Result,
    block::Aggregation,
    keyed::{Stream, key},
    options::OwnOptions,
    typed::{NodeType, Relation, Schema, TypedGraph, bipartite},
};
use graphmill_loader::{
    BatchKey, Feature,
    feature::Host,
    typed::{TABLE, TypedExtracted, TypedOptions, TypedRequest, TypedSampler, TypedSeeds, TypedWorkspace},
};
use graphmill_nn::{
    Pass,
    backend::{Cpu, ops::SoftmaxCrossEntropy},
    optim::{self, AdamOptions, SparseAdam},
    typed::{Target, TypedActivations, TypedModel, TypedModelConfig, TypedStep},
};

const CLASSES: usize = 4;
const PAPERS: usize = 1200;
const AUTHORS: usize = 600;
const VENUES: usize = 40;
/// Number of papers to train on; the others test.
const TRAIN: usize = 800;

/// A typed graph with the classes of its papers and the features of papers and authors.
///
/// Authors belong to one of four groups, as their features show. A paper of class `c` is written
/// by two authors of group `c`, and reviewed by two authors of each other group: together its
/// neighbours are spread evenly, so a model that ignores relations learns nothing. Features of
/// papers are noise, and venues have none.
struct Planted {
    graph: TypedGraph,
    labels: Vec<i32>,
    papers: Host,
    authors: Host,
}

/// Edges from sources to destinations.
type Edges = (Vec<NodeId>, Vec<NodeId>);

impl Planted {
    /// Creates the graph; with `blind`, one relation holds the edges of all authors.
    fn new(blind: bool) -> Result<Self> {
        let mut stream = Stream::new(key(&[11]));
        let labels: Vec<i32> = (0..PAPERS).map(|_| stream.below(CLASSES as u64) as i32).collect();
        let (mut writes, mut reviews, mut at) = (Edges::default(), Edges::default(), Edges::default());
        for (v, &label) in (0..).zip(&labels) {
            for group in 0..CLASSES {
                let edges = if group == label as usize { &mut writes } else { &mut reviews };
                for _ in 0..2 {
                    let author = stream.below((AUTHORS / CLASSES) as u64) as usize * CLASSES + group;
                    edges.0.push(author as u32);
                    edges.1.push(v);
                }
            }
            at.0.push(stream.below(VENUES as u64) as u32);
            at.1.push(v);
        }
        let counts = [PAPERS, AUTHORS, VENUES];
        let types = ["paper", "author", "venue"].iter().zip(counts).map(|(name, n)| NodeType::new(*name, n));
        let mut lists = vec![("at", 2, at)];
        if blind {
            lists.push(("knows", 1, ([writes.0, reviews.0].concat(), [writes.1, reviews.1].concat())));
        } else {
            lists.extend([("writes", 1, writes), ("reviews", 1, reviews)]);
        }
        let (mut relations, mut graphs) = (Vec::new(), Vec::new());
        for (name, src, (from, to)) in &lists {
            relations.push(Relation::new(*src, *name, 0));
            graphs.push(bipartite(counts[*src], PAPERS, from, to)?);
            relations.push(Relation::new(0, format!("{name}-reverse"), *src));
            graphs.push(bipartite(PAPERS, counts[*src], to, from)?);
        }
        let graph = TypedGraph::new(Schema::new(types.collect(), relations)?, graphs)?;
        let mut noise = |n: usize| -> Vec<f32> { (0..n).map(|_| stream.normal() as f32).collect() };
        let papers = Host::new(&Features::f32(3, noise(PAPERS * 3)));
        let mut groups = noise(AUTHORS * 6);
        for (v, row) in groups.chunks_mut(6).enumerate() {
            row[v % CLASSES] += 4.0;
        }
        Ok(Self { graph, labels, papers, authors: Host::new(&Features::f32(6, groups)) })
    }

    fn sampler(&self, name: &str, fanout: &str) -> Box<dyn TypedSampler> {
        let options = TypedOptions { fanout: fanout.parse().unwrap(), ..TypedOptions::default() };
        (TABLE.find(name).unwrap().make.make)(&options, &self.graph).unwrap()
    }

    fn draw(
        &self,
        sampler: &dyn TypedSampler,
        workspace: &mut TypedWorkspace,
        key: BatchKey,
        seeds: TypedSeeds,
    ) -> Result<TypedExtracted> {
        // the mean of rsage and rgcn; attention ignores weights
        let request = TypedRequest { aggregation: Aggregation::Mean, ..TypedRequest::new(&self.graph, key) };
        let sampled = sampler.sample(&request.transposed(), workspace, seeds)?;
        let tables: [Option<&dyn Feature>; 3] = [Some(&self.papers), Some(&self.authors), None];
        sampled.extract(&tables)
    }
}

fn step(batch: &TypedExtracted) -> TypedStep<'_> {
    TypedStep {
        blocks: &batch.sampled.blocks,
        features: &batch.features,
        edges: &batch.edges,
        nodes: &batch.sampled.input_nodes,
        num_targets: batch.sampled.seeds.nodes[0].len(),
        reused: &[],
    }
}

/// Trains for some epochs; returns the last epoch's losses, and the accuracy on test papers with
/// all neighbours.
fn train(planted: &Planted, name: &str, sampler: &dyn TypedSampler, epochs: u64) -> Result<(Vec<f64>, f64)> {
    let schema = planted.graph.schema();
    let head_layers = usize::from(name == "hgt");
    let config = TypedModelConfig {
        model: name.into(),
        hidden: 16,
        dropout: 0.0,
        head_layers,
        ..TypedModelConfig::default()
    };
    let target = Target { node_type: 0, outputs: CLASSES };
    let mut model = TypedModel::new(&config, schema, &[3, 6, 0], target, 1).unwrap();
    let mut adam = optim::by_name("adam", &OwnOptions::default()).unwrap();
    let mut sparse = SparseAdam::new(&AdamOptions::default()).unwrap();
    let (backend, mut acts) = (Cpu::default(), TypedActivations::default());
    let (mut workspace, mut memory) = (TypedWorkspace::new(schema), TypedSeeds::default());
    let train: Vec<NodeId> = (0..TRAIN as NodeId).collect();
    let mut losses = Vec::new();
    for epoch in 0..epochs {
        losses.clear();
        for (number, seeds) in (0..).zip(train.chunks(100)) {
            let seeds = memory.refill(number, &[seeds, &[], &[]]);
            let batch =
                planted.draw(sampler, &mut workspace, BatchKey { seed: 3, epoch, batch: number }, seeds)?;
            let pass = Pass { backend: &backend, training: true, key: key(&[epoch, number]) };
            model.forward(&pass, &step(&batch), &mut acts)?;
            let seeds = &batch.sampled.seeds.nodes[0];
            let label: Vec<i32> = seeds.iter().map(|&v| planted.labels[v as usize]).collect();
            let (logits, grad) = acts.logits_and_grad();
            let scale = 1.0 / label.len() as f32;
            losses
                .push(SoftmaxCrossEntropy { logits, label: &label, weight: &[], scale, grad }.run(&backend));
            model.zero_grad(&backend);
            model.backward(&pass, &step(&batch), &mut acts);
            adam.begin(0.01);
            sparse.begin(0.01);
            let mut index = 0;
            model.visit_mut(&mut |_, p| {
                adam.update(&backend, index, p, 0.0);
                index += 1;
            });
            model.update_learned_rows(&mut sparse, &batch.sampled.input_nodes, &acts);
            memory = batch.recycle();
        }
    }
    let test: Vec<NodeId> = (TRAIN as NodeId..PAPERS as NodeId).collect();
    let seeds = memory.refill(0, &[&test, &[], &[]]);
    let full = planted.sampler("full", "-1,-1");
    let batch = planted.draw(&*full, &mut workspace, BatchKey { seed: 0, epoch: 0, batch: 0 }, seeds)?;
    model.forward(&Pass { backend: &backend, training: false, key: 0 }, &step(&batch), &mut acts)?;
    let correct =
        acts.logits().host().chunks(CLASSES).zip(&planted.labels[TRAIN..]).filter(|(row, label)| {
            let best = (0..CLASSES).max_by(|&a, &b| row[a].total_cmp(&row[b]));
            best == Some(**label as usize)
        });
    Ok((losses, correct.count() as f64 / test.len() as f64))
}

#[test]
fn typed_models_learn_classes_that_follow_from_relations() {
    let planted = Planted::new(false).unwrap();
    let sampler = planted.sampler("neighbor", "4,2");
    for model in ["rsage", "rgcn", "rgat", "hgt", "simple-hgn"] {
        let (_, accuracy) = train(&planted, model, &*sampler, 6).unwrap();
        assert!(accuracy > 0.85, "{model}: {accuracy}");
    }
    let budget = planted.sampler("hgt", "120,120");
    let (_, accuracy) = train(&planted, "rsage", &*budget, 6).unwrap();
    assert!(accuracy > 0.85, "HGSampling: {accuracy}");
    let blind = Planted::new(true).unwrap();
    let sampler = blind.sampler("neighbor", "8,2");
    for model in ["rsage", "rgcn"] {
        let (_, accuracy) = train(&blind, model, &*sampler, 6).unwrap();
        assert!(accuracy < 0.45, "{model} without relations: {accuracy}");
    }
}

#[test]
fn training_has_the_same_bits_for_any_number_of_threads() {
    let planted = Planted::new(false).unwrap();
    let run = |threads| {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
        pool.install(|| train(&planted, "hgt", &*planted.sampler("labor", "4,2"), 2).unwrap())
    };
    let (one, three) = (run(1), run(3));
    assert_eq!((one.0, one.1), (three.0, three.1));
}
