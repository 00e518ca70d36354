//! The share of the hot nodes by given waiting times (`--hot-split timed`), and the memory that
//! devices reserve for their rows.

use std::sync::Mutex;

use graphmill_data::{
    Dataset,
    generate::{GenerateOptions, generate},
};
use graphmill_loader::{Feature, Seeds, Workspace, feature::Host};
use graphmill_nn::{backend::Cpu, cost::BlockShape};

use super::*;
use crate::{
    TrainConfig, build,
    config::{Bytes, Fanout},
    hotness::scores::loader,
    timeline::Timeline,
};

/// Largest number of hot nodes for which memory was divided, one for each division.
type Divisions = Arc<Mutex<Vec<usize>>>;

/// Strategy that trains on nothing, and keeps the reserved numbers of rows.
#[derive(Default)]
struct Divided {
    announced: usize,
    divisions: Divisions,
}

impl Strategy for Divided {
    fn prepare(&mut self, _: &Loader, _: &Learner) -> Result<()> {
        self.divisions.lock().unwrap().push(self.announced);
        Ok(())
    }

    fn run(&mut self, _: Epoch) -> Result<Flow> {
        Ok(Flow::Continue)
    }

    fn expect_reuse(&mut self, plan: Arc<reuse::ReusePlan>) {
        self.announced = plan.max_hot;
    }
}

fn data() -> Dataset {
    let options =
        GenerateOptions { nodes: 600, degree: Some(12.0), classes: 3, dim: 6, ..GenerateOptions::default() };
    generate("sbm", &options).unwrap()
}

/// A run on one simulated device with a budget that holds everything.
fn config(hot_split: HotSplit) -> TrainConfig {
    let config = TrainConfig {
        model: "gcn".into(),
        layers: 2,
        fanout: Fanout(vec![4, 3]),
        hidden: 8,
        batch_size: 50,
        devices: "virtual:1".parse().unwrap(),
        device_budget: Bytes(1 << 30),
        reuse: "layered".into(),
        ..TrainConfig::default()
    };
    config.with(|options: &mut LayeredOptions| {
        (options.super_batch, options.hot_rank, options.hot_split) = (3, 0, hot_split);
    })
}

/// Calls `see` with a prepared run, and a function that begins an epoch at a batch and ends it
/// there; returns the divisions of the devices' memory.
fn divisions(
    hot_split: HotSplit,
    see: impl FnOnce(&mut Layered, &mut dyn FnMut(&mut Layered, u64)),
) -> Vec<usize> {
    let (data, config) = (data(), config(hot_split));
    let (sampler, order) = (build::sampler(&config, &data).unwrap(), build::order(&config, &data).unwrap());
    let rows = Host::new(&data.features);
    let feature: Arc<dyn Feature> = Arc::new(Host::new(&data.features));
    let model = build::model(&config, &data).unwrap();
    let mut loader = loader(&config, &data, &*sampler, &*order, &rows).unwrap();
    loader.symmetric = build::symmetric(&model, &data);
    loader.aggregation = model.aggregation();
    let (mut seeds, mut space) = (Vec::new(), Workspace::new(data.num_nodes()));
    loader.first(0, 1, &mut seeds);
    let picked = loader.pick(0, &seeds, 0, Seeds::default()).unwrap();
    let first = loader.sample(0, &mut space, picked).unwrap();
    let orders = model.orders(&first.blocks.iter().map(BlockShape::from).collect::<Vec<_>>());
    let backend = Cpu { precision: build::precision(&config) };
    let optimizer = build::optimizer(&config).unwrap();
    let mut learner = Learner::new(&backend, model, optimizer, &data.labels, orders, &config);
    let inner = Divided::default();
    let divisions = inner.divisions.clone();
    let context = StrategyContext::new(&config, &data, &*sampler, &*order, &feature);
    let mut layered = Layered::new(context, Box::new(inner));
    layered.prepare(&loader, &learner).unwrap();
    let timeline = Timeline::begin();
    see(&mut layered, &mut |layered, batch| {
        let flow = layered.run(Epoch {
            number: 1,
            order: &[],
            from: batch,
            to: batch,
            loader: &loader,
            learner: &mut learner,
            lr: &|_| 0.01,
            after: &mut |_, _| Ok(Flow::Continue),
            timeline: &timeline,
        });
        assert!(matches!(flow, Ok(Flow::Continue)));
    });
    let divisions = divisions.lock().unwrap();
    divisions.to_vec()
}

/// Share of the hot nodes after a super-batch of one second, of which training waited `waited`.
fn share_after(layered: &mut Layered, waited: f64) -> f64 {
    layered.waited = waited;
    layered.adapt(1.0).unwrap();
    layered.maker.as_ref().unwrap().split
}

#[test]
fn the_share_follows_the_waiting_time() {
    divisions(HotSplit::Timed, |layered, _| {
        let near = |a: f64, b: f64| assert!((a - b).abs() < 1e-12, "{a}, not {b}");
        near(share_after(layered, 0.0), 1.0);
        near(share_after(layered, 0.3), 0.7);
        // a share of at most two percent is not waiting
        near(share_after(layered, MAX_IDLE), 0.7 * GROWTH);
        near(share_after(layered, 0.021), 0.7 * GROWTH * 0.979);
        // at most half in one step, and never none
        let before = layered.maker.as_ref().unwrap().split;
        near(share_after(layered, 0.9), 0.5 * before);
        for _ in 0..10 {
            share_after(layered, 1.0);
        }
        near(share_after(layered, 1.0), 0.01);
        for _ in 0..100 {
            share_after(layered, 0.0);
        }
        near(share_after(layered, 0.0), 1.0);
    });
    for fixed in [HotSplit::Auto, HotSplit::Share(0.5)] {
        divisions(fixed, |layered, _| {
            let before = layered.maker.as_ref().unwrap().split;
            assert_eq!(share_after(layered, 0.9), before, "{fixed}");
        });
    }
}

#[test]
fn the_next_epoch_divides_memory_again_if_the_share_has_changed() {
    let mut expected = Vec::new();
    let divided = divisions(HotSplit::Timed, |layered, begin| {
        let rows = |layered: &Layered| layered.maker.as_ref().unwrap().next_plan().max_hot;
        let first = layered.maker.as_ref().unwrap().reserved_plan().max_hot;
        assert!(first >= 50, "{first}");
        // five percent are no reason
        share_after(layered, 0.05);
        begin(layered, 0);
        share_after(layered, 0.4);
        let fewer = rows(layered);
        // a resumed epoch has the memory of its first batch
        begin(layered, 2);
        assert_eq!(layered.maker.as_ref().unwrap().reserved, first);
        begin(layered, 0);
        assert_eq!(layered.maker.as_ref().unwrap().reserved_plan().max_hot, fewer);
        // the same share, and one that grows within its memory until the next epoch
        begin(layered, 0);
        for _ in 0..3 {
            share_after(layered, 0.0);
        }
        assert_eq!(layered.maker.as_ref().unwrap().reserved_plan().max_hot, fewer);
        let more = rows(layered);
        begin(layered, 0);
        assert!(fewer < first && fewer < more, "{first} {fewer} {more}");
        expected = vec![first, fewer, more];
    });
    assert_eq!(divided, expected);
    // without the time, nothing divides it again
    let auto = divisions(HotSplit::Auto, |layered, begin| {
        share_after(layered, 0.9);
        begin(layered, 0);
    });
    assert_eq!(auto.len(), 1);
}
