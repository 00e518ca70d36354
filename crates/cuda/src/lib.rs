//! NVIDIA devices: the operations of layers, tiers of features and samplers. Everything about CUDA
//! lives here.
//!
//! Nothing of CUDA is needed to build this crate. Kernels are CUDA C++ (`kernels/`); their PTX
//! (`ptx.zip`) is part of the library, and the driver of the machine makes the device's own code of
//! it. Driver and libraries are found at run time; where they are not, [`Error::Unavailable`] says
//! what is missing.
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
