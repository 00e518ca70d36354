//! Source of an import at an address.

use super::Object;

/// Objects of one address.
#[derive(Debug)]
pub(crate) struct Source {
    /// Address without a query and without `/` at its end.
    pub(super) address: String,
    /// Name of the file or directory.
    pub(super) title: String,
    /// Rest of each name behind the title, and the object: `""` for a file, `"/raw/x.csv"` in a
    /// directory, `".graph"` of files beside each other.
    pub(super) objects: Vec<(String, Object)>,
}

/// Returns true for the address of an object or a file on a server, such as `s3://bucket/key`.
pub(crate) fn is_address(text: &str) -> bool {
    let is_scheme = |scheme: &str| {
        scheme.len() > 1 && scheme.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"+-.".contains(&byte))
    };
    text.split_once("://").is_some_and(|(scheme, _)| is_scheme(scheme))
}
