//! Questions and answers of a predictor.

/// Neighbours that an answer reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Neighborhood {
    /// All neighbours, as in `graphmill predict`.
    All,
    /// Neighbours that the run's sampler draws under a seed.
    Drawn {
        /// Seed of the draws.
        seed: u64,
    },
}

/// Task that a run learned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Task {
    /// One of the classes.
    Classes,
    /// One of the classes of each of several columns.
    Columns,
    /// Any number of labels.
    Labels,
    /// Values.
    Values,
}

impl Task {
    /// Name in messages and documents.
    pub fn name(self) -> &'static str {
        match self {
            Self::Classes => "classes",
            Self::Columns => "columns",
            Self::Labels => "labels",
            Self::Values => "values",
        }
    }
}

/// Answers for `N` nodes.
#[derive(Clone, Debug, PartialEq)]
pub struct Answers {
    /// Number of scores per node (`C`), of all columns of classes together.
    pub cols: usize,
    /// Probabilities of classes or labels, or values at the scale of the targets (`N x C`).
    pub scores: Vec<f32>,
    /// Most likely class of each node (`N`), or in each of `K` columns (`N x K`); empty if the run
    /// learned labels or values.
    pub classes: Vec<i64>,
}

impl Answers {
    /// Number of nodes.
    pub fn len(&self) -> usize {
        self.scores.len() / self.cols.max(1)
    }

    /// Returns true if there are no answers.
    pub fn is_empty(&self) -> bool {
        self.scores.is_empty()
    }

    /// Answers of the nodes from number `first` on, `count` of them.
    ///
    /// # Panics
    /// There are fewer nodes.
    pub fn part(&self, first: usize, count: usize) -> Self {
        let columns = self.classes.len() / self.len().max(1);
        let classes = self.classes[first * columns..(first + count) * columns].to_vec();
        let scores = self.scores[first * self.cols..(first + count) * self.cols].to_vec();
        Self { cols: self.cols, scores, classes }
    }
}
