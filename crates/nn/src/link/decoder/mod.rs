//! Decoders: scores of pairs of embeddings.
//!
//! A decoder of the table is a formula over one pair ([`PairScore`]), in a file of its own;
//! [`PairDecoder`] applies it to all pairs of a batch in parallel and holds a row of parameters for
//! each relation. `mlp` and `structure` are a small network over the products of both rows; that of
//! `structure` also reads features of the graph around the pair.
//!
//! ```
//! use graphmill_nn::{
//!     Matrix, Pass, Saved,
//!     backend::Cpu,
//!     link::decoder::{DecoderConfig, Pairs, TABLE},
//! };
//!
//! let make = TABLE.find("dot")?.make.make;
//! let decoder = make(&DecoderConfig { dim: 2, ..DecoderConfig::default() })?;
//! let (users, items) = (Matrix::from_slice(1, 2, &[1.0, 2.0]), Matrix::from_slice(1, 2, &[3.0, 4.0]));
//! let (source, destination) = (users.view(), items.view());
//! let pairs = Pairs { source, destination, relation: &[], nodes: [&[], &[]] };
//! let (backend, mut scores) = (Cpu::default(), Matrix::default());
//! let pass = Pass { backend: &backend, training: false, key: 0 };
//! decoder.forward(&pass, &pairs, &mut Saved::default(), &mut scores);
//! assert_eq!(scores.view().host(), [11.0]);
//! # Ok::<(), graphmill_nn::Error>(())
//! ```

mod bilinear;
mod complex;
mod cosine;
mod distmult;
mod dot;
mod mlp;
mod network;
mod pair;
mod rotate;
mod structure;
mod transe;

use std::sync::Arc;

use graphmill_core::{
    End, NodeId,
    table::{Entry, Table},
};

pub(in crate::link) use pair::candidate_rows;
pub use pair::{PairDecoder, PairScore};

use crate::{
    Error, Matrix, Param, Pass, Result, Saved, View,
    link::{kernel::Kernel, structure::PairStructure},
};

/// Pairs of embeddings to score.
#[derive(Clone, Copy, Debug)]
pub struct Pairs<'a> {
    /// Rows of the sources, `P x F`.
    pub source: View<'a>,
    /// Rows of the destinations, `P x F`.
    pub destination: View<'a>,
    /// Relation of each pair, `P`, or empty: relation 0.
    pub relation: &'a [u32],
    /// Numbers of the nodes of the sources and of the destinations, `P` each, for decoders that
    /// read the graph around pairs ([`DecoderKind::reads_structure`]); else they may be empty.
    pub nodes: [&'a [NodeId]; 2],
}

/// Ends whose partners are candidates.
#[derive(Clone, Copy, Debug)]
pub struct Queries<'a> {
    /// End that the candidates are.
    pub end: End,
    /// Rows of the other ends, `Q x F`.
    pub rows: View<'a>,
    /// Relation of each query, `Q`, or empty: relation 0.
    pub relation: &'a [u32],
}

/// Configuration of a decoder.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct DecoderConfig<'g> {
    /// Width of the embeddings, `F`.
    pub dim: usize,
    /// Number of relations, `R`.
    pub relations: usize,
    /// Width of the hidden layer of `mlp` and `structure`.
    pub hidden: usize,
    /// Constant from which `transe` and `rotate` subtract distances.
    pub gamma: f32,
    /// Norm of the distance of `transe`: 1 or 2.
    pub norm: usize,
    /// Root of the random streams for the initial values.
    pub key: u64,
    /// Graph that decoders of [`DecoderKind::reads_structure`] read. The others leave it out.
    pub graph: Option<&'g Arc<PairStructure>>,
}

impl Default for DecoderConfig<'_> {
    fn default() -> Self {
        Self { dim: 0, relations: 1, hidden: 64, gamma: 12.0, norm: 1, key: 0, graph: None }
    }
}

