//! Answers for nodes that the dataset does not hold: those of `graphmill predict --on`.
//!
//! The new nodes and their edges are joined to the graph for one call; the dataset does not change,
//! and a call sees no new nodes of another one.
//!
//! # Cost
//!
//! An exact answer reads the part of the graph that the new nodes depend on, and its cost is that
//! of their neighbours within the layers of the model. A drawn one, and one of a run whose exact
//! answers are walks, takes O(V + E), because the graph is copied, beyond the memory budget to a
//! temporary directory.

use std::sync::Arc;

use graphmill_core::progress::{Progress, Quiet};
use graphmill_data::typed::{self, Verify};
use graphmill_loader::Feature;

use super::{
    Predictor,
    answers::Neighborhood,
    in_pool,
    index::KeyIndexes,
    new_rows::{KnownNodes, NewAnswers, NewLogits, NewNodes, Tables},
    one_type::{OneType, draws, sampler},
};
use crate::{
    Error, Result, build,
    inference::Output,
    saved::on::{Additions, Known, encodings},
    tiers::DenseRows,
};

impl Predictor {
    /// Answers for new nodes, in the order of their rows: the bits of `graphmill predict --on` if
    /// all neighbours are read. With several types, nodes and edges of other types may be new too,
    /// and the answers are those for the type that the run predicts.
    ///
    /// # Errors
    /// Tables have faults or the dataset was not imported from tables; feature rows have another
    /// width, or name no types of a dataset of several; new nodes have a type without features; an
    /// edge names an unknown node; the sampler cannot draw for single nodes; features cannot be
    /// read; or outputs are not finite.
    pub fn predict_new(&self, new: &NewNodes, of: Neighborhood) -> Result<NewAnswers> {
        self.check(of)?;
        let NewLogits { rows, keys, read } = in_pool(|| self.opened.logits_of_new(new, of))?;
        let name = |row: usize| match keys.get(row) {
            Some(key) => format!("new node {key}"),
            None => format!("the new node of row {row}"),
        };
        Ok(NewAnswers { answers: self.answers(rows, name)?, keys, read })
    }

    /// Returns true if [`Predictor::predict_new`] copies the graph for such answers.
    pub fn copies_graph(&self, of: Neighborhood) -> bool {
        !self.opened.reads_part(of)
    }
}

impl OneType {
    /// Logits of new nodes on the joined graph or, if `in_part`, on the part of it that they depend
    /// on.
    pub(super) fn logits_of_joined(
        &self,
        new: &NewNodes,
        of: Neighborhood,
        in_part: bool,
    ) -> Result<NewLogits> {
        let new = self.additions(new)?;
        let size = [self.data.num_nodes() + new.count, self.data.graph.num_edges() + new.edges.len()];
        let joined = if in_part {
            let KnownNodes { rows, out_degrees } = self.known()?;
            let rows = (rows.clone(), self.features.labels().cloned());
            self.run.part(&self.data, rows, new, (self.loaded.num_layers(), out_degrees.as_deref()))?
        } else {
            self.run.join(&self.data, new)?
        };
        let loaded = self.loaded.on(&self.run, &joined.data, size)?;
        let neighbors = match of {
            Neighborhood::All => loaded.exact.clone(),
            Neighborhood::Drawn { seed } => draws(&sampler(&self.run, &joined.data), seed)?,
        };
        let graph = (&joined.data.graph, &joined.rows);
        let rows = loaded.rows(graph, &neighbors, &joined.ids(), Output::Logits, &Quiet);
        let rows = self.run.blame_config(rows)?;
        let keys = joined.new.keys.as_ref().map(|keys| NewLogits::joined_keys(keys, joined.new.count));
        Ok(NewLogits { rows, keys: keys.unwrap_or_default(), read: joined.new.read() })
    }

    /// The new nodes, checked.
    fn additions(&self, new: &NewNodes) -> Result<Additions> {
        match new {
            NewNodes::Features(new) => Additions::of_features(&self.data, new),
            NewNodes::TypedFeatures(_) => Err(Error::usage(
                "new nodes: the dataset has one type, and the feature rows name types; pass rows without a \
                 type",
            )),
            NewNodes::Tables(new) => {
                let Tables { stored, preprocessing, keys } = self.tables()?;
                let watch: Arc<dyn Progress> = Arc::new(Quiet);
                Additions::of_tables(&Known::new(stored, preprocessing).found_by(keys), new, &watch)
            }
        }
    }

    /// Rows and degrees of the known nodes, prepared by the first call.
    fn known(&self) -> Result<&KnownNodes> {
        let read = || {
            let rows: Arc<dyn Feature> = match DenseRows::of(&self.features) {
                Some(rows) => Arc::new(rows),
                None => self.run.known_rows(&self.data)?,
            };
            let out_degrees = build::weighs_by_out_degree(self.run.config()).then(|| {
                let mut degrees = vec![0; self.data.num_nodes()];
                self.data.graph.indices().iter().for_each(|&u| degrees[u as usize] += 1);
                degrees
            });
            Ok::<_, Error>(KnownNodes { rows, out_degrees })
        };
        let known = self.known.get_or_init(|| read().map_err(|error| error.to_string()));
        known.as_ref().map_err(|why| Error::usage(why.clone()))
    }

