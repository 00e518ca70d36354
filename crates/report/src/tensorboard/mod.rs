//! Event files for TensorBoard: the scalars of every epoch, with its number from 1 as the step.
//!
//! An event file is a sequence of TFRecords, each a protocol buffer in a frame of checksums: the length (8 bytes, little
//! endian), the masked CRC-32C of these bytes, the data, the masked CRC-32C of the data. Each process that
//! trains writes a file of its own; that of a resumed run begins by declaring the steps that it will write void, so that
//! epochs which a crash left behind the checkpoint are not shown twice. Files sort by time: their names begin with it.

mod message;

use std::{
    fs::{self, File},
    io::Write,
    path::{Path, PathBuf},
    time::{SystemTime, UNIX_EPOCH},
};

use graphmill_engine::{
    Error, Result,
    record::{EpochRecord, utilisation},
    timeline::Stage,
};
use prost::Message;

use message::{Event, SessionLog, Summary, VERSION, Value};

/// What the name of an event file begins with.
const NAME: &str = "events.out.tfevents.";

/// An event file that is being written.
#[derive(Debug)]
pub(crate) struct Events {
    path: PathBuf,
    file: File,
}

impl Events {
    /// A file of its own in `dir` for a run that goes on behind the epochs `before`. Where it is the first one, it is told
    /// of them too.
    ///
    /// # Errors
    /// The directory or the file cannot be made.
    pub(crate) fn create(dir: &Path, before: &[EpochRecord]) -> Result<Self> {
        fs::create_dir_all(dir).map_err(|e| Error::io(dir, "create the directory", e))?;
        let entries = fs::read_dir(dir).map_err(|e| Error::io(dir, "read the directory", e))?;
        let is_ours = |name: &str| name.starts_with(NAME);
        let files = entries.flatten().filter(|entry| entry.file_name().to_str().is_some_and(is_ours)).count();
        // the number tells files of one second apart, in their order
        let path = dir.join(format!("{NAME}{:010}.{files:06}.graphmill", now() as u64));
        let file = File::create_new(&path).map_err(|e| Error::io(&path, "create", e))?;
        let mut events = Self { path, file };
        events.write(0, |event| event.file_version = Some(VERSION.to_string()))?;
        let first = if files == 0 { 1 } else { before.len() + 1 };
        let start = SessionLog { status: SessionLog::START };
        events.write(first, |event| event.session_log = Some(start))?;
        if files == 0 {
            before.iter().try_for_each(|record| events.epoch(record))?;
        }
        Ok(events)
    }

    /// Adds an epoch's scalars. Those that the epoch does not have are left out.
    ///
    /// # Errors
    /// The disk is full or not to be written.
    pub(crate) fn epoch(&mut self, record: &EpochRecord) -> Result<()> {
        let value = |(tag, value): (String, f64)| Value { tag, simple_value: Some(value as f32) };
        let value = scalars(record).into_iter().map(value).collect();
        self.write(record.epoch, |event| event.summary = Some(Summary { value }))
    }

    fn write(&mut self, step: usize, fill: impl FnOnce(&mut Event)) -> Result<()> {
        let mut event = Event { wall_time: now(), step: step as i64, ..Event::default() };
        fill(&mut event);
        // in one piece: whoever reads meanwhile sees whole records
        self.file.write_all(&frame(&event.encode_to_vec())).map_err(|e| Error::io(&self.path, "write", e))
    }
}

/// What TensorBoard shows of an epoch, by tag.
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

/// A TFRecord.
fn frame(data: &[u8]) -> Vec<u8> {
    let length = (data.len() as u64).to_le_bytes();
    let parts = [&length[..], &masked(&length).to_le_bytes(), data, &masked(data).to_le_bytes()];
    parts.concat()
}

/// The CRC-32C, turned and shifted so that the checksum of data that holds checksums is not a bad one.
fn masked(data: &[u8]) -> u32 {
    crc32c::crc32c(data).rotate_right(15).wrapping_add(0xa282_ead8)
}

#[cfg(test)]
mod tests;
