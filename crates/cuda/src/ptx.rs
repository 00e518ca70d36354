//! The kernels as the library carries them: PTX, which a machine's driver makes its device's code of.

/// What a file of kernels compiles to.
#[derive(Clone, Copy, Debug)]
pub struct Module {
    /// The file's name, without extension.
    pub name: &'static str,
    /// The PTX.
    pub text: &'static str,
    /// The kernels that it defines.
    pub kernels: &'static [&'static str],
}

/// All of them, by name: every file of `ptx/`.
pub static MODULES: &[Module] = include!(concat!(env!("OUT_DIR"), "/ptx_table.rs"));
