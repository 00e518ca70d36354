//! Uncached feature rows for inference.

use std::sync::Arc;

use graphmill_core::{Matrix, NodeId, Result};
use graphmill_loader::{
    Feature,
    feature::{Capabilities, OutputRows, Traffic},
};
use graphmill_nn::{backend::Cpu, layer::gather_rows};

use crate::{inference::Source, label_inputs::LabelColumns};

/// All feature rows, for inference. Inference reads each row once, so it bypasses the caches, which
/// keep the rows that training requests.
#[derive(Clone)]
#[allow(clippy::large_enum_variant, reason = "a run has one")]
pub(crate) enum AllRows {
    /// In memory.
    Table(Matrix),
    /// Read in chunks, from the dataset's file or through a rescaling.
    Rows(Arc<dyn Feature>),
    /// Either of these, followed by label columns.
    Labelled(Arc<Labelled>),
}

impl AllRows {
    /// Returns true if the first layer multiplies sparse rows.
    pub(crate) fn is_sparse(&self) -> bool {
        matches!(self, Self::Table(table) if table.is_sparse())
    }

    /// These rows followed by label columns, if the run has some.
    #[must_use]
    pub(crate) fn with_labels(self, labels: Option<LabelColumns>) -> Self {
        match labels {
            Some(labels) => Self::Labelled(Arc::new(Labelled { rows: self, labels })),
            None => self,
        }
    }

    /// Label columns of these rows, if they have some.
    pub(crate) fn labels(&self) -> Option<&LabelColumns> {
        match self {
            Self::Labelled(rows) => Some(&rows.labels),
            Self::Table(_) | Self::Rows(_) => None,
        }
    }
}

impl<'r> From<&'r AllRows> for Source<'r> {
    fn from(rows: &'r AllRows) -> Self {
        match rows {
            AllRows::Table(table) => Source::Table(table),
            AllRows::Rows(rows) => Source::Feature(&**rows),
            AllRows::Labelled(rows) => Source::Feature(&**rows),
        }
    }
}

/// All feature rows, with label columns that are appended on reads.
pub(crate) struct Labelled {
    /// Dense rows.
    rows: AllRows,
    labels: LabelColumns,
}

impl Feature for Labelled {
    fn dim(&self) -> usize {
        let features = match &self.rows {
            AllRows::Table(table) => table.num_cols(),
            AllRows::Rows(rows) => rows.dim(),
            AllRows::Labelled(rows) => rows.dim(),
        };
        features + self.labels.width()
    }

    fn num_rows(&self) -> usize {
        match &self.rows {
            AllRows::Table(table) => table.num_rows(),
            AllRows::Rows(rows) => rows.num_rows(),
            AllRows::Labelled(rows) => rows.num_rows(),
        }
    }

    fn read_to(&self, ids: &[NodeId], places: OutputRows, out: &mut [f32]) -> Result<Traffic> {
        let mut read = Matrix::default();
        let traffic = self.gather(ids, &mut read)?;
        let (width, read) = (self.dim(), read.view().host());
        match places {
            OutputRows::InOrder => out.copy_from_slice(read),
            OutputRows::At(at) => {
                for (&to, row) in at.iter().zip(read.chunks_exact(width.max(1))) {
                    out[to as usize * width..][..width].copy_from_slice(row);
                }
            }
        }
        Ok(traffic)
    }

    fn gather(&self, ids: &[NodeId], out: &mut Matrix) -> Result<Traffic> {
        let traffic = match &self.rows {
            AllRows::Table(table) => {
                gather_rows(&Cpu::default(), table.view(), ids, out);
                Traffic::default()
            }
            AllRows::Rows(rows) => rows.gather(ids, out)?,
            AllRows::Labelled(rows) => rows.gather(ids, out)?,
        };
        self.labels.append_all(ids, out);
        Ok(traffic)
    }

    fn row_bytes(&self) -> u64 {
        4 * self.dim() as u64
    }

    fn capabilities(&self) -> Capabilities<'_> {
        Capabilities::default()
    }
}
