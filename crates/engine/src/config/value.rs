//! Option values that are written as numbers or words.

use std::{fmt, str::FromStr};

use graphmill_core::by_word;
use serde::{Serialize, Serializer};

/// An amount of memory in bytes, written as 4096, 512M, 4G or 1.5GiB; 0 sets no limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Bytes(pub u64);

impl FromStr for Bytes {
    type Err = String;

    fn from_str(word: &str) -> Result<Self, String> {
        let wrong = || format!("'{word}' is not a size; write bytes, or a size such as 512M or 4G");
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

/// A fraction of the rows, or `auto`.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Ratio(pub Option<f64>);

impl FromStr for Ratio {
    type Err = String;

    fn from_str(word: &str) -> Result<Self, String> {
        if word == "auto" {
            return Ok(Self(None));
        }
        let ratio = word.parse().ok().filter(|ratio| (0.0..=1.0).contains(ratio));
        ratio
            .map(|ratio| Self(Some(ratio)))
            .ok_or_else(|| format!("'{word}' is neither auto nor a fraction from 0 to 1"))
    }
}

impl fmt::Display for Ratio {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            None => f.write_str("auto"),
            Some(ratio) => ratio.fmt(f),
        }
    }
}

impl Serialize for Ratio {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.0 {
            None => serializer.serialize_str("auto"),
            Some(ratio) => serializer.serialize_f64(ratio),
        }
    }
}

by_word!(Bytes, Ratio);
