//! Feature rows of a dataset, followed by further rows in memory.

use std::sync::Arc;

use graphmill_core::{Features, NodeId, Result};
use graphmill_data::{Dataset, dataset::Rescaling};
use graphmill_loader::{
    Feature,
    feature::{Capabilities, Host, OutputRows, Traffic},
};

use super::{
    all_rows::AllRows,
    plan::{Plan, of_host, stored_rows},
    rescaled::Rescaled,
};
use crate::{TrainConfig, build, memory};

/// Rows of a tier, and new rows whose ids follow.
pub(crate) struct Joined {
    known: Arc<dyn Feature>,
    new: Host,
    /// Id of the first new row.
    first: NodeId,
}

impl Joined {
    /// Appends `new` rows to those of `known`.
    pub(crate) fn new(known: Arc<dyn Feature>, new: Host) -> Self {
        let first = known.num_rows() as NodeId;
        Self { known, new, first }
    }
}

impl Feature for Joined {
    fn dim(&self) -> usize {
        self.known.dim()
    }

    fn num_rows(&self) -> usize {
        self.known.num_rows() + self.new.num_rows()
    }

    fn read_to(&self, ids: &[NodeId], places: OutputRows, out: &mut [f32]) -> Result<Traffic> {
        if ids.iter().all(|&v| v < self.first) {
            return self.known.read_to(ids, places, out);
        }
        let place = |i: usize| match places {
            OutputRows::InOrder => i as u32,
            OutputRows::At(rows) => rows[i],
        };
        let part = |is_new: bool| -> (Vec<NodeId>, Vec<u32>) {
            let of_part = ids.iter().enumerate().filter(|(_, v)| (**v >= self.first) == is_new);
            of_part.map(|(i, &v)| (if is_new { v - self.first } else { v }, place(i))).unzip()
        };
        let (known, known_places) = part(false);
        let (new, new_places) = part(true);
        self.new.read_to(&new, OutputRows::At(&new_places), out)?;
        self.known.read_to(&known, OutputRows::At(&known_places), out)
    }

    fn row_bytes(&self) -> u64 {
        self.known.row_bytes()
    }

    fn capabilities(&self) -> Capabilities<'_> {
        Capabilities::default()
    }
}

impl AllRows {
    /// The rows of `data` that new rows may follow: on disk, or mapped.
    ///
    /// # Errors
    /// As [`AllRows::new`].
    pub(crate) fn known(config: &TrainConfig, data: &Dataset) -> crate::Result<Arc<dyn Feature>> {
        Ok(match Plan::new(&of_host(config), data)? {
            Some(Plan { host: Some(_), format, .. }) => stored_rows(config, data, format)?,
            _ => Arc::new(build::rows(config, data, memory::MemoryPlacement::Mapped)?),
        })
    }

    /// The `known` rows of `data`, followed by `new` rows at the same precision, with `rescaling`
    /// applied on reads.
    ///
    /// # Errors
    /// A failed allocation.
    pub(crate) fn followed_by(
        config: &TrainConfig,
        (data, known): (&Dataset, Arc<dyn Feature>),
        new: &Features,
        rescaling: Option<&Rescaling>,
    ) -> crate::Result<Arc<dyn Feature>> {
        let kind = memory::table_type(config, data);
        let rows = Arc::new(Joined::new(known, Host::resident(new, kind)?));
        Ok(match rescaling {
            Some(rescaling) => Arc::new(Rescaled::new(rows, rescaling.clone())),
            None => rows,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn new_rows_follow_the_known_rows() {
        let host = |values: Vec<f32>| Host::new(&Features::f32(1, values));
        let joined = Joined::new(Arc::new(host(vec![10.0, 11.0, 12.0])), host(vec![20.0, 21.0]));
        assert_eq!((joined.num_rows(), joined.dim()), (5, 1));
        let mut out = [-1.0; 5];
        joined.read(&[4, 1, 3, 0, 1], &mut out).unwrap();
        assert_eq!(out, [21.0, 11.0, 20.0, 10.0, 11.0]);
        let mut out = [-1.0; 5];
        joined.read_to(&[2, 3], OutputRows::At(&[1, 4]), &mut out).unwrap();
        assert_eq!(out, [-1.0, 12.0, -1.0, -1.0, 20.0]);
    }
}
