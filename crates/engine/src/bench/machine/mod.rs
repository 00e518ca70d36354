//! What the machine can do, measured on the threads of the current rayon pool: what the benches are
//! held against.
//!
//! Where an NVIDIA device computes, the limits are the device's.
//!
//! Of each limit the best run counts: nothing makes a memory faster than it is, but much makes it
//! slower.

mod copy;
mod fma;
mod rows;

use super::{
    result::Measured,
    time::{self, Times},
};
use crate::{
    Result,
    accelerator::{Arithmetic, Gpu, Meter},
};
use copy::VALUES;

/// Measures each limit when it is first asked for.
pub struct Machine {
    repeat: usize,
    results: Vec<Measured>,
    device: Option<Meter>,
}

impl Machine {
    /// With so many runs of each measurement, of the processor.
    pub fn new(repeat: usize) -> Self {
        Self { repeat, results: Vec::new(), device: None }
    }

    /// With so many runs of each measurement, of the device if there is one.
    pub(crate) fn of(repeat: usize, device: Option<&Gpu>) -> Self {
        Self { device: device.map(Meter::new), ..Self::new(repeat) }
    }

    /// What was measured so far.
    pub fn into_results(self) -> Vec<Measured> {
        self.results
    }

    /// Copying a large array, with ordinary or streaming stores, whichever is faster: GB/s read and
    /// written.
    ///
    /// # Errors
    /// A device fails, as in all that follows.
    pub fn copy(&mut self) -> Result<f64> {
        if let Some(device) = &self.device {
            let name = "copy within the device";
            return match self.best(name) {
                Some(known) => Ok(known),
                None => {
                    let (bytes, seconds) = device.copy(self.repeat)?;
                    Ok(self.record(name, "GB/s", bytes / 1e9, &Times::new(seconds)))
                }
            };
        }
        if self.best("copy").is_none() {
            let mut arrays = copy::Arrays::new(VALUES);
            for (name, copy) in copy::KINDS {
                let times = time::time(self.repeat, || arrays.run(*copy), &|| {});
                self.record(name, "GB/s", 8e-9 * VALUES as f64, &times);
            }
        }
        Ok(copy::KINDS.iter().filter_map(|(name, _)| self.best(name)).fold(0.0, f64::max))
    }

    /// Copying from page-locked host memory to the device: GB/s; none without a device.
    ///
    /// # Errors
    /// See [`Machine::copy`].
    pub fn link(&mut self) -> Result<Option<f64>> {
        let name = "copy from the host";
        match (&self.device, self.best(name)) {
            (None, _) => Ok(None),
            (_, Some(known)) => Ok(Some(known)),
            (Some(device), None) => {
                let (bytes, seconds) = device.link(self.repeat)?;
                Ok(Some(self.record(name, "GB/s", bytes / 1e9, &Times::new(seconds))))
            }
        }
    }

    /// Square products on the device by the vendor's library: GFLOP/s; none without a device or
    /// without that library.
    ///
    /// # Errors
    /// See [`Machine::copy`].
    pub(crate) fn products(&mut self, arithmetic: Arithmetic) -> Result<Option<f64>> {
        let name = match arithmetic {
            Arithmetic::F32 => "square products f32",
            Arithmetic::Tf32 => "square products tf32",
            Arithmetic::Bf16 => "square products bf16",
        };
        match (&self.device, self.best(name)) {
            (None, _) => Ok(None),
            (_, Some(known)) => Ok(Some(known)),
            (Some(device), None) => {
                let Some((operations, seconds)) = device.product(arithmetic, self.repeat)? else {
                    return Ok(None);
                };
                Ok(Some(self.record(name, "GFLOP/s", operations / 1e9, &Times::new(seconds))))
            }
        }
    }

    /// Reading rows of `width` values at random places of a large table, asked for ahead: GB/s. By
    /// the processor.
    pub fn random_rows(&mut self, width: usize) -> f64 {
        let width = width.max(1);
        self.reads(&format!("random rows F={width}"), "GB/s", VALUES / width, width, 4e-9 * width as f64)
    }

    /// Reading single values at random places of an array of `values`, asked for ahead: reads per
    /// second.
    pub fn random_reads(&mut self, values: usize) -> f64 {
        self.reads(
            &format!("random reads of {:.1} MB", 4e-6 * values as f64),
            "reads/s",
            values.max(1),
            1,
            1.0,
        )
    }

    /// Reads rows at random, each of which is worth `amount`.
    fn reads(&mut self, name: &str, unit: &'static str, rows: usize, width: usize, amount: f64) -> f64 {
        if let Some(known) = self.best(name) {
            return known;
        }
        let reads = rows::Reads::new(rows, width);
        let times = rows::IN_FLIGHT.iter().map(|&ahead| time::time(self.repeat, || reads.run(ahead), &|| {}));
        let best = times.min_by(|a, b| a.spread().0.total_cmp(&b.spread().0)).expect("some distance");
        self.record(name, unit, amount * reads.len() as f64, &best)
    }

    /// Fused multiply-adds on registers alone, with the widest vectors there are: GFLOP/s of f32.
    pub fn peak(&mut self) -> f64 {
        let name = "fused multiply-adds f32";
        self.best(name).unwrap_or_else(|| {
            let operations = rayon::current_num_threads() as f64 * fma::OPERATIONS;
            let times = time::time(self.repeat, fma::run, &|| {});
            self.record(name, "GFLOP/s", operations / 1e9, &times)
        })
    }

    /// The best run of a measurement that was made.
    fn best(&self, name: &str) -> Option<f64> {
        self.results.iter().find(|result| result.case == name).map(|result| result.max)
    }

    /// Keeps a measurement whose calls did `amount`, and returns its best run.
    fn record(&mut self, name: &str, unit: &'static str, amount: f64, times: &Times) -> f64 {
        let (least, median, most) = times.spread();
        self.results.push(Measured {
            bench: "machine",
            case: name.to_string(),
            unit,
            median: amount / median,
            min: amount / most,
            max: amount / least,
            limit: None,
            of_limit: None,
            limit_of: None,
            row_limit: None,
            seconds: median,
            runs: times.len(),
        });
        amount / least
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_is_measured_once_and_positive() {
        let mut machine = Machine::new(1);
        let [reads, peak] = [machine.random_reads(1000), machine.peak()];
        assert!(reads > 0.0 && peak > 0.0);
        assert_eq!((machine.random_reads(1000), machine.peak()), (reads, peak));
        let names: Vec<String> = machine.into_results().into_iter().map(|result| result.case).collect();
        assert_eq!(names, ["random reads of 0.0 MB", "fused multiply-adds f32"]);
    }
}
