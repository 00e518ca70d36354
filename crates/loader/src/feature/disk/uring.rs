//! Reads through io_uring (Axboe, "Efficient IO with io_uring", 2019): they are written to a ring
//! that the kernel shares, handed over many at once, and their outcomes come back by another ring.

use std::{io, sync::Arc};

use super::{opened::Opened, queue::Queue};

/// A ring for the file, which has read its first bytes: some systems let rings be made and refuse
/// what is put into them.
///
/// # Errors
/// There is no io_uring, or it is forbidden.
#[cfg(target_os = "linux")]
pub(super) fn new(file: Arc<Opened>, slots: usize, size: usize) -> io::Result<Box<dyn Queue>> {
    let mut uring = linux::Uring::new(file, slots, size)?;
    uring.start(0, 0, size.min(super::opened::PAGE), 0);
    uring.finish()?.1?;
    Ok(Box::new(uring))
}

#[cfg(not(target_os = "linux"))]
pub(super) fn new(_: Arc<Opened>, _: usize, _: usize) -> io::Result<Box<dyn Queue>> {
    Err(io::Error::new(io::ErrorKind::Unsupported, "io_uring is Linux's"))
}

#[cfg(target_os = "linux")]
mod linux {
    use std::{io, os::fd::AsRawFd, ptr::NonNull, sync::Arc};

    use io_uring::{IoUring, opcode, types::Fd};

    use crate::feature::disk::{
        opened::{Opened, PAGE, Page},
        queue::Queue,
    };

    /// How often the kernel may say "not now" in a row.
    const PATIENCE: usize = 100_000;

    /// A ring with the memory that its reads go to.
    ///
    /// The kernel writes to a slot from the moment its read is handed over until its outcome is
    /// taken from the ring. In between the slot is `busy`: no reference to it is given out, and its
    /// memory is not freed before all outcomes are taken, or not at all.
    pub(super) struct Uring {
        ring: IoUring,
        file: Arc<Opened>,
        /// From a `Vec<Page>` of `slots * size` bytes, which is a pointer here since the kernel
        /// writes to it beside us.
        memory: NonNull<Page>,
        size: usize,
        busy: Vec<bool>,
        in_flight: usize,
    }

    // SAFETY: the memory is this value's alone but for the kernel, which does not mind from which
    // thread a ring is used.
    unsafe impl Send for Uring {}

    impl Uring {
        /// `slots` of `size` bytes, a multiple of a page.
        pub(super) fn new(file: Arc<Opened>, slots: usize, size: usize) -> io::Result<Self> {
            let entries = slots.next_power_of_two() as u32;
            // outcomes wait until we ask for them, without an interrupt each; older kernels (before
            // 5.19) do not know it
            let ring = IoUring::builder()
                .setup_coop_taskrun()
                .build(entries)
                .or_else(|_| IoUring::builder().build(entries))?;
            let pages: Box<[Page]> = bytemuck::zeroed_slice_box(slots * size / PAGE);
            // a box's pointer is never null
            let memory = NonNull::from(Box::leak(pages)).cast();
            Ok(Self { ring, file, memory, size, busy: vec![false; slots], in_flight: 0 })
        }

        /// First byte of a slot.
        fn slot(&self, slot: usize) -> *mut u8 {
            assert!(!self.busy[slot], "a slot that the kernel may write to");
            // SAFETY: within the memory, which has `size` bytes for each element of `busy`; the
            // index above was in bounds.
            unsafe { self.memory.as_ptr().cast::<u8>().add(slot * self.size) }
        }

        /// Takes outcomes until there are no more to come.
        fn drain(&mut self) -> io::Result<()> {
            while self.in_flight > 0 {
                let _ = self.finish()?;
            }
            Ok(())
        }
    }

    impl Queue for Uring {
        fn slots(&self) -> usize {
            self.busy.len()
        }

        fn start(&mut self, slot: usize, at: usize, len: usize, offset: u64) {
            assert!(
                at <= self.size && len <= self.size - at,
                "{len} bytes at {at} of a slot of {}",
                self.size
            );
            // SAFETY: `at` is within the slot.
            let to = unsafe { self.slot(slot).add(at) };
            let read = opcode::Read::new(Fd(self.file.file.as_raw_fd()), to, len as u32)
                .offset(offset)
                .build()
                .user_data(slot as u64);
            // SAFETY: the kernel may write `len` bytes at `to`, which are within the slot
            // (asserted) and nobody else's until the outcome is taken, since `busy` says so; they
            // are freed in `drop` only when no read is in flight. The file stays open as long as
            // `self.file`, which outlives the ring's use likewise.
            unsafe { self.ring.submission().push(&read) }.expect("as many entries as slots");
            self.busy[slot] = true;
            self.in_flight += 1;
        }

        /// Hands over what was begun only when no outcome waits: many at once.
        fn finish(&mut self) -> io::Result<(usize, io::Result<usize>)> {
            let mut refused = 0;
            loop {
                if let Some(outcome) = self.ring.completion().next() {
                    let slot = outcome.user_data() as usize;
                    self.busy[slot] = false;
                    self.in_flight -= 1;
                    let result = outcome.result();
                    let count = usize::try_from(result).map_err(|_| io::Error::from_raw_os_error(-result));
                    return Ok((slot, count));
                }
                assert!(self.in_flight > 0, "a read was begun");
                match self.ring.submit_and_wait(1) {
                    Ok(_) => {}
                    Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                    // short of memory for requests, or of room for outcomes: both pass as reads
                    // finish
                    Err(e)
                        if refused < PATIENCE
                            && matches!(
                                e.kind(),
                                io::ErrorKind::WouldBlock | io::ErrorKind::ResourceBusy
                            ) =>
                    {
                        refused += 1;
                        std::thread::yield_now();
                    }
                    Err(e) => return Err(e),
                }
            }
        }

        fn bytes(&self, slot: usize) -> &[u8] {
            let start = self.slot(slot);
            // SAFETY: `size` initialised bytes (zeroed when made), to which nobody writes while
            // `self` is borrowed: the slot is not busy, and `start` needs `&mut self`.
            unsafe { std::slice::from_raw_parts(start, self.size) }
        }
    }

    impl Drop for Uring {
        /// Waits for all reads. Where even that fails the memory is never freed: the kernel may
        /// still write to it.
        fn drop(&mut self) {
            if self.drain().is_ok() {
                let pages = NonNull::slice_from_raw_parts(self.memory, self.busy.len() * self.size / PAGE);
                // SAFETY: a leaked box of that many pages, made in `new`; nothing is in flight and
                // nobody borrows it.
                drop(unsafe { Box::from_raw(pages.as_ptr()) });
            }
        }
    }
}
