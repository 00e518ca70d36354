//! Recorded commands of a stream, with their late-bound values.

#![allow(unsafe_code, reason = "device memory and kernels")]

use std::{ffi::c_void, ops::Range};

use crate::{
    Error, Result,
    driver::{Address, Driver, Kernel, Product, Shape, Stream},
};

/// Alignment of a value in [`Segment::late`]: that of any copy to a device.
const ALIGNMENT: usize = 16;

/// Maximum number of a kernel's parameters.
pub(crate) const PARAMETERS: usize = 32;

/// One call of the driver. Equal commands have the same effect, except for late-bound values.
#[derive(Clone, Debug, PartialEq)]
enum Command {
    Launch {
        kernel: Kernel,
        shape: Shape,
        /// Range of its values in [`Segment::words`].
        values: Range<usize>,
        /// Position of its late-bound values in [`Segment::late`], one word each, and a bit for
        /// each late-bound argument. The kernel's last parameter is their address.
        late: Option<(usize, u32)>,
    },
    Fill {
        at: Address,
        word: u32,
        words: usize,
    },
    Copy {
        from: Address,
        to: Address,
        bytes: usize,
    },
    /// Copy of the bytes of [`Segment::late`] from this position on.
    Upload {
        from: usize,
        to: Address,
        bytes: usize,
    },
    Product(Product),
}

/// Commands between two waits for the stream.
#[derive(Clone, Debug, Default)]
pub(super) struct Segment {
    commands: Vec<Command>,
    /// Values of launches, with zeros for late-bound ones.
    words: Vec<u64>,
    /// Late-bound bytes, which may differ in each replay.
    late: Vec<u8>,
}

impl Segment {
    pub(super) fn len(&self) -> usize {
        self.commands.len()
    }

    /// Bytes that must be on the device when the commands run.
    pub(super) fn late(&self) -> &[u8] {
        &self.late
    }

    /// Returns true if both have the same commands, with any late-bound values.
    pub(super) fn is_like(&self, other: &Self) -> bool {
        self.late.len() == other.late.len() && self.words == other.words && self.commands == other.commands
    }

    fn reserve(&mut self, bytes: usize) -> usize {
        let at = self.late.len();
        self.late.resize((at + bytes).next_multiple_of(ALIGNMENT), 0);
        at
    }

    /// Records a kernel with 64-bit values for its parameters; those whose bit is set in `late` are
    /// late-bound.
    pub(super) fn launch(&mut self, kernel: Kernel, shape: Shape, values: &[u64], late: u32) {
        let first = self.words.len();
        self.words.extend_from_slice(values);
        let values = first..self.words.len();
        let late = (late != 0).then(|| {
            let at = self.reserve(8 * late.count_ones() as usize);
            for (i, parameter) in bits(late).enumerate() {
                let word = std::mem::take(&mut self.words[first + parameter]);
                self.late[at + 8 * i..][..8].copy_from_slice(&word.to_ne_bytes());
            }
            (at, late)
        });
        self.commands.push(Command::Launch { kernel, shape, values, late });
    }

    pub(super) fn fill(&mut self, at: Address, word: u32, words: usize) {
        self.commands.push(Command::Fill { at, word, words });
    }

    pub(super) fn copy(&mut self, from: Address, to: Address, bytes: usize) {
        self.commands.push(Command::Copy { from, to, bytes });
    }

    /// Records a copy of host bytes, which are read now.
    pub(super) fn upload(&mut self, values: &[u8], to: Address) {
        let from = self.reserve(values.len());
        self.late[from..from + values.len()].copy_from_slice(values);
        self.commands.push(Command::Upload { from, to, bytes: values.len() });
    }

    pub(super) fn product(&mut self, product: Product) {
        self.commands.push(Command::Product(product));
    }

    /// Queues all commands in a stream, in order. With `table`, late-bound values are read from
    /// there when the commands run: it holds a copy of [`Segment::late`]. Without it, they are part
    /// of the commands.
    ///
    /// # Errors
    /// The driver rejects a command.
    ///
    /// # Safety
    /// The memory is valid as guaranteed at the recording, and `table` has all late-bound bytes.
    pub(super) unsafe fn issue(
        &self,
        driver: &dyn Driver,
        stream: Stream,
        table: Option<Address>,
    ) -> Result<()> {
        for command in &self.commands {
            // SAFETY: by the caller's guarantee
            unsafe {
                match *command {
                    Command::Launch { kernel, shape, ref values, late } => {
                        let mut of_launch = [0u64; PARAMETERS];
                        let count = values.len();
                        of_launch[..count].copy_from_slice(&self.words[values.clone()]);
                        if let Some((at, late)) = late {
                            match table {
                                Some(table) => of_launch[count - 1] = table.offset(at).0,
                                None => self.late_values(at, late, &mut of_launch),
                            }
                        }
                        launch(driver, kernel, shape, &mut of_launch[..count], stream)?;
                    }
                    Command::Fill { at, word, words } => driver.fill(at, word, words, stream)?,
                    Command::Copy { from, to, bytes } => driver.copy(from, to, bytes, stream)?,
                    Command::Upload { from, to, bytes } => match table {
                        Some(table) => driver.copy(table.offset(from), to, bytes, stream)?,
                        None => driver.upload(self.late[from..from + bytes].as_ptr(), to, bytes, stream)?,
                    },
                    Command::Product(ref product) => {
                        if !driver.product(product, stream)? {
                            return Err(Error::Driver {
                                device: driver.properties().name.clone(),
                                call: "product",
                                message: format!("the library no longer supports {product:?}"),
                            });
                        }
                    }
                }
            }
        }
        Ok(())
    }

    /// Writes the late-bound values of a launch.
    fn late_values(&self, at: usize, late: u32, values: &mut [u64]) {
        for (parameter, word) in bits(late).zip(self.late[at..].chunks_exact(8)) {
            values[parameter] = u64::from_ne_bytes(word.try_into().expect("late-bound words are 8 bytes"));
        }
    }
}

/// Positions of a number's set bits.
fn bits(of: u32) -> impl Iterator<Item = usize> {
    (0..32).filter(move |bit| of >> bit & 1 == 1)
}

/// Launches a kernel with these 64-bit values for its parameters: a 32-bit parameter is read from
/// the first bytes.
///
/// # Errors
/// As [`Driver::launch`].
///
/// # Safety
/// As [`Driver::launch`].
pub(super) unsafe fn launch(
    driver: &dyn Driver,
    kernel: Kernel,
    shape: Shape,
    values: &mut [u64],
    stream: Stream,
) -> Result<()> {
    let mut pointers = [std::ptr::null_mut::<c_void>(); PARAMETERS];
    for (pointer, value) in pointers.iter_mut().zip(values.iter_mut()) {
        *pointer = std::ptr::from_mut(value).cast();
    }
    // SAFETY: by the caller's guarantee; the pointers are to values that live until the call
    // returns
    unsafe { driver.launch(kernel, shape, &mut pointers[..values.len()], stream) }
}
