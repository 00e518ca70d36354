//! New events of a stream that is served.

use graphmill_core::NodeId;
use graphmill_engine::predictor::NewEvents;
use serde::Deserialize;
use serde_json::{Value, json};

use super::{beside, ends};
use crate::{
    app::App,
    failure::{Failure, refuse, too_large},
    question::{Key, parse},
};

/// Body of `POST /v1/events`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Body {
    /// Keys of the source and the destination of each event.
    #[serde(default)]
    keys: Vec<[Key; 2]>,
    /// Their ids.
    #[serde(default)]
    ids: Vec<[NodeId; 2]>,
    /// Time of each event, first of those with keys.
    times: Vec<i64>,
    /// Features of each event, in the same order.
    #[serde(default)]
    features: Vec<Vec<f32>>,
}

impl Body {
    /// Parses a body.
    ///
    /// # Errors
    /// It is not JSON, or has unknown fields.
    pub(super) fn parse(body: &[u8]) -> Result<Self, Failure> {
        parse(body, "{\"ids\": [[0, 7]], \"times\": [1700000000]}")
    }
}

/// Adds the events of a body to the stream of the run that answers. Returns the counts and the time
/// after all events.
///
/// # Errors
/// The body does not have this form, names unknown nodes or exceeds a limit; the run learned no
/// events; or the events do not continue the stream.
pub(crate) async fn add(app: &App, body: &[u8]) -> Result<Value, Failure> {
    // otherwise the run could be exchanged before the events are reported as added
    let _held = app.changes().await;
    let links = app.opened().links()?.run;
    let Body { keys, ids, times, features } = Body::parse(body)?;
    let (count, max) = (keys.len() + ids.len(), app.options.max_edges);
    if count > max {
        let why = format!("it has {count} events, and the service takes {max} at a time");
        return Err(too_large(why, "--max-edges"));
    }
    let Some([_, width]) = links.events() else {
        let why = "the run learned no stream of events, to which some could be added";
        return Err(refuse(why, "serve a run of a model of events, such as tgn"));
    };
    if let Some(i) = features.iter().position(|row| row.len() != width) {
        let why = format!("event {i} has {} features, and those of the run have {width}", features[i].len());
        return Err(refuse(why, "send all features of each event"));
    }
    let pairs = ends(&links, 0, keys, ids)?;
    let new = NewEvents { pairs, times, features: features.concat() };
    let work = move || {
        links.add_events(&new)?;
        Ok((links.events(), links.end_time()))
    };
    // in the turn of the answers as of a time, because it may compute a memory of all nodes
    let (events, end) = beside(app, true, work).await?;
    let [total, _] = events.unwrap_or_default();
    Ok(json!({ "status": "added", "added": count, "events": total, "end_time": end }))
}
