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
//!
//! Without the Cargo feature `object-storage` an address is an error that names the feature.

#[cfg(not(feature = "object-storage"))]
mod absent;
#[cfg(feature = "object-storage")]
mod blocks;
#[cfg(feature = "object-storage")]
mod errors;
#[cfg(feature = "object-storage")]
mod http;
#[cfg(feature = "object-storage")]
mod list;
#[cfg(feature = "object-storage")]
mod object;
#[cfg(feature = "object-storage")]
mod store;
#[cfg(feature = "object-storage")]
mod stream;
#[cfg(all(test, feature = "object-storage"))]
mod tests;
#[cfg(feature = "object-storage")]
mod worker;

#[cfg(not(feature = "object-storage"))]
pub(crate) use absent::{Blocks, Object, find};
#[cfg(feature = "object-storage")]
pub(crate) use blocks::Blocks;
#[cfg(feature = "object-storage")]
pub(crate) use list::find;
#[cfg(feature = "object-storage")]
pub(crate) use object::Object;

/// Returns true for the address of an object or a file on a server, such as `s3://bucket/key`.
pub(crate) fn is_address(text: &str) -> bool {
    let is_scheme = |scheme: &str| {
        scheme.len() > 1 && scheme.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"+-.".contains(&byte))
    };
    text.split_once("://").is_some_and(|(scheme, _)| is_scheme(scheme))
}
