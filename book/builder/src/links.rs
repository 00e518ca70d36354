//! Links: their files and anchors must exist.
//!
//! A link is a path from its page's folder, an anchor, or an address. Addresses of the project's
//! own repository are checked as paths from its root, other addresses not at all. A page of the
//! book may only link to files below `book/src` by path, because others are not part of the built
//! book.

use std::{
    collections::HashMap,
    path::{Component, Path, PathBuf},
};

use anyhow::Result;

use crate::{
    book::Book,
    page::{Fault, Page},
};

/// Addresses of the repository's files and folders.
const REPOSITORY: [&str; 2] = [
    "https://github.com/graphmill/graphmill/blob/main/",
    "https://github.com/graphmill/graphmill/tree/main/",
];

/// Lists links to missing files or anchors.
///
/// # Errors
/// A linked page cannot be read.
pub(crate) fn faults(root: &Path, book: &Book) -> Result<Vec<Fault>> {
    let mut checker = Checker { root, pages: HashMap::new() };
    for page in book.all() {
        checker.pages.insert(page.path.clone(), Some(page.anchors.iter().cloned().collect()));
    }
    let mut faults = Vec::new();
    for page in book.all() {
        for link in &page.links {
            if let Some(message) = checker.fault(page, &link.target)? {
                faults.push(page.fault(link.line, message));
            }
        }
    }
    Ok(faults)
}

struct Checker<'a> {
    root: &'a Path,
    /// Anchors of pages by path from the root; none for files that are not pages.
    pages: HashMap<String, Option<Vec<String>>>,
}

impl Checker<'_> {
    /// Reason why a link of a page is broken.
    fn fault(&mut self, page: &Page, target: &str) -> Result<Option<String>> {
        let own = REPOSITORY.iter().find_map(|address| target.strip_prefix(address));
        if own.is_none() && (target.contains("://") || target.starts_with("mailto:")) {
            return Ok(None);
        }
        let (path, anchor) = own.unwrap_or(target).split_once('#').unwrap_or((own.unwrap_or(target), ""));
        let folder = if own.is_some() {
            Path::new("")
        } else {
            Path::new(&page.path).parent().unwrap_or(Path::new(""))
        };
        let linked =
            if path.is_empty() && own.is_none() { page.path.clone() } else { normalized(&folder.join(path)) };
        if !self.root.join(&linked).exists() {
            return Ok(Some(format!("{target}: {linked} does not exist")));
        }
        let is_outside = page.path.starts_with("book/src/") && !linked.starts_with("book/src/");
        if own.is_none() && is_outside {
            let address = REPOSITORY[0];
            return Ok(Some(format!("{target}: the built book has no such file; link to {address}{linked}")));
        }
        if anchor.is_empty() {
            return Ok(None);
        }
        let found = self.anchors(&linked)?.is_none_or(|anchors| anchors.iter().any(|known| known == anchor));
        Ok((!found).then(|| format!("{target}: {linked} has no heading or id '{anchor}'")))
    }

    /// Anchors of a page; none for a file that is not a page.
    fn anchors(&mut self, path: &str) -> Result<Option<&Vec<String>>> {
        if !self.pages.contains_key(path) {
            let is_page = Path::new(path).extension().is_some_and(|ending| ending == "md");
            let page = is_page.then(|| Page::read(self.root, path.to_owned())).transpose()?;
            self.pages.insert(path.to_owned(), page.map(|page| page.anchors.into_iter().collect()));
        }
        Ok(self.pages[path].as_ref())
    }
}

/// Path without `.` and `..`, with slashes.
fn normalized(path: &Path) -> String {
    let mut parts = PathBuf::new();
    for part in path.components() {
        match part {
            Component::ParentDir => drop(parts.pop()),
            Component::CurDir => {}
            other => parts.push(other),
        }
    }
    parts.to_string_lossy().replace('\\', "/")
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn found(pages: &[(&str, &str)]) -> Vec<String> {
        let root = tempfile::tempdir().unwrap();
        for (path, text) in pages {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        let book = Book::read(root.path()).unwrap();
        let faults = book.faults().into_iter().chain(faults(root.path(), &book).unwrap());
        faults.map(|fault| fault.to_string()).collect()
    }

    #[test]
    fn existing_files_anchors_and_foreign_addresses_are_not_faults() {
        let page = "# Top\n[a](../README.md) [b](b.md#two-words) [c](#top) [d](https://other.org/x#y)\n\
                    [e](https://github.com/graphmill/graphmill/blob/main/README.md#r) ![f](f.svg)\n";
        let pages = [
            ("README.md", "# R\n[a](book/src/a.md#top)\n"),
            ("book/src/SUMMARY.md", "[A](x/a.md) [B](x/b.md)"),
            ("book/src/x/a.md", &page.replace("../README.md", "b.md")),
            ("book/src/x/b.md", "## Two words\n"),
            ("book/src/x/f.svg", ""),
        ];
        assert_eq!(found(&pages), ["README.md:2: book/src/a.md#top: book/src/a.md does not exist"]);
    }

    #[test]
    fn missing_pages_anchors_images_and_unlisted_pages_are_faults() {
        let pages = [
            ("README.md", ""),
            ("book/src/SUMMARY.md", "- [A](a.md)\n- [C](c.md)\n- [A](a.md)\n"),
            ("book/src/a.md", "[x](#no)\n![y](no.svg)\n[z](../../README.md)\n"),
            ("book/src/b.md", "[x](https://github.com/graphmill/graphmill/tree/main/no/)\n"),
        ];
        let expected = [
            "book/src/SUMMARY.md:3: a.md is listed twice",
            "book/src/b.md:1: the page is not in book/src/SUMMARY.md",
            "book/src/SUMMARY.md:2: c.md: book/src/c.md does not exist",
            "book/src/a.md:1: #no: book/src/a.md has no heading or id 'no'",
            "book/src/a.md:2: no.svg: book/src/no.svg does not exist",
            "book/src/a.md:3: ../../README.md: the built book has no such file; link to \
             https://github.com/graphmill/graphmill/blob/main/README.md",
            "book/src/b.md:1: https://github.com/graphmill/graphmill/tree/main/no/: no does not exist",
        ];
        assert_eq!(found(&pages), expected);
    }
}
