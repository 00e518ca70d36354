//! Matrices as devices see them: where values are, and copies of them on demand.

use std::sync::Arc;

use super::{Matrix, Storage, TableData, TableType, View, ViewMut};
use crate::accelerator::{Accelerator, DeviceMemory};

impl Matrix {
    /// Reports whether the newest values are on a device.
    pub fn is_on_device(&self) -> bool {
        self.mirror.is_newest()
    }

    /// Number of the device that holds the newest values, if a device does.
    pub fn device(&self) -> Option<usize> {
        self.mirror.device()
    }

    /// Becomes the matrix of the values that `memory` holds on a device, at least `rows * cols`
    /// f32.
    pub fn set_device(&mut self, rows: usize, cols: usize, memory: Arc<dyn DeviceMemory>) {
        self.resize(rows, cols);
        self.mirror.put(memory);
    }
}

impl View<'_> {
    /// Type of the values, and address of the first of these rows on a device, which gets a copy if
    /// they are newer on the host. `None` if it has no memory for them, or they are sparse.
    pub fn on_device(&self, accelerator: &dyn Accelerator) -> Option<(TableType, u64)> {
        let Matrix { rows, cols, storage, mirror, .. } = self.matrix;
        let host = |kind: TableType, bytes: &[u8], shared: bool| {
            let memory = mirror.uploaded(accelerator, bytes, shared)?;
            Some((kind, memory + (self.start * cols * kind.width()) as u64))
        };
        if let Some(newest) = mirror.on(accelerator.device()) {
            return Some((TableType::F32, newest + (self.start * cols * 4) as u64));
        }
        if let Some(copy) = mirror.copied(accelerator, 4 * rows * cols) {
            return Some((TableType::F32, copy + (self.start * cols * 4) as u64));
        }
        match storage {
            Storage::Sparse(_) | Storage::SparseTable(_) | Storage::Slots(_) => None,
            Storage::Shared(data) => {
                let bytes: &[u8] = match data {
                    TableData::F32(data) => bytemuck::cast_slice(data),
                    TableData::F16(data) => bytemuck::cast_slice(data),
                    TableData::Bf16(data) => bytemuck::cast_slice(data),
                };
                host(data.kind(), bytes, true)
            }
            Storage::Owned(_) | Storage::File(_) => {
                let whole = View { matrix: self.matrix, start: 0, rows: *rows, values: None };
                host(TableType::F32, bytemuck::cast_slice(whole.host()), false)
            }
        }
    }
}

impl ViewMut<'_> {
    /// Address of the first of these rows on a device, to be written there: the values on the host
    /// are then old. With `keeps`, the device first gets the values if they are newer on the host;
    /// without it, those of these rows are unspecified. `None` if it has no memory for them.
    ///
    /// # Panics
    /// As [`ViewMut::host`].
    pub fn on_device(self, accelerator: &dyn Accelerator, keeps: bool) -> Option<u64> {
        let Self { matrix, start, rows } = self;
        let (values, offset) = (matrix.rows * matrix.cols, (start * matrix.cols * 4) as u64);
        if let Some(newest) = matrix.mirror.on(accelerator.device()) {
            matrix.mirror.written();
            return Some(newest + offset);
        }
        assert!(matches!(matrix.storage, Storage::Owned(_)), "shared tables and sparse rows are read-only");
        let all = start == 0 && rows == matrix.rows;
        if !all || keeps {
            // values that were never written are not copied
            if matrix.mirror.is_newest() || matrix.mirror.is_written_on_host() {
                let bytes: &[u8] = bytemuck::cast_slice(matrix.view().host());
                matrix.mirror.uploaded(accelerator, bytes, false)?;
                return matrix.mirror.take_over(accelerator.device()).map(|address| address + offset);
            }
        }
        matrix.mirror.take_memory(accelerator, 4 * values).map(|address| address + offset)
    }
}
