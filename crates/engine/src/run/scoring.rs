//! Scores of the model on the nodes that judge it: when an epoch is scored, and whether it is the
//! best.

use std::{sync::Arc, time::Instant};

use graphmill_core::{NodeId, memory, progress::Quiet, spread::Paths, table};
use graphmill_data::Dataset;
use graphmill_loader::Feature;
use graphmill_nn::{
    Matrix,
    metric::{self, Metric, classes::ClassReport, diagnostics::Diagnostics},
    model::Model,
    regression::TargetScale,
};

use super::{
    Inputs, Meter, Peers, RunPosition, RunState, baseline::label_propagation, link_scoring::LinkScorer,
    observer::Observer, setup::Tables,
};
use crate::{
    Error, Result, TrainConfig, build,
    config::{EvalEvery, SelectBy, Work},
    distributed::Ranks,
    inference::{
        DIAGNOSED_TRAIN_NODES, Inference, Output, class_report, diagnosed_parts, diagnostics, fixed_sample,
        score,
    },
    learner::Learner,
    propagation::Known,
    record::{Baseline, TestScore, ValidationScore},
    stage::Loader,
    tiers::AllRows,
};

/// The ranks that infer together, and the feature rows of all of them.
type Inferring = (Arc<Ranks>, Arc<dyn Feature>);

/// Scores a model on the validation and test nodes, by full-neighbour inference.
pub(crate) struct Scorer<'a> {
    judge: Judge<'a>,
    config: &'a TrainConfig,
    data: &'a Dataset,
    inference: Inference<'a>,
    ranks: Option<Inferring>,
    /// The validation nodes that are scored.
    valid: Vec<NodeId>,
    /// Scale of the targets, if they are values.
    scale: Option<TargetScale>,
    /// Logits of the nodes scored last; their memory is reused.
    logits: Matrix,
}

/// Scores of a finished run.
#[derive(Default)]
pub(crate) struct Tested {
    /// Score on the test nodes.
    pub(crate) test: TestScore,
    /// Scores by class on the test nodes.
    pub(crate) by_class: Option<ClassReport>,
    /// Diagnostics of the test nodes, and of the parts that they are compared with.
    pub(crate) diagnostics: Vec<Diagnostics>,
    /// Scores of label propagation alone.
    pub(crate) baseline: Option<Baseline>,
}

/// Judgement of an epoch.
#[derive(Clone, Copy)]
pub(crate) struct Verdict {
    /// Score of the validation nodes, if the epoch was scored.
    pub(crate) scored: Option<ValidationScore>,
    /// True if the model is the best so far.
    pub(crate) is_best: bool,
}

impl<'a> Scorer<'a> {
    /// Scores by `metric`, alone or together with other ranks.
    ///
    /// # Errors
    /// Options of inference that the dataset does not allow.
    pub(crate) fn new(
        inputs: &Inputs<'a>,
        metric: Option<&'static table::Entry<Metric>>,
        tables: &'a Tables,
        loader: &'a Loader,
        model: &Model,
    ) -> Result<Self> {
        let Inputs { config, data, devices, view, .. } = *inputs;
        let backend = match view {
            // rows between layers are served from host memory
            Some(_) => devices.cpu(),
            None if !matches!(tables.whole, AllRows::Table(_)) => devices.cpu(),
            None => devices.inference(data, model, config.eval_chunk),
        };
        let symmetric = loader.symmetric.as_deref();
        let inference = Inference::new(&tables.graph, &tables.whole, symmetric, backend, config.eval_chunk)
            .with_neighbors(match (view, inputs.links) {
                (Some(view), None) => view.inference_neighbors(config)?,
                // a rank that learns links has all edges
                _ => build::inference_neighbors(config, data)?,
            });
        let ranks = view.map(|view| (view.ranks.clone(), view.feature()));
        let (judge, valid) = match (inputs.links, metric) {
            (Some(task), _) => {
                let links = LinkScorer::new(config, task)?;
                // ranks gather the embeddings
                let links = if view.is_some() { links.with_few()? } else { links };
                // edges are numbered from 0, as nodes are
                let valid = (0..links.valid.len() as NodeId).collect();
                (Judge::Links(Box::new(links)), valid)
            }
            (None, Some(metric)) => {
                (Judge::Labels(metric), fixed_sample(&data.split.valid, config.eval_nodes))
            }
            (None, None) => (Judge::Labels(build::metric(config, data)?), Vec::new()),
        };
        let scale = build::target_scale(config, data).filter(|_| inputs.links.is_none());
        Ok(Self { judge, config, data, inference, ranks, valid, scale, logits: Matrix::default() })
    }

