//! Imported tables as columns, before they are written as a dataset.

use graphmill_core::{Buffer, ClassColumn, NodeId, Result};
use serde::{Deserialize, Serialize};

use super::{
    kept::{Kept, KeptColumn},
    preprocessing::Preprocessing,
};
use crate::typed::{FeatureTable, Seeds, TableData, TaskOn, Values};

/// Columns of all tables.
pub(super) struct Parts {
    /// Name of the dataset.
    pub(super) name: String,
    pub(super) nodes: Vec<NodePart>,
    pub(super) edges: Vec<EdgePart>,
    pub(super) tasks: Vec<TaskPart>,
    /// Statistics by which other tables are encoded.
    pub(super) preprocessing: Preprocessing,
}

/// Feature rows.
pub(super) struct FeaturePart {
    pub(super) names: Vec<String>,
    /// Values, row by row.
    pub(super) values: Buffer<f32>,
}

/// Node type.
pub(super) struct NodePart {
    pub(super) name: String,
    pub(super) count: usize,
    /// Time from which each node exists.
    pub(super) time: Option<Buffer<i64>>,
    pub(super) features: Option<FeaturePart>,
    pub(super) keys: KeyPart,
}

/// Keys of the nodes, in the order of the ids.
pub(super) enum KeyPart {
    /// Integers.
    Integers(Buffer<i64>),
    /// Starts of the texts and the number of bytes, and the bytes.
    Texts(Buffer<u64>, Buffer<u8>),
}

/// Edge type: a row per edge, in the order of the tables.
pub(super) struct EdgePart {
    /// Source type, name and destination type.
    pub(super) edge_type: [String; 3],
    /// Name of the edge type of the reverse edges, which is to be added.
    pub(super) reverse: Option<String>,
    /// True to store every edge in both directions.
    pub(super) undirected: bool,
    /// True to keep parallel edges without times and features.
    pub(super) keep_duplicates: bool,
    pub(super) src: Buffer<NodeId>,
    pub(super) dst: Buffer<NodeId>,
    pub(super) weight: Option<Buffer<f32>>,
    pub(super) time: Option<Buffer<i64>>,
    pub(super) features: Option<FeaturePart>,
}

/// Task on the nodes or edges of a type.
pub(super) struct TaskPart {
    pub(super) name: String,
    pub(super) on: TaskOn,
    /// Seeds of the rows; `None` if they are the nodes of the type.
    pub(super) seeds: Option<Seeds>,
    /// Time of each row.
    pub(super) time: Option<Buffer<i64>>,
    pub(super) targets: TargetPart,
    /// Rows that train, validate and test, ascending.
    pub(super) split: [Vec<NodeId>; 3],
}

/// Target of every row.
pub(super) enum TargetPart {
    /// Class in each column, -1 if unknown, row by row, and the columns.
    Classes(Vec<i32>, Vec<NamedClasses>),
    /// Values, NaN if unknown, row by row, and the names of their columns.
    Values(Vec<f32>, Vec<String>),
    /// None: rows are links.
    None {
        /// Customary metric, if known.
        metric: Option<String>,
    },
}

/// Column of classes with their names.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct NamedClasses {
    pub(super) column: String,
    pub(super) classes: Vec<String>,
}

impl NamedClasses {
    /// Name of the column and number of its classes.
    pub(super) fn sizes(&self) -> ClassColumn {
        ClassColumn { name: self.column.clone(), classes: self.classes.len() }
    }
}

/// Record of [`FeaturePart`].
#[derive(Serialize, Deserialize)]
pub(super) struct KeptFeatures {
    names: Vec<String>,
    values: KeptColumn,
}

/// Record of [`NodePart`].
#[derive(Serialize, Deserialize)]
pub(super) struct KeptNodePart {
    name: String,
    count: usize,
    time: Option<KeptColumn>,
    features: Option<KeptFeatures>,
    /// Integers, or starts and bytes of texts.
    keys: Vec<KeptColumn>,
}

