//! How far the first weights of dense layers lie from zero.

use graphmill_core::table::Entry;

/// The bound `b` of weights that are uniform in `[-b, b]`, from the widths of the rows that go in and come out.
pub type Init = fn(fan_in: f64, fan_out: f64) -> f64;

/// The initialisations.
pub const INITS: &[Entry<Init>] = &[
    Entry {
        name: "glorot",
        summary: "sqrt(6 / (in + out)): what goes in and gradients keep their variance",
        source: "Glorot and Bengio, AISTATS 2010, equation 16",
        options: &[],
        make: glorot,
    },
    Entry {
        name: "fan-in",
        summary: "1 / sqrt(in): as PyTorch's Linear begins, and with it PyTorch Geometric's GraphSAGE",
        source: "LeCun, Bottou, Orr and Muller, 1998, section 4.6, by a third of its variance",
        options: &[],
        make: |fan_in, _| fan_in.sqrt().recip(),
    },
];

/// See [`INITS`].
pub(super) fn glorot(fan_in: f64, fan_out: f64) -> f64 {
    (6.0 / (fan_in + fan_out)).sqrt()
}
