//! Devices that are made up: a memory of their own, threads of their own, and a link to the host.
//! An NVIDIA device has one too: the threads that give it work.
//!
//! They compute on the processor's cores, so that whatever several devices do can be tried, and
//! counted, on any machine. Memory is accounted for, not set apart: what would be put on a device
//! is held against its budget, and what does not fit is refused as a real device would.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering::Relaxed},
};

use graphmill_loader::feature::{Link, LinkOptions};
use rayon::ThreadPool;

use crate::{Error, Result, cores};

/// A device.
pub struct Device {
    name: String,
    /// Bytes; 0 for no limit.
    budget: u64,
    held: AtomicU64,
    /// The cores its threads stay on; none where they are anywhere.
    cores: Vec<usize>,
    /// The link to the host.
    pub link: Arc<Link>,
    /// Its threads.
    pub pool: Arc<ThreadPool>,
    /// The NVIDIA device that it is, among those of the run.
    pub(crate) gpu: Option<usize>,
}

/// Bytes of a device's memory, given back when this is dropped.
pub struct MemoryReservation {
    device: Arc<Device>,
    bytes: u64,
}

impl Drop for MemoryReservation {
    fn drop(&mut self) {
        self.device.held.fetch_sub(self.bytes, Relaxed);
    }
}

impl Device {
    /// `count` devices with `budget` bytes each (0 for no limit). The cores of this machine are
    /// dealt among them; where there are fewer cores than devices they share.
    ///
    /// # Errors
    /// The system refuses the threads.
    pub fn several(kind: &str, count: usize, budget: u64, link: LinkOptions) -> Result<Vec<Arc<Self>>> {
        let names: Vec<String> = (0..count).map(|i| format!("{kind}:{i}")).collect();
        Self::named(&names, false, budget, link)
    }

    /// The NVIDIA devices of a run, whose memory is counted by their driver.
    ///
    /// # Errors
    /// As [`Device::several`].
    pub(crate) fn nvidia(numbers: &[usize]) -> Result<Vec<Arc<Self>>> {
        let names: Vec<String> = numbers.iter().map(|number| format!("cuda:{number}")).collect();
        Self::named(&names, true, 0, LinkOptions::default())
    }

    fn named(names: &[String], gpu: bool, budget: u64, link: LinkOptions) -> Result<Vec<Arc<Self>>> {
        let count = names.len();
        let threads = rayon::current_num_threads();
        let cores = cores::available();
        let device = |i: usize| {
            let own = cores.get(i * threads / count..(i + 1) * threads / count).unwrap_or(&[]).to_vec();
            let threads = ((i + 1) * threads / count - i * threads / count).max(1);
            let name = names[i].clone();
            let pool = Arc::new(cores::pool(&name, threads, &own)?);
            let link = Arc::new(Link::new(link));
            let gpu = gpu.then_some(i);
            Ok(Arc::new(Self { name, budget, held: AtomicU64::new(0), cores: own, link, pool, gpu }))
        };
        (0..count).map(device).collect()
    }

    /// As many threads more, on the same cores: for what waits while the others compute.
    ///
    /// # Errors
    /// The system refuses the threads.
    pub fn pool_beside(&self) -> Result<Arc<ThreadPool>> {
        let name = format!("{} beside", self.name);
        cores::pool(&name, self.pool.current_num_threads(), &self.cores).map(Arc::new)
    }

    /// Its name: `virtual:0`.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Bytes that are free; `None` where there is no limit.
    pub fn free(&self) -> Option<u64> {
        (self.budget > 0).then(|| self.budget.saturating_sub(self.held.load(Relaxed)))
    }

    /// Puts so many bytes on the device.
    ///
    /// # Errors
    /// They do not fit.
    pub fn hold(self: &Arc<Self>, what: &str, bytes: u64) -> Result<MemoryReservation> {
        let fits = |held: u64| {
            let all = held.checked_add(bytes)?;
            (self.budget == 0 || all <= self.budget).then_some(all)
        };
        match self.held.fetch_update(Relaxed, Relaxed, fits) {
            Ok(_) => Ok(MemoryReservation { device: self.clone(), bytes }),
            Err(held) => Err(Error::DeviceMemory {
                device: self.name.clone(),
                what: what.to_string(),
                bytes,
                free: self.budget.saturating_sub(held),
                budget: self.budget,
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_refused_beyond_the_budget_and_given_back() {
        let devices = Device::several("virtual", 3, 100, LinkOptions::default()).unwrap();
        let one = devices[0].hold("the topology", 60).unwrap();
        assert_eq!((devices[0].free(), devices[1].free()), (Some(40), Some(100)));
        let error = devices[0].hold("a cache", 41).err().unwrap().to_string();
        assert!(
            error.starts_with("virtual:0 is out of memory: a cache takes 41 bytes, 40 of 100 are free"),
            "{error}"
        );
        assert!(devices[0].hold("a cache", u64::MAX).is_err());
        drop(one);
        drop(devices[0].hold("a cache", 100).unwrap());
        let endless = Device::several("virtual", 1, 0, LinkOptions::default()).unwrap();
        let _held = endless[0].hold("anything", 1 << 40).unwrap();
        assert_eq!(endless[0].free(), None);
    }
}
