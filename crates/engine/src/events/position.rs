//! Files of a run on a stream of events: what a checkpoint holds and restores.
//!
//! ```text
//! model.safetensors       parameters by name: memory.NAME, layers.N.NAME, head.NAME
//! best.safetensors        the same of the best epoch
//! optimizer.safetensors   N.KIND of each parameter
//! history.safetensors     memory.rows, memory.messages, memory.times: the nodes, within an epoch
//! state.json              the position
//! ```

use std::path::Path;

use graphmill_nn::{Matrix, temporal::NodeMemory};

use super::{learner::EventLearner, model::EventModel};
use crate::{
    Error, Result,
    batchwise::{BatchLearner, NoCounts, RestoredState, SavedTensors, WriteTensors},
    checkpoint::{
        self, GrownRows,
        tensors::{Tensor, TensorRef},
    },
};

/// Names of the tables of the memory.
const TABLES: [&str; 2] = ["memory.rows", "memory.messages"];
/// Name of the bytes of its times.
const TIMES: &str = "memory.times";
/// Names of all of it.
const MEMORY: [&str; 3] = [TABLES[0], TABLES[1], TIMES];
/// Name of the bytes of all of it in checkpoints of earlier builds.
const BYTES: &str = "memory";

/// Copies `tensors` of the file `path` to the model.
///
/// # Errors
/// The tensors are those of another model; the message names the first that differs.
pub(super) fn assign(path: &Path, tensors: &[Tensor], model: &mut EventModel) -> Result<()> {
    checkpoint::assign(path, tensors, |see| model.visit_mut(&mut |name, param| see(name, &mut param.value)))
}

/// Times of a memory as values of a tensor, in a file if the memory is: four bytes in each value,
/// the last padded by zeros, after their number modulo four.
///
/// # Errors
/// The disk has too little space.
fn times_of(memory: &NodeMemory) -> Result<Matrix> {
    let bytes = memory.bytes_of_times();
    let values = 1 + bytes.div_ceil(4);
    let mut out = match memory.directory() {
        Some(dir) => Matrix::in_file(values, 1, dir)?,
        None => Matrix::zeros(values, 1),
    };
    let Some((rest, words)) = out.view_mut().host().split_first_mut() else { return Ok(out) };
    *rest = (bytes % 4) as f32;
    memory.save_times(&mut bytemuck::cast_slice_mut(words)[..bytes]);
    Ok(out)
}

/// Reference to a matrix for writing.
fn tensor_ref<'m>(name: &str, matrix: &'m Matrix) -> TensorRef<'m> {
    (name.into(), [matrix.num_rows(), matrix.num_cols()], matrix.view().host())
}

/// Bytes of a tensor of [`times_of`].
fn bytes_of(tensor: &Tensor) -> &[u8] {
    let Some((rest, words)) = tensor.data.split_first() else { return &[] };
    let (bytes, padding): (&[u8], usize) = (bytemuck::cast_slice(words), (4 - *rest as usize % 4) % 4);
    &bytes[..bytes.len().saturating_sub(padding)]
}

/// Restores the memory of a checkpoint from the tensors of its file `path`; returns false if that
/// has none.
///
/// # Errors
/// It is that of other nodes or of another width, or a part of it is missing.
fn restore_memory(memory: &mut NodeMemory, path: &Path, stored: &[Tensor]) -> Result<bool> {
    let named = |name: &str| stored.iter().find(|tensor| tensor.name == name);
    if let Some(all) = named(BYTES) {
        memory.restore(bytes_of(all))?;
        return Ok(true);
    }
    let [rows, messages, times] = MEMORY.map(named);
    if let (Some(rows), Some(messages), Some(times)) = (rows, messages, times) {
        memory.restore_tables([&rows.data[..], &messages.data[..]], bytes_of(times))?;
        return Ok(true);
    }
    let (found, missing): (Vec<&str>, Vec<&str>) =
        MEMORY.into_iter().partition(|&name| named(name).is_some());
    if found.is_empty() {
        return Ok(false);
    }
    let message = format!(
        "missing beside {}, so the memory of the nodes is not complete; restore the file from a copy, or \
         train again",
        found.join(" and ")
    );
    Err(Error::format(path, missing.join(" and "), message))
}

