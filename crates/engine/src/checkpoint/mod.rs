//! Checkpoints: the complete state of a run, replaced as one unit.
//!
//! ```text
//! checkpoint/model.safetensors        all parameters, by name
//! checkpoint/best.safetensors         all parameters of the best epoch; no tensors before the first
//! checkpoint/optimizer.safetensors    the optimiser's state, by parameter index and kind
//! checkpoint/history.safetensors      parameters that reused rows were computed with, and that
//!                                     stale gradients read; pushed rows, hard negatives, counts
//!                                     that fill caches; optional
//! checkpoint/state.json               the caller's state, the step counter, checksums of all files
//! ```
//!
//! # Why a checkpoint can be loaded at any moment
//!
//! A save writes `checkpoint.tmp/` and syncs it, removes `checkpoint.old/`, renames the new
//! directory to `checkpoint.old/`, and exchanges that with `checkpoint/` in one step. Where paths
//! cannot be exchanged, it renames `checkpoint/` to `checkpoint.old/` and `checkpoint.tmp/` to
//! `checkpoint/` ([`atomic::swap`]). A load reads `checkpoint/`, or `checkpoint.old/` if
//! `checkpoint/` does not exist or is damaged.
//!
//! Only complete directories get either name, and `checkpoint.old/` is removed only while
//! `checkpoint/` exists. Therefore, from the first completed save on, one of the two is complete
//! after every step; of two complete ones, `checkpoint/` is the right one.
//!
//! # Damage
//!
//! The checkpoint before the newest stays as `checkpoint.old/` until the run ends. If a file of
//! `checkpoint/` does not verify, or the disk fails to read it, a resumed run continues from
//! `checkpoint.old/` with a warning. It repeats the batches since then, and ends with the bits of
//! an undisturbed run. Before its first save, it replaces the damaged checkpoint by the other one,
//! which that save would remove otherwise. The directory takes twice the space of a checkpoint, and
//! a save three times; on a full disk a save removes `checkpoint.old/` first.
//!
//! # Links and foreign files
//!
//! `checkpoint/` may be a symbolic link to a directory on a larger disk. In this case, the three
//! directories are the link's target and its siblings, and the link stays. Files in `checkpoint/`
//! that no save wrote are moved to the new directory, never removed. Links at `checkpoint.tmp` and
//! `checkpoint.old` are unlinked, never followed.

#![forbid(unsafe_code)]

mod assign;
mod directory;
pub mod tensors;

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
};

use graphmill_data::atomic::{self, Disk, Real};
use graphmill_nn::{Model, optim::Optimizer};
use serde::{
    Deserialize, Serialize,
    de::{DeserializeOwned, IgnoredAny},
};
use xxhash_rust::xxh3::xxh3_64;

use crate::{Error, Result};
pub(crate) use assign::{GrownRows, assign, assign_grown};
use directory::{BEST, FILES, HISTORY, MODEL, OPTIMIZER, STATE, VERSION_FIELD, complete, newest};
pub(crate) use directory::{forget_previous, reinstate, tidy};
use tensors::{Bytes, Tensor, TensorRef, damaged, decode, encode, for_each_chunk, unreadable};

/// Version of the layout. Version 1 stored the best model beside the checkpoint instead of in it.
const VERSION: u32 = 2;

/// Placeholder for the checksum of `state.json` while it is computed.
const NO_CHECKSUM: &str = "0000000000000000";

/// Contents of `state.json`.
#[derive(Serialize, Deserialize)]
struct Envelope<S> {
    graphmill_checkpoint: u32,
    /// XXH3 of this file with [`NO_CHECKSUM`] in this field.
    xxh3: String,
    files: BTreeMap<String, FileSum>,
    optimizer_steps: u64,
    state: S,
}

#[derive(Serialize, Deserialize)]
struct FileSum {
    bytes: u64,
    xxh3: String,
}

/// A checkpoint in memory.
#[derive(Clone, Debug)]
pub struct Checkpoint<S> {
    /// Parameters.
    pub model: Vec<Tensor>,
    /// Parameters of the best epoch; empty before the first.
    pub best: Vec<Tensor>,
    /// State of the optimiser.
    pub optimizer: Vec<Tensor>,
    /// Number of updates that the optimiser has made.
    pub optimizer_steps: u64,
    /// Older parameters that reused rows were computed with, and the other tensors of the run.
    pub history: Vec<Tensor>,
    /// Other state of the run.
    pub state: S,
    /// Damage of a newer checkpoint, because of which this one was read.
    pub damage: Option<String>,
    /// Directory that the checkpoint was read from.
    dir: PathBuf,
}

/// Contents of files, by name.
pub type Files = Vec<(String, Vec<u8>)>;

