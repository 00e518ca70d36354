//! Uncached feature rows for inference.

use std::sync::Arc;

use graphmill_core::{Matrix, NodeId, Result, block::Aggregation};
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
    /// Rows in memory or in a file, followed by the stored aggregates of each node's neighbours.
    Stacked(Arc<AllRows>, Aggregation),
}

impl AllRows {
    /// Returns true if the first layer multiplies sparse rows.
    pub(crate) fn is_sparse(&self) -> bool {
        matches!(self, Self::Table(table) if table.is_sparse())
    }

    /// These rows, of which the second half are stored aggregates.
    #[must_use]
    pub(crate) fn with_aggregates(self, aggregation: Aggregation) -> Self {
        Self::Stacked(Arc::new(self), aggregation)
    }

    /// Returns true if the features are in a table in memory, without label columns.
    pub(crate) fn is_table(&self) -> bool {
        match self {
            Self::Table(_) => true,
            Self::Stacked(rows, _) => rows.is_table(),
            Self::Rows(_) | Self::Labelled(_) => false,
        }
    }

    fn dim(&self) -> usize {
        match self {
            Self::Table(table) => table.num_cols(),
            Self::Rows(rows) => rows.dim(),
            Self::Labelled(rows) => rows.dim(),
            Self::Stacked(rows, _) => rows.dim(),
        }
    }

    /// Number of nodes.
    fn num_rows(&self) -> usize {
        match self {
            Self::Table(table) => table.num_rows(),
            Self::Rows(rows) => rows.num_rows(),
            Self::Labelled(rows) => rows.num_rows(),
            Self::Stacked(rows, _) => rows.num_rows() / 2,
        }
    }

    fn gather(&self, ids: &[NodeId], out: &mut Matrix) -> Result<Traffic> {
        match self {
            Self::Table(table) => {
                gather_rows(&Cpu::default(), table.view(), ids, out);
                Ok(Traffic::default())
            }
            Self::Rows(rows) => rows.gather(ids, out),
            Self::Labelled(rows) => rows.gather(ids, out),
            Self::Stacked(rows, _) => rows.gather(ids, out),
        }
    }

    /// These rows followed by label columns, if the run has some.
    #[must_use]
    pub(crate) fn with_labels(self, labels: Option<LabelColumns>) -> Self {
        match labels {
            Some(labels) => Self::Labelled(Arc::new(Labelled { rows: self, labels })),
            None => self,
        }
    }

    /// These rows as a tier.
    #[cfg(feature = "tables")]
    pub(crate) fn into_feature(self) -> Arc<dyn Feature> {
        match self {
            Self::Table(_) => Arc::new(DenseRows(Arc::new(self))),
            Self::Rows(rows) => rows,
            Self::Labelled(rows) => rows,
            Self::Stacked(rows, _) => (*rows).clone().into_feature(),
        }
    }

    /// Label columns of these rows, if they have some.
    pub(crate) fn labels(&self) -> Option<&LabelColumns> {
        match self {
            Self::Labelled(rows) => Some(&rows.labels),
            Self::Table(_) | Self::Rows(_) | Self::Stacked(..) => None,
        }
    }
}

impl<'r> From<&'r AllRows> for Source<'r> {
    fn from(rows: &'r AllRows) -> Self {
        match rows {
            AllRows::Table(table) => Source::Table(table),
            AllRows::Rows(rows) => Source::Feature(&**rows),
            AllRows::Labelled(rows) => Source::Feature(&**rows),
            AllRows::Stacked(rows, aggregation) => match &**rows {
                AllRows::Table(table) => Source::StackedTable(table, *aggregation),
                AllRows::Rows(rows) => Source::StackedFeature(&**rows, *aggregation),
                // features alone have aggregates
                rows => rows.into(),
            },
        }
    }
}

/// The rows of a dense table, which others may follow.
#[cfg(feature = "tables")]
pub(crate) struct DenseRows(Arc<AllRows>);

#[cfg(feature = "tables")]
impl DenseRows {
    /// The rows without label columns; `None` if they are not a dense table in memory.
    pub(crate) fn of(rows: &Arc<AllRows>) -> Option<Self> {
        let is_dense = Self(rows.clone()).table().is_some_and(|table| !table.is_sparse());
        is_dense.then(|| Self(rows.clone()))
    }

    fn table(&self) -> Option<&Matrix> {
        match &*self.0 {
            AllRows::Table(table) => Some(table),
            AllRows::Labelled(labelled) => match &labelled.rows {
                AllRows::Table(table) => Some(table),
                AllRows::Rows(_) | AllRows::Labelled(_) | AllRows::Stacked(..) => None,
            },
            AllRows::Rows(_) | AllRows::Stacked(..) => None,
        }
    }
}

#[cfg(feature = "tables")]
impl Feature for DenseRows {
    fn dim(&self) -> usize {
        self.table().map_or(0, Matrix::num_cols)
    }

    fn num_rows(&self) -> usize {
        self.table().map_or(0, Matrix::num_rows)
    }

    fn read_to(&self, ids: &[NodeId], places: OutputRows, out: &mut [f32]) -> Result<Traffic> {
        let mut read = Matrix::default();
        if let Some(table) = self.table() {
            gather_rows(&Cpu::default(), table.view(), ids, &mut read);
        }
        place(&read, places, out);
        Ok(Traffic::default())
    }

    fn row_bytes(&self) -> u64 {
        4 * self.dim() as u64
    }

    fn capabilities(&self) -> Capabilities<'_> {
        Capabilities::default()
    }
}

/// Copies rows to their places.
fn place(rows: &Matrix, places: OutputRows, out: &mut [f32]) {
    let (width, rows) = (rows.num_cols(), rows.view().host());
    match places {
        OutputRows::InOrder => out.copy_from_slice(rows),
        OutputRows::At(at) => {
            for (&to, row) in at.iter().zip(rows.chunks_exact(width.max(1))) {
                out[to as usize * width..][..width].copy_from_slice(row);
            }
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
        self.rows.dim() + self.labels.width()
    }

    fn num_rows(&self) -> usize {
        self.rows.num_rows()
    }

    fn read_to(&self, ids: &[NodeId], places: OutputRows, out: &mut [f32]) -> Result<Traffic> {
        let mut read = Matrix::default();
        let traffic = self.gather(ids, &mut read)?;
        place(&read, places, out);
        Ok(traffic)
    }

    fn gather(&self, ids: &[NodeId], out: &mut Matrix) -> Result<Traffic> {
        let traffic = self.rows.gather(ids, out)?;
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
