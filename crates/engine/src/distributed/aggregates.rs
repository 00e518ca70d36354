//! Stored aggregates of a rank's own nodes, for `--bottom exact`.
//!
//! # Algorithm
//!
//! ```text
//!   every rank:   files of own parts are there? ─► gather over ranks ─► none is missing: map them
//!                                                        │
//!                                                        ▼ one is missing
//!                 serve own features as they are stored ─► aggregate own nodes from rows of all ranks
//! ```
//!
//! An owner has all in-neighbours of its nodes, and the in-degrees of all nodes, so it aggregates
//! the rows of its own nodes alone and requests those of neighbours that other ranks own
//! ([`PartAggregates`]). The requested rows have the stored values, also if the run reads rows in
//! another precision, so a file depends on the partition alone and has the bits of one process.
//! A rank whose files are there serves the others.
//!
//! The table of the run then has two rows for each node, both at its owner. Batches request them
//! as they request features.
//!
//! # Source
//!
//! Chen, Zhu and Song, *Stochastic Training of Graph Convolutional Networks with Variance
//! Reduction*, ICML 2018, section 4.4 (preprocessing).
//!
//! # Cost
//!
//! Once for a partition: each rank aggregates the edges into its own nodes, and receives the rows
//! of other ranks' neighbours, once for each run of edges that reads them.
//!
//! # Memory
//!
//! That of [`PartAggregates`], and 4 bytes a node for the owners of the rows.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use graphmill_core::{Features, NodeId, block::Aggregation};
use graphmill_data::partition::{Part, PartAggregates};
use graphmill_distributed::rows::{ConcatRows, OwnedAndRemoteRows, Remote, RowService, Table};
use graphmill_loader::{Feature, feature::Host};

use super::{RankDataset, ranks::STORED_ROWS};
use crate::{Result, TrainConfig};

impl RankDataset {
    /// Returns true if the parts store sparse rows; the same on all ranks.
    pub(crate) fn is_stored_sparse(&self) -> bool {
        self.rows().is_stored_sparse()
    }

    /// Checks that the aggregates of this rank's nodes can be stored.
    ///
    /// # Errors
    /// The reason why not.
    pub(crate) fn can_store_aggregates(
        &self,
        config: &TrainConfig,
        aggregation: Aggregation,
    ) -> std::result::Result<(), String> {
        self.parts.iter().try_for_each(|part| {
            PartAggregates::new(&self.dir, part, aggregation).can_store(&self.place(config, part))
        })
    }

    /// Puts the aggregates of all nodes behind their features ([`RankDataset::feature`]), and
    /// stores those of this rank's nodes before, unless they are stored. All ranks call this at
    /// the same time, before any of them reads an aggregate.
    ///
    /// # Errors
    /// The aggregates cannot be stored, or a rank did not take part.
    pub(crate) fn add_aggregates(&self, config: &TrainConfig, aggregation: Aggregation) -> Result<()> {
        let verify = config.verify.at_opening();
        let of_parts: Vec<(PartAggregates, PathBuf)> = self
            .parts
            .iter()
            .map(|part| (PartAggregates::new(&self.dir, part, aggregation), self.place(config, part)))
            .collect();
        let mut found: Vec<Option<Features>> =
            of_parts.iter().map(|(part, place)| part.opened(place, verify)).collect();
        let is_missing = found.iter().any(Option::is_none);
        let all = self.ranks.gather(&[is_missing.into()])?;
        if all.iter().flatten().any(|&is_missing| is_missing > 0) {
            let rows = self.stored_rows()?;
            for ((part, place), found) in of_parts.iter().zip(&mut found) {
                if found.is_none() {
                    let mut read = |ids: &[NodeId], out: &mut [f32]| rows.read(ids, out).map(drop);
                    *found = Some(part.store(place, verify, &mut read)?);
                }
            }
        }
        let file = |(features, (part, place)): (Features, &(PartAggregates, PathBuf))| {
            let file = part.table(place);
            (features, file)
        };
        let aggregates = found.into_iter().flatten().zip(&of_parts).map(file).collect();
        let rows = self.rows().with_aggregates(config, &self.dir, &self.parts, aggregates)?;
        rows.serve(&self.ranks);
        self.set_rows(rows);
        // no rank requests an aggregate before all ranks serve theirs
        self.ranks.meet()
    }

    /// The feature rows of all nodes as the parts store them. All ranks call this at the same time.
    ///
    /// # Errors
    /// Parts have rows of different widths, or a rank did not take part.
    fn stored_rows(&self) -> Result<Arc<dyn Feature>> {
        let (post, book) = (self.ranks.post(), self.ranks.book());
        let table = |part: &Part| Arc::new(Host::new(&part.dataset.features)) as Arc<dyn Feature>;
        let tables: Vec<Arc<dyn Feature>> = self.parts.iter().map(table).collect();
        let own: Arc<dyn Feature> = match &tables[..] {
            [one] => one.clone(),
            // this rank trains on rows of graph stores
            [] => Arc::new(Host::new(&self.data.features)),
            _ => Arc::new(ConcatRows::new(tables, self.parts.iter().map(|part| &part.nodes[..]))?),
        };
        let own = Table::Constant(own);
        post.serve(STORED_ROWS, Arc::new(RowService::new(book.clone(), own.clone())));
        self.ranks.meet()?;
        let others = Remote::new(post.clone(), book.clone(), STORED_ROWS, self.data.features.dim);
        Ok(Arc::new(OwnedAndRemoteRows::new(book.clone(), own, Arc::new(others))))
    }

    /// Directory of the aggregates of a part.
    fn place(&self, config: &TrainConfig, part: &Part) -> PathBuf {
        match config.bottom_dir.is_empty() {
            true => self.dir.part_path(part.number),
            false => Path::new(&config.bottom_dir).to_path_buf(),
        }
    }
}
