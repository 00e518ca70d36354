//! Every event as one JSON object on a line, for programs that watch a run.

use std::{io::Write, sync::Arc};

use graphmill_core::progress::{Progress as Work, Unit};
use graphmill_engine::{
    Error, Result,
    observer::{Observer, Progress, Start},
    record::{EpochRecord, Summary},
};
use serde_json::{Value, json};

use super::lines::BatchTimes;

/// Observer that prints the events `stage` (work before the first epoch that takes more than a
/// second), `start`, `batch` (in long epochs, once a minute), `evaluate` (scoring starts), `epoch`,
/// `note` and `end`. The object of an epoch is its record in `metrics.jsonl` with the key `event`
/// beside.
pub(super) struct Json<W> {
    out: W,
    batches: BatchTimes,
}

impl<W: Write> Json<W> {
    pub(super) fn new(out: W) -> Self {
        Self { out, batches: BatchTimes::default() }
    }

    /// Prints an event. A closed pipe is no reason to end a run.
    fn print(&mut self, event: &str, mut fields: Value) {
        if let Value::Object(fields) = &mut fields {
            fields.insert("event".into(), event.into());
        }
        let _ = writeln!(self.out, "{fields}");
    }
}

/// Prints a line on standard error as an event.
pub(super) fn note(message: &str) {
    Json::new(std::io::stderr()).print("note", json!({ "message": message }));
}

/// Stages before the first epoch, or of another command, as events on standard error.
pub(super) struct Preparing;

impl Work for Preparing {
    fn stage(&self, what: &str, _: Option<u64>, _: Unit) {
        Json::new(std::io::stderr()).print("stage", json!({ "message": what }));
    }

    fn note(&self, message: &str) {
        note(message);
    }
}

impl<W: Write + Send> Observer for Json<W> {
    fn preparation(&self) -> Arc<dyn Work> {
        Arc::new(Preparing)
    }

    fn start(&mut self, start: &Start) -> Result<()> {
        let fields = json!({
            "epochs": start.epochs,
            "batches": start.batches,
            "seeds": start.seeds,
            "from": [start.from.0 as u64, start.from.1],
            "metric": start.metric,
            "parameters": start.parameters,
        });
        self.print("start", fields);
        Ok(())
    }

    fn batch(&mut self, progress: &Progress) -> Result<()> {
        if self.batches.is_due(progress) {
            let Progress { epoch, batches, seeds, loss, seconds } = *progress;
            let fields = json!({
                "epoch": epoch + 1, "batches": batches, "seeds": seeds, "loss": loss, "seconds": seconds,
            });
            self.print("batch", fields);
        }
        Ok(())
    }

    fn evaluate(&mut self, rows: usize) {
        self.print("evaluate", json!({ "rows": rows }));
    }

    fn epoch(&mut self, record: &EpochRecord) -> Result<()> {
        self.batches = BatchTimes::default();
        self.print("epoch", serde_json::to_value(record).unwrap_or(Value::Null));
        Ok(())
    }

    fn note(&mut self, message: &str) {
        self.print("note", json!({ "message": message }));
    }

    fn end(&mut self, outcome: Result<&Summary, &Error>) -> Result<()> {
        let error = outcome.err().map(ToString::to_string);
        self.print("end", json!({ "error": error }));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_line_is_an_object_with_its_event() {
        let mut text = Vec::new();
        let mut json = Json::new(&mut text);
        json.note("a \"note\"");
        for (batches, seconds) in [(1, 30.0), (2, 60.0), (3, 61.0)] {
            let progress = Progress { epoch: 2, batches, seeds: 10 * batches, loss: 0.5, seconds };
            json.batch(&progress).unwrap();
        }
        json.evaluate(1000);
        json.epoch(&EpochRecord { epoch: 3, loss: 0.5, ..Default::default() }).unwrap();
        json.end(Err(&Error::usage("stopped"))).unwrap();
        let text = String::from_utf8(text).unwrap();
        let events: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert_eq!(events[0], json!({ "event": "note", "message": "a \"note\"" }));
        let batch =
            json!({ "event": "batch", "epoch": 3, "batches": 2, "seeds": 20, "loss": 0.5, "seconds": 60.0 });
        assert_eq!(events[1], batch);
        assert_eq!(events[2], json!({ "event": "evaluate", "rows": 1000 }));
        assert_eq!((&events[3]["event"], &events[3]["epoch"]), (&json!("epoch"), &json!(3)));
        assert_eq!((&events[4]["error"], events.len()), (&json!("stopped"), 5));
    }
}
