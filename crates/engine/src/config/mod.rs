//! The configuration of a training run: typed options ([`TrainConfig`]), read from defaults, then a file,
//! then the command line. Each of these is a table of values; they are merged and read once.

mod allocation;
mod devices;
mod keys;
mod options;
mod settings;
pub mod used;
mod value;

pub use allocation::Cores;
pub use devices::Devices;
pub use graphmill_loader::Fanout;
pub use keys::{KEYS, Key, by_flag, key, names, suggestion};
pub use options::{
    AllReduce, Arithmetic, CudaGraphs, FeaturePrecision, HotGradient, IN_MEMORY, SelectBy, Switch, Toggle,
    TrainConfig, Updates,
};
pub use settings::place;
pub use value::{Bytes, Ratio};

#[cfg(test)]
mod tests;