impl DecoderConfig<'_> {
    /// Rejects values outside their ranges.
    fn check(&self) -> Result<()> {
        for (field, value) in [("dim", self.dim), ("relations", self.relations), ("hidden", self.hidden)] {
            if value == 0 {
                return Err(Error::config(field, value, "must be at least 1"));
            }
        }
        if !self.gamma.is_finite() {
            return Err(Error::config("gamma", self.gamma, "must be finite"));
        }
        Ok(())
    }

    /// Rejects an odd width, for decoders whose rows are complex numbers.
    fn check_complex(&self) -> Result<()> {
        if self.dim.is_multiple_of(2) {
            return Ok(());
        }
        Err(Error::config("dim", self.dim, "must be even: a row holds real parts, then imaginary parts"))
    }
}

/// Scores pairs of embeddings.
///
/// ```
/// use graphmill_nn::{
///     Matrix, Pass, Saved,
///     backend::Reference,
///     link::decoder::{DecoderConfig, Pairs, TABLE},
/// };
///
/// let config = DecoderConfig { dim: 2, ..DecoderConfig::default() };
/// let decoder = (TABLE.find("dot")?.make.make)(&config)?;
/// let source = Matrix::from_slice(2, 2, &[1.0, 2.0, 0.0, 1.0]);
/// let destination = Matrix::from_slice(2, 2, &[3.0, 4.0, 5.0, 6.0]);
/// let (source, destination) = (source.view(), destination.view());
/// let pairs = Pairs { source, destination, relation: &[], nodes: [&[], &[]] };
/// let (mut saved, mut scores) = (Saved::default(), Matrix::default());
/// let pass = Pass { backend: &Reference, training: true, key: 0 };
/// decoder.forward(&pass, &pairs, &mut saved, &mut scores);
/// assert_eq!(scores.view().host(), [11.0, 6.0]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub trait Decoder: Send + Sync {
    /// Visits every parameter, always in the same order.
    fn visit<'a>(&'a self, see: &mut dyn FnMut(&'a Param));

    /// Visits every parameter mutably, in the order of [`Decoder::visit`].
    fn visit_mut(&mut self, see: &mut dyn FnMut(&mut Param));

    /// A boxed copy.
    fn boxed(&self) -> Box<dyn Decoder>;

    /// Computes the score of each pair; resizes `scores` to `P x 1`.
    ///
    /// # Panics
    /// The rows have other widths than the decoder, or a relation is out of range: a bug in the
    /// caller.
    fn forward(&self, pass: &Pass, pairs: &Pairs, saved: &mut Saved, scores: &mut Matrix);

    /// Computes the gradients of the last [`Decoder::forward`] from that of the scores (`P x 1`):
    /// adds to every parameter's `grad`, and resizes and overwrites those of both ends, `P x F`.
    fn backward(&mut self, pass: &Pass, pairs: &Pairs, saved: &mut Saved, grad: View, ends: [&mut Matrix; 2]);

    /// Computes rows (`Q x F`) from which [`Decoder::kernel`] gives the scores of candidates, and
    /// returns true, if there are such rows.
    fn query_rows(&self, queries: &Queries, out: &mut Matrix) -> bool {
        let _ = (queries, out);
        false
    }

    /// Score of a candidate from the row of a query: a product, unless the decoder measures
    /// distances.
    fn kernel(&self) -> Kernel {
        Kernel::Product
    }

    /// The formula over one pair, if the decoder has one. Such a decoder reads the rows of a pair,
    /// not the numbers of its nodes.
    fn pair_score(&self) -> Option<&dyn PairScore> {
        None
    }

    /// Computes the rows of candidates for products (`C x F`) and returns true, if they differ
    /// from their embeddings.
    fn candidate_rows(&self, candidates: View, out: &mut Matrix) -> bool {
        let _ = (candidates, out);
        false
    }
}

impl Clone for Box<dyn Decoder> {
    fn clone(&self) -> Self {
        self.boxed()
    }
}

/// Constructor of a decoder.
///
/// # Errors
/// A number is out of range, or a decoder of [`DecoderKind::reads_structure`] has no graph.
pub type Make = fn(&DecoderConfig) -> Result<Box<dyn Decoder>>;

