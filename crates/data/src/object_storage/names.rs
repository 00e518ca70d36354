//! Names of the objects of a source, which become names of files.

use std::{collections::HashSet, path::Path};

use graphmill_core::{Error, Result};

use super::{Object, source::Source};

impl Source {
    /// Creates a source after checking its names. Empty objects that stand for directories are left
    /// out.
    ///
    /// # Errors
    /// A name is not safe, or names a file and a directory at the same time.
    pub(super) fn new(address: String, title: String, objects: Vec<(String, Object)>) -> Result<Self> {
        let mut names: Vec<(String, u64)> = Vec::with_capacity(objects.len());
        for (rest, object) in &objects {
            check_name(&format!("{title}{rest}"))
                .map_err(|why| Error::format(object.address(), "name", why))?;
            names.push((rest.clone(), object.size()));
        }
        let unwanted = directories(&names).map_err(|name| {
            let at = format!("{address}{name}");
            Error::format(
                Path::new(&at),
                "name",
                "this object has bytes, but other objects lie below its name, so it would be a file and a \
                 directory; rename one of them",
            )
        })?;
        let mut unwanted = unwanted.into_iter();
        let mut objects = objects;
        objects.retain(|_| !unwanted.next().unwrap_or_default());
        Ok(Self { address, title, objects })
    }
}

/// Checks that the name, with `/` between its parts, stays in the directory to which it is copied.
fn check_name(name: &str) -> Result<(), String> {
    let is_bad = |part: &&str| {
        matches!(*part, "" | "." | "..") || part.contains('\\') || part.contains(char::is_control)
    };
    match name.split('/').find(is_bad) {
        Some(part) => Err(format!(
            "the part '{}' cannot be the name of a file; rename the object, or copy the files by hand",
            part.escape_debug()
        )),
        None => Ok(()),
    }
}

/// Returns for each name if it is an empty object below whose name others lie; the error is the
/// name of such an object that is not empty.
fn directories(names: &[(String, u64)]) -> Result<Vec<bool>, String> {
    let parents: HashSet<&str> = names
        .iter()
        .flat_map(|(name, _)| name.match_indices('/').map(|(end, _)| &name[..end]))
        .filter(|parent| !parent.is_empty())
        .collect();
    let one = |(name, size): &(String, u64)| match (parents.contains(name.as_str()), size) {
        (true, 1..) => Err(name.clone()),
        (is_directory, _) => Ok(is_directory),
    };
    names.iter().map(one).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_leave_the_directory_are_rejected() {
        for name in ["a", "a/b.csv", "a b/ä", "..a/b..", "a:b"] {
            assert_eq!(check_name(name), Ok(()), "{name}");
        }
        for name in ["", "..", "a/../../b", "/etc/passwd", "a//b", "a/.", "a\\..\\b", "a\nb", "a\0"] {
            let why = check_name(name).unwrap_err();
            assert!(why.contains("cannot be the name of a file; rename"), "{name}: {why}");
        }
    }

    #[test]
    fn empty_objects_of_directories_are_no_files() {
        let names = |list: &[(&str, u64)]| {
            let list: Vec<_> = list.iter().map(|(name, size)| (name.to_string(), *size)).collect();
            directories(&list)
        };
        assert_eq!(names(&[("/raw", 0), ("/raw/a", 3), ("/b", 0)]), Ok(vec![true, false, false]));
        assert_eq!(names(&[("/raw", 2), ("/raw/x/a", 3)]), Err("/raw".into()));
        assert_eq!(names(&[("", 2)]), Ok(vec![false]));
    }
}