    /// Name of the metric.
    pub(crate) fn metric_name(&self) -> String {
        match &self.judge {
            Judge::Labels(metric) => metric.name.to_string(),
            Judge::Links(links) => links.task.metric.name(),
        }
    }

    /// Judges the epoch that ends at `position`: scores the validation nodes if `--eval-every`
    /// selects the epoch. Without validation nodes, or while their score is not defined, the newest
    /// model is the best.
    ///
    /// # Errors
    /// Features cannot be read, or a rank did not take part.
    pub(crate) fn judge(
        &mut self,
        position: &mut RunPosition,
        peers: &Peers,
        observer: &mut dyn Observer,
    ) -> Result<Verdict> {
        let done = position.state.epoch + 1;
        let every = self.config.eval_every.fixed().or(position.state.eval_interval).unwrap_or(1);
        let is_turn = done.is_multiple_of(every) || done == self.config.epochs;
        if !is_turn || self.valid.is_empty() {
            return Ok(Verdict { scored: None, is_best: self.valid.is_empty() });
        }
        observer.evaluate(self.valid.len());
        self.inference.take_work();
        let valid = std::mem::take(&mut self.valid);
        // memory that is refused to the score costs no update
        let score = memory::catch(|| self.score(&position.learner.model, Part::Valid, &valid));
        let score = score.map_err(Error::from).and_then(|score| score);
        self.valid = valid;
        let is_interval_due =
            self.config.eval_every == EvalEvery::Auto && position.state.eval_interval.is_none();
        if is_interval_due && score.is_ok() {
            let work = self.work(&position.learner.model, &position.state, peers)?;
            position.state.eval_interval = Some(choose_interval(work, observer));
        }
        if score.is_err() {
            position.rescue(observer);
        }
        let Some(score) = score? else {
            let is_best = position.state.best.is_none_or(|best| best.valid_score.is_none());
            return Ok(Verdict { scored: None, is_best });
        };
        let loss = match &mut self.judge {
            Judge::Labels(_) => position.learner.loss(&self.logits, &self.valid),
            Judge::Links(links) => links.loss(&position.learner.model, &self.logits)?,
        };
        let [score, loss] = peers.agree([score, loss])?;
        let is_smaller_better =
            matches!(&self.judge, Judge::Labels(metric) if metric::values::is_error(metric.name));
        let judged = match self.config.select_by {
            SelectBy::Loss => -loss,
            SelectBy::Score if is_smaller_better => -score,
            SelectBy::Score => score,
        };
        let is_best = position.observe(judged, loss);
        Ok(Verdict { scored: Some(ValidationScore { score, loss }), is_best })
    }

    /// Work of the epoch so far, and that of the last score of the validation nodes or edges, each
    /// over all ranks.
    fn work(&mut self, model: &Model, state: &RunState, peers: &Peers) -> Result<[Work; 2]> {
        let mut sums = state.sums;
        peers.total(&mut sums)?;
        let mut scoring = peers.sum_work(self.inference.take_work())?;
        if let Judge::Links(links) = &self.judge {
            scoring += links.work(model);
        }
        Ok([sums.work(model.decoder()), scoring])
    }

    /// Ranks the hard negatives of the next epoch by the model, if the run draws some.
    ///
    /// # Errors
    /// Features cannot be read.
    pub(crate) fn rank_negatives(&mut self, learner: &Learner) -> Result<()> {
        let Self { judge: Judge::Links(links), inference, ranks, logits, .. } = self else { return Ok(()) };
        let Some(lists) = &learner.hard else { return Ok(()) };
        let model = &learner.model;
        infer(inference, ranks.as_ref(), model, &links.nodes, logits)?;
        rayon::scope(|_| links.rank_negatives(model, lists, logits));
        Ok(())
    }

