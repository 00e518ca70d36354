//! Feature rows in device memory; the other rows stay in host memory, where kernels read them in
//! place.
//!
//! - [`Tiered`]: the hottest rows, loaded once, on one device or several.
//! - [`Dynamic`]: a cache that admits and evicts rows.
//!
//! Both return exactly the bytes of the table, and report the traffic by tier.

mod dynamic;
mod stored;
mod tiered;

pub use dynamic::{Dynamic, Policy};
pub use stored::Stored;
pub use tiered::Tiered;
