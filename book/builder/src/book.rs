//! Pages of the book and of the repository, and the outline of the book.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result};

use crate::page::{Fault, Page};

/// Pages in the root of the repository, of which links are checked, too.
const ROOT_PAGES: [&str; 4] = ["ARCHITECTURE.md", "CHANGELOG.md", "CONTRIBUTING.md", "README.md"];
/// Folder of the book's pages.
const SOURCES: &str = "book/src";
/// Outline of the book, below [`SOURCES`].
const OUTLINE: &str = "SUMMARY.md";

/// Pages of a repository.
pub(crate) struct Book {
    /// Pages of the book, sorted by path, without the outline.
    pub(crate) pages: Vec<Page>,
    /// Outline of the book, then the pages in the root of the repository.
    pub(crate) others: Vec<Page>,
}

impl Book {
    /// Reads all pages of the repository in `root`.
    ///
    /// # Errors
    /// A page cannot be read.
    pub(crate) fn read(root: &Path) -> Result<Self> {
        let mut paths = Vec::new();
        find_pages(&root.join(SOURCES), &mut paths)?;
        let name =
            |path: &PathBuf| path.strip_prefix(root).unwrap_or(path).to_string_lossy().replace('\\', "/");
        let outline = format!("{SOURCES}/{OUTLINE}");
        let mut names: Vec<String> = paths.iter().map(name).filter(|name| *name != outline).collect();
        names.sort();
        let pages = names.into_iter().map(|name| Page::read(root, name)).collect::<Result<_>>()?;
        let others =
            ROOT_PAGES.iter().map(|name| (*name).to_owned()).filter(|name| root.join(name).is_file());
        let others = [outline].into_iter().chain(others);
        Ok(Self { pages, others: others.map(|name| Page::read(root, name)).collect::<Result<_>>()? })
    }

    /// All pages.
    pub(crate) fn all(&self) -> impl Iterator<Item = &Page> {
        self.others.iter().chain(&self.pages)
    }

    /// Returns true if the book has a page with this path from the root.
    pub(crate) fn has(&self, path: &str) -> bool {
        self.pages.iter().any(|page| page.path == path)
    }

    /// Pages that the outline lacks or lists twice. Links of the outline to missing files are
    /// checked as those of other pages.
    pub(crate) fn faults(&self) -> Vec<Fault> {
        let outline = &self.others[0];
        let mut faults = Vec::new();
        let mut listed = BTreeSet::new();
        for link in &outline.links {
            if !listed.insert(format!("{SOURCES}/{}", link.target)) {
                faults.push(outline.fault(link.line, format!("{} is listed twice", link.target)));
            }
        }
        let missing = self.pages.iter().filter(|page| !listed.contains(&page.path));
        faults.extend(missing.map(|page| page.fault(1, format!("the page is not in {SOURCES}/{OUTLINE}"))));
        faults
    }
}

/// Adds all Markdown files of a directory, at any depth.
fn find_pages(directory: &Path, found: &mut Vec<PathBuf>) -> Result<()> {
    for entry in fs::read_dir(directory).with_context(|| directory.display().to_string())? {
        let path = entry?.path();
        if path.is_dir() {
            find_pages(&path, found)?;
        } else if path.extension().is_some_and(|ending| ending == "md") {
            found.push(path);
        }
    }
    Ok(())
}
