//! Events that happen while a run is open.
//!
//! They continue the last part of the stream, so that all answers are those of a run opened on a
//! dataset whose test part ends with them, to the bit.

use std::sync::Arc;

use graphmill_core::NodeId;
use graphmill_loader::time::Events;

use super::{choice::MAX_EVENTS, files::StreamSizes, history::History, stream::EventStream};
use crate::{Error, Result, link::split::Edge};

/// Events to add to a stream, in the order of their times.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct NewEvents {
    /// Source and destination of each event, numbered in their types.
    pub pairs: Vec<Edge>,
    /// Time of each event, in the unit of the dataset.
    pub times: Vec<i64>,
    /// Features of each event, `E x K` row by row; empty if the stream has none.
    pub features: Vec<f32>,
}

impl NewEvents {
    /// Checks the events against the stream that they continue: everything but the nodes.
    fn check(&self, stream: &EventStream) -> Result<()> {
        let (count, width) = (self.pairs.len(), stream.edge_dim());
        let refuse = |message: String| Err(Error::usage(format!("new events: {message}")));
        if self.times.len() != count {
            return refuse(format!(
                "{count} pairs and {} times; send one time for each pair",
                self.times.len()
            ));
        }
        if self.features.len() != count * width {
            return refuse(format!(
                "{} features for {count} events; the events of task '{}' have {width} each",
                self.features.len(),
                stream.task
            ));
        }
        if let Some(at) = self.features.iter().position(|x| !x.is_finite()) {
            return refuse(format!(
                "feature {} of event {} is {}; send finite numbers",
                at % width,
                at / width,
                self.features[at]
            ));
        }
        if stream.events.len() + count > MAX_EVENTS {
            return refuse(format!(
                "the stream would have {} events, and at most {MAX_EVENTS} can be numbered; open a run on \
                 later events alone",
                stream.events.len() + count
            ));
        }
        let mut last = stream.events.time().last().copied().unwrap_or(i64::MIN);
        for (at, &time) in self.times.iter().enumerate() {
            if time < last {
                return refuse(format!(
                    "event {at} at time {time} follows one at time {last}; send events in the order of their \
                     times, none before the last of the stream"
                ));
            }
            // the time after all events is one later
            if time == i64::MAX {
                return refuse(format!("event {at} has the largest time {time}; send an earlier one"));
            }
            last = time;
        }
        Ok(())
    }
}

impl EventStream {
    /// The stream with further events at the end of its last part. Parts, learned events and new
    /// nodes are those of before. O(V + E).
    ///
    /// # Errors
    /// Lists differ in length, a feature is not finite, an event is earlier than the last one, or
    /// the events are too many.
    pub(super) fn with(&self, new: &NewEvents) -> Result<Self> {
        new.check(self)?;
        let [first_source, first_destination] = self.first.map(|first| first as NodeId);
        let joined = |old: &[NodeId], new: &mut dyn Iterator<Item = NodeId>| {
            old.iter().copied().chain(new).collect::<Vec<NodeId>>()
        };
        let source = joined(self.events.source(), &mut new.pairs.iter().map(|pair| pair.0 + first_source));
        let mut of_new = new.pairs.iter().map(|pair| pair.1 + first_destination);
        let destination = joined(self.events.destination(), &mut of_new);
        let time = [self.events.time(), &new.times].concat();
        let events = Events::new(source.into(), destination.into(), time.into())?;
        let [learned, known] = &self.destinations;
        let mut known = joined(known, &mut new.pairs.iter().map(|pair| pair.1 + first_destination));
        known.sort_unstable();
        known.dedup();
        let [train, valid, test] = self.parts.clone();
        let neighbors = if self.all_history.event.is_empty() { 0..0 } else { 0..events.len() as u32 };
        Ok(Self {
            task: self.task.clone(),
            all_history: History::new(&events, neighbors, self.num_nodes, None)?,
            features: self.features.with(self.events.len()..events.len(), &new.features),
            files: None,
            sizes: StreamSizes { events: events.len(), ..self.sizes },
            parts: [train, valid, test.start..events.len()],
            events,
            learned: self.learned.clone(),
            num_nodes: self.num_nodes,
            types: self.types,
            first: self.first,
            destinations: [learned.clone(), known.into()],
            targets: self.targets.as_ref().map(Arc::clone),
            node_features: self.node_features.as_ref().map(Arc::clone),
            is_new: self.is_new.clone(),
            given: [const { None }; 3],
            learned_history: self.learned_history.as_ref().map(Arc::clone),
            metric: self.metric.clone(),
            notes: Vec::new(),
        })
    }
}
