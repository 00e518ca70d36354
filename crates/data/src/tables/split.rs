//! Splits of the labelled nodes.

use std::str::FromStr;

use graphmill_core::{Error, NodeId, Result, keyed};

/// Rule by which labelled nodes train, validate and test.
#[derive(Clone, Debug, PartialEq)]
pub enum SplitRule {
    /// `random:A,B,C`: these shares of the labelled nodes.
    Random([f64; 3]),
    /// `stratified:A,B,C`: these shares of every class.
    Stratified([f64; 3]),
    /// `column:NAME`: a column with the words train, valid and test.
    Column(String),
    /// `masks:TRAIN,VALID,TEST`: three columns of truth values.
    Masks([String; 3]),
    /// `time:COLUMN` or `time:COLUMN:A,B,C`: the oldest nodes train, the newest test.
    Time(String, [f64; 3]),
}

/// Name in records and reports of a split by the files of the rows; it is not a rule.
pub(super) const FILES: &str = "files";

/// Shares of a split without a rule.
pub(super) const DEFAULT: [f64; 3] = [0.6, 0.2, 0.2];

impl FromStr for SplitRule {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let wrong = |why: String| {
            Error::invalid(format!(
                "split '{text}': {why}; write random:60,20,20, stratified:60,20,20, column:NAME, \
                 masks:TRAIN,VALID,TEST or time:COLUMN:60,20,20"
            ))
        };
        let (rule, rest) = text.split_once(':').unwrap_or((text, ""));
        let parts = |text: &str| text.split(',').map(|part| part.trim().to_string()).collect::<Vec<_>>();
        let shares = |text: &str| -> Result<[f64; 3]> {
            let values: Vec<f64> = parts(text).iter().filter_map(|part| part.parse().ok()).collect();
            let [a, b, c] = values[..] else {
                return Err(wrong(format!("'{text}' is not three numbers")));
            };
            let sum = a + b + c;
            let is_positive = a > 0.0 && b >= 0.0 && c >= 0.0 && sum.is_finite();
            let scale = if sum <= 1.0 + 1e-9 { 1.0 } else { 100.0 };
            if !is_positive || sum > scale * (1.0 + 1e-9) {
                return Err(wrong(format!(
                    "the shares {text} must be positive and sum to at most 1, or 100 as percentages"
                )));
            }
            Ok([a, b, c].map(|share| share / scale))
        };
        let named = |name: &str| {
            if name.is_empty() { Err(wrong("no column is named".into())) } else { Ok(name.into()) }
        };
        match rule {
            "random" => Ok(Self::Random(shares(rest)?)),
            "stratified" => Ok(Self::Stratified(shares(rest)?)),
            "column" => Ok(Self::Column(named(rest)?)),
            "masks" => match <[String; 3]>::try_from(parts(rest)) {
                Ok(names) => Ok(Self::Masks(names)),
                Err(_) => Err(wrong("three columns are expected".into())),
            },
            "time" => match rest.rsplit_once(':') {
                Some((column, text)) => Ok(Self::Time(named(column)?, shares(text)?)),
                None => Ok(Self::Time(named(rest)?, DEFAULT)),
            },
            _ => Err(wrong("unknown rule".into())),
        }
    }
}

impl SplitRule {
    /// Columns that the rule reads.
    pub(super) fn columns(&self) -> Vec<&str> {
        match self {
            Self::Random(_) | Self::Stratified(_) => Vec::new(),
            Self::Column(name) | Self::Time(name, _) => vec![name],
            Self::Masks(names) => names.iter().map(String::as_str).collect(),
        }
    }
}

/// Part of a word of a split column; `None` for an unknown word.
pub(super) fn part_of(word: &str) -> Option<usize> {
    match word.to_lowercase().as_str() {
        "train" | "training" | "0" => Some(0),
        "valid" | "val" | "validation" | "dev" | "1" => Some(1),
        "test" | "testing" | "2" => Some(2),
        _ => None,
    }
}

/// Divides `nodes` in this order by shares; the parts are ascending.
fn divide(nodes: &[NodeId], shares: [f64; 3], parts: &mut [Vec<NodeId>; 3]) {
    let count = nodes.len();
    let mut start = 0;
    let mut sum = 0.0;
    for (part, share) in parts.iter_mut().zip(shares) {
        sum += share;
        let end = ((sum * count as f64).round() as usize).clamp(start, count);
        part.extend_from_slice(&nodes[start..end]);
        start = end;
    }
}

/// Random split of `nodes` into shares.
pub(super) fn random(nodes: &[NodeId], shares: [f64; 3], seed: u64, parts: &mut [Vec<NodeId>; 3]) {
    let mut order: Vec<(u64, NodeId)> = nodes.iter().map(|&v| (keyed::key(&[seed, v.into()]), v)).collect();
    order.sort_unstable();
    let order: Vec<NodeId> = order.into_iter().map(|(_, v)| v).collect();
    divide(&order, shares, parts);
}

/// Split by time: the nodes with the smallest times train.
pub(super) fn by_time(mut nodes: Vec<(i64, NodeId)>, shares: [f64; 3], parts: &mut [Vec<NodeId>; 3]) {
    nodes.sort_unstable();
    let order: Vec<NodeId> = nodes.into_iter().map(|(_, v)| v).collect();
    divide(&order, shares, parts);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_parse_or_explain() {
        let rule = |text: &str| text.parse::<SplitRule>().map_err(|e| e.to_string());
        assert_eq!(rule("random:60,20,20"), Ok(SplitRule::Random([0.6, 0.2, 0.2])));
        assert_eq!(rule("random:0.5,0.25,0.25"), Ok(SplitRule::Random([0.5, 0.25, 0.25])));
        assert_eq!(rule("stratified:80,10,10"), Ok(SplitRule::Stratified([0.8, 0.1, 0.1])));
        assert_eq!(rule("column:fold"), Ok(SplitRule::Column("fold".into())));
        assert_eq!(rule("masks:a, b,c"), Ok(SplitRule::Masks(["a", "b", "c"].map(String::from))));
        assert_eq!(rule("time:day"), Ok(SplitRule::Time("day".into(), DEFAULT)));
        assert_eq!(rule("time:day:70,10,20"), Ok(SplitRule::Time("day".into(), [0.7, 0.1, 0.2])));
        for text in
            ["", "random", "random:1,2", "random:0,1,0", "random:90,20,20", "column:", "masks:a,b", "k:1"]
        {
            let error = rule(text).unwrap_err();
            assert!(error.contains("write random:60,20,20"), "{text}: {error}");
        }
    }

    #[test]
    fn shares_cover_the_nodes_and_depend_on_the_seed() {
        let nodes: Vec<NodeId> = (0..101).collect();
        let split = |seed| {
            let mut parts: [Vec<NodeId>; 3] = Default::default();
            random(&nodes, DEFAULT, seed, &mut parts);
            parts
        };
        let [train, valid, test] = split(1);
        assert_eq!([train.len(), valid.len(), test.len()], [61, 20, 20]);
        let mut all = [train, valid, test].concat();
        all.sort_unstable();
        assert_eq!(all, nodes);
        assert_ne!(split(1), split(2));
        let mut parts: [Vec<NodeId>; 3] = Default::default();
        by_time(vec![(3, 0), (1, 1), (2, 2), (9, 3), (4, 4)], DEFAULT, &mut parts);
        assert_eq!(parts, [vec![1, 2, 0], vec![4], vec![3]]);
    }
}
