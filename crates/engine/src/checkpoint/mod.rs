//! Checkpoints: all that a run needs to go on, as one unit that is never half there.
//!
//! ```text
//! checkpoint/model.safetensors        every parameter, by the name it is visited under
//! checkpoint/best.safetensors         the same of the best epoch so far; no tensors before there is one
//! checkpoint/optimizer.safetensors    the optimiser's state, by index and kind
//! checkpoint/history.safetensors      older parameters that what is reused was made from; left out where nothing is
//! checkpoint/state.json               the caller's state, the step counter, checksums of all files
//! ```
//!
//! # Why a checkpoint can be loaded at any moment
//!
//! A save writes `checkpoint.tmp/` and syncs it, renames `checkpoint/` to `checkpoint.old/`,
//! renames `checkpoint.tmp/` to `checkpoint/`, and removes `checkpoint.old/`. A load takes
//! `checkpoint/`, or `checkpoint.old/` where there is no `checkpoint/`. The directory `checkpoint/`
//! is made by a rename only, so where it is there it is complete; `checkpoint.old/` is removed only
//! while `checkpoint/` is there. So from the first completed save on, one of the two is complete
//! after every step ([`atomic::exchange`] says why there are two).
//!
//! # Links and foreign files
//!
//! `checkpoint/` may be a symbolic link to a directory on a larger disk: the three directories are
//! then those of the link's target and beside it, and the link stays. Files in `checkpoint/` that
//! no save wrote are moved to the directory that replaces it, never removed. Links at
//! `checkpoint.tmp` and `checkpoint.old` are unlinked, never followed.

pub mod tensors;

use std::{
    collections::BTreeMap,
    fs, io,
    path::{Path, PathBuf},
};

use graphmill_data::atomic::{self, Disk, Real};
use graphmill_nn::{Model, optim::Optimizer};
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use xxhash_rust::xxh3::xxh3_64;

use crate::{Error, Result};
use tensors::{MEND, Tensor, TensorRef, decode, encode};

const MODEL: &str = "model.safetensors";
const BEST: &str = "best.safetensors";
const OPTIMIZER: &str = "optimizer.safetensors";
const HISTORY: &str = "history.safetensors";
const STATE: &str = "state.json";
/// The files that a save writes.
const FILES: [&str; 5] = [MODEL, BEST, OPTIMIZER, HISTORY, STATE];

/// Links to links that are followed, as many as Linux follows.
const MOST_LINKS: usize = 40;

/// The version of the layout above. (1 had the best model beside the checkpoint instead of in it.)
const VERSION: u32 = 2;

/// Stands for the checksum of `state.json` while it is computed.
const NO_CHECKSUM: &str = "0000000000000000";

/// `state.json`.
#[derive(Serialize, Deserialize)]
struct Envelope<S> {
    graphmill_checkpoint: u32,
    /// XXH3 of this file with [`NO_CHECKSUM`] in this place.
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
    /// The parameters.
    pub model: Vec<Tensor>,
    /// The best epoch's parameters; none before there is one.
    pub best: Vec<Tensor>,
    /// The optimiser's state.
    pub optimizer: Vec<Tensor>,
    /// Updates the optimiser has made.
    pub optimizer_steps: u64,
    /// Older parameters that are still needed.
    pub history: Vec<Tensor>,
    /// What else the run needs.
    pub state: S,
    /// The directory it came from.
    dir: PathBuf,
}

/// Files by name.
pub type Files = Vec<(String, Vec<u8>)>;

/// What a checkpoint is written from.
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

/// Writes the checkpoint directory `dir` (see the module's head). `state` must not hold numbers
/// that are not finite: JSON has no word for them.
///
/// # Errors
/// The disk is full or not to be written; the checkpoint that was there is untouched.
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
    // the visitor lends each matrix for the call alone
    let mut owned = Vec::new();
    optimizer.visit_state(&mut |name, matrix| {
        let shape = [matrix.num_rows(), matrix.num_cols()];
        owned.push(Tensor { name: name.to_string(), shape, data: matrix.view().host().to_vec() });
    });
    let moments: Vec<TensorRef> = owned.iter().map(Tensor::borrow).collect();
    let history: Vec<TensorRef> = history.iter().map(Tensor::borrow).collect();
    save_tensors(dir, &params, best, &moments, optimizer.steps(), &history, state)
}

