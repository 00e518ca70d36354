//! Feature rows in device memory; the other rows stay in host memory, where kernels read them in
//! place, or in tiers that the host reads.
//!
//! - [`Tiered`]: the hottest rows, loaded once, on one device or several.
//! - [`Dynamic`]: a cache that admits and evicts rows by a policy that runs on the device.
//! - [`Cached`]: a cache by a policy that runs on the host, in front of a table or of any tier.
//!
//! All return exactly the bytes of the table, and report the traffic by tier.

mod cached;
mod dynamic;
mod stored;
mod tiered;

pub use cached::{Behind, Cached};
pub use dynamic::{Dynamic, Policy};
pub use stored::Stored;
pub use tiered::Tiered;