/// Record of [`EdgePart`].
#[derive(Serialize, Deserialize)]
pub(super) struct KeptEdgePart {
    edge_type: [String; 3],
    reverse: Option<String>,
    undirected: bool,
    keep_duplicates: bool,
    src: KeptColumn,
    dst: KeptColumn,
    weight: Option<KeptColumn>,
    time: Option<KeptColumn>,
    features: Option<KeptFeatures>,
}

/// Record of [`TaskPart`].
#[derive(Serialize, Deserialize)]
pub(super) struct KeptTask {
    name: String,
    on: TaskOn,
    seeds: Option<KeptColumn>,
    time: Option<KeptColumn>,
    targets: KeptTargets,
    split: [KeptColumn; 3],
}

/// Record of [`TargetPart`].
#[derive(Serialize, Deserialize)]
pub(super) enum KeptTargets {
    Classes(KeptColumn, Vec<NamedClasses>),
    Values(KeptColumn, Vec<String>),
    None { metric: Option<String> },
}

impl FeaturePart {
    pub(super) fn keep(&self, kept: &Kept, name: &str) -> Result<KeptFeatures> {
        let values = kept.column(&format!("{name}-features"), &self.values)?;
        Ok(KeptFeatures { names: self.names.clone(), values })
    }

    pub(super) fn restore(part: KeptFeatures, kept: &Kept) -> Option<Self> {
        Some(Self { values: kept.open(&part.values)?, names: part.names })
    }

    /// Features of a table of 32-bit floats.
    pub(super) fn of_table(table: &FeatureTable) -> Option<Self> {
        match &table.data {
            TableData::Dense(Values::F32(values)) => {
                Some(Self { names: table.names.clone(), values: values.clone() })
            }
            _ => None,
        }
    }

    /// Table of the features.
    pub(super) fn into_table(self) -> FeatureTable {
        FeatureTable { names: self.names.clone(), ..FeatureTable::dense(self.names.len(), self.values) }
    }
}

impl NodePart {
    pub(super) fn keep(&self, kept: &Kept, name: &str) -> Result<KeptNodePart> {
        let keys = match &self.keys {
            KeyPart::Integers(keys) => vec![kept.column(&format!("{name}-keys"), keys)?],
            KeyPart::Texts(starts, bytes) => vec![
                kept.column(&format!("{name}-key-starts"), starts)?,
                kept.column(&format!("{name}-key-bytes"), bytes)?,
            ],
        };
        let features = self.features.as_ref().map(|features| features.keep(kept, name)).transpose()?;
        let time = self.time.as_ref().map(|time| kept.column(&format!("{name}-time"), time)).transpose()?;
        Ok(KeptNodePart { name: self.name.clone(), count: self.count, time, features, keys })
    }

    pub(super) fn restore(part: KeptNodePart, kept: &Kept) -> Option<Self> {
        let keys = match &part.keys[..] {
            [keys] => KeyPart::Integers(kept.open(keys)?),
            [starts, bytes] => KeyPart::Texts(kept.open(starts)?, kept.open(bytes)?),
            _ => return None,
        };
        let features = optional(part.features, |features| FeaturePart::restore(features, kept))?;
        let time = optional(part.time, |time| kept.open(&time))?;
        Some(Self { name: part.name, count: part.count, time, features, keys })
    }
}

impl EdgePart {
    pub(super) fn keep(&self, kept: &Kept, name: &str) -> Result<KeptEdgePart> {
        let weight = self.weight.as_ref();
        let time = self.time.as_ref();
        Ok(KeptEdgePart {
            edge_type: self.edge_type.clone(),
            reverse: self.reverse.clone(),
            undirected: self.undirected,
            keep_duplicates: self.keep_duplicates,
            src: kept.column(&format!("{name}-src"), &self.src)?,
            dst: kept.column(&format!("{name}-dst"), &self.dst)?,
            weight: weight.map(|weight| kept.column(&format!("{name}-weight"), weight)).transpose()?,
            time: time.map(|time| kept.column(&format!("{name}-time"), time)).transpose()?,
            features: self.features.as_ref().map(|features| features.keep(kept, name)).transpose()?,
        })
    }