    /// The dataset's tables, read by the first call.
    fn tables(&self) -> Result<&Tables> {
        let read = || {
            let (dir, preprocessing) = encodings(&self.data.name, self.data.directory.as_deref())?;
            let stored = typed::open(dir, Verify::Once)?;
            let keys = KeyIndexes::new(&stored);
            Ok::<_, Error>(Tables { stored, preprocessing, keys })
        };
        let tables = self.tables.get_or_init(|| read().map_err(|error| error.to_string()));
        tables.as_ref().map_err(|why| Error::usage(why.clone()))
    }
}

#[cfg(test)]
mod tests {
    use graphmill_core::{Labels, NodeId};
    use graphmill_data::generate::{GenerateOptions, generate};
    use graphmill_loader::sampler::{WeightOptions, weighted::EdgeWeights};

    use super::*;
    use crate::{
        RunContext, RunDir, TrainConfig,
        config::FeaturePrecision,
        observer::Quiet as Silent,
        saved::{SavedRun, on::NewFeatures, predictor::opened::OpenRun},
        train,
    };

    const NODES: usize = 3000;

    /// Change of a configuration.
    type Change = fn(TrainConfig) -> TrainConfig;

    fn weighted(config: TrainConfig, edge_weights: EdgeWeights) -> TrainConfig {
        let config = TrainConfig { sampler: "weighted".into(), ..config };
        config.with(|own: &mut WeightOptions| own.edge_weights = edge_weights)
    }

    /// A run of a changed configuration.
    fn opened(change: Change, classes: usize) -> OneType {
        let options =
            GenerateOptions { nodes: NODES, classes: 5, dim: 12, seed: 3, ..GenerateOptions::default() };
        let mut data = generate("sbm", &options).unwrap();
        let class: Vec<i32> = (0..NODES).map(|v| (v % classes) as i32).collect();
        data.labels = Labels::Single { class: class.into(), classes };
        let config = TrainConfig { hidden: 8, epochs: 1, batch_size: 512, ..TrainConfig::default() };
        let config = change(TrainConfig { fanout: "3,2".parse().unwrap(), max_batches: 1, ..config });
        let dir = tempfile::tempdir().unwrap();
        let run = RunDir::create(dir.path()).unwrap();
        let context = RunContext { run: Some(&run), resume: false, observer: &mut Silent, stop: &|| false };
        train(&config, &data, context).unwrap();
        OneType::new(SavedRun::open(dir.path(), false).unwrap(), data).unwrap()
    }

    #[test]
    fn a_part_of_the_graph_gives_the_bits_of_the_whole() {
        let cases: [(Change, usize); 10] = [
            (|config| config, 5),
            (|config| TrainConfig { model: "gcn".into(), ..config }, 5),
            // fewer classes than hidden columns: the last layer multiplies before it aggregates
            (|config| TrainConfig { model: "gcn".into(), ..config }, 2),
            (|config| TrainConfig { model: "gat".into(), ..config }, 5),
            (|config| TrainConfig { model: "gin".into(), ..config }, 5),
            (|config| TrainConfig { label_inputs: 0.5, ..config }, 5),
            (|config| TrainConfig { head_layers: 1, feature_precision: FeaturePrecision::F16, ..config }, 5),
            (|config| TrainConfig { layers: 1, fanout: "3".parse().unwrap(), ..config }, 5),
            (|config| weighted(config, EdgeWeights::InDegree), 5),
            (|config| weighted(config, EdgeWeights::InverseOutDegree), 5),
        ];
        for (number, (change, classes)) in cases.into_iter().enumerate() {
            let opened = opened(change, classes);
            let known = NODES as NodeId;
            let edges =
                vec![(7, known, 1.0), (known, known + 1, 1.0), (known + 1, 9, 1.0), (2999, known, 1.0)];
            let rows = (0..24).map(|i| (i * 7 % 13) as f32 / 4.0 - 1.0).collect();
            for undirected in [false, true] {
                let new = NewFeatures { rows: Vec::clone(&rows), edges: edges.clone(), undirected };
                let new = NewNodes::Features(new);
                let [part, whole] = [true, false].map(|in_part| {
                    let found = opened.logits_of_joined(&new, Neighborhood::All, in_part).unwrap();
                    assert_eq!((found.rows.num_rows(), found.read.known_edges), (2, 0));
                    found.rows.view().host().iter().map(|x| x.to_bits()).collect::<Vec<u32>>()
                });
                assert_eq!(part, whole, "case {number}, undirected {undirected}");
            }
            assert!(opened.reads_part(Neighborhood::All));
        }
        let walks = opened(|config| TrainConfig { sampler: "random-walk".into(), ..config }, 5);
        assert!(!walks.reads_part(Neighborhood::All));
    }
}
