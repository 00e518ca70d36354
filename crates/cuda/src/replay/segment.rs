//! Commands of a stream that were recorded instead of given, and the values of theirs that may
//! differ when the same come again.

use std::{ffi::c_void, ops::Range};

use crate::{
    Error, Result,
    driver::{Address, Driver, Kernel, Product, Shape, Stream},
};

/// Where a value of [`Segment::late`] starts: what any copy to a device is aligned to.
const ALIGNMENT: usize = 16;

/// Most parameters of a kernel.
pub(crate) const PARAMETERS: usize = 32;

/// One call of the driver. Equal commands do the same, but for the values that come late.
#[derive(Clone, Debug, PartialEq)]
enum Command {
    Launch {
        kernel: Kernel,
        shape: Shape,
        /// Its values among [`Segment::words`].
        values: Range<usize>,
        /// Where its late values are among [`Segment::late`], one word each, and a bit for each
        /// argument that is one of them. The kernel's last parameter says where they are.
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
    /// The bytes from there on of [`Segment::late`].
    Upload {
        from: usize,
        to: Address,
        bytes: usize,
    },
    Product(Product),
}

/// Commands between two moments at which somebody waits for the stream.
#[derive(Clone, Debug, Default)]
pub(super) struct Segment {
    commands: Vec<Command>,
    /// Values of launches; zeros in the place of those that come late.
    words: Vec<u64>,
    /// What may differ from time to time.
    late: Vec<u8>,
}

impl Segment {
    pub(super) fn len(&self) -> usize {
        self.commands.len()
    }

    /// What has to be on the device when the commands run.
    pub(super) fn late(&self) -> &[u8] {
        &self.late
    }

    /// Whether these are the same commands, whatever comes late.
    pub(super) fn is_like(&self, other: &Self) -> bool {
        self.late.len() == other.late.len() && self.words == other.words && self.commands == other.commands
    }

    fn room(&mut self, bytes: usize) -> usize {
        let at = self.late.len();
        self.late.resize((at + bytes).next_multiple_of(ALIGNMENT), 0);
        at
    }

    /// A kernel with the values of its parameters, 64 bits each; of those whose bit is set in
    /// `late` only the places are the same in another run.
    pub(super) fn launch(&mut self, kernel: Kernel, shape: Shape, values: &[u64], late: u32) {
        let first = self.words.len();
        self.words.extend_from_slice(values);
        let values = first..self.words.len();
        let late = (late != 0).then(|| {
            let at = self.room(8 * late.count_ones() as usize);
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

    /// A copy of bytes of the host, which are read now.
    pub(super) fn upload(&mut self, values: &[u8], to: Address) {
        let from = self.room(values.len());
        self.late[from..from + values.len()].copy_from_slice(values);
        self.commands.push(Command::Upload { from, to, bytes: values.len() });
    }

    pub(super) fn product(&mut self, product: Product) {
        self.commands.push(Command::Product(product));
    }

    /// Gives all commands to a stream, in order. With `table`, what comes late is read from there
    /// when they run: a copy of [`Segment::late`]. Without, it is part of the commands.
    ///
    /// # Errors
    /// The driver refuses one.
    ///
    /// # Safety
    /// What was recorded was promised of memory as it is now, and as many bytes as come late are at
    /// `table`.
    pub(super) unsafe fn issue(
        &self,
        driver: &dyn Driver,
        stream: Stream,
        table: Option<Address>,
    ) -> Result<()> {
        for command in &self.commands {
            // SAFETY: the caller's promise
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
                                message: format!("the library takes {product:?} no more"),
                            });
                        }
                    }
                }
            }
        }
        Ok(())
    }

    /// Puts the late values of a launch in their places.
    fn late_values(&self, at: usize, late: u32, values: &mut [u64]) {
        for (parameter, word) in bits(late).zip(self.late[at..].chunks_exact(8)) {
            values[parameter] = u64::from_ne_bytes(word.try_into().expect("words are 8 bytes"));
        }
    }
}

/// The positions of a number's bits.
fn bits(of: u32) -> impl Iterator<Item = usize> {
    (0..32).filter(move |bit| of >> bit & 1 == 1)
}

/// Starts a kernel with these values of its parameters, of 64 bits each: a parameter of 32 is read
/// from the first bytes.
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
    // SAFETY: the caller's promise; the pointers are to values that live until the call returns
    unsafe { driver.launch(kernel, shape, &mut pointers[..values.len()], stream) }
}