/// [`save`] for matrices from anywhere.
///
/// # Errors
/// As [`save`], or a name that comes twice.
pub fn save_tensors<S: Serialize>(
    dir: &Path,
    model: &[TensorRef],
    best: &[TensorRef],
    optimizer: &[TensorRef],
    optimizer_steps: u64,
    history: &[TensorRef],
    state: &S,
) -> Result<()> {
    let contents = Contents { model, best, optimizer, optimizer_steps, history, state };
    let written = write(&mut Real, dir, &contents);
    if written.is_err() {
        // a full disk should get its space back; if not even that works, the first error is the one
        // to tell
        let _ = atomic::remove_all(&mut Real, &atomic::suffixed(&target(dir), ".tmp"));
    }
    written
}

/// The steps of a save.
fn write<S: Serialize>(disk: &mut impl Disk, dir: &Path, contents: &Contents<S>) -> Result<()> {
    let dir = &*target(dir);
    let (fresh, old) = (atomic::suffixed(dir, ".tmp"), atomic::suffixed(dir, ".old"));

    // what a crash may have left behind
    if atomic::is_there(dir)? {
        retire(disk, &old, dir)?;
    } else if old.is_dir() {
        disk.rename(&old, dir).map_err(|e| Error::io(&old, "rename", e))?;
    }
    atomic::remove_all(disk, &fresh)?;

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
        let bytes = encode(&dir.join(name), tensors)?;
        disk.write(&path, |file| file.write_all(&bytes)).map_err(|e| Error::io(&path, "write", e))?;
        files.insert(name.to_string(), FileSum { bytes: bytes.len() as u64, xxh3: checksum(&bytes) });
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
    atomic::swap(disk, &fresh, dir, &old)?;
    retire(disk, &old, dir)
}

/// Removes the checkpoint `old`, which `dir` has replaced. Files that no save wrote move to `dir`.
fn retire(disk: &mut impl Disk, old: &Path, dir: &Path) -> Result<()> {
    if !fs::symlink_metadata(old).is_ok_and(|found| found.is_dir()) {
        return Ok(atomic::remove_all(disk, old)?);
    }
    let mut moved = false;
    for entry in fs::read_dir(old).map_err(|e| Error::io(old, "read", e))? {
        let entry = entry.map_err(|e| Error::io(old, "read", e))?;
        let (name, from) = (entry.file_name(), entry.path());
        if FILES.iter().any(|file| name == *file) {
            atomic::remove_all(disk, &from)?;
        } else if !atomic::is_there(&dir.join(&name))? {
            disk.rename(&from, &dir.join(&name))
                .map_err(|e| Error::io(&from, "move to the checkpoint", e))?;
            moved = true;
        }
    }
    if moved {
        atomic::sync_dir(disk, dir)?;
    }
    disk.remove_dir(old).map_err(|e| Error::io(old, "remove", e))
}

/// The directory that `dir` is a symbolic link to, whether it is there or not; `dir` itself if it
/// is not a link.
fn target(dir: &Path) -> PathBuf {
    let mut target = dir.to_path_buf();
    for _ in 0..MOST_LINKS {
        let Ok(next) = fs::read_link(&target) else { break };
        target = target.parent().map(|parent| parent.join(&next)).unwrap_or(next);
    }
    target
}

/// The directory that holds the checkpoint `dir` (see the module's head); `None` where nothing was
/// ever saved.
///
/// # Errors
/// `dir` is a symbolic link to a place without a checkpoint.
fn complete(dir: &Path) -> Result<Option<PathBuf>> {
    let target = target(dir);
    let old = atomic::suffixed(&target, ".old");
    let found = [&target, &old].into_iter().find(|dir| dir.is_dir()).cloned();
    if found.is_none() && target != dir {
        let message = format!(
            "it is a symbolic link to {}, where no checkpoint is: mount the disk that holds it, or remove the link to \
             start from the beginning",
            target.display()
        );
        return Err(Error::run(dir, message));
    }
    Ok(found)
}