/// Contents of a checkpoint to write.
struct Contents<'a, S> {
    model: &'a [TensorRef<'a>],
    best: &'a [TensorRef<'a>],
    optimizer: &'a [TensorRef<'a>],
    optimizer_steps: u64,
    history: &'a [TensorRef<'a>],
    state: &'a S,
}

fn checksum(bytes: &[u8]) -> String {
    format!("{:016x}", xxh3_64(bytes))
}

/// Writes the checkpoint directory `dir` (see the [module](self)). `state` must not hold NaN or
/// infinities, which JSON cannot represent.
///
/// # Errors
/// The disk is full or not writable. The previous checkpoint is unchanged.
pub fn save<S: Serialize>(
    dir: &Path,
    model: &Model,
    best: &[TensorRef],
    optimizer: &dyn Optimizer,
    history: &[Tensor],
    state: &S,
) -> Result<()> {
    let mut params = Vec::new();
    model.visit(&mut |name, param| {
        let shape = [param.value.num_rows(), param.value.num_cols()];
        params.push((name.to_string(), shape, param.value.view().host()));
    });
    // copies, because the visitor's matrices live only during the call
    let mut owned = Vec::new();
    optimizer.visit_state(&mut |name, matrix| owned.push(Tensor::copy(name, matrix)));
    let moments: Vec<TensorRef> = owned.iter().map(Tensor::borrow).collect();
    let history: Vec<TensorRef> = history.iter().map(Tensor::borrow).collect();
    save_tensors(dir, &params, best, &moments, optimizer.steps(), &history, state)
}

/// [`save`] of given matrices.
///
/// # Errors
/// Those of [`save`], or a duplicate name.
pub fn save_tensors<S: Serialize>(
    dir: &Path,
    model: &[TensorRef],
    best: &[TensorRef],
    optimizer: &[TensorRef],
    optimizer_steps: u64,
    history: &[TensorRef],
    state: &S,
) -> Result<()> {
    check_finite(&dir.join(MODEL), model)?;
    let contents = Contents { model, best, optimizer, optimizer_steps, history, state };
    let mut written = write(&mut Real, dir, &contents);
    // frees the space of a full disk; if this fails, too, the first error is still reported
    if written.as_ref().is_err_and(directory::is_full) && directory::make_space(dir) {
        written = write(&mut Real, dir, &contents);
    }
    if written.is_err() {
        let _ = directory::remove_unfinished(dir);
    }
    written
}

/// Writes and replaces a checkpoint, step by step.
fn write<S: Serialize>(disk: &mut impl Disk, dir: &Path, contents: &Contents<S>) -> Result<()> {
    let dir = &*directory::target(dir);
    let fresh = directory::prepare(disk, dir)?;
    disk.create_dir(&fresh).map_err(|e| Error::io(&fresh, "create", e))?;
    let mut files = BTreeMap::new();
    let parts = [
        (MODEL, contents.model),
        (BEST, contents.best),
        (OPTIMIZER, contents.optimizer),
        (HISTORY, contents.history),
    ];
    for (name, tensors) in parts {
        if name == HISTORY && tensors.is_empty() {
            continue;
        }
        let path = fresh.join(name);
        let encoded = encode(&dir.join(name), tensors)?;
        let mut xxh3 = String::new();
        disk.write(&path, |file| encoded.write_to(file).map(|sum| xxh3 = sum))
            .map_err(|e| Error::io(&path, "write", e))?;
        files.insert(name.to_string(), FileSum { bytes: encoded.len(), xxh3 });
    }
    let path = fresh.join(STATE);
    let envelope = Envelope {
        graphmill_checkpoint: VERSION,
        xxh3: NO_CHECKSUM.to_string(),
        files,
        optimizer_steps: contents.optimizer_steps,
        state: contents.state,
    };
    let text = serde_json::to_string_pretty(&envelope)
        .map_err(|e| Error::format(dir.join(STATE), "state", e.to_string()))?;
    let text = text.replacen(NO_CHECKSUM, &checksum(text.as_bytes()), 1);
    disk.write(&path, |file| file.write_all(text.as_bytes())).map_err(|e| Error::io(&path, "write", e))?;
    atomic::sync_dir(disk, &fresh)?;
    directory::replace(disk, &fresh, dir)
}

/// Path of the parameters of the checkpoint directory `dir`; `None` if nothing was saved.
///
/// # Errors
/// `dir` is a symbolic link whose target holds no checkpoint.
pub fn model_file(dir: &Path) -> Result<Option<PathBuf>> {
    Ok(complete(dir)?.map(|dir| dir.join(MODEL)))
}

