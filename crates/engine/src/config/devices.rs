//! The option `--devices`.

use std::{fmt, str::FromStr};

/// Maximum number of devices of a run.
const MAX_DEVICES: usize = 64;

/// Devices that run the arithmetic.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Devices {
    /// The processor.
    Cpu,
    /// A number of simulated devices, each with its own memory budget.
    Virtual(usize),
    /// NVIDIA devices, by their CUDA numbers.
    Cuda(Vec<usize>),
}

impl FromStr for Devices {
    type Err = String;

    fn from_str(word: &str) -> Result<Self, String> {
        let wrong = || {
            format!(
                "unknown device '{word}'; known: cpu, virtual:N with N from 1 to {MAX_DEVICES}, cuda:0 or \
                 cuda:0,1 and so on"
            )
        };
        if word == "cpu" {
            return Ok(Self::Cpu);
        }
        if let Some(count) = word.strip_prefix("virtual:") {
            let count = count.parse().ok().filter(|n| (1..=MAX_DEVICES).contains(n));
            return count.map(Self::Virtual).ok_or_else(wrong);
        }
        if word == "cuda" {
            return Ok(Self::Cuda(vec![0]));
        }
        let numbers = word.strip_prefix("cuda:").ok_or_else(wrong)?;
        let numbers = numbers.split(',').map(|number| number.parse().map_err(|_| wrong()));
        let numbers = numbers.collect::<Result<Vec<usize>, String>>()?;
        for (i, number) in numbers.iter().enumerate() {
            if numbers[..i].contains(number) {
                return Err(format!("'{word}': device {number} is named twice; name each device once"));
            }
        }
        if numbers.len() > MAX_DEVICES { Err(wrong()) } else { Ok(Self::Cuda(numbers)) }
    }
}

impl fmt::Display for Devices {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Cpu => f.write_str("cpu"),
            Self::Virtual(count) => write!(f, "virtual:{count}"),
            Self::Cuda(numbers) => {
                let numbers: Vec<String> = numbers.iter().map(usize::to_string).collect();
                write!(f, "cuda:{}", numbers.join(","))
            }
        }
    }
}

impl Devices {
    /// Number of devices besides the processor.
    pub(super) fn count(&self) -> usize {
        match self {
            Self::Cpu => 0,
            Self::Virtual(count) => *count,
            Self::Cuda(numbers) => numbers.len(),
        }
    }

    /// Number of simulated devices.
    pub(crate) fn simulated(&self) -> usize {
        match self {
            Self::Virtual(count) => *count,
            Self::Cpu | Self::Cuda(_) => 0,
        }
    }

    /// Numbers of the NVIDIA devices; empty for other devices.
    pub(super) fn cuda(&self) -> &[usize] {
        match self {
            Self::Cuda(numbers) => numbers,
            _ => &[],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn devices_parse_print_and_refuse_invalid_words() {
        let of = |word: &str| word.parse::<Devices>();
        assert_eq!(of("cpu"), Ok(Devices::Cpu));
        assert_eq!(of("virtual:3"), Ok(Devices::Virtual(3)));
        assert_eq!(of("cuda"), Ok(Devices::Cuda(vec![0])));
        assert_eq!(of("cuda:0,2"), Ok(Devices::Cuda(vec![0, 2])));
        for word in ["cpu", "virtual:3", "cuda:0,2"] {
            assert_eq!(of(word).unwrap().to_string(), word);
        }
        assert!(of("cuda:1,1").unwrap_err().contains("device 1 is named twice"));
        for word in ["", "gpu", "virtual:0", "virtual:65", "cuda:", "cuda:0,", "cuda:x", "cpu:0"] {
            let error = of(word).unwrap_err();
            assert!(error.starts_with(&format!("unknown device '{word}'; known: cpu, virtual:N")), "{error}");
        }
    }
}
