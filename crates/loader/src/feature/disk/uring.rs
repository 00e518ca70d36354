//! Reads through io_uring (Axboe, "Efficient IO with io_uring", 2019): requests are written to a
//! ring shared with the kernel and submitted many at once, and their results return through another
//! ring.

#![allow(unsafe_code, reason = "system calls")]

use std::{io, sync::Arc};

use super::{open_file::OpenFile, queue::Queue};

/// Creates a ring for the file and reads its first bytes, because some systems create rings and
/// reject the requests.
///
/// # Errors
/// The system does not support or allow io_uring.
#[cfg(target_os = "linux")]
pub(super) fn new(file: Arc<OpenFile>, slots: usize, size: usize) -> io::Result<Box<dyn Queue>> {
    let mut uring = linux::Uring::new(file, slots, size)?;
    uring.start(0, 0, size.min(super::open_file::PAGE), 0);
    uring.finish()?.1?;
    Ok(Box::new(uring))
}

#[cfg(not(target_os = "linux"))]
pub(super) fn new(_: Arc<OpenFile>, _: usize, _: usize) -> io::Result<Box<dyn Queue>> {
    Err(io::Error::new(io::ErrorKind::Unsupported, "only Linux has io_uring"))
}

#[cfg(target_os = "linux")]
mod linux {
    use std::{io, os::fd::AsRawFd, ptr::NonNull, sync::Arc};

    use io_uring::{IoUring, opcode, types::Fd};

    use crate::feature::disk::{
        open_file::{OpenFile, PAGE, Page, zeroed_pages},
        queue::Queue,
    };

    /// Maximum number of consecutive rejections by the kernel that mean "not now".
    const MAX_REJECTIONS: usize = 100_000;

    /// A ring with the memory of its reads.
    ///
    /// The kernel writes to a slot from the moment its read is submitted until its result is taken
    /// from the ring. In between the slot is `busy`: no reference to it exists, and its memory is
    /// not freed before all results are taken, or not at all.
    pub(super) struct Uring {
        ring: IoUring,
        file: Arc<OpenFile>,
        /// From a boxed slice of `slots * size` bytes; a pointer, because the kernel writes to it
        /// while this value exists.
        memory: NonNull<Page>,
        size: usize,
        busy: Vec<bool>,
        in_flight: usize,
    }

    // SAFETY: only this value and the kernel access the memory, and the kernel accepts calls on a
    // ring from any thread.
    unsafe impl Send for Uring {}

    impl Uring {
        /// Creates a ring of `slots` slots of `size` bytes, a multiple of a page.
        ///
        /// # Panics
        /// The size is not a multiple of a page.
        pub(super) fn new(file: Arc<OpenFile>, slots: usize, size: usize) -> io::Result<Self> {
            assert!(size.is_multiple_of(PAGE), "slots of {size} bytes are not whole pages");
            let entries = slots.next_power_of_two() as u32;
            // results wait until they are requested, without an interrupt each; kernels before 5.19
            // lack the flag
            let ring = IoUring::builder()
                .setup_coop_taskrun()
                .build(entries)
                .or_else(|_| IoUring::builder().build(entries))?;
            let pages: Box<[Page]> = zeroed_pages(slots * size / PAGE)?.into_boxed_slice();
            // a box's pointer is never null
            let memory = NonNull::from(Box::leak(pages)).cast();
            Ok(Self { ring, file, memory, size, busy: vec![false; slots], in_flight: 0 })
        }

        /// First byte of a slot.
        fn slot(&self, slot: usize) -> *mut u8 {
            assert!(!self.busy[slot], "the kernel may write to the slot");
            // SAFETY: within the memory, which has `size` bytes for each element of `busy`; the
            // index above was in bounds.
            unsafe { self.memory.as_ptr().cast::<u8>().add(slot * self.size) }
        }

        /// Takes results until no read is in flight.
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
            // (asserted) and not accessed by other code until the result is taken, because the slot
            // is `busy`; they are freed in `drop` only when no read is in flight. The file stays
            // open as long as `self.file`, which outlives the ring's use in the same way.
            unsafe { self.ring.submission().push(&read) }.expect("the ring has an entry per slot");
            self.busy[slot] = true;
            self.in_flight += 1;
        }

        /// Submits started reads only when no result is waiting: many at once.
        fn finish(&mut self) -> io::Result<(usize, io::Result<usize>)> {
            let mut rejected = 0;
            loop {
                if let Some(outcome) = self.ring.completion().next() {
                    let slot = outcome.user_data() as usize;
                    self.busy[slot] = false;
                    self.in_flight -= 1;
                    let result = outcome.result();
                    let count = usize::try_from(result).map_err(|_| io::Error::from_raw_os_error(-result));
                    return Ok((slot, count));
                }
                assert!(self.in_flight > 0, "a read is in flight");
                match self.ring.submit_and_wait(1) {
                    Ok(_) => {}
                    Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                    // out of memory for requests or of space for results: both pass as reads finish
                    Err(e)
                        if rejected < MAX_REJECTIONS
                            && matches!(
                                e.kind(),
                                io::ErrorKind::WouldBlock | io::ErrorKind::ResourceBusy
                            ) =>
                    {
                        rejected += 1;
                        std::thread::yield_now();
                    }
                    Err(e) => return Err(e),
                }
            }
        }

        fn bytes(&self, slot: usize) -> &[u8] {
            let start = self.slot(slot);
            // SAFETY: `size` initialised bytes (zeroed when allocated), to which no code writes
            // while `self` is borrowed: the slot is not busy, and `start` needs `&mut self`.
            unsafe { std::slice::from_raw_parts(start, self.size) }
        }
    }

    impl Drop for Uring {
        /// Waits for all reads. If that fails, the memory is never freed, because the kernel may
        /// still write to it.
        fn drop(&mut self) {
            if self.drain().is_ok() {
                let pages = NonNull::slice_from_raw_parts(self.memory, self.busy.len() * self.size / PAGE);
                // SAFETY: a leaked box of that many pages, allocated in `new`; no read is in flight
                // and no reference to it exists.
                drop(unsafe { Box::from_raw(pages.as_ptr()) });
            }
        }
    }
}