/// Reads the files of the newest checkpoint in the checkpoint directory `dir` that is not damaged,
/// to send them to another rank; `None` if nothing was saved. Also returns the damage of a newer
/// one.
///
/// # Errors
/// As [`Checkpoint::load`].
pub fn files(dir: &Path) -> Result<Option<(Files, Option<String>)>> {
    newest(dir, |found| {
        let mut files = Files::new();
        for name in FILES {
            let path = found.join(name);
            if name != HISTORY || path.is_file() {
                files.push((name.to_string(), read(&path)?));
            }
        }
        Checkpoint::<IgnoredAny>::of_files(found, &files)?;
        Ok(files)
    })
}

/// Reads the state of the checkpoint directory `dir` without its tensors; `None` if nothing was
/// saved.
///
/// # Errors
/// As [`Checkpoint::load`].
pub fn state<S: DeserializeOwned>(dir: &Path) -> Result<Option<S>> {
    let found = newest(dir, |found| {
        let path = found.join(STATE);
        Ok(envelope(&path, read(&path)?)?.state)
    })?;
    Ok(found.map(|(state, _)| state))
}

/// Parses the `text` of the `state.json` at `path`, after a check of its checksum and version.
fn envelope<S: DeserializeOwned>(path: &Path, text: Vec<u8>) -> Result<Envelope<S>> {
    let text = String::from_utf8(text)
        .map_err(|e| damaged(path, &format!("byte {}", e.utf8_error().valid_up_to()), "not UTF-8"))?;
    verify_text(path, &text)?;
    let parse_error = |e: serde_json::Error| damaged(path, &format!("line {}", e.line()), &e.to_string());
    let header: Envelope<IgnoredAny> = serde_json::from_str(&text).map_err(parse_error)?;
    if header.graphmill_checkpoint != VERSION {
        let age = if header.graphmill_checkpoint > VERSION { "a newer" } else { "an older" };
        let message = format!(
            "version {} was written by {age} graphmill, but this one reads version {VERSION}; continue \
             with that graphmill, or train again",
            header.graphmill_checkpoint
        );
        return Err(Error::format(path, VERSION_FIELD, message));
    }
    serde_json::from_str(&text).map_err(parse_error)
}

impl<S: DeserializeOwned> Checkpoint<S> {
    /// Reads the checkpoint directory `dir`, or the checkpoint before it if a file of it is damaged
    /// or the disk fails to read it; `None` if nothing was saved.
    ///
    /// # Errors
    /// A file cannot be read, is of another version, or is damaged, and so is the checkpoint before
    /// if there is one; or a link's target is missing. The message names the file.
    pub fn load(dir: &Path) -> Result<Option<Self>> {
        let found = newest(dir, |found| {
            let read = |name: &str| Bytes::read(&found.join(name));
            Self::decode(found.to_path_buf(), &read)
        })?;
        Ok(found.map(|(checkpoint, damage)| checkpoint.with_damage(damage)))
    }

    /// Decodes the checkpoint of `files`, which [`files`] has read from the directory `dir` on
    /// another machine.
    ///
    /// # Errors
    /// Those of [`Checkpoint::load`].
    pub fn of_files(dir: &Path, files: &Files) -> Result<Self> {
        let read = |name: &str| {
            let found = files.iter().find(|(file, _)| file == name);
            found
                .map(|(_, bytes)| Bytes::Memory(bytes.clone()))
                .ok_or_else(|| damaged(&dir.join(name), "file", "missing"))
        };
        Self::decode(dir.to_path_buf(), &read)
    }

    fn decode(dir: PathBuf, read: &dyn Fn(&str) -> Result<Bytes>) -> Result<Self> {
        let envelope: Envelope<S> = envelope(&dir.join(STATE), read(STATE)?.to_vec())?;
        let tensors = |name: &str| {
            let path = dir.join(name);
            let bytes = read(name)?;
            let sum = envelope.files.get(name).ok_or_else(|| damaged(&dir.join(STATE), "files", name))?;
            if bytes.len() as u64 != sum.bytes {
                let what = format!("{} bytes, but {STATE} records {}", bytes.len(), sum.bytes);
                return Err(damaged(&path, "length", &what));
            }
            if checksum(&bytes) != sum.xxh3 {
                let what = format!("{}, but {STATE} records {}", checksum(&bytes), sum.xxh3);
                return Err(damaged(&path, "checksum", &what));
            }
            decode(&path, &bytes)
        };
        Ok(Self {
            model: tensors(MODEL)?,
            best: tensors(BEST)?,
            optimizer: tensors(OPTIMIZER)?,
            optimizer_steps: envelope.optimizer_steps,
            history: if envelope.files.contains_key(HISTORY) { tensors(HISTORY)? } else { Vec::new() },
            state: envelope.state,
            damage: None,
            dir,
        })
    }
}