/// The parameters' file of the checkpoint directory `dir`; `None` where nothing was ever saved.
///
/// # Errors
/// `dir` is a symbolic link to a place without a checkpoint.
pub fn model_file(dir: &Path) -> Result<Option<PathBuf>> {
    Ok(complete(dir)?.map(|dir| dir.join(MODEL)))
}

/// The files of the checkpoint directory `dir`, by name, for another machine; `None` where nothing
/// was ever saved.
///
/// # Errors
/// They cannot be read.
pub fn files(dir: &Path) -> Result<Option<Files>> {
    let Some(dir) = complete(dir)? else { return Ok(None) };
    let mut files = Vec::new();
    for name in FILES {
        let path = dir.join(name);
        if name != HISTORY || path.is_file() {
            files.push((name.to_string(), read(&path)?));
        }
    }
    Ok(Some(files))
}

/// The state of the checkpoint directory `dir` without its tensors; `None` where nothing was ever
/// saved.
///
/// # Errors
/// As [`Checkpoint::load`].
pub fn state<S: DeserializeOwned>(dir: &Path) -> Result<Option<S>> {
    let Some(dir) = complete(dir)? else { return Ok(None) };
    let path = dir.join(STATE);
    Ok(Some(envelope(&path, read(&path)?)?.state))
}

/// The contents of `state.json` at `path`, after a check of its checksum and version.
fn envelope<S: DeserializeOwned>(path: &Path, text: Vec<u8>) -> Result<Envelope<S>> {
    let text = String::from_utf8(text)
        .map_err(|e| damaged(path, &format!("byte {}", e.utf8_error().valid_up_to()), "no text"))?;
    verify_text(path, &text)?;
    let parse_error = |e: serde_json::Error| damaged(path, &format!("line {}", e.line()), &e.to_string());
    let header: Envelope<serde::de::IgnoredAny> = serde_json::from_str(&text).map_err(parse_error)?;
    if header.graphmill_checkpoint != VERSION {
        let age = if header.graphmill_checkpoint > VERSION { "a newer" } else { "an older" };
        let message = format!(
            "version {} was written by {age} graphmill; this one knows {VERSION}: go on with that one, or train again",
            header.graphmill_checkpoint
        );
        return Err(Error::format(path, "graphmill_checkpoint", message));
    }
    serde_json::from_str(&text).map_err(parse_error)
}

impl<S: DeserializeOwned> Checkpoint<S> {
    /// Reads the checkpoint directory `dir`; `None` where nothing was ever saved.
    ///
    /// # Errors
    /// A file that cannot be read, is damaged or is of a newer version, or a link to nothing; the
    /// message names it.
    pub fn load(dir: &Path) -> Result<Option<Self>> {
        let Some(dir) = complete(dir)? else { return Ok(None) };
        let read = |name: &str| read(&dir.join(name));
        Self::decode(dir.clone(), &read).map(Some)
    }

    /// The checkpoint whose files are `files`, which [`files`] has read from the directory `dir` of
    /// another machine.
    ///
    /// # Errors
    /// As [`Checkpoint::load`].
    pub fn of_files(dir: &Path, files: &Files) -> Result<Self> {
        let read = |name: &str| {
            let found = files.iter().find(|(file, _)| file == name).map(|(_, bytes)| bytes.clone());
            found.ok_or_else(|| damaged(&dir.join(name), "file", "missing"))
        };
        Self::decode(dir.to_path_buf(), &read)
    }

    fn decode(dir: PathBuf, read: &dyn Fn(&str) -> Result<Vec<u8>>) -> Result<Self> {
        let envelope: Envelope<S> = envelope(&dir.join(STATE), read(STATE)?)?;
        let tensors = |name: &str| {
            let path = dir.join(name);
            let bytes = read(name)?;
            let sum = envelope.files.get(name).ok_or_else(|| damaged(&dir.join(STATE), "files", name))?;
            if bytes.len() as u64 != sum.bytes {
                let what = format!("{} bytes where {STATE} says {}", bytes.len(), sum.bytes);
                return Err(damaged(&path, "length", &what));
            }
            if checksum(&bytes) != sum.xxh3 {
                let what = format!("{} where {STATE} says {}", checksum(&bytes), sum.xxh3);
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
            dir,
        })
    }
}

