//! Event files for TensorBoard: the scalars of every epoch, with its number from 1 as the step, the
//! hyperparameters, and the test score at the best epoch.
//!
//! An event file is a sequence of TFRecords, each a protocol buffer framed by checksums: the length
//! (8 bytes, little endian), the masked CRC-32C of these bytes, the data, the masked CRC-32C of the
//! data. Each process that trains writes a separate file; that of a resumed run first voids the
//! steps that it will write, so that epochs recorded after the checkpoint of a crashed process do
//! not appear twice. File names begin with the time, so that files sort by it.

mod hparams;
mod message;

use std::{
    fs::{self, File},
    io::Write,
    path::{Path, PathBuf},
    time::{SystemTime, UNIX_EPOCH},
};

use graphmill_data::atomic::{Real, create_dirs, sync, sync_dir};
use graphmill_engine::{
    Error, Result,
    record::{EpochRecord, Summary as RunSummary, utilisation},
    timeline::Stage,
};
use prost::Message;

use message::{Event, Hparams, HparamsEnd, HparamsStart, SessionLog, Summary, VERSION, Value};

/// Prefix of event file names.
const NAME: &str = "events.out.tfevents.";

/// Event file under construction.
#[derive(Debug)]
pub(crate) struct Events {
    path: PathBuf,
    file: File,
}

impl Events {
    /// Creates a file in `dir` for a run that continues after the epochs `before`. The first file
    /// of a directory also gets those epochs.
    ///
    /// # Errors
    /// The directory or the file cannot be created.
    pub(crate) fn create(dir: &Path, before: &[EpochRecord]) -> Result<Self> {
        create_dirs(&mut Real, dir)?;
        let entries = fs::read_dir(dir).map_err(|e| Error::io(dir, "read the directory", e))?;
        let is_ours = |name: &str| name.starts_with(NAME);
        let files = entries.flatten().filter(|entry| entry.file_name().to_str().is_some_and(is_ours)).count();
        // The number distinguishes files of the same second, in order.
        let path = dir.join(format!("{NAME}{:010}.{files:06}.graphmill", now() as u64));
        let file = File::create_new(&path).map_err(|e| Error::io(&path, "create", e))?;
        let mut events = Self { path, file };
        events.write(0, |event| event.file_version = Some(VERSION.to_string()))?;
        let first = if files == 0 { 1 } else { before.len() + 1 };
        let start = SessionLog { status: SessionLog::START };
        events.write(first, |event| event.session_log = Some(start))?;
        if files == 0 {
            before.iter().try_for_each(|record| events.scalars(record))?;
        }
        events.sync()?;
        sync_dir(&mut Real, dir)?;
        Ok(events)
    }

    /// Adds the scalars of an epoch. Missing values are omitted. They are durable afterwards:
    /// a resumed run does not add earlier epochs.
    ///
    /// # Errors
    /// Writing fails.
    pub(crate) fn epoch(&mut self, record: &EpochRecord) -> Result<()> {
        self.scalars(record)?;
        self.sync()
    }

    fn scalars(&mut self, record: &EpochRecord) -> Result<()> {
        let value = |(tag, value)| scalar(tag, value);
        let value = scalars(record).into_iter().map(value).collect();
        self.write(record.epoch, |event| event.summary = Some(Summary { value }))
    }

    /// Adds the hyperparameters among the options of a run, as `TrainConfig::to_json` writes them.
    ///
    /// # Errors
    /// Writing fails.
    pub(crate) fn options(&mut self, options: &serde_json::Value) -> Result<()> {
        let start = HparamsStart { hparams: hparams::of(options), start_time: now() };
        self.hparams(hparams::START, Hparams { start: Some(start), ..Hparams::default() })
    }

    /// Adds the test score of a finished run, if it has one, at the best epoch.
    ///
    /// # Errors
    /// Writing fails.
    pub(crate) fn end(&mut self, summary: &RunSummary) -> Result<()> {
        if let Some(score) = summary.test.score {
            let value = vec![scalar("test/score".into(), score)];
            self.write(summary.best.epoch, |event| event.summary = Some(Summary { value }))?;
        }
        let end = HparamsEnd { status: HparamsEnd::SUCCESS, end_time: now() };
        self.hparams(hparams::END, Hparams { end: Some(end), ..Hparams::default() })?;
        self.sync()
    }

    fn sync(&self) -> Result<()> {
        sync(&self.file, &self.path).map_err(|e| Error::io(&self.path, "sync", e))
    }

    fn hparams(&mut self, tag: &str, data: Hparams) -> Result<()> {
        let value = vec![hparams::value(tag, &data)];
        self.write(0, |event| event.summary = Some(Summary { value }))
    }

    fn write(&mut self, step: usize, fill: impl FnOnce(&mut Event)) -> Result<()> {
        let mut event = Event { wall_time: now(), step: step as i64, ..Event::default() };
        fill(&mut event);
        // In one write, so that concurrent readers see whole records.
        self.file.write_all(&frame(&event.encode_to_vec())).map_err(|e| Error::io(&self.path, "write", e))
    }
}

/// Scalar of an event.
fn scalar(tag: String, value: f64) -> Value {
    Value { tag, simple_value: Some(value as f32), metadata: None }
}

/// Scalars of an epoch by tag.
fn scalars(record: &EpochRecord) -> Vec<(String, f64)> {
    let mut scalars = Vec::new();
    let mut add = |tag: &str, value: Option<f64>| scalars.extend(value.map(|value| (tag.to_string(), value)));
    add("train/loss", Some(record.loss));
    add("train/score", record.train_score);
    add("valid/score", record.valid_score);
    add("valid/loss", record.valid_loss);
    add("lr", Some(record.lr));
    add("grad_norm", record.grad_norm);
    add("seeds_per_second", Some(record.seeds_per_second));
    add("hit_rate", record.hit_rate);
    for (stage, share) in Stage::ALL.into_iter().zip(utilisation(&record.workers)) {
        add(&format!("utilisation/{}", stage.name()), share);
    }
    for (stage, seconds) in record.stages.parts() {
        add(&format!("seconds/{stage}"), Some(seconds));
    }
    add("seconds/evaluate", Some(record.eval_seconds));
    add("seconds/epoch", Some(record.seconds));
    add("memory_bytes", record.memory_bytes.map(|bytes| bytes as f64));
    scalars
}

/// Seconds since 1970.
fn now() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0.0, |since| since.as_secs_f64())
}

/// Frames data as a TFRecord.
fn frame(data: &[u8]) -> Vec<u8> {
    let length = (data.len() as u64).to_le_bytes();
    let parts = [&length[..], &masked(&length).to_le_bytes(), data, &masked(data).to_le_bytes()];
    parts.concat()
}

/// Masked CRC-32C: rotated and offset, so that the checksum of data that contains checksums stays
/// useful.
fn masked(data: &[u8]) -> u32 {
    crc32c::crc32c(data).rotate_right(15).wrapping_add(0xa282_ead8)
}

#[cfg(test)]
mod tests;
