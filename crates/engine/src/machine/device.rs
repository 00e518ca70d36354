//! Simulated devices, each with its own memory budget, threads and link to the host. An NVIDIA
//! device has a [`Device`], too: the threads that launch its work.
//!
//! Simulated devices compute on the processor's cores, so strategies for several devices run, and
//! their traffic is counted, on any machine. Memory is accounted for but not allocated separately:
//! an allocation is charged against the device's budget, and refused if it exceeds the budget.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering::Relaxed},
};

use graphmill_loader::feature::{Link, LinkOptions, LinkTraffic};
use rayon::ThreadPool;

use crate::{Error, Result, cores};

/// A simulated or an NVIDIA device.
pub struct Device {
    name: String,
    /// Memory in bytes; 0 for no limit.
    budget: u64,
    /// Reserved bytes.
    held: AtomicU64,
    /// Cores of the device's threads; empty if they are not pinned.
    cores: Vec<usize>,
    /// Link to the host.
    pub link: Arc<Link>,
    /// Link over which the device reads rows of its peers.
    pub peer_link: Arc<Link>,
    /// Threads of the device.
    pub pool: Arc<ThreadPool>,
    /// Index among the run's NVIDIA devices, if it is one.
    pub(crate) gpu: Option<usize>,
}

/// Reservation of a device's memory, released on drop.
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
    /// `count` simulated devices with `budget` bytes each (0 for no limit). The cores of this
    /// machine are divided among them; if there are fewer cores than devices, devices share cores.
    /// `links` are those of each device to the host and to its peers.
    ///
    /// # Errors
    /// The system cannot start the threads.
    pub fn several(kind: &str, count: usize, budget: u64, links: [LinkOptions; 2]) -> Result<Vec<Arc<Self>>> {
        let names: Vec<String> = (0..count).map(|i| format!("{kind}:{i}")).collect();
        Self::named(&names, false, budget, links)
    }

    /// The NVIDIA devices of a run. Their driver accounts for their memory.
    ///
    /// # Errors
    /// As [`Device::several`].
    pub(crate) fn nvidia(numbers: &[usize]) -> Result<Vec<Arc<Self>>> {
        let names: Vec<String> = numbers.iter().map(|number| format!("cuda:{number}")).collect();
        Self::named(&names, true, 0, Default::default())
    }

    fn named(names: &[String], gpu: bool, budget: u64, links: [LinkOptions; 2]) -> Result<Vec<Arc<Self>>> {
        let count = names.len();
        let threads = rayon::current_num_threads();
        let cores = cores::available();
        let device = |i: usize| {
            let own = cores.get(i * threads / count..(i + 1) * threads / count).unwrap_or(&[]).to_vec();
            let threads = Self::threads_of(i, count, threads);
            let name = names[i].clone();
            let pool = Arc::new(cores::pool(&name, threads, &own)?);
            let [link, peer_link] = links.map(|link| Arc::new(Link::new(link)));
            let gpu = gpu.then_some(i);
            Ok(Arc::new(Self {
                name,
                budget,
                held: AtomicU64::new(0),
                cores: own,
                link,
                peer_link,
                pool,
                gpu,
            }))
        };
        (0..count).map(device).collect()
    }

    /// Number of threads of device `i` of `count`, at least one, among which `threads` are divided.
    pub fn threads_of(i: usize, count: usize, threads: usize) -> usize {
        ((i + 1) * threads / count - i * threads / count).max(1)
    }

    /// A second pool of the same size on the same cores, for work that overlaps with that of
    /// [`Device::pool`].
    ///
    /// # Errors
    /// The system cannot start the threads.
    pub fn pool_beside(&self) -> Result<Arc<ThreadPool>> {
        let name = format!("{} beside", self.name);
        cores::pool(&name, self.pool.current_num_threads(), &self.cores).map(Arc::new)
    }

    /// Name of the device, such as `virtual:0`.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Free bytes; `None` if the memory is unlimited.
    pub fn free(&self) -> Option<u64> {
        (self.budget > 0).then(|| self.budget.saturating_sub(self.held.load(Relaxed)))
    }

    /// Traffic of its links to the host and to its peers.
    pub(crate) fn traffic(&self) -> [LinkTraffic; 2] {
        [self.link.traffic(), self.peer_link.traffic()]
    }

    /// Reserves `bytes` of the device's memory for `what`, which error messages name.
    ///
    /// # Errors
    /// The bytes exceed the free memory.
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
    fn devices_divide_the_threads() {
        for (count, threads, expected) in
            [(2, 3, &[1usize, 2][..]), (3, 8, &[2, 3, 3]), (3, 2, &[1, 1, 1]), (1, 5, &[5])]
        {
            let of = |i| Device::threads_of(i, count, threads);
            assert_eq!((0..count).map(of).collect::<Vec<_>>(), expected);
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
            let devices = pool.install(|| Device::several("virtual", count, 0, Default::default())).unwrap();
            let own: Vec<usize> = devices.iter().map(|device| device.pool.current_num_threads()).collect();
            assert_eq!(own, expected);
        }
    }

    #[test]
    fn reservations_stay_within_the_budget_and_are_released_on_drop() {
        let devices = Device::several("virtual", 3, 100, Default::default()).unwrap();
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
        let unlimited = Device::several("virtual", 1, 0, Default::default()).unwrap();
        let _held = unlimited[0].hold("anything", 1 << 40).unwrap();
        assert_eq!(unlimited[0].free(), None);
    }
}
