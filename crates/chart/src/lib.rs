//! SVG charts for the report page, the plots of `hotness` and `partition`, and the project's own
//! measurements.
//!
//! - [`Scale`]: an axis with round ticks, which maps values to positions.
//! - [`Drawing`]: shapes and texts, coloured through the classes of a style sheet, with tooltips.
//! - [`Figure`]: panels side by side with one key, as a standalone document that follows the
//!   reader's light or dark theme.

mod drawing;
mod figure;
mod scale;

pub use drawing::{Anchor, Drawing, escape};
pub use figure::{Axis, Figure, Key, Mark, Panel, Symbol, Ticks};
pub use scale::Scale;
