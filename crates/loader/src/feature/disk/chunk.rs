//! Read of a whole chunk of a file, for its verification.

use std::{io, ops::Range};

use super::{
    open_file::{OpenFile, PAGE, Page, read_at, zeroed_pages},
    reader::{Cause, Fault},
};

/// Reads a byte range of the file, which begins at a multiple of [`PAGE`], and passes it to `see`.
/// Past the page cache if the file was opened so: rows come the same way.
///
/// # Errors
/// The range cannot be read.
pub(super) fn read(file: &OpenFile, range: Range<u64>, see: &mut dyn FnMut(&[u8])) -> Result<(), Fault> {
    let needed = (range.end - range.start) as usize;
    let fault = |cause| Fault { bytes: range.clone(), cause };
    let mut pages: Vec<Page> = zeroed_pages(needed.div_ceil(PAGE)).map_err(|e| fault(Cause::System(e)))?;
    let buffer: &mut [u8] = bytemuck::cast_slice_mut(&mut pages);
    let mut filled = 0;
    while filled < needed {
        // a repeated read starts at the last whole block
        let at = filled / file.align as usize * file.align as usize;
        match read_at(&file.file, &mut buffer[at..], range.start + at as u64) {
            Ok(count) if at + count > filled => filled = at + count,
            Ok(_) => return Err(fault(file.len().map_or_else(Cause::System, Cause::Ends))),
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(fault(Cause::System(e))),
        }
    }
    see(&buffer[..needed]);
    Ok(())
}
