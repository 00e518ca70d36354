//! Sums of gradients over ranks, one part of the model after the other, during the backward pass of
//! the layers below.
//!
//! Parts are collected until they have [`MIN_VALUES`] values, and are then summed together: a sum
//! costs each of `K` ranks `2 (K - 1)` messages, however few its values. Collected gradients are
//! sent as soon as they are computed, and their sum as soon as the gradients of all ranks have
//! arrived. No rank waits for a sum before it starts the next.
//!
//! The sizes of the parts alone decide what is summed together, so all ranks decide alike. Each
//! value is summed in rank order, so the bits do not depend on the sums that parts share.

use std::{
    sync::mpsc::{Receiver, Sender, channel},
    thread,
};

use graphmill_core::{Error, Result};
use graphmill_distributed::Collective;
use graphmill_nn::{
    Param,
    model::{Model, Part},
};

/// Number of values from which collected parts are sent: 1 MiB.
const MIN_VALUES: usize = 256 << 10;

/// Parts of a model, in the order in which its backward pass completes them.
pub(super) fn parts(model: &Model) -> impl Iterator<Item = Part> + use<> {
    let layers = (0..model.num_layers()).rev().map(Part::Layer);
    [Part::Head].into_iter().chain(layers).chain([Part::Input])
}

/// Sums of gradients, added by a separate thread in the order of the parts.
pub(super) struct Gradients {
    all: Collective,
    jobs: Sender<(u64, Vec<f32>)>,
    done: Receiver<Result<(u64, Vec<f32>)>>,
    /// Parts that the next sum will have, and their values.
    collected: (Vec<Part>, Vec<f32>),
    /// Parts of each pending sum.
    sent: Vec<Vec<Part>>,
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
        let (collected, sent, spare) = Default::default();
        Ok(Self { all, jobs, done, collected, sent, spare, next: first })
    }

    /// Adds the gradient of a part to the next sum, this rank's times `share`; for running
    /// statistics, their values. Starts the sum if it has enough values, or if the part is the last
    /// of the backward pass.
    pub(super) fn begin(&mut self, model: &mut Model, part: Part, share: f32) {
        let (parts, values) = &mut self.collected;
        parts.push(part);
        model.visit_part_mut(part, &mut |param| {
            let from = if param.trainable { &param.grad } else { &param.value };
            values.extend(from.view().host().iter().map(|&x| share * x));
        });
        if values.len() >= MIN_VALUES || part == Part::Input {
            self.send();
        }
    }

    /// Starts to sum the collected parts.
    fn send(&mut self) {
        let (parts, values) = std::mem::take(&mut self.collected);
        if values.is_empty() {
            return;
        }
        self.collected.1 = self.spare.pop().unwrap_or_default();
        self.sent.push(parts);
        self.next += 1;
        self.all.scatter(self.next, &values);
        // `finish` reports a thread that has ended
        let _ = self.jobs.send((self.next, values));
    }

    /// Waits for the sums and writes them, times `scale`, to the model's gradients.
    pub(super) fn finish(&mut self, model: &mut Model, scale: f32) -> Result<()> {
        for parts in std::mem::take(&mut self.sent) {
            let ended = |_| Error::invalid("the thread that sums gradients has ended");
            let (number, mut values) = self.done.recv().map_err(ended)??;
            self.all.collect(number, &mut values)?;
            let mut rest = &values[..];
            let mut write = |param: &mut Param| {
                let to = if param.trainable { &mut param.grad } else { &mut param.value };
                let to = to.view_mut().host();
                let (these, others) = rest.split_at(to.len());
                to.iter_mut().zip(these).for_each(|(to, &sum)| *to = scale * sum);
                rest = others;
            };
            parts.into_iter().for_each(|part| model.visit_part_mut(part, &mut write));
            values.clear();
            self.spare.push(values);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use graphmill_distributed::{Messenger, MessengerOptions, local};
    use graphmill_nn::ModelConfig;

    use super::*;

    /// Sums the gradients of one step of `size` ranks twice, asserts their bits, and returns the
    /// messages that each rank sends in a step.
    fn messages(config: &ModelConfig, features: usize, size: usize) -> u64 {
        let value = |rank: usize, i: usize| ((rank * 31 + i) % 97) as f32 / 7.0 - 3.0;
        let start = |end| Messenger::start(MessengerOptions::default(), move || Ok(end)).unwrap();
        let posts: Vec<_> = local(size).into_iter().map(start).collect();
        let mut ranks: Vec<_> = posts
            .iter()
            .map(|post| {
                let model = Model::new(config, features, 3, 1).unwrap();
                (Gradients::new(Collective::new(post.clone()), 0).unwrap(), model)
            })
            .collect();
        for _ in 0..2 {
            for (rank, (gradients, model)) in ranks.iter_mut().enumerate() {
                let mut i = 0;
                model.visit_mut(&mut |_, param| {
                    let to = if param.trainable { &mut param.grad } else { &mut param.value };
                    for to in to.view_mut().host() {
                        *to = value(rank, i);
                        i += 1;
                    }
                });
                for part in parts(model) {
                    gradients.begin(model, part, 0.3);
                }
            }
            for (gradients, model) in &mut ranks {
                gradients.finish(model, 0.7).unwrap();
                let mut i = 0;
                model.visit(&mut |name, param| {
                    let of = if param.trainable { &param.grad } else { &param.value };
                    for sum in of.view().host() {
                        let plain = (0..size).fold(0.0, |sum: f32, rank| sum + 0.3 * value(rank, i));
                        assert_eq!(sum.to_bits(), (0.7 * plain).to_bits(), "{name}");
                        i += 1;
                    }
                });
            }
        }
        let sent: Vec<u64> = posts.iter().map(|post| post.sent(0).messages).collect();
        assert!(sent.iter().all(|&count| count == sent[0]), "{sent:?}");
        posts.iter().for_each(|post| post.close().unwrap());
        sent[0] / 2
    }

    #[test]
    fn small_parts_share_a_message_and_large_parts_do_not_wait() {
        // eight layers and dense layers below and above them are one sum: a share to each other
        // rank, and its sum
        let small = ModelConfig {
            hidden: 4,
            layers: 8,
            input_layer: true,
            head_layers: 2,
            norm: "batch".parse().unwrap(),
            ..ModelConfig::default()
        };
        assert_eq!(messages(&small, 5, 2), 2);
        assert_eq!(messages(&small, 5, 3), 4);
        // the last layer is summed with the middle one, which exceeds the limit, then the first one
        let large = ModelConfig { model: "gcn".into(), hidden: 520, layers: 3, ..ModelConfig::default() };
        assert_eq!(messages(&large, 5, 2), 2 * 2);
    }
}
