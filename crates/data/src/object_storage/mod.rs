//! Files in object storage: `s3://`, `gs://` and `az://` addresses, and `https://` and `http://`
//! addresses of files on web servers.
//!
//! The crate `object_store` signs requests, lists prefixes and repeats requests that failed. Its
//! futures run in threads of this module ([`worker`]) and its requests through the HTTP client of
//! the downloads ([`http`]), so callers see blocking readers only.
//!
//! - [`find`]: objects that an address names.
//! - [`Object::stream`]: all bytes in order, which a thread reads ahead.
//! - [`Object::blocks`]: any bytes, in blocks of a bounded cache.
//! - [`Copies`]: copies of whole sources in a scratch directory, for formats whose readers need
//!   files.
//!
//! Without the Cargo feature `object-storage` (which includes `tables`) an address is an error that
//! names the feature.

#[cfg(not(feature = "object-storage"))]
mod absent;
#[cfg(feature = "object-storage")]
mod blocks;
mod copies;
#[cfg(feature = "object-storage")]
mod errors;
#[cfg(feature = "object-storage")]
mod http;
#[cfg(feature = "object-storage")]
mod list;
#[cfg(feature = "object-storage")]
mod names;
#[cfg(feature = "object-storage")]
mod object;
mod source;
#[cfg(feature = "object-storage")]
mod store;
#[cfg(feature = "object-storage")]
mod stream;
#[cfg(all(test, feature = "object-storage"))]
mod tests;
#[cfg(feature = "object-storage")]
mod worker;

#[cfg(not(feature = "object-storage"))]
pub(crate) use absent::Object;
#[cfg(all(feature = "tables", not(feature = "object-storage")))]
pub(crate) use absent::{Blocks, find};
#[cfg(feature = "object-storage")]
pub(crate) use blocks::Blocks;
pub(crate) use copies::Copies;
#[cfg(feature = "object-storage")]
pub(crate) use list::find;
#[cfg(feature = "object-storage")]
pub(crate) use object::Object;

#[cfg(feature = "tables")]
pub(crate) use source::is_address;
