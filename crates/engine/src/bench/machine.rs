//! Limits of the machine that benches are compared with, measured on the threads of the current
//! rayon pool.
//!
//! If the run computes on an NVIDIA device, the limits are those of the device. The best run of a
//! measurement is the limit, because other load only makes memory slower.

use graphmill_core::probe;

use super::{
    result::Measured,
    time::{self, Times},
};
use crate::{
    Result,
    accelerator::{Arithmetic, Gpu, Meter},
};

/// Values of a probed array. Tests use smaller arrays.
const VALUES: usize = if cfg!(test) { 1 << 20 } else { probe::VALUES };
/// Bytes of the cache lines that a call reads at random, which exceed caches.
const READ_BYTES: usize = 2 * VALUES;

/// Limits of the machine, each measured on first use.
pub struct Machine {
    repeat: usize,
    results: Vec<Measured>,
    device: Option<Meter>,
}

impl Machine {
    /// Limits of the processor, with `repeat` runs of each measurement.
    pub fn new(repeat: usize) -> Self {
        Self { repeat, results: Vec::new(), device: None }
    }

    /// Limits of the device if given, else of the processor, with `repeat` runs of each
    /// measurement.
    pub(crate) fn of(repeat: usize, device: Option<&Gpu>) -> Self {
        Self { device: device.map(Meter::new), ..Self::new(repeat) }
    }

    /// Returns all measurements.
    pub fn into_results(self) -> Vec<Measured> {
        self.results
    }

    /// Rate of copying a large array with ordinary or streaming stores, whichever is faster, in
    /// GB/s read and written.
    ///
    /// # Errors
    /// The device fails.
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
            let mut arrays = probe::Arrays::new(VALUES);
            for (name, copy) in probe::KINDS {
                let times = time::time(self.repeat, || arrays.run(*copy), &|| {});
                self.record(name, "GB/s", 8e-9 * VALUES as f64, &times);
            }
        }
        Ok(probe::KINDS.iter().filter_map(|(name, _)| self.best(name)).fold(0.0, f64::max))
    }

    /// Rate of copying from page-locked host memory to the device, in GB/s; `None` without a
    /// device.
    ///
    /// # Errors
    /// The device fails.
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

    /// Rate of square products on the device by the vendor's library, in GFLOP/s; `None` without a
    /// device or without this library.
    ///
    /// # Errors
    /// The device fails.
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

    /// Rate at which the processor reads random rows of `width` values of a large table with
    /// prefetching, in GB/s.
    pub fn random_rows(&mut self, width: usize) -> f64 {
        let width = width.max(1);
        self.reads(&format!("random rows F={width}"), "GB/s", VALUES / width, width, 4e-9 * width as f64)
    }

    /// Rate of reading random single values of an array of `values` values with prefetching, in
    /// reads per second.
    pub fn random_reads(&mut self, values: usize) -> f64 {
        self.reads(
            &format!("random reads of {:.1} MB", 4e-6 * values as f64),
            "reads/s",
            values.max(1),
            1,
            1.0,
        )
    }

    /// Measures random reads of rows, each of which counts `amount` of `unit`.
    fn reads(&mut self, name: &str, unit: &'static str, rows: usize, width: usize, amount: f64) -> f64 {
        if let Some(known) = self.best(name) {
            return known;
        }
        let reads = probe::Reads::new(rows, width, READ_BYTES);
        let times =
            probe::IN_FLIGHT.iter().map(|&ahead| time::time(self.repeat, || reads.run(ahead), &|| {}));
        let best = times
            .min_by(|a, b| a.spread().0.total_cmp(&b.spread().0))
            .expect("the list of distances is not empty");
        self.record(name, unit, amount * reads.len() as f64, &best)
    }

    /// Rate of fused multiply-adds on registers with the widest vectors, in GFLOP/s of f32.
    pub fn peak(&mut self) -> f64 {
        let name = "fused multiply-adds f32";
        self.best(name).unwrap_or_else(|| {
            let operations = rayon::current_num_threads() as f64 * probe::OPERATIONS;
            let times = time::time(self.repeat, probe::multiply_add, &|| {});
            self.record(name, "GFLOP/s", operations / 1e9, &times)
        })
    }

    /// Best run of an earlier measurement.
    fn best(&self, name: &str) -> Option<f64> {
        self.results.iter().find(|result| result.case == name).map(|result| result.max)
    }

    /// Records a measurement whose calls each did `amount` of `unit`, and returns its best run.
    fn record(&mut self, name: &str, unit: &'static str, amount: f64, times: &Times) -> f64 {
        let (min, median, max) = times.spread();
        self.results.push(Measured {
            bench: "machine",
            case: name.to_string(),
            unit,
            median: amount / median,
            min: amount / max,
            max: amount / min,
            limit: None,
            of_limit: None,
            limit_of: None,
            row_limit: None,
            seconds: median,
            runs: times.len(),
        });
        amount / min
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_positive_and_measured_once() {
        let mut machine = Machine::new(1);
        let [reads, peak] = [machine.random_reads(1000), machine.peak()];
        assert!(reads > 0.0 && peak > 0.0);
        assert_eq!((machine.random_reads(1000), machine.peak()), (reads, peak));
        let names: Vec<String> = machine.into_results().into_iter().map(|result| result.case).collect();
        assert_eq!(names, ["random reads of 0.0 MB", "fused multiply-adds f32"]);
    }
}
