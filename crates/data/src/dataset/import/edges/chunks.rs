//! Text file in chunks of whole lines, read and unpacked ahead by a separate thread (a small file
//! by the caller).

use std::{
    io::{self, Read},
    path::Path,
    sync::mpsc::{Receiver, sync_channel},
    thread::{Builder, JoinHandle},
};

use graphmill_core::{Error, Result};

use super::{
    text::MAX_LINE,
    unpack::{BytesRead, Unpacked},
};

/// Bytes per chunk: many lines, and a few chunks fit the L2 cache of the parsing cores.
const CHUNK: usize = 1 << 20;
/// Number of chunks read ahead.
const MAX_QUEUED: usize = 16;
/// Largest file that the caller reads: a thread would cost more than it hides.
const MAX_INLINE_SIZE: u64 = 1 << 16;

/// Chunks of a file, unpacked if it is gzipped.
pub(super) struct Chunks {
    /// Reader of a small file, and the text after the last chunk's last line.
    here: Option<(Unpacked, Vec<u8>)>,
    receiver: Option<Receiver<io::Result<Vec<u8>>>>,
    thread: Option<JoinHandle<()>>,
    progress: BytesRead,
}

/// Reads the beginning of the file's text and estimates the length of the whole.
pub(super) fn peek(path: &Path) -> Result<(Vec<u8>, u64)> {
    let reader = Unpacked::open(path, 1 << 12)?;
    let progress = reader.progress();
    let mut text = Vec::new();
    reader.take(CHUNK as u64).read_to_end(&mut text).map_err(|e| Error::io(path, "read", e))?;
    let expansion = text.len() as f64 / progress.taken().max(1) as f64;
    Ok((text, (progress.size as f64 * expansion) as u64))
}

impl Chunks {
    /// Opens the file and starts reading.
    pub(super) fn open(path: &Path) -> Result<Self> {
        let mut reader = Unpacked::open(path, 1 << 18)?;
        let progress = reader.progress();
        if progress.size <= MAX_INLINE_SIZE {
            return Ok(Self { here: Some((reader, Vec::new())), receiver: None, thread: None, progress });
        }
        let (sender, receiver) = sync_channel(MAX_QUEUED);
        let work = move || {
            let mut rest = Vec::new();
            loop {
                let chunk = next_chunk(&mut reader, &mut rest);
                let last = !matches!(&chunk, Ok(chunk) if !chunk.is_empty());
                // The receiver is gone if the import ended early.
                if sender.send(chunk).is_err() || last {
                    return;
                }
            }
        };
        let thread = Builder::new().name("read".into()).spawn(work);
        let thread = Some(thread.map_err(|e| Error::io(path, "start a thread to read", e))?);
        Ok(Self { here: None, receiver: Some(receiver), thread, progress })
    }

    /// Returns the next chunk of whole lines; the file's last line may lack its line end.
    ///
    /// # Errors
    /// Reading or unpacking fails, or a line exceeds the limit.
    pub(super) fn next(&mut self) -> io::Result<Option<Vec<u8>>> {
        if let Some((reader, rest)) = &mut self.here {
            let chunk = next_chunk(reader, rest)?;
            return Ok(Some(chunk).filter(|chunk| !chunk.is_empty()));
        }
        let Some(receiver) = &self.receiver else { return Ok(None) };
        match receiver.recv() {
            Ok(Ok(chunk)) if chunk.is_empty() => Ok(None),
            Ok(chunk) => chunk.map(Some),
            Err(_) => Ok(None), // the thread has ended after its last chunk
        }
    }

    /// Size of the file on disk and number of bytes read.
    pub(super) fn progress(&self) -> (u64, u64) {
        (self.progress.size, self.progress.taken())
    }
}

impl Drop for Chunks {
    fn drop(&mut self) {
        self.receiver = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join(); // its result was sent through the channel
        }
    }
}

/// Reads the next chunk; text after its last line stays in `rest`. Empty at the end.
fn next_chunk(reader: &mut dyn Read, rest: &mut Vec<u8>) -> io::Result<Vec<u8>> {
    let mut chunk = Vec::with_capacity(CHUNK + rest.len());
    chunk.append(rest);
    loop {
        let searched = chunk.len();
        let read = reader.take(CHUNK as u64).read_to_end(&mut chunk)?;
        if read == 0 {
            return Ok(chunk);
        }
        if let Some(end) = chunk[searched..].iter().rposition(|&b| b == b'\n') {
            *rest = chunk.split_off(searched + end + 1);
            return Ok(chunk);
        }
        if chunk.len() as u64 > MAX_LINE {
            return Err(io::Error::new(
                io::ErrorKind::InvalidData,
                "a line of more than 64 MiB: this is not a text table",
            ));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    fn all(bytes: &[u8]) -> io::Result<Vec<Vec<u8>>> {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(bytes).unwrap();
        let mut chunks = Chunks::open(file.path()).unwrap();
        let mut all = Vec::new();
        while let Some(chunk) = chunks.next()? {
            all.push(chunk);
        }
        assert_eq!(chunks.progress(), (bytes.len() as u64, bytes.len() as u64));
        Ok(all)
    }

    #[test]
    fn chunks_are_whole_lines() {
        let text: Vec<u8> = (0..600_000).flat_map(|i| format!("{i}\n").into_bytes()).collect();
        for end in [text.len(), text.len() - 1] {
            let chunks = all(&text[..end]).unwrap();
            assert!(chunks.len() > 2 && chunks.concat() == text[..end]);
            assert!(chunks[..chunks.len() - 1].iter().all(|chunk| chunk.ends_with(b"\n")));
        }
        assert_eq!(all(b"").unwrap().len(), 0);
        assert_eq!(all(b"a").unwrap(), [b"a"]);
        // The thread of a dropped reader ends.
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(&text.repeat(8)).unwrap();
        assert!(Chunks::open(file.path()).unwrap().next().unwrap().is_some());
    }

    #[test]
    fn gzipped_files_are_unpacked_and_damage_is_reported() {
        let text = b"0 1\n".repeat(700_000);
        let mut gz = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        gz.write_all(&text).unwrap();
        let packed = gz.finish().unwrap();
        assert!(all(&packed).unwrap().concat() == text);
        let two = [&packed[..], &packed].concat();
        assert!(all(&two).unwrap().concat().len() == 2 * text.len(), "several members");
        assert!(all(&packed[..packed.len() - 9]).is_err());
    }
}
