//! Sums of gradients over ranks, one part of the model after the other, during the backward pass of
//! the layers below.
//!
//! A part's gradient is sent as soon as it is computed, and its sum as soon as the gradients of all
//! ranks have arrived. No rank waits for the sum of a part before it starts the next.

use std::{
    sync::mpsc::{Receiver, Sender, channel},
    thread,
};

use graphmill_core::{Error, Result};
use graphmill_distributed::Collective;
use graphmill_nn::model::{Model, Part};

/// Sums of gradients, added by a separate thread in the order of the parts.
pub(super) struct Gradients {
    all: Collective,
    jobs: Sender<(u64, Vec<f32>)>,
    done: Receiver<Result<(u64, Vec<f32>)>>,
    /// Parts whose sums are pending.
    sent: Vec<Part>,
    spare: Vec<Vec<f32>>,
    next: u64,
}

impl Gradients {
    /// Starts the thread. It uses the collective numbers of `all` from `first` on.
    ///
    /// # Errors
    /// The system refuses the thread.
    pub(super) fn new(all: Collective, first: u64) -> Result<Self> {
        let (jobs, inbox) = channel::<(u64, Vec<f32>)>();
        let (outbox, done) = channel();
        let reducing = all.clone();
        let sum = move || {
            for (number, mut values) in inbox {
                let summed = reducing.reduce(number, &mut values).map(|()| (number, values));
                if outbox.send(summed).is_err() {
                    return;
                }
            }
        };
        let thread = thread::Builder::new().name("sums".into()).spawn(sum);
        thread.map_err(|error| {
            Error::invalid(format!("cannot start the thread that sums gradients: {error}"))
        })?;
        Ok(Self { all, jobs, done, sent: Vec::new(), spare: Vec::new(), next: first })
    }

    /// Starts to sum the gradient of a part, this rank's times `share`; for running statistics,
    /// their values.
    pub(super) fn begin(&mut self, model: &mut Model, part: Part, share: f32) {
        let mut values = self.spare.pop().unwrap_or_default();
        values.clear();
        model.visit_part_mut(part, &mut |param| {
            let from = if param.trainable { &param.grad } else { &param.value };
            values.extend(from.view().host().iter().map(|&x| share * x));
        });
        if !values.is_empty() {
            self.sent.push(part);
            self.next += 1;
            self.all.scatter(self.next, &values);
            // `finish` reports a thread that has ended
            let _ = self.jobs.send((self.next, values));
        }
    }

    /// Waits for the sums and writes them, times `scale`, to the model's gradients.
    pub(super) fn finish(&mut self, model: &mut Model, scale: f32) -> Result<()> {
        for part in std::mem::take(&mut self.sent) {
            let ended = |_| Error::invalid("the thread that sums gradients has ended");
            let (number, mut values) = self.done.recv().map_err(ended)??;
            self.all.collect(number, &mut values)?;
            let mut rest = &values[..];
            model.visit_part_mut(part, &mut |param| {
                let to = if param.trainable { &mut param.grad } else { &mut param.value };
                let to = to.view_mut().host();
                let (these, others) = rest.split_at(to.len());
                to.iter_mut().zip(these).for_each(|(to, &sum)| *to = scale * sum);
                rest = others;
            });
            self.spare.push(values);
        }
        Ok(())
    }
}