impl BatchLearner for EventLearner<'_> {
    type Counts = NoCounts;

    fn num_params(&self) -> usize {
        self.model.num_params()
    }

    fn visit(&self, see: &mut dyn FnMut(&str, &Matrix)) {
        self.model.visit(&mut |name, param| see(name, &param.value));
    }

    fn assign_grown(&mut self, path: &Path, tensors: &[Tensor], grown: &GrownRows) -> Result<()> {
        let model = &mut self.model;
        checkpoint::assign_grown(path, tensors, grown, |see| {
            model.visit_mut(&mut |name, param| see(name, &mut param.value));
        })
    }

    fn restore(&mut self, path: &Path, state: &RestoredState) -> Result<()> {
        self.prepare();
        checkpoint::assign(path, state.moments, |see| self.optimizer.visit_state_mut(see))?;
        self.optimizer.set_steps(state.steps);
        if let Some(memory) = &mut self.memory {
            let path = path.with_file_name("history.safetensors");
            self.has_seen_events = restore_memory(memory, &path, state.history)?;
        }
        Ok(())
    }

    fn save(&mut self, write: &mut WriteTensors) -> Result<()> {
        self.prepare();
        let (mut moments, mut params) = (Vec::new(), Vec::new());
        self.optimizer.visit_state(&mut |name, matrix| moments.push(Tensor::copy(name, matrix)));
        self.visit(&mut |name, matrix| params.push(Tensor::copy(name, matrix)));
        let memory = self.memory.as_ref().filter(|_| self.has_seen_events);
        let times = memory.map(times_of).transpose()?;
        let mut history: Vec<TensorRef> = times.iter().map(|times| tensor_ref(TIMES, times)).collect();
        // by reference, because a memory in files may be larger than that of the machine
        for (name, table) in TABLES.into_iter().zip(memory.into_iter().flat_map(NodeMemory::tables)) {
            history.push(tensor_ref(name, table));
        }
        let [moments, params] = [&moments, &params].map(|of| Tensor::borrow_all(of));
        let steps = self.optimizer.steps();
        write(SavedTensors { params: &params, moments: &moments, steps, history: &history })
    }

    fn num_updates(&self) -> u64 {
        self.step
    }

    fn set_num_updates(&mut self, updates: u64) {
        self.step = updates;
    }

    fn is_whole(&self) -> bool {
        self.is_whole
    }
}

#[cfg(test)]
mod tests {
    use graphmill_nn::temporal::MemoryEvents;

    use super::*;

    #[test]
    fn a_memory_is_restored_from_its_tables_or_the_bytes_of_earlier_builds() {
        let path = Path::new("history.safetensors");
        let (edges, mut filled) = (Matrix::from_slice(1, 1, &[0.5]), NodeMemory::new(3, 2, 1, 5));
        let events = MemoryEvents { source: &[0], destination: &[2], time: &[9], edges: edges.view() };
        filled.push(&events).unwrap();
        let tables = TABLES.into_iter().zip(filled.tables());
        let mut tensors: Vec<Tensor> = tables.map(|(name, table)| Tensor::copy(name, table)).collect();
        tensors.push(Tensor::copy(TIMES, &times_of(&filled).unwrap()));
        let saved = filled.save();
        let mut words = vec![(saved.len() % 4) as f32];
        words.extend(saved.chunks(4).map(|part| {
            let mut word = [0; 4];
            word[..part.len()].copy_from_slice(part);
            f32::from_bits(u32::from_le_bytes(word))
        }));
        let bytes = [Tensor { name: BYTES.into(), shape: [words.len(), 1], data: words.into() }];
        for stored in [&tensors[..], &bytes] {
            let mut memory = NodeMemory::new(3, 2, 1, 0);
            assert!(restore_memory(&mut memory, path, stored).unwrap());
            assert_eq!(memory.save(), filled.save());
        }
        assert!(!restore_memory(&mut filled, path, &[]).unwrap());
        for (stored, missing) in [
            (&tensors[1..], "memory.rows: missing beside memory.messages and memory.times"),
            (&tensors[..1], "memory.messages and memory.times: missing beside memory.rows"),
        ] {
            let message = restore_memory(&mut filled, path, stored).unwrap_err().to_string();
            assert!(message.starts_with(&format!("history.safetensors: {missing}")), "{message}");
        }
    }

    #[test]
    fn times_in_a_file_are_the_tensor_of_those_in_memory() {
        let (edges, dir) = (Matrix::from_slice(1, 1, &[0.5]), tempfile::tempdir().unwrap());
        let events = MemoryEvents { source: &[0], destination: &[1], time: &[9], edges: edges.view() };
        for nodes in 2..7 {
            let mut plain = NodeMemory::new(nodes, 2, 1, 5);
            let mut in_file = NodeMemory::in_file(nodes, 2, 1, 5, dir.path(), 1).unwrap();
            let [a, b] = [&mut plain, &mut in_file].map(|memory| {
                memory.push(&events).unwrap();
                Tensor::copy(TIMES, &times_of(memory).unwrap())
            });
            assert!(times_of(&in_file).unwrap().is_in_file());
            let bits = |tensor: &Tensor| tensor.data.iter().map(|x| x.to_bits()).collect::<Vec<u32>>();
            assert_eq!(bits(&a), bits(&b), "{nodes}");
            assert_eq!(bytes_of(&a).len(), plain.bytes_of_times(), "{nodes}");
            assert_eq!(bytes_of(&a)[..8], 5i64.to_le_bytes(), "{nodes}");
            assert_eq!(bytes_of(&a)[8 * nodes..8 * nodes + 8], 9i64.to_le_bytes(), "{nodes}");
        }
    }
}
