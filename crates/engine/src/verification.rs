//! Verification of a run's feature files: by the option `verify`, with notes and a record.

#![forbid(unsafe_code)]

use graphmill_core::units;
use graphmill_data::{
    Dataset,
    typed::{FeatureTable, TableData, TypedDataset},
    verification::ChunkVerifier,
};

use crate::{Result, TrainConfig, config::VerifyFeatures, record::VerificationRecord};

/// Feature files of a dataset that is open.
#[derive(Clone, Debug, Default)]
pub(crate) struct FeatureFiles {
    /// Bytes of files that were verified at opening.
    opened: u64,
    /// Verifiers of the others.
    deferred: Vec<ChunkVerifier>,
}

impl FeatureFiles {
    /// Files of a dataset; none if it is in memory.
    pub(crate) fn of(data: &Dataset) -> Self {
        Self::of_all([data].into_iter())
    }

    /// Files of several datasets, such as the parts of a rank.
    pub(crate) fn of_all<'d>(all: impl Iterator<Item = &'d Dataset>) -> Self {
        let mut files = Self::default();
        for data in all.filter(|data| data.directory.is_some()) {
            files.add(data.features.verifier(), data.features.bytes() as u64);
        }
        files
    }

    /// Files of the types of a dataset.
    pub(crate) fn of_types(data: &TypedDataset) -> Self {
        let mut files = Self::default();
        for table in data.feature_tables().filter(|_| data.directory.is_some()) {
            files.add(table.verifier(), bytes(table));
        }
        files
    }

    fn add(&mut self, verifier: Option<&ChunkVerifier>, bytes: u64) {
        match verifier {
            Some(verifier) => self.deferred.push(verifier.clone()),
            None => self.opened += bytes,
        }
    }

    /// Prepares the files for a run before their first row is read: verifies them now or turns
    /// their verification off, if the option says so. Returns notes about rows that will be read
    /// unverified.
    ///
    /// # Errors
    /// A file is damaged.
    pub(crate) fn prepare(&self, config: &TrainConfig) -> Result<Vec<String>> {
        for verifier in &self.deferred {
            match config.verify {
                VerifyFeatures::Open => verifier.verify_at_opening()?,
                VerifyFeatures::None => verifier.turn_off(),
                VerifyFeatures::Auto | VerifyFeatures::FirstRead => {}
            }
        }
        let of = |is_meant: &dyn Fn(&ChunkVerifier) -> bool| {
            let meant = self.deferred.iter().filter(|verifier| is_meant(verifier));
            meant.map(ChunkVerifier::bytes).sum::<u64>()
        };
        let mut notes = Vec::new();
        let off = of(&|verifier| verifier.is_off());
        if off > 0 {
            notes.push(format!("--verify none: {} of features are not verified", units::bytes(off)));
        }
        let lacking = of(&|verifier| lacks_checksums(verifier));
        if lacking > 0 {
            notes.push(format!(
                "{} of features are from a version without features_checksums.npy, so rows that are read \
                 from disk are not verified; graphmill info --verify adds the file",
                units::bytes(lacking)
            ));
        }
        Ok(notes)
    }

    /// Record of what was verified so far; `None` without files.
    pub(crate) fn record(&self) -> Option<VerificationRecord> {
        let mut record =
            VerificationRecord { bytes: self.opened, at_opening: self.opened, ..Default::default() };
        for verifier in &self.deferred {
            let (bytes, verified) = (verifier.bytes(), verifier.bytes_verified());
            let at_opening = verifier.bytes_at_opening();
            record.bytes += bytes;
            record.at_opening += at_opening;
            record.at_first_read += verified - at_opening;
            record.unverified += bytes - verified;
            record.is_off |= verifier.is_off();
            record.lacks_checksums |= lacks_checksums(verifier);
        }
        (record.bytes > 0).then_some(record)
    }
}

/// Returns true if rows of the file are read unverified for want of checksums.
fn lacks_checksums(verifier: &ChunkVerifier) -> bool {
    !verifier.has_checksums() && !verifier.is_off() && verifier.bytes_verified() < verifier.bytes()
}

/// Bytes of the rows of a table.
fn bytes(table: &FeatureTable) -> u64 {
    match &table.data {
        TableData::Dense(values) => values.bytes().len() as u64,
        TableData::Sparse(rows) => rows.bytes() as u64,
    }
}
