//! Files of a run of links on several types: what a checkpoint holds and restores.
//!
//! ```text
//! model.safetensors       those of a run on nodes, and decoder.NAME: the parameters of the decoder
//! best.safetensors        the same of the best epoch
//! optimizer.safetensors   those of a run on nodes; dense parameters of the decoder are the last
//! history.safetensors     lists of hard negatives, if the run draws them; earlier versions of the
//!                         parameters, if gradients are stale
//! state.json              the position, and counts by type of the current epoch
//! ```

use std::path::Path;

use graphmill_nn::Matrix;

use super::{
    super::{
        counts::TypeCounts,
        position::{self, SharedRows},
    },
    learner::{LinkLearner, LinkModel},
};
use crate::{
    Error, Result,
    batchwise::{BatchLearner, RestoredState, RowsOf, SavedTensors, WriteTensors},
    checkpoint::{self, GrownRows, tensors::Tensor},
    link::lists,
};

/// Copies `tensors` of the file `path` to the model.
///
/// # Errors
/// The tensors are those of another model; the message names the first that differs.
pub(super) fn assign(path: &Path, tensors: &[Tensor], model: &mut LinkModel) -> Result<()> {
    checkpoint::assign(path, tensors, |see| model.visit_mut(see))
}

impl LinkModel {
    /// Visits every matrix by name, always in the same order.
    fn visit(&self, see: &mut dyn FnMut(&str, &Matrix)) {
        position::visit(&self.encoder, see);
        self.decoder.visit(&mut |param| see(&format!("decoder.{}", param.name), &param.value));
    }

    /// Visits every matrix mutably, in the order of [`LinkModel::visit`].
    fn visit_mut(&mut self, see: &mut dyn FnMut(&str, &mut Matrix)) {
        position::visit_mut(&mut self.encoder, see);
        self.decoder.visit_mut(&mut |param| see(&format!("decoder.{}", param.name), &mut param.value));
    }
}

impl LinkLearner<'_> {
    /// The learned rows of the encoder.
    fn rows(&self) -> SharedRows<'_> {
        SharedRows { model: &self.model.encoder, over: self.over.as_ref() }
    }
}

impl BatchLearner for LinkLearner<'_> {
    type Counts = TypeCounts;

    fn num_params(&self) -> usize {
        let mut count = self.rows().num_params();
        self.model.decoder.visit(&mut |param| count += param.value.num_rows() * param.value.num_cols());
        count
    }

    fn visit(&self, see: &mut dyn FnMut(&str, &Matrix)) {
        self.model.visit(see);
    }

    fn assign_grown(&mut self, path: &Path, tensors: &[Tensor], grown: &GrownRows) -> Result<()> {
        checkpoint::assign_grown(path, tensors, grown, |see| self.model.visit_mut(see))
    }

    fn rows_of(&self, name: &str) -> Option<RowsOf> {
        self.rows().rows_of(name)
    }

    fn restore(&mut self, path: &Path, state: &RestoredState) -> Result<()> {
        let Self { model: LinkModel { encoder, decoder }, optimizer, sparse, .. } = self;
        let mut index = 0;
        encoder.visit(&mut |_, param| {
            optimizer.prepare(index, param);
            index += 1;
        });
        decoder.visit(&mut |param| {
            optimizer.prepare(index, param);
            index += 1;
        });
        position::restore_moments(path, state, (encoder, &mut **optimizer, sparse))?;
        let (past, model) = ((&self.past, self.over.as_ref()), &self.model);
        position::restore_past(path, state, past, (model, &model.encoder))?;
        match &self.hard {
            Some(lists) => lists::restore(lists, state.history)
                .map_err(|what| Error::format(path, "lists of negatives", format!("{what}; train again"))),
            None => Ok(()),
        }
    }

    fn save(&mut self, write: &mut WriteTensors) -> Result<()> {
        let joined = self.joined.take();
        let Self { model: LinkModel { encoder, decoder }, optimizer, sparse, .. } = self;
        let (steps, dense) = (optimizer.steps(), position::dense_moments(&**optimizer));
        let (mut params, mut moments) = (Vec::new(), Vec::new());
        encoder.visit(&mut |name, param| params.push(position::tensor(name.into(), &param.value)));
        match &joined {
            Some([rows, of_all, _]) => {
                params.extend(rows.iter().map(Tensor::borrow));
                moments.extend(of_all.iter().map(Tensor::borrow));
            }
            None => {
                let rows = encoder.learned_rows();
                params.extend(
                    rows.map(|(t, rows)| position::tensor(position::rows_name(encoder, t), rows.table())),
                );
                moments.extend(dense.iter().map(Tensor::borrow));
                moments.extend(position::row_moments(encoder, sparse)?);
            }
        }
        decoder.visit(&mut |param| {
            params.push(position::tensor(format!("decoder.{}", param.name), &param.value));
        });
        let lists = self.hard.iter().flat_map(|lists| lists::tensors(lists));
        let (own, lists) = (self.past.tensors(), lists.collect::<Vec<Tensor>>());
        let past = joined.as_ref().map_or(&own, |[_, _, past]| past);
        let history: Vec<_> = lists.iter().chain(past).map(Tensor::borrow).collect();
        write(SavedTensors { params: &params, moments: &moments, steps, history: &history })
    }

    fn begin_save(&mut self) -> Result<()> {
        let Self { model, optimizer, sparse, over, past, .. } = self;
        let rows = SharedRows { model: &model.encoder, over: over.as_ref() };
        self.joined = rows.joined(&**optimizer, sparse, past)?;
        Ok(())
    }

    fn join(&self, params: &mut [Tensor]) -> Result<()> {
        self.rows().join(params)
    }

    fn split(&self, tensors: &mut [Tensor]) {
        self.rows().split(tensors);
    }

    fn split_known(&self, tensors: &mut [Tensor], growth: &[[usize; 2]]) -> Vec<[usize; 2]> {
        self.rows().split_known(tensors, growth)
    }

    fn num_updates(&self) -> u64 {
        self.step
    }

    fn set_num_updates(&mut self, updates: u64) {
        self.step = updates;
    }

    fn is_whole(&self) -> bool {
        self.is_whole && self.rows().are_here()
    }
}