    /// Score of the model on the test nodes, if there are any, its scores by class and diagnostics.
    ///
    /// # Errors
    /// As [`Scorer::judge`].
    pub(crate) fn test(
        &mut self,
        model: &Model,
        meter: &Meter,
        observer: &mut dyn Observer,
    ) -> Result<Tested> {
        let metric = self.metric_name();
        let nodes = match &self.judge {
            Judge::Labels(_) => fixed_sample(&self.data.split.test, self.config.eval_nodes),
            Judge::Links(links) => (0..links.test.len() as NodeId).collect(),
        };
        if nodes.is_empty() {
            return Ok(Tested { test: TestScore { metric, score: None }, ..Tested::default() });
        }
        observer.evaluate(nodes.len());
        let clock = Instant::now();
        // a dataset that has moved since has numbers for names
        let names = build::class_names(self.data.directory.as_deref()).unwrap_or_default();
        let mut diagnostics = match &self.judge {
            Judge::Labels(_) => self.diagnostics(model, &names)?,
            Judge::Links(_) => Vec::new(),
        };
        let score = self.score(model, Part::Test, &nodes)?;
        let (mut by_class, mut baseline) = (None, None);
        if let Judge::Labels(metric) = &self.judge {
            if self.ranks.is_none() {
                let parts = [&self.valid[..], &nodes[..]];
                let (labels, train) = (&self.data.labels, &self.data.split.train[..]);
                let paths = Paths::of_graph(&self.data.graph);
                let known = Known { paths, labels, outputs: labels.classes(), train, watch: &Quiet };
                baseline = label_propagation(self.config, &known, metric.make, parts)?;
            }
            by_class = class_report(&self.logits, &self.data.labels, &nodes, &names);
            diagnostics.extend(self.diagnose("test", &nodes, &names));
        }
        meter.span("test", clock);
        Ok(Tested { test: TestScore { metric, score }, by_class, diagnostics, baseline })
    }

    /// Diagnostics of the parts besides the test nodes.
    fn diagnostics(&mut self, model: &Model, names: &[String]) -> Result<Vec<Diagnostics>> {
        let mut all = Vec::new();
        // training nodes would see their own labels
        let reads_labels = self.config.label_inputs > 0.0;
        for &part in
            diagnosed_parts(&self.data.labels).iter().filter(|part| !reads_labels || **part != "train")
        {
            let nodes = match part {
                "train" => fixed_sample(&self.data.split.train, DIAGNOSED_TRAIN_NODES),
                _ => self.valid.clone(),
            };
            if !nodes.is_empty() {
                self.score(model, Part::Valid, &nodes)?;
                all.extend(self.diagnose(part, &nodes, names));
            }
        }
        Ok(all)
    }

    /// Diagnostics of the nodes that were scored last.
    fn diagnose(&self, part: &str, nodes: &[NodeId], names: &[String]) -> Option<Diagnostics> {
        let labels = &self.data.labels;
        let Some(scale) = &self.scale else {
            return diagnostics(part, &self.logits, labels, nodes, names);
        };
        let mut rows = self.logits.clone();
        scale.undo(rows.view_mut().host());
        diagnostics(part, &rows, labels, nodes, names)
    }

    /// Score of the model on the `nodes` of a part, or on its edges; `None` if it is not defined.
    fn score(&mut self, model: &Model, part: Part, nodes: &[NodeId]) -> Result<Option<f64>> {
        let Self { judge, inference, ranks, logits, .. } = self;
        let links = match judge {
            Judge::Labels(metric) => {
                infer(inference, ranks.as_ref(), model, nodes, logits)?;
                let Some(scale) = &self.scale else {
                    return Ok(score(metric.make, logits, self.data, nodes));
                };
                // the loss reads the standardised rows later
                let mut rows = logits.clone();
                scale.undo(rows.view_mut().host());
                return Ok(score(metric.make, &rows, self.data, nodes));
            }
            Judge::Links(links) => links,
        };
        infer(inference, ranks.as_ref(), model, links.read(), logits)?;
        let ranks = ranks.as_ref().map(|(ranks, _)| &**ranks);
        rayon::scope(|_| links.score(model, matches!(part, Part::Test), logits, ranks))
    }
}

/// Writes the scores of the `nodes` to `out`, or their embeddings if the model learns links.
fn infer(
    inference: &mut Inference,
    ranks: Option<&Inferring>,
    model: &Model,
    nodes: &[NodeId],
    out: &mut Matrix,
) -> Result<()> {
    match ranks {
        Some((ranks, rows)) => ranks.infer(inference, &**rows, model, nodes, out),
        None => inference.run(model, nodes, Output::Logits, out),
    }
}

/// Epochs between two that are scored, by the work of the first epoch and of its score.
pub(crate) fn choose_interval([epoch, scoring]: [Work; 2], observer: &mut dyn Observer) -> usize {
    let interval = epoch.interval(scoring);
    observer.note(&format!(
        "--eval-every auto: scores the first epoch, every {interval} epochs, and the last; an epoch computes \
         {epoch}, a score {scoring}"
    ));
    interval
}

/// Measure of a model.
enum Judge<'a> {
    /// Metric of labels.
    Labels(&'static table::Entry<Metric>),
    /// Rankings of edges.
    Links(Box<LinkScorer<'a>>),
}

/// A part of the split that is scored.
#[derive(Clone, Copy)]
enum Part {
    Valid,
    Test,
}
