//! Sums of gradients over ranks, part of the model by part, beside the backward pass of the layers
//! below.
//!
//! A part's gradient is on its way to the others as soon as it is there, and its sum as soon as the
//! others' have come; nobody waits for the sums of one part to begin with the next.

use std::{
    sync::mpsc::{Receiver, Sender, channel},
    thread,
};

use graphmill_core::{Error, Result};
use graphmill_distributed::Collective;
use graphmill_nn::model::{Model, Part};

/// A thread that sums what it is given over the ranks, in that order.
pub(super) struct Gradients {
    all: Collective,
    jobs: Sender<(u64, Vec<f32>)>,
    done: Receiver<Result<(u64, Vec<f32>)>>,
    /// Parts that are on their way.
    sent: Vec<Part>,
    spare: Vec<Vec<f32>>,
    next: u64,
}

impl Gradients {
    /// Numbers of `all` from `first` on are its own.
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
        thread.map_err(|error| Error::invalid(format!("no thread to sum gradients: {error}")))?;
        Ok(Self { all, jobs, done, sent: Vec::new(), spare: Vec::new(), next: first })
    }

    /// Begins to sum the gradient of a part, `share` times this rank's; of running statistics, the
    /// values.
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
            // a thread that is gone is noticed by `finish`
            let _ = self.jobs.send((self.next, values));
        }
    }

    /// Waits for the sums and makes them the model's gradient.
    pub(super) fn finish(&mut self, model: &mut Model) -> Result<()> {
        for part in std::mem::take(&mut self.sent) {
            let gone = |_| Error::invalid("the thread that sums gradients is gone");
            let (number, mut values) = self.done.recv().map_err(gone)??;
            self.all.collect(number, &mut values)?;
            let mut rest = &values[..];
            model.visit_part_mut(part, &mut |param| {
                let to = if param.trainable { &mut param.grad } else { &mut param.value };
                let to = to.view_mut().host();
                let (these, behind) = rest.split_at(to.len());
                to.copy_from_slice(these);
                rest = behind;
            });
            self.spare.push(values);
        }
        Ok(())
    }
}
