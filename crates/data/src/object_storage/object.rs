//! Object: a file of a bucket or a server, with its version.

use std::{
    fmt, io,
    ops::Range,
    path::{Path, PathBuf},
    sync::Arc,
};

use bytes::Bytes;
use object_store::{GetOptions, GetRange, GetResult, ObjectMeta, ObjectStore, path::Path as Key};

use super::{errors::explain, store::Service, worker};

/// Object of a store.
#[derive(Clone)]
pub(crate) struct Object {
    pub(super) address: PathBuf,
    pub(super) service: Service,
    pub(super) store: Arc<dyn ObjectStore>,
    pub(super) key: Key,
    /// Number of bytes.
    pub(super) size: u64,
    /// Version, if the server states one.
    tag: Option<String>,
    /// Time of the last change, in milliseconds since 1970.
    modified: i64,
}

impl Object {
    /// Creates an object that a listing or a request found.
    pub(super) fn new(
        address: String,
        service: Service,
        store: Arc<dyn ObjectStore>,
        meta: ObjectMeta,
    ) -> Self {
        Self {
            address: address.into(),
            service,
            store,
            key: meta.location,
            size: meta.size,
            tag: meta.e_tag,
            modified: meta.last_modified.timestamp_millis(),
        }
    }

    /// Address, as in messages.
    pub(crate) fn address(&self) -> &Path {
        &self.address
    }

    /// Number of bytes.
    pub(crate) fn size(&self) -> u64 {
        self.size
    }

    /// Address, size and version, by which an import recognizes the object.
    pub(crate) fn identity(&self) -> String {
        match &self.tag {
            Some(tag) => format!("{} {} {tag}", self.address.display(), self.size),
            None => format!("{} {} {}", self.address.display(), self.size, self.modified),
        }
    }

    /// Requests all bytes, or a range of them.
    pub(super) async fn get(&self, range: Option<Range<u64>>) -> io::Result<GetResult> {
        let options = GetOptions { range: range.map(GetRange::Bounded), ..GetOptions::default() };
        let result = self.store.get_opts(&self.key, options).await;
        let result = result.map_err(|error| explain(self.service, &error))?;
        let other_tag = self.tag.is_some() && result.meta.e_tag.is_some() && self.tag != result.meta.e_tag;
        if other_tag || result.meta.size != self.size {
            return Err(io::Error::other("the file changed while it was read; start again"));
        }
        Ok(result)
    }

    /// Reads a range.
    pub(super) fn read(&self, range: Range<u64>) -> io::Result<Bytes> {
        let length = range.end - range.start;
        let bytes = worker::wait(async {
            let result = self.get(Some(range)).await?;
            result.bytes().await.map_err(|error| explain(self.service, &error))
        })??;
        if bytes.len() as u64 == length {
            Ok(bytes)
        } else {
            let message = format!("the server sent {} bytes instead of {length}; start again", bytes.len());
            Err(io::Error::new(io::ErrorKind::UnexpectedEof, message))
        }
    }
}

impl fmt::Debug for Object {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.identity())
    }
}
