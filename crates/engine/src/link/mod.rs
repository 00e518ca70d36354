//! Links as a task on graphs of one node type and one edge type.
//!
//! | file | contents |
//! | --- | --- |
//! | `task.rs`, `split.rs` | edges that train, validate and test, and the graph that is read |
//! | `step.rs` | loss of a batch of links, and the gradients of embeddings |
//! | `metric.rs`, `evaluate.rs` | metrics of rankings, and the candidates of an edge |
//! | `check.rs` | parts of a run that do not know links |

pub mod check;
pub mod evaluate;
pub mod metric;
pub mod split;
pub mod step;
pub mod task;

pub use evaluate::{LinkEvaluation, Scored};
pub use metric::LinkMetric;
pub use task::{GivenNegatives, LinkPart, LinkTask};

use graphmill_nn::link::decoder::{self, Decoder, DecoderConfig};

use crate::{Error, Result, TrainConfig, build::by_flag, options::link::LinkOptions};

/// Part of the key of a decoder's initial values.
const DECODER: u64 = 0x6465_636f_6465_7220;

/// The decoder of embeddings of width `dim`, with its initial values.
///
/// # Errors
/// An unknown name, or a width that the decoder cannot have.
pub fn decoder(config: &TrainConfig, dim: usize) -> Result<Box<dyn Decoder>> {
    let options: LinkOptions = config.own.get();
    let entry = decoder::TABLE.find(&options.decoder).map_err(|error| Error::usage(error.to_string()))?;
    let key = graphmill_core::keyed::key(&[config.seed, DECODER]);
    let settings = DecoderConfig { dim, hidden: options.decoder_hidden, key, ..DecoderConfig::default() };
    (entry.make.make)(&settings).map_err(by_flag)
}