impl<S> Checkpoint<S> {
    /// The same checkpoint, read because of this damage of a newer one.
    pub(crate) fn with_damage(self, damage: Option<String>) -> Self {
        Self { damage, ..self }
    }

    /// Warning of a run that continues from this checkpoint because a newer one is damaged.
    pub(crate) fn warning(&self) -> Option<String> {
        let damage = self.damage.as_ref()?;
        Some(format!(
            "warning: the newest checkpoint is damaged; the run continues from the one before it, and \
             repeats the batches since then to the same bits: {damage}"
        ))
    }

    /// Restores the parameters and the optimiser's state.
    ///
    /// # Errors
    /// The checkpoint belongs to another model or optimiser; the message names the first tensor
    /// that differs.
    pub fn restore(&self, model: &mut Model, optimizer: &mut dyn Optimizer) -> Result<()> {
        assign_model(&self.dir.join(MODEL), &self.model, model)?;
        let mut index = 0;
        model.visit(&mut |_, param| {
            optimizer.prepare(index, param);
            index += 1;
        });
        assign(&self.dir.join(OPTIMIZER), &self.optimizer, |see| optimizer.visit_state_mut(see))?;
        optimizer.set_steps(self.optimizer_steps);
        Ok(())
    }
}

/// Writes the parameters to the file `path`, which it replaces in one step.
///
/// # Errors
/// The disk is full or not writable. The previous file is unchanged.
pub fn save_model(path: &Path, model: &Model) -> Result<()> {
    let mut params = Vec::new();
    model.visit(&mut |name, param| {
        let shape = [param.value.num_rows(), param.value.num_cols()];
        params.push((name.to_string(), shape, param.value.view().host()));
    });
    save_params(path, &params)
}

/// [`save_model`] of given matrices.
///
/// # Errors
/// Those of [`save_model`], or a duplicate name.
pub fn save_params(path: &Path, params: &[TensorRef]) -> Result<()> {
    check_finite(path, params)?;
    let encoded = encode(path, params)?;
    Ok(atomic::replace_by(&mut Real, path, |file| encoded.write_to(file).map(drop))?)
}

/// Refuses parameters for the file `path` that are not finite.
///
/// # Errors
/// The first such parameter: the training diverged in its last update.
pub(crate) fn check_finite(path: &Path, params: &[TensorRef]) -> Result<()> {
    let first = params.iter().find_map(|(name, _, data)| {
        let mut found = None;
        for_each_chunk(data, |chunk| {
            found = found.or_else(|| chunk.iter().copied().find(|x| !x.is_finite()))
        });
        Some((name, found?))
    });
    first.map_or(Ok(()), |(name, value)| {
        let file = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        Err(Error::NotFinite { name: name.clone(), file, value })
    })
}

/// Reads parameters from a file of [`save_model`], or from the `model.safetensors` of a checkpoint.
///
/// # Errors
/// The file cannot be read, is damaged or belongs to another model.
pub fn load_model(path: &Path, model: &mut Model) -> Result<()> {
    assign_model(path, &load_params(path)?, model)
}

pub(crate) fn assign_model(path: &Path, tensors: &[Tensor], model: &mut Model) -> Result<()> {
    assign(path, tensors, |see| model.visit_mut(&mut |name, param| see(name, &mut param.value)))
}

/// Reads the parameters of a file of [`save_params`].
///
/// # Errors
/// The file cannot be read or is damaged.
pub(crate) fn load_params(path: &Path) -> Result<Vec<Tensor>> {
    let read = || decode(path, &Bytes::read(path)?);
    read().map_err(|error| directory::with_remedy(path, error))
}

fn read(path: &Path) -> Result<Vec<u8>> {
    fs::read(path).map_err(|e| unreadable(path, e))
}

/// Verifies the checksum inside `state.json`, the first string under "xxh3".
fn verify_text(path: &Path, text: &str) -> Result<()> {
    let key = "\"xxh3\": \"";
    let at = text.find(key).map(|at| at + key.len());
    let Some((at, written)) = at.and_then(|at| Some((at, text.get(at..at + NO_CHECKSUM.len())?))) else {
        return Err(damaged(path, "xxh3", "no checksum"));
    };
    let rest = at + NO_CHECKSUM.len();
    let blank = [&text[..at], NO_CHECKSUM, &text[rest..]].concat();
    if checksum(blank.as_bytes()) != written {
        return Err(damaged(
            path,
            "xxh3",
            &format!("{}, but the file records {written}", checksum(blank.as_bytes())),
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests;