/// A kind of decoder.
#[derive(Clone, Copy, Debug)]
pub struct DecoderKind {
    /// Constructor of the decoder.
    pub make: Make,
    /// True if relations have parameters.
    pub knows_relations: bool,
    /// True if tables of embeddings train with it ([`crate::link::table`]).
    pub on_tables: bool,
    /// True if rows are complex numbers: real parts, then imaginary parts.
    pub is_complex: bool,
    /// True if it reads the graph around a pair, which its configuration must have
    /// ([`DecoderConfig::graph`]).
    pub reads_structure: bool,
    /// Options of a run that it reads, among `decoder_hidden`, `gamma` and `distance_norm`.
    pub options: &'static [&'static str],
}

impl DecoderKind {
    const fn new(make: Make, knows_relations: bool) -> Self {
        Self {
            make,
            knows_relations,
            on_tables: false,
            is_complex: false,
            reads_structure: false,
            options: &[],
        }
    }

    const fn with_tables(self) -> Self {
        Self { on_tables: true, ..self }
    }

    const fn with_complex(self) -> Self {
        Self { is_complex: true, ..self }
    }

    const fn with_structure(self) -> Self {
        Self { reads_structure: true, ..self }
    }

    const fn reading(self, options: &'static [&'static str]) -> Self {
        Self { options, ..self }
    }
}

/// Names of the decoders for which `has` is true.
pub fn decoders_that(has: impl Fn(&DecoderKind) -> bool) -> Vec<&'static str> {
    TABLE.iter().filter(|row| has(&row.make)).map(|row| row.name).collect()
}

/// Table of the decoders.
pub static TABLE: Table<DecoderKind> = Table::new(
    "decoder",
    &[
        Entry {
            name: "dot",
            summary: "dot product of both rows",
            source: "",
            options: &[],
            make: DecoderKind::new(dot::make, false).with_tables(),
        },
        Entry {
            name: "cosine",
            summary: "cosine of the angle between both rows",
            source: "",
            options: &[],
            make: DecoderKind::new(cosine::make, false).with_tables(),
        },
        Entry {
            name: "bilinear",
            summary: "a matrix for each relation between both rows (RESCAL)",
            source: "Nickel, Tresp and Kriegel, ICML 2011",
            options: &[],
            make: DecoderKind::new(bilinear::make, true),
        },
        Entry {
            name: "distmult",
            summary: "a diagonal matrix for each relation between both rows",
            source: "Yang et al., ICLR 2015, arXiv:1412.6575",
            options: &[],
            make: DecoderKind::new(distmult::make, true).with_tables(),
        },
        Entry {
            name: "complex",
            summary: "ComplEx: DistMult over complex numbers, with the destination conjugated",
            source: "Trouillon et al., ICML 2016, arXiv:1606.06357",
            options: &[],
            make: DecoderKind::new(complex::make, true).with_tables().with_complex(),
        },
        Entry {
            name: "transe",
            summary: "TransE: negative distance of the source, moved by a vector of the relation",
            source: "Bordes et al., NeurIPS 2013",
            options: &[],
            make: DecoderKind::new(transe::make, true).with_tables().reading(&["gamma", "distance_norm"]),
        },
        Entry {
            name: "rotate",
            summary: "RotatE: negative distance of the source, rotated by angles of the relation",
            source: "Sun et al., ICLR 2019, arXiv:1902.10197",
            options: &[],
            make: DecoderKind::new(rotate::make, true).with_tables().with_complex().reading(&["gamma"]),
        },
        Entry {
            name: "mlp",
            summary: "two dense layers over the products of both rows",
            source: "OGB's link predictors, Hu et al., NeurIPS 2020",
            options: &[],
            make: DecoderKind::new(mlp::make, false).reading(&["decoder_hidden"]),
        },
        Entry {
            name: "structure",
            summary: "two dense layers over the products and the graph around the pair",
            source: "Zhang and Chen, NeurIPS 2018 (SEAL); Liben-Nowell and Kleinberg, CIKM 2003",
            options: &[],
            make: DecoderKind::new(structure::make, false).with_structure().reading(&["decoder_hidden"]),
        },
    ],
);
