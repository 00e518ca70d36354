//! Labels of training nodes as columns of the input rows of a task's type (`--label-inputs`), as of
//! one type ([`crate::label_inputs`]).

use graphmill_core::features::FeatureData;
use graphmill_data::typed::TypedDataset;
use graphmill_loader::{
    Feature,
    typed::{TypedExtracted, TypedSampled},
};

use super::{batches::batch_size, tables::borrowed, task::TypedTask};
use crate::{
    Error, Result, TrainConfig,
    label_inputs::{LabelColumns, check_seeds},
    options::typed_label_columns,
};

impl TypedTask {
    /// The same task with label columns, if the configuration requests them.
    ///
    /// # Errors
    /// Rows of the task have times, no edge leads from a node of the task's type, or it has no
    /// dense feature rows to append to.
    pub(super) fn with_label_columns(self, config: &TrainConfig, data: &TypedDataset) -> Result<Self> {
        if config.label_inputs == 0.0 {
            return Ok(self);
        }
        let (schema, t) = (self.graph.schema(), self.node_type);
        let name = &schema.types()[t].name;
        let mut relations = schema.relations().iter().zip(self.graph.relations());
        let is_read = relations.any(|(of, edges)| of.src == t && edges.num_edges() > 0);
        let why = match &self.features[t] {
            _ if self.times.is_some() => {
                format!("the rows of task '{}' have times, and labels would reach earlier rows", self.name)
            }
            _ if !is_read => format!("no edge leads from a node of type '{name}', so none reads its label"),
            None => format!("nodes of type '{name}' have no features that labels could follow"),
            Some(features) if matches!(features.data, FeatureData::Csr(_)) => {
                format!("the feature rows of type '{name}' are sparse")
            }
            Some(_) => {
                let (of, targets) =
                    ((&data.name[..], self.num_nodes()), (&self.labels, &self.split.train[..]));
                let label_columns = LabelColumns::of_targets(config, of, targets, self.labels.classes())?;
                return Ok(Self { label_columns, ..self });
            }
        };
        Err(Error::usage(format!("--label-inputs {}: {why}; leave it out", config.label_inputs)))
    }

    /// Width of the input rows of each type; 0 for a type without features.
    pub(super) fn input_dims(&self) -> Vec<usize> {
        let mut dims = self.feature_dims();
        dims[self.node_type] += self.label_columns.as_ref().map_or(0, LabelColumns::width);
        dims
    }

    /// Gathers the rows that the model reads for a training batch of `epoch`: features of nodes and
    /// edges, and labels that are not those of its seeds.
    ///
    /// # Errors
    /// A tier cannot be read.
    pub(super) fn extract(
        &self,
        batch: TypedSampled,
        tables: &[Option<&dyn Feature>],
        epoch: u64,
    ) -> Result<TypedExtracted> {
        let mut batch = batch.extract(tables)?.with_edges(&borrowed(&self.edges))?;
        if let Some(labels) = &self.label_columns {
            let (TypedExtracted { sampled, features, .. }, t) = (&mut batch, self.node_type);
            let rows = (&sampled.input_nodes[t][..], &mut features[t]);
            labels.append_to_training((epoch, sampled.seeds.number), &sampled.seeds.nodes[t], rows);
        }
        Ok(batch)
    }
}

/// Checks that a run on `task` can have label columns, if it requests them.
///
/// # Errors
/// An option excludes them, or one batch has all training nodes as seeds.
pub(super) fn check(config: &TrainConfig, task: &TypedTask) -> Result<()> {
    if config.label_inputs > 0.0 {
        let flag = format!("--label-inputs {}", config.label_inputs);
        typed_label_columns(config).map_err(|reason| Error::usage(format!("{flag}: {reason}")))?;
    }
    check_seeds(config, batch_size(config, task), task.split.train.len())
}

#[cfg(test)]
mod tests {
    use graphmill_core::{Labels, SparseRows};
    use graphmill_data::{
        generate::{GenerateOptions, generate_typed},
        typed::{FeatureTable, Targets},
    };
    use graphmill_loader::{
        BatchKey,
        typed::{TABLE, TypedSeeds, TypedWorkspace},
    };
    use proptest::prelude::*;

    use super::{super::build, *};
    use crate::options::key;

    const CLASSES: i32 = 3;
    const SEEDS: usize = 16;

    fn data() -> TypedDataset {
        let options = GenerateOptions { nodes: 400, classes: 3, dim: 4, ..GenerateOptions::default() };
        generate_typed("typed", &options).unwrap()
    }

    fn config(sampler: &str, share: f64) -> TrainConfig {
        let fanout = if sampler == "hgt" { "40,40" } else { "4,2" };
        let mut config = TrainConfig { model: "rsage".into(), seed: 3, hidden: 8, ..TrainConfig::default() };
        let options = [("sampler", sampler), ("fanout", fanout), ("num_walks", "5"), ("replace", "true")];
        // the graph stores no weights to draw by without replacement
        for (name, value) in &options[..if sampler == "weighted" { 4 } else { 3 }] {
            key(name).unwrap().parse(&mut config, value).unwrap();
        }
        TrainConfig { label_inputs: share, ..config }
    }

