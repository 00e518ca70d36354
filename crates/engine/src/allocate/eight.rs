//! BGL's formula.
