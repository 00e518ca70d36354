//! Charts as SVG, for the report page, the plots of `hotness` and `partition`, and the project's own measurements.
//!
//! - [`Scale`]: an axis with round ticks, from values to places.
//! - [`Drawing`]: shapes and texts. Colours come from a style sheet by class, so that a page restyles them, and a title
//!   shows under the pointer.
//! - [`Figure`]: panels side by side with one key, as a document of its own that follows the reader's light or dark theme.

mod drawing;
mod figure;
mod scale;

pub use drawing::{Anchor, Drawing, escape};
pub use figure::{Axis, Figure, Key, Mark, Panel, Symbol, Ticks};
pub use scale::Scale;