    fn task(config: &TrainConfig, data: &TypedDataset) -> TypedTask {
        TypedTask::new(data, "").unwrap().with_edges(config, data).unwrap()
    }

    /// The first batch of an epoch, with its input rows.
    fn batch(config: &TrainConfig, data: &TypedDataset, epoch: u64) -> TypedExtracted {
        let task = task(config, data);
        let (sampler, order) = (build::sampler(config, &task).unwrap(), build::order(config, &task).unwrap());
        let mut nodes = Vec::new();
        order.order(epoch, &mut nodes);
        let key = BatchKey { seed: config.seed, epoch, batch: 0 };
        let seeds = TypedSeeds::default().refill(0, &task.seeds(&nodes[..SEEDS]));
        let mut workspace = TypedWorkspace::new(task.graph.schema());
        let drawn = sampler.sample(&task.request(key), &mut workspace, seeds).unwrap();
        task.extract(drawn, &borrowed(&task.host_tables().unwrap()), epoch).unwrap()
    }

    fn classes(data: &TypedDataset) -> Vec<i32> {
        let Targets::Classes(Labels::Single { class, .. }) = &data.tasks[0].targets else {
            panic!("one class per node")
        };
        class.to_vec()
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(12))]

        #[test]
        fn no_input_row_of_a_batch_depends_on_the_labels_of_its_seeds(
            epoch in 0u64..4, share in 0.1f64..1.0, shift in 1..CLASSES,
        ) {
            let data = data();
            let class = classes(&data);
            for entry in TABLE.iter().filter(|entry| !entry.make.draws_subgraphs) {
                let config = config(entry.name, share);
                let (task, one) = (task(&config, &data), batch(&config, &data, epoch));
                let (t, dim) = (task.node_type, task.feature_dims()[task.node_type]);
                let (seeds, nodes) = (&one.sampled.seeds.nodes[t], &one.sampled.input_nodes[t]);
                prop_assert_eq!(&nodes[..SEEDS], &seeds[..], "{}", entry.name);
                // a row has the label of a training node that is no seed, or none
                let rows = one.features[t].view().host().chunks_exact(dim + CLASSES as usize);
                for (v, row) in nodes.iter().zip(rows) {
                    if let Some(c) = row[dim..].iter().position(|&x| x != 0.0) {
                        prop_assert!(task.split.train.contains(v) && !seeds.contains(v), "{}", entry.name);
                        let sum: f32 = row[dim..].iter().sum();
                        prop_assert_eq!((c as i32, sum), (class[*v as usize], 1.0));
                    }
                }
                let mut changed = class.clone();
                seeds.iter().for_each(|&v| changed[v as usize] = (changed[v as usize] + shift) % CLASSES);
                let mut other = data.clone();
                let labels = Labels::Single { class: changed.into(), classes: CLASSES as usize };
                other.tasks[0].targets = Targets::Classes(labels);
                let other = batch(&config, &other, epoch);
                prop_assert_eq!(&one.sampled.input_nodes, &other.sampled.input_nodes);
                for (one, other) in one.features.iter().zip(&other.features) {
                    prop_assert_eq!(one.view().host(), other.view().host(), "{}", entry.name);
                }
            }
        }
    }

    #[test]
    fn types_whose_labels_no_row_can_have_or_read_are_refused() {
        let (data, config) = (data(), config("neighbor", 0.5));
        let t = task(&config, &data).node_type;
        let refused = |data: &TypedDataset| {
            let refused = TypedTask::new(data, "").unwrap().with_edges(&config, data);
            refused.err().expect("no label columns").to_string()
        };
        let mut sparse = data.clone();
        let rows = SparseRows::from_dense(4, &vec![1.0; 4 * data.nodes[t].count]).unwrap();
        sparse.nodes[t].features = Some(FeatureTable::sparse(rows));
        let message = refused(&sparse);
        assert!(message.contains("the feature rows of type 'paper' are sparse; leave it out"), "{message}");
        let mut unread = data.clone();
        unread.edges.retain(|edges| edges.edge_type.source != "paper");
        let message = refused(&unread);
        assert!(message.contains("no edge leads from a node of type 'paper'"), "{message}");
    }

    #[test]
    fn a_batch_shows_the_share_of_the_other_training_labels() {
        let data = data();
        for (share, least, most) in [(1.0, 1.0, 1.0), (0.5, 0.3, 0.7)] {
            let config = config("full", share);
            let (task, one) = (task(&config, &data), batch(&config, &data, 1));
            let t = task.node_type;
            let width = task.input_dims()[t];
            let rows = one.features[t].view().host().chunks_exact(width);
            let labels = |row: &[f32]| row[width - CLASSES as usize..].iter().sum::<f32>() as usize;
            let shown: usize = rows.map(labels).sum();
            let others = &one.sampled.input_nodes[t][SEEDS..];
            let known = others.iter().filter(|v| task.split.train.contains(v)).count();
            let found = shown as f64 / known as f64;
            assert!(known > 20 && (least..=most).contains(&found), "{share}: {shown} of {known}");
        }
    }
}
