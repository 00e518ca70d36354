//! The book as HTML, by mdbook.

use std::path::Path;

use anyhow::{Context, Result};
use mdbook_driver::{MDBook, config::Config};

use crate::llms;

/// Builds the book of `directory` (with `book.toml`) into `out`, with its texts for language
/// models.
///
/// # Errors
/// A page is missing, a template or an include fails, or `out` cannot be written.
pub(crate) fn build(directory: &Path, out: &Path) -> Result<()> {
    let mut config = Config::from_disk(directory.join("book.toml"))?;
    config.build.create_missing = false;
    config.build.build_dir = out.to_path_buf();
    let book = MDBook::load_with_config(directory, config).context("the book cannot be loaded")?;
    book.build().context("the book cannot be built")?;
    llms::write(&directory.join("src"), out)?;
    eprintln!("── book: built into {}", out.display());
    Ok(())
}
