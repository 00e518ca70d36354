//! Regression: losses of real values, and the scale of targets.
//!
//! Models learn standardised targets ([`TargetScale`]), and their outputs are returned to the scale
//! of the targets before they are scored or written. A target that is NaN is missing: it has no
//! loss.

#![forbid(unsafe_code)]

mod loss;
mod quantiles;
mod scale;

pub use loss::{PointLoss, TABLE, ValueLoss};
pub use quantiles::Quantiles;
pub use scale::{TargetScale, TargetTransform};
