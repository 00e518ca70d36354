//! Reader of an object from its first byte on. A thread reads ahead, and the object is at no time
//! in memory as a whole.

use std::{
    io::{self, Read},
    sync::mpsc::{Receiver, SyncSender, sync_channel},
};

use bytes::{Buf, Bytes};
use futures_util::StreamExt;
use graphmill_core::{Error, Result};

use super::{errors::explain, object::Object, worker};

/// Pieces that are read ahead; one takes [`super::http::PIECE_LEN`] bytes.
const PIECES: usize = 8;

/// Reader of the bytes of an object.
struct Stream {
    pieces: Receiver<io::Result<Bytes>>,
    piece: Bytes,
    /// Bytes of the object that are still to come.
    left: u64,
}

impl Stream {
    /// Starts to read at the byte `from`; errors of the request follow when the first byte is read.
    fn start(object: Object, from: u64) -> io::Result<Self> {
        let (sender, pieces) = sync_channel(PIECES);
        let left = object.size.saturating_sub(from);
        worker::start(send(object, from, sender))?;
        Ok(Self { pieces, piece: Bytes::new(), left })
    }
}

/// Sends the pieces of an object from the byte `from` until its end, an error, or the end of the
/// receiver.
async fn send(object: Object, from: u64, sender: SyncSender<io::Result<Bytes>>) {
    let range = (from > 0).then_some(from..object.size);
    let mut stream = match object.get(range).await {
        Ok(result) => result.into_stream(),
        Err(error) => return drop(sender.send(Err(error))),
    };
    while let Some(piece) = stream.next().await {
        let piece = piece.map_err(|error| explain(object.service, &error));
        let is_last = piece.is_err();
        if sender.send(piece).is_err() || is_last {
            return;
        }
    }
}

impl Object {
    /// Starts to read all bytes in order.
    ///
    /// # Errors
    /// The thread that reads ahead cannot be started.
    pub(crate) fn stream(&self) -> Result<Box<dyn Read + Send>> {
        self.stream_from(0)
    }

    /// Starts to read the bytes from `from` on, which lies before the end or is 0. Reading fails
    /// with [`io::ErrorKind::Unsupported`] if `from` is not 0 and the server does not send parts.
    ///
    /// # Errors
    /// As for [`Object::stream`].
    pub(crate) fn stream_from(&self, from: u64) -> Result<Box<dyn Read + Send>> {
        let stream = Stream::start(self.clone(), from).map_err(|e| Error::io(self.address(), "read", e))?;
        Ok(Box::new(stream))
    }
}

impl Read for Stream {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while self.piece.is_empty() {
            match self.pieces.recv() {
                Ok(piece) => self.piece = piece?,
                Err(_) if self.left == 0 => return Ok(0),
                Err(_) => {
                    let message = format!("the server sent {} bytes too few; start again", self.left);
                    return Err(io::Error::new(io::ErrorKind::UnexpectedEof, message));
                }
            }
        }
        let read = buffer.len().min(self.piece.len());
        buffer[..read].copy_from_slice(&self.piece[..read]);
        self.piece.advance(read);
        self.left = self.left.saturating_sub(read as u64);
        Ok(read)
    }
}
