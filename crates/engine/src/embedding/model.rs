//! Model of a run: a row for each node, a decoder, and the propagation of LightGCN.

use std::path::Path;

use graphmill_core::{keyed::key, memory::available};
use graphmill_nn::{
    Backend, Matrix,
    link::{
        decoder::{self, Decoder, DecoderConfig, DecoderKind},
        kernel::Kernel,
        light_gcn::LightGcn,
        table::{Init, Penalty, Relations, regularizer},
    },
};

use crate::{
    Error, Result, TrainConfig,
    build::by_flag,
    checkpoint::tensors::{Tensor, TensorRef},
    config::{
        embedding::{EmbeddingOptions, kind},
        link::LinkOptions,
    },
    relational::LinkEdges,
};

/// Copies of the rows that a run in memory holds: values, gradient, two moments, and those of the
/// best epoch.
const COPIES_OF_ROWS: usize = 5;
/// Rows that are initialised at once.
const RUN: usize = 1 << 16;
/// Name of the rows in files.
pub(super) const ROWS_NAME: &str = "embedding.rows";
/// Parts of the keys of initial values.
const ROWS: u64 = 0x726f_7773;
const DECODER: u64 = 0x6465_636f_6465;
/// Standard deviations of initial rows, by the papers ([`Init`]).
const DEVIATION: f64 = 0.1;
const DEVIATION_WITH_RELATIONS: f64 = 0.001;

/// Rows of all nodes with their decoder.
pub(super) struct TableModel {
    /// A row for each node.
    pub(super) rows: Matrix,
    pub(super) decoder: Box<dyn Decoder>,
    /// Propagation of the rows, of LightGCN.
    pub(super) propagation: Option<LightGcn>,
    pub(super) kind: DecoderKind,
    /// Propagated rows.
    propagated: Matrix,
}

impl TableModel {
    /// Creates the model of a configuration with its initial rows.
    ///
    /// # Errors
    /// The decoder does not train tables or ignores relations, an option is impossible, or the rows
    /// exceed the memory of this machine. With a directory, the rows are in a file in it, and the
    /// disk has too little space.
    pub(super) fn new(config: &TrainConfig, edges: &LinkEdges, dir: Option<&Path>) -> Result<Self> {
        let (options, (count, dim)) = (config.own.get(), (edges.num_rows(), config.hidden));
        let mut model = Self::with_rows(config, edges, Matrix::default())?;
        let init = init(&options, model.kind, &*model.decoder, dim);
        let mut rows = match dir {
            Some(dir) => Matrix::in_file(count, dim, dir)?,
            None => {
                check_memory(config, count)?;
                Matrix::zeros(count, dim)
            }
        };
        for first in (0..count).step_by(RUN) {
            let run = first..count.min(first + RUN);
            init.fill_rows(&mut rows, run.clone(), key(&[config.seed, ROWS]));
            rows.release(run);
        }
        model.rows = rows;
        Ok(model)
    }

    /// Creates the model of a configuration with these rows.
    ///
    /// # Errors
    /// Those of [`TableModel::new`] but of memory.
    pub(super) fn with_rows(config: &TrainConfig, edges: &LinkEdges, rows: Matrix) -> Result<Self> {
        let (links, options): (LinkOptions, EmbeddingOptions) = (config.own.get(), config.own.get());
        let name = &links.decoder;
        let kind_of_decoder = decoder::TABLE.find(name).map_err(Error::name)?.make;
        let named = |fits: &dyn Fn(&DecoderKind) -> bool| {
            let all = decoder::TABLE.iter().filter(|entry| fits(&entry.make)).map(|entry| entry.name);
            all.collect::<Vec<_>>().join(", ")
        };
        if !kind_of_decoder.on_tables {
            let known = named(&|kind| kind.on_tables);
            return Err(Error::usage(format!(
                "--decoder {name}: it does not train tables of embeddings; use one of {known}"
            )));
        }
        let relations = edges.relations.len();
        if relations > 1 && !kind_of_decoder.knows_relations {
            let known = named(&|kind| kind.on_tables && kind.knows_relations);
            return Err(Error::usage(format!(
                "--decoder {name}: it scores edges of all {relations} relations alike; use one of {known}, \
                 or choose one relation with --task"
            )));
        }
        let of_decoder = DecoderConfig {
            dim: config.hidden,
            relations,
            gamma: options.gamma as f32,
            norm: options.distance_norm,
            key: key(&[config.seed, DECODER]),
            ..DecoderConfig::default()
        };
        let decoder = (kind_of_decoder.make)(&of_decoder).map_err(by_width)?;
        if options.one_vs_all && decoder.kernel() != Kernel::Product {
            return Err(Error::usage(format!(
                "--one-vs-all: the score of --decoder {name} is a distance; use --decoder complex, or \
                 negatives"
            )));
        }
        let propagates = kind(config).is_some_and(|kind| kind.propagates);
        if options.one_vs_all && propagates {
            return Err(Error::usage("--one-vs-all: --model lightgcn learns by negatives; leave it out"));
        }
        let propagation = propagates.then(|| propagation(config, edges)).transpose()?;
        Ok(Self { rows, decoder, propagation, kind: kind_of_decoder, propagated: Matrix::default() })
    }