impl<S> Checkpoint<S> {
    /// Puts the parameters and the optimiser's state back.
    ///
    /// # Errors
    /// They belong to another model or optimiser; the message names the first tensor that differs.
    pub fn restore(&self, model: &mut Model, optimizer: &mut dyn Optimizer) -> Result<()> {
        assign_model(&self.dir.join(MODEL), &self.model, model)?;
        let mut index = 0;
        model.visit(&mut |_, param| {
            optimizer.prepare(index, param);
            index += 1;
        });
        let mut assign = Assign::new(self.dir.join(OPTIMIZER), &self.optimizer);
        optimizer.visit_state_mut(&mut |name, matrix| {
            let shape = [matrix.num_rows(), matrix.num_cols()];
            assign.one(name, shape, matrix.view_mut().host());
        });
        assign.finish()?;
        optimizer.set_steps(self.optimizer_steps);
        Ok(())
    }
}

/// Writes the parameters alone to the file `path`, atomically.
///
/// # Errors
/// The disk is full or not to be written; the file that was there is untouched.
pub fn save_model(path: &Path, model: &Model) -> Result<()> {
    let mut params = Vec::new();
    model.visit(&mut |name, param| {
        let shape = [param.value.num_rows(), param.value.num_cols()];
        params.push((name.to_string(), shape, param.value.view().host()));
    });
    save_params(path, &params)
}

/// [`save_model`] for matrices from anywhere.
///
/// # Errors
/// As [`save_model`], or a name that comes twice.
pub fn save_params(path: &Path, params: &[TensorRef]) -> Result<()> {
    Ok(atomic::replace(&mut Real, path, &encode(path, params)?)?)
}

/// Reads the parameters that [`save_model`] wrote; the `model.safetensors` of a checkpoint will do
/// as well.
///
/// # Errors
/// The file cannot be read, is damaged or belongs to another model.
pub fn load_model(path: &Path, model: &mut Model) -> Result<()> {
    assign_model(path, &decode(path, &read(path)?)?, model)
}

pub(crate) fn assign_model(path: &Path, tensors: &[Tensor], model: &mut Model) -> Result<()> {
    let mut assign = Assign::new(path.to_path_buf(), tensors);
    model.visit_mut(&mut |name, param| {
        let shape = [param.value.num_rows(), param.value.num_cols()];
        assign.one(name, shape, param.value.view_mut().host());
    });
    assign.finish()
}

/// Copies tensors to where they belong, and remembers the first that does not fit.
struct Assign<'a> {
    path: PathBuf,
    left: BTreeMap<&'a str, &'a Tensor>,
    wrong: Option<Error>,
}

impl<'a> Assign<'a> {
    fn new(path: PathBuf, tensors: &'a [Tensor]) -> Self {
        Self { path, left: tensors.iter().map(|t| (&t.name[..], t)).collect(), wrong: None }
    }

    fn wrong(&mut self, name: &str, what: String) {
        let message = format!("{what}; use the configuration that wrote the file");
        self.wrong.get_or_insert(Error::format(&self.path, format!("tensor '{name}'"), message));
    }

    fn one(&mut self, name: &str, shape: [usize; 2], to: &mut [f32]) {
        match self.left.remove(name) {
            Some(tensor) if tensor.shape == shape => to.copy_from_slice(&tensor.data),
            Some(tensor) => {
                self.wrong(name, format!("shape {:?}, but the model has {shape:?} here", tensor.shape));
            }
            None => self.wrong(name, "missing".to_string()),
        }
    }

    fn finish(mut self) -> Result<()> {
        if let Some(name) = self.left.keys().next().copied() {
            self.wrong(name, "the model has no such thing".to_string());
        }
        self.wrong.map_or(Ok(()), Err)
    }
}

fn read(path: &Path) -> Result<Vec<u8>> {
    fs::read(path).map_err(|e| match e.kind() {
        io::ErrorKind::NotFound => damaged(path, "file", "missing"),
        _ => Error::io(path, "read", e),
    })
}

fn damaged(path: &Path, place: &str, what: &str) -> Error {
    Error::format(path, place, format!("{what}: the file is damaged; {MEND}"))
}

/// Checks the checksum inside `state.json`: the first string under "xxh3".
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
            &format!("{} where {written} is written", checksum(blank.as_bytes())),
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests;