    pub(super) fn restore(part: KeptEdgePart, kept: &Kept) -> Option<Self> {
        Some(Self {
            src: kept.open(&part.src)?,
            dst: kept.open(&part.dst)?,
            weight: optional(part.weight, |weight| kept.open(&weight))?,
            time: optional(part.time, |time| kept.open(&time))?,
            features: optional(part.features, |features| FeaturePart::restore(features, kept))?,
            edge_type: part.edge_type,
            reverse: part.reverse,
            undirected: part.undirected,
            keep_duplicates: part.keep_duplicates,
        })
    }
}

impl TargetPart {
    pub(super) fn keep(&self, kept: &Kept, name: &str) -> Result<KeptTargets> {
        Ok(match self {
            Self::Classes(class, columns) => {
                KeptTargets::Classes(kept.values(&format!("{name}-class"), class)?, columns.clone())
            }
            // Unknown values are NaN, which a column of floats does not hold.
            Self::Values(values, names) => {
                let bits: Vec<u32> = values.iter().map(|value| value.to_bits()).collect();
                KeptTargets::Values(kept.values(&format!("{name}-values"), &bits)?, names.clone())
            }
            Self::None { metric } => KeptTargets::None { metric: metric.clone() },
        })
    }

    pub(super) fn restore(part: KeptTargets, kept: &Kept) -> Option<Self> {
        Some(match part {
            KeptTargets::Classes(class, columns) => Self::Classes(kept.open(&class)?.to_vec(), columns),
            KeptTargets::Values(values, names) => {
                let bits: Buffer<u32> = kept.open(&values)?;
                Self::Values(bits.iter().map(|&bits| f32::from_bits(bits)).collect(), names)
            }
            KeptTargets::None { metric } => Self::None { metric },
        })
    }
}

/// Records the parts of a split.
pub(super) fn keep_split(split: &[Vec<NodeId>; 3], kept: &Kept, name: &str) -> Result<[KeptColumn; 3]> {
    let part = |i: usize| kept.values(&format!("{name}-split-{i}"), &split[i]);
    Ok([part(0)?, part(1)?, part(2)?])
}

/// Restores the parts of a split.
pub(super) fn restore_split(split: &[KeptColumn; 3], kept: &Kept) -> Option<[Vec<NodeId>; 3]> {
    let part = |i: usize| Some(kept.open::<NodeId>(&split[i])?.to_vec());
    Some([part(0)?, part(1)?, part(2)?])
}

impl TaskPart {
    pub(super) fn keep(&self, kept: &Kept, name: &str) -> Result<KeptTask> {
        let seeds = self.seeds.as_ref().map(|(Seeds::Nodes(ids) | Seeds::Pairs(ids))| ids);
        let seeds = seeds.map(|ids| kept.column(&format!("{name}-seeds"), ids)).transpose()?;
        let time = self.time.as_ref();
        let time = time.map(|time| kept.column(&format!("{name}-row-time"), time)).transpose()?;
        let (targets, split) = (self.targets.keep(kept, name)?, keep_split(&self.split, kept, name)?);
        Ok(KeptTask { name: self.name.clone(), on: self.on.clone(), seeds, time, targets, split })
    }

    pub(super) fn restore(part: KeptTask, kept: &Kept) -> Option<Self> {
        let of_ids = match &part.on {
            TaskOn::Nodes(_) => Seeds::Nodes,
            TaskOn::Edges(_) => Seeds::Pairs,
        };
        Some(Self {
            seeds: optional(part.seeds, |ids| kept.open(&ids).map(of_ids))?,
            time: optional(part.time, |time| kept.open(&time))?,
            targets: TargetPart::restore(part.targets, kept)?,
            split: restore_split(&part.split, kept)?,
            name: part.name,
            on: part.on,
        })
    }
}

/// Restores a value that a record may have; the outer `None` means that its file is missing.
pub(super) fn optional<S, T>(part: Option<S>, restore: impl FnOnce(S) -> Option<T>) -> Option<Option<T>> {
    match part {
        Some(part) => restore(part).map(Some),
        None => Some(None),
    }
}
