//! What an option's value may be: how to read it from a word or a file, and how to write it.

use std::fmt;

use serde_json::Value as Json;

/// A type an option may have: how to read it from a word, from JSON (TOML goes the same way), and how to write it.
pub(super) trait Value: Sized {
    /// From a word of the command line.
    fn parse(word: &str) -> Result<Self, String>;
    /// From a file.
    fn read(json: &Json) -> Result<Self, String> {
        match json {
            Json::String(word) => Self::parse(word),
            Json::Number(number) => Self::parse(&number.to_string()),
            Json::Bool(yes) => Self::parse(&yes.to_string()),
            other => Err(format!("{other} is not a single value")),
        }
    }
    /// To a file.
    fn write(&self) -> Json;
}

impl Value for String {
    fn parse(word: &str) -> Result<Self, String> {
        Ok(word.to_string())
    }
    fn write(&self) -> Json {
        Json::from(self.as_str())
    }
}

impl Value for u64 {
    fn parse(word: &str) -> Result<Self, String> {
        word.parse().map_err(|_| format!("'{word}' is not a whole number from 0"))
    }
    fn write(&self) -> Json {
        // TOML's integers are signed: the few seeds beyond travel as words
        i64::try_from(*self).map_or_else(|_| Json::from(self.to_string()), Json::from)
    }
}

impl Value for usize {
    fn parse(word: &str) -> Result<Self, String> {
        word.parse().map_err(|_| format!("'{word}' is not a whole number from 0"))
    }
    fn write(&self) -> Json {
        Json::from(*self)
    }
}

impl Value for f64 {
    fn parse(word: &str) -> Result<Self, String> {
        word.parse().ok().filter(|x: &f64| x.is_finite()).ok_or_else(|| format!("'{word}' is not a number"))
    }
    fn write(&self) -> Json {
        Json::from(*self)
    }
}

impl Value for bool {
    fn parse(word: &str) -> Result<Self, String> {
        match word {
            "true" | "yes" | "on" => Ok(true),
            "false" | "no" | "off" => Ok(false),
            _ => Err(format!("'{word}' is neither true nor false")),
        }
    }
    fn write(&self) -> Json {
        Json::from(*self)
    }
}

/// Neighbours per node per hop, from the seeds outward; -1 takes all. Written `15,10`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fanout(pub Vec<i64>);

impl fmt::Display for Fanout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let hops: Vec<String> = self.0.iter().map(i64::to_string).collect();
        f.write_str(&hops.join(","))
    }
}

impl Value for Fanout {
    fn parse(word: &str) -> Result<Self, String> {
        let hop = |k: &str| match k.trim().parse::<i64>() {
            Ok(k) if k == -1 || (1..=1_000_000).contains(&k) => Ok(k),
            _ => Err(format!("'{k}' is not a fanout: a number from 1 to 1000000, or -1 for all neighbours")),
        };
        word.split(',').map(hop).collect::<Result<_, _>>().map(Self)
    }
    fn read(json: &Json) -> Result<Self, String> {
        match json {
            Json::Array(hops) => Self::parse(&hops.iter().map(Json::to_string).collect::<Vec<_>>().join(",")),
            Json::String(word) => Self::parse(word),
            other => Self::parse(&other.to_string()),
        }
    }
    fn write(&self) -> Json {
        Json::from(self.0.clone())
    }
}

/// An amount of memory. Written in bytes, or as 512M, 4G, 1.5GiB; 0 sets no limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Bytes(pub u64);

impl Bytes {
    /// From a word.
    ///
    /// # Errors
    /// It is not an amount.
    pub fn parse(word: &str) -> Result<Self, String> {
        let wrong = || format!("'{word}' is not a size; write bytes, or 512M, 4G");
        let split = word.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(word.len());
        let (number, unit) = word.split_at(split);
        let number: f64 = number.parse().map_err(|_| wrong())?;
        let power = match unit.trim_end_matches("iB").trim_end_matches('B').trim() {
            "" => 0,
            "k" | "K" => 1,
            "M" => 2,
            "G" => 3,
            "T" => 4,
            _ => return Err(wrong()),
        };
        Ok(Self((number * 1024f64.powi(power)) as u64))
    }
}

impl Value for Bytes {
    fn parse(word: &str) -> Result<Self, String> {
        Self::parse(word)
    }
    fn write(&self) -> Json {
        self.0.write()
    }
}

/// A part of the rows, or `auto`.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Ratio(pub Option<f64>);

impl Value for Ratio {
    fn parse(word: &str) -> Result<Self, String> {
        if word == "auto" {
            return Ok(Self(None));
        }
        let ratio = word.parse().ok().filter(|ratio| (0.0..=1.0).contains(ratio));
        ratio
            .map(|ratio| Self(Some(ratio)))
            .ok_or_else(|| format!("'{word}' is neither auto nor a part from 0 to 1"))
    }
    fn write(&self) -> Json {
        self.0.map_or_else(|| Json::from("auto"), Json::from)
    }
}
