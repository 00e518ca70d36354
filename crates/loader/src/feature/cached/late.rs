//! A cache that is filled after the first reads.

use std::sync::{Arc, OnceLock};

use graphmill_core::{Matrix, NodeId, Result};

use crate::feature::{Capabilities, Feature, OutputRows, Traffic};

/// A tier in front of another, whose cache does not exist yet: reads go to the tier behind until
/// [`Late::fill`]. The rows are the same before and after.
pub struct Late {
    behind: Arc<dyn Feature>,
    cache: OnceLock<Arc<dyn Feature>>,
}

impl Late {
    /// Reads from `behind`, without a cache.
    pub fn new(behind: Arc<dyn Feature>) -> Self {
        Self { behind, cache: OnceLock::new() }
    }

    /// The tier behind.
    pub fn behind(&self) -> &Arc<dyn Feature> {
        &self.behind
    }

    /// Reads from `cache` from now on; it reads from [`Late::behind`]. Only the first cache counts.
    pub fn fill(&self, cache: Arc<dyn Feature>) {
        let _ = self.cache.set(cache);
    }

    /// The tier that serves reads now.
    fn now(&self) -> &dyn Feature {
        &**self.cache.get().unwrap_or(&self.behind)
    }
}

impl Feature for Late {
    fn dim(&self) -> usize {
        self.behind.dim()
    }

    fn num_rows(&self) -> usize {
        self.behind.num_rows()
    }

    fn read_to(&self, ids: &[NodeId], places: OutputRows, out: &mut [f32]) -> Result<Traffic> {
        self.now().read_to(ids, places, out)
    }

    fn gather(&self, ids: &[NodeId], out: &mut Matrix) -> Result<Traffic> {
        self.now().gather(ids, out)
    }

    fn row_bytes(&self) -> u64 {
        self.behind.row_bytes()
    }

    fn capabilities(&self) -> Capabilities<'_> {
        self.now().capabilities()
    }
}

#[cfg(test)]
mod tests {
    use graphmill_core::{Features, matrix::TableType};

    use super::*;
    use crate::feature::{
        Host,
        cached::{CacheLayout, Level, Pinned, Placement},
    };

    #[test]
    fn reads_reach_the_cache_once_it_is_filled() {
        let host = Arc::new(Host::new(&Features::f32(1, vec![0.0, 10.0, 20.0])));
        let late = Late::new(host);
        let read = || {
            let mut out = [0.0; 3];
            let traffic = late.read(&[2, 0, 1], &mut out).unwrap();
            assert_eq!(out, [20.0, 0.0, 10.0]);
            traffic.device.rows
        };
        assert_eq!(read(), 0);
        assert!(late.capabilities().marked.is_none());
        let layout = CacheLayout::new(&[2, 1], 2, 1, Placement::Shard);
        let level = Level::Device { devices: 1, reader: 0 };
        late.fill(Arc::new(Pinned::new(layout, TableType::F32, late.behind().clone(), level).unwrap()));
        assert_eq!(read(), 2);
        assert!(late.capabilities().marked.is_some());
    }
}
