//! What `--devices` may say.

use crate::{Error, Result};

/// Most devices of a run.
const MOST: usize = 64;

/// Where the arithmetic runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Devices {
    /// On the processor.
    Cpu,
    /// On so many devices that are made up.
    Virtual(usize),
    /// On the NVIDIA devices of these numbers.
    Cuda(Vec<usize>),
}

impl Devices {
    /// `cpu`, `virtual:N`, `cuda` or `cuda:0,1`.
    ///
    /// # Errors
    /// None of those.
    pub(crate) fn parse(word: &str) -> Result<Self> {
        let wrong = || {
            Error::usage(format!(
                "unknown device '{word}'; known: cpu, virtual:N with N from 1 to {MOST}, cuda:0 or cuda:0,1 and so on"
            ))
        };
        if word == "cpu" {
            return Ok(Self::Cpu);
        }
        if let Some(count) = word.strip_prefix("virtual:") {
            let count = count.parse().ok().filter(|n| (1..=MOST).contains(n));
            return count.map(Self::Virtual).ok_or_else(wrong);
        }
        if word == "cuda" {
            return Ok(Self::Cuda(vec![0]));
        }
        let numbers = word.strip_prefix("cuda:").ok_or_else(wrong)?;
        let numbers = numbers.split(',').map(|number| number.parse().map_err(|_| wrong()));
        let numbers = numbers.collect::<Result<Vec<usize>>>()?;
        for (i, number) in numbers.iter().enumerate() {
            if numbers[..i].contains(number) {
                return Err(Error::usage(format!("--devices {word}: device {number} is named twice")));
            }
        }
        if numbers.len() > MOST { Err(wrong()) } else { Ok(Self::Cuda(numbers)) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn devices_are_read() {
        let of = |word| Devices::parse(word).map_err(|error| error.to_string());
        assert_eq!(of("cpu"), Ok(Devices::Cpu));
        assert_eq!(of("virtual:3"), Ok(Devices::Virtual(3)));
        assert_eq!(of("cuda"), Ok(Devices::Cuda(vec![0])));
        assert_eq!(of("cuda:0,2"), Ok(Devices::Cuda(vec![0, 2])));
        assert!(of("cuda:1,1").unwrap_err().contains("device 1 is named twice"));
        for word in ["", "gpu", "virtual:0", "virtual:65", "cuda:", "cuda:0,", "cuda:x", "cpu:0"] {
            let error = of(word).unwrap_err();
            assert!(error.starts_with(&format!("unknown device '{word}'; known: cpu, virtual:N")), "{error}");
        }
    }
}
