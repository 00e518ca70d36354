//! NVIDIA devices: operations of layers, feature tiers and samplers. All CUDA code is in this
//! crate.
//!
//! Building this crate requires no CUDA installation. Kernels are CUDA C++ (`kernels/`); the
//! library embeds their PTX (`ptx.zip`), which the machine's driver compiles for the device. Driver
//! and libraries are loaded at run time; if one is missing, [`Error::Unavailable`] names it.
//!
//! ```no_run
//! use graphmill_cuda::{Cuda, driver::Arithmetic, open};
//! use graphmill_nn::Backend;
//!
//! let device = open(0, 0)?; // the first device, all of its free memory
//! println!("{}", Cuda::new(&device, Arithmetic::F32)?.name());
//! # Ok::<(), graphmill_cuda::Error>(())
//! ```

mod all_reduce;
pub mod backend;
pub mod block;
pub mod device;
pub mod driver;
mod error;
pub mod feature;
mod kernels;
pub mod mapped;
mod open;
mod peers;
mod pool;
pub mod ptx;
pub mod queue;
pub mod replay;
pub mod sampler;
mod scan;

pub use all_reduce::AllReduce;
pub use backend::Cuda;
pub use device::Device;
pub use error::{Error, Result};
pub use open::open;
pub use queue::{Buffer, Queue};