    /// Number of parameters.
    pub(super) fn num_params(&self) -> usize {
        let mut count = self.rows.num_rows() * self.rows.num_cols();
        self.decoder.visit(&mut |param| count += param.value.num_rows() * param.value.num_cols());
        count
    }

    /// Visits every matrix by name, always in the same order.
    pub(super) fn visit(&self, see: &mut dyn FnMut(&str, &Matrix)) {
        see(ROWS_NAME, &self.rows);
        self.decoder.visit(&mut |param| see(&format!("decoder.{}", param.name), &param.value));
    }

    /// Tensors of a file, in the order of [`TableModel::visit`]: the rows and copies of the rest.
    pub(super) fn tensors(&self) -> (TensorRef<'_>, Vec<Tensor>) {
        let shape = [self.rows.num_rows(), self.rows.num_cols()];
        let mut rest = Vec::new();
        self.decoder.visit(&mut |param| {
            rest.push(Tensor::copy(&format!("decoder.{}", param.name), &param.value));
        });
        ((ROWS_NAME.into(), shape, self.rows.view().host()), rest)
    }

    /// Visits every matrix mutably, in the order of [`TableModel::visit`].
    pub(super) fn visit_mut(&mut self, see: &mut dyn FnMut(&str, &mut Matrix)) {
        see(ROWS_NAME, &mut self.rows);
        self.visit_rest_mut(see);
    }

    /// Visits every matrix but the rows mutably, in the order of [`TableModel::visit`].
    pub(super) fn visit_rest_mut(&mut self, see: &mut dyn FnMut(&str, &mut Matrix)) {
        self.decoder.visit_mut(&mut |param| see(&format!("decoder.{}", param.name), &mut param.value));
    }

    /// Rows that the decoder scores: propagated ones, of LightGCN.
    pub(super) fn embeddings(&mut self, backend: &dyn Backend) -> &Matrix {
        match &mut self.propagation {
            None => &self.rows,
            Some(propagation) => {
                propagation.forward(backend, &self.rows, &mut self.propagated);
                &self.propagated
            }
        }
    }

    /// Rows of the last [`TableModel::embeddings`].
    pub(super) fn last_embeddings(&self) -> &Matrix {
        if self.propagation.is_some() { &self.propagated } else { &self.rows }
    }

    /// The decoder, with the rows of the last [`TableModel::embeddings`].
    pub(super) fn into_embeddings(self) -> (Box<dyn Decoder>, Matrix) {
        let Self { rows, decoder, propagation, propagated, .. } = self;
        (decoder, if propagation.is_some() { propagated } else { rows })
    }

    /// Penalty of the rows of a batch.
    ///
    /// # Errors
    /// The name is unknown.
    pub(super) fn penalty(&self, config: &TrainConfig) -> Result<Option<Penalty>> {
        let options: EmbeddingOptions = config.own.get();
        if options.regularization == 0.0 {
            return Ok(None);
        }
        let kind = regularizer::TABLE.find(&options.regularizer).map_err(Error::name)?.make;
        Ok(Some(Penalty { kind, weight: options.regularization, is_complex: self.kind.is_complex }))
    }
}

/// Parameters of the relations of a decoder.
pub(super) fn relations(decoder: &dyn Decoder) -> Relations<'_> {
    let mut found = Relations::NONE;
    decoder.visit(&mut |param| {
        found = Relations { values: param.value.view().host(), width: param.value.num_cols() };
    });
    found
}

/// Refuses rows that exceed the free memory.
fn check_memory(config: &TrainConfig, rows: usize) -> Result<()> {
    let bytes = rows.saturating_mul(config.hidden).saturating_mul(4 * COPIES_OF_ROWS);
    match available().filter(|&free| bytes as u64 > free) {
        None => Ok(()),
        Some(free) => Err(Error::usage(format!(
            "--hidden {}: {rows} rows with the state of their optimiser need {bytes} bytes, but {free} are \
             available; lower it, or set --host-budget and --buckets",
            config.hidden
        ))),
    }
}

/// Propagation over the training edges.
fn propagation(config: &TrainConfig, edges: &LinkEdges) -> Result<LightGcn> {
    let [train, ..] = &edges.parts;
    let sources: Vec<u32> = train.iter().map(|&[source, ..]| source).collect();
    let destinations: Vec<u32> = train.iter().map(|&[.., destination]| destination).collect();
    LightGcn::new(edges.num_rows(), &sources, &destinations, config.layers).map_err(by_flag)
}

/// Initial rows, by the papers unless `--init-scale` is given.
fn init(options: &EmbeddingOptions, kind: DecoderKind, decoder: &dyn Decoder, dim: usize) -> Init {
    if options.init_scale > 0.0 {
        return Init::Normal(options.init_scale);
    }
    if decoder.kernel() != Kernel::Product {
        let dim = if kind.is_complex { dim / 2 } else { dim };
        return Init::Uniform((options.gamma + 2.0) / dim.max(1) as f64);
    }
    Init::Normal(if kind.knows_relations { DEVIATION_WITH_RELATIONS } else { DEVIATION })
}

/// Names the width of rows by its option.
fn by_width(error: graphmill_nn::Error) -> Error {
    match error {
        graphmill_nn::Error::Config { field, value, message } if field == "dim" => {
            Error::usage(format!("--hidden {value}: {message}"))
        }
        other => by_flag(other),
    }
}
