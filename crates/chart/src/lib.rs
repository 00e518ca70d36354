//! SVG charts for the report page, the plots of `hotness` and `partition`, and the project's own
//! measurements.
//!
//! ```
//! use graphmill_chart::{Drawing, Scale};
//!
//! let epochs = Scale::rounded(0.0, 10.0, 5, (40.0, 200.0));
//! let mut drawing = Drawing::new("loss by epoch", 220.0, 120.0);
//! drawing.x_axis(&epochs, 100.0);
//! drawing.line("loss", (epochs.at(0.0), 20.0), (epochs.at(10.0), 80.0));
//! assert!(drawing.finish().starts_with("<svg"));
//! ```
//!
//! - [`Scale`]: an axis with round ticks, which maps values to positions.
//! - [`Drawing`]: shapes and texts, coloured through the classes of a style sheet, with tooltips.
//! - [`Figure`]: panels side by side with one key, as a standalone document that follows the
//!   reader's light or dark theme.

#![forbid(unsafe_code)]

mod drawing;
mod figure;
mod scale;

pub use drawing::{Anchor, Drawing, escape};
pub use figure::{Axis, Figure, Key, Mark, Panel, Symbol, Ticks};
pub use scale::Scale;
