//! Numbers drawn per hop, with exceptions for some relations or node types.

use std::{fmt, str::FromStr};

use graphmill_core::{by_word, typed::Schema};
use serde::Serialize;

use crate::Fanout;

/// Numbers per hop, from the seeds outward, for all relations (or node types) and for some by name.
///
/// Written `15,10`, or `15,10;author:writes:paper=5,0;cites=-1,2`: the numbers for all, then
/// exceptions. -1 takes all, and 0 takes none: the relation is not followed at that hop.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct TypedFanout {
    /// Numbers of everything without an exception.
    pub all: Vec<i64>,
    /// Numbers of a relation or node type, by name.
    pub by_name: Vec<(String, Vec<i64>)>,
}

impl TypedFanout {
    /// Creates numbers for all relations or types.
    pub fn new(all: impl Into<Vec<i64>>) -> Self {
        Self { all: all.into(), by_name: Vec::new() }
    }

    /// The same numbers with an exception.
    #[must_use]
    pub fn with(mut self, name: impl Into<String>, numbers: impl Into<Vec<i64>>) -> Self {
        self.by_name.push((name.into(), numbers.into()));
        self
    }

    /// The numbers of a sampler that takes all neighbours by each relation and hop by which these
    /// take some.
    ///
    /// # Errors
    /// As for [`TypedFanout::of_relations`].
    pub(crate) fn taking_all(&self, schema: &Schema) -> Result<Self, String> {
        let numbers = self.of_relations(schema)?;
        let of_relation = |all: Self, r: usize| {
            let number = |&number: &usize| if number == 0 { 0 } else { -1 };
            all.with(schema.relation_name(r), numbers[r].iter().map(number).collect::<Vec<i64>>())
        };
        Ok((0..schema.num_relations()).fold(Self::new(vec![-1; self.all.len()]), of_relation))
    }

    /// Numbers of each relation at each hop, `R x L`; [`usize::MAX`] takes all neighbours.
    ///
    /// # Errors
    /// A number is out of range, a name is unknown, named twice or ambiguous, or the numbers of
    /// hops differ.
    pub fn of_relations(&self, schema: &Schema) -> Result<Vec<Vec<usize>>, String> {
        self.resolve(schema.num_relations(), |name| schema.find_relation(name).map_err(|e| e.to_string()))
    }

    /// Numbers of each node type at each hop, `T x L`.
    ///
    /// # Errors
    /// As for [`TypedFanout::of_relations`].
    pub fn of_types(&self, schema: &Schema) -> Result<Vec<Vec<usize>>, String> {
        self.resolve(schema.num_types(), |name| schema.find_type(name).map_err(|e| e.to_string()))
    }

    fn resolve(
        &self,
        count: usize,
        find: impl Fn(&str) -> Result<usize, String>,
    ) -> Result<Vec<Vec<usize>>, String> {
        let all = bounds(&self.all)?;
        let mut resolved = vec![all.clone(); count];
        let mut named = vec![false; count];
        for (name, numbers) in &self.by_name {
            let (i, numbers) = (find(name)?, bounds(numbers).map_err(|e| format!("{name}: {e}"))?);
            if numbers.len() != all.len() {
                return Err(format!(
                    "fanout of '{name}' has {} hops, but the others have {}; use as many numbers",
                    numbers.len(),
                    all.len()
                ));
            }
            if std::mem::replace(&mut named[i], true) {
                return Err(format!("fanout of '{name}' is given twice; remove one"));
            }
            resolved[i] = numbers;
        }
        Ok(resolved)
    }
}

/// Numbers of hops, 0 allowed.
fn bounds(numbers: &[i64]) -> Result<Vec<usize>, String> {
    let positive: Vec<i64> = numbers.iter().map(|&k| if k == 0 { 1 } else { k }).collect();
    let mut bounds = Fanout(positive).bounds()?;
    bounds.iter_mut().zip(numbers).filter(|(_, k)| **k == 0).for_each(|(bound, _)| *bound = 0);
    Ok(bounds)
}

impl FromStr for TypedFanout {
    type Err = String;

    fn from_str(word: &str) -> Result<Self, String> {
        let numbers = |part: &str| {
            let hop = |k: &str| match k.trim().parse::<i64>() {
                Ok(k) if bounds(&[k]).is_ok() => Ok(k),
                _ => Err(format!(
                    "'{k}' is not a fanout; use a number from 0 to 1000000, or -1 for all neighbours"
                )),
            };
            part.split(',').map(hop).collect::<Result<Vec<i64>, String>>()
        };
        let mut parts = word.split(';');
        let mut fanout = Self::new(numbers(parts.next().unwrap_or_default())?);
        for part in parts {
            let (name, of) = part.rsplit_once('=').ok_or_else(|| {
                format!("'{part}' is not a fanout by name; write NAME=NUMBERS, for example cites=5,5")
            })?;
            fanout = fanout.with(name.trim(), numbers(of)?);
        }
        Ok(fanout)
    }
}

impl fmt::Display for TypedFanout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let join = |numbers: &[i64]| numbers.iter().map(i64::to_string).collect::<Vec<_>>().join(",");
        f.write_str(&join(&self.all))?;
        self.by_name.iter().try_for_each(|(name, numbers)| write!(f, ";{name}={}", join(numbers)))
    }
}

by_word!(TypedFanout);

#[cfg(test)]
mod tests {
    use graphmill_core::typed::{NodeType, Relation};

    use super::*;

    fn schema() -> Schema {
        let types = vec![NodeType::new("author", 3), NodeType::new("paper", 4)];
        Schema::new(types, vec![Relation::new(0, "writes", 1), Relation::new(1, "cites", 1)]).unwrap()
    }

    #[test]
    fn fanouts_round_trip_and_resolve_by_name() {
        let fanout: TypedFanout = "15, -1;author:writes:paper=5,0".parse().unwrap();
        assert_eq!(fanout.to_string(), "15,-1;author:writes:paper=5,0");
        assert_eq!(fanout.to_string().parse::<TypedFanout>().unwrap(), fanout);
        assert_eq!(fanout.of_relations(&schema()).unwrap(), [vec![5, 0], vec![15, usize::MAX]]);
        let by_type = TypedFanout::new([8]).with("paper", [2]);
        assert_eq!(by_type.of_types(&schema()).unwrap(), [[8], [2]]);
    }

    #[test]
    fn wrong_fanouts_are_rejected_with_a_reason() {
        for (word, part) in
            [("5,x", "is not a fanout"), ("-2", "is not a fanout"), ("5;cites", "NAME=NUMBERS")]
        {
            assert!(word.parse::<TypedFanout>().unwrap_err().contains(part), "{word}");
        }
        let error = |word: &str| word.parse::<TypedFanout>().unwrap().of_relations(&schema()).unwrap_err();
        assert!(error("5,5;cites=5").contains("has 1 hops, but the others have 2"));
        assert!(error("5;cites=5;paper:cites:paper=4").contains("given twice"));
        assert!(error("5;likes=5").contains("known: author:writes:paper, paper:cites:paper"));
    }
}
