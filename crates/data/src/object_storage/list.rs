//! Objects that an address names: one, those below a prefix, or those that match a pattern.

use std::{io, path::Path};

use futures_util::TryStreamExt;
use glob::{MatchOptions, Pattern};
use graphmill_core::{Error, Result};
use object_store::{GetOptions, ObjectMeta, ObjectStore};

use super::{
    errors::explain,
    object::Object,
    source::Source,
    store::{Place, Service},
    worker,
};

/// Maximum number of objects of one address.
const MAX_OBJECTS: usize = 100_000;
/// Characters of patterns.
const WILDCARDS: [char; 3] = ['*', '?', '['];

/// Objects that `address` names, by name: one object, all objects directly below a prefix, or those
/// that match a pattern with `*`, `?` and `[`, which do not match `/`. Names that begin with `.` or
/// `_` are left out, as in directories.
///
/// # Errors
/// No object is found, or a request fails.
pub(crate) fn find(address: &str) -> Result<Vec<Object>> {
    find_in(&Place::open(address)?)
}

/// Finds objects as [`find`] does, in an open store.
pub(super) fn find_in(place: &Place) -> Result<Vec<Object>> {
    let address = format!("{}{}", place.base, place.key);
    let at = Path::new(&address);
    let fail = |e: io::Error| Error::io(at, "read", e);
    let has_pattern = place.service != Service::Web && place.key.contains(WILDCARDS);
    if !has_pattern
        && !place.key.is_empty()
        && !place.key.ends_with('/')
        && let Some(object) = worker::wait(one(place)).map_err(fail)??
    {
        return Ok(vec![object]);
    }
    if place.service == Service::Web {
        let message = "a web server has no list of its files; name each file";
        return Err(Error::format(at, "address", message));
    }
    let mut found = worker::wait(several(place, has_pattern)).map_err(fail)??;
    found.sort_unstable_by(|a, b| a.location.cmp(&b.location));
    if found.is_empty() {
        let message = "the bucket has no such object, and none below this prefix; check the address, or \
            write a pattern such as s3://bucket/data/part-*.parquet";
        return Err(Error::format(at, "objects", message));
    }
    let object = |meta: ObjectMeta| {
        let address = format!("{}{}", place.base, meta.location);
        Object::new(address, place.service, place.store.clone(), meta)
    };
    Ok(found.into_iter().map(object).collect())
}

/// Source that `address` names: one object, all objects below a prefix, or those beside each other
/// whose names continue the last part of the address after `.`, `-` or `_`, such as `ind.cora`.
///
/// # Errors
/// No object is found, a name cannot be the name of a file, or a request fails.
pub(super) fn find_source(address: &str) -> Result<Source> {
    source_in(&Place::open(address)?)
}

/// Finds a source as [`find_source`] does, in an open store.
pub(super) fn source_in(place: &Place) -> Result<Source> {
    let key = place.key.trim_end_matches('/');
    let address = format!("{}{key}", place.base);
    let at = Path::new(&address);
    let fail = |e: io::Error| Error::io(at, "read", e);
    let is_directory = key.len() < place.key.len() || key.is_empty();
    if !is_directory && let Some(object) = worker::wait(one(place)).map_err(fail)?? {
        let title = object.key.filename().unwrap_or_default().to_string();
        return Source::new(address, title, vec![(String::new(), object)]);
    }
    if place.service == Service::Web {
        let message = "a web server has no list of its files; name one file, such as an archive";
        return Err(Error::format(at, "address", message));
    }
    let found = worker::wait(below(place, key, is_directory)).map_err(fail)??;
    if found.is_empty() {
        let message = "the bucket has no such object, and none below this prefix; check the address";
        return Err(Error::format(at, "objects", message));
    }
    let object = |(name, meta): (String, ObjectMeta)| {
        let address = format!("{}{}", place.base, meta.location);
        (name, Object::new(address, place.service, place.store.clone(), meta))
    };
    let title = key.rsplit('/').next().filter(|part| !part.is_empty());
    let title = title.unwrap_or_else(|| place.bucket()).to_string();
    Source::new(address, title, found.into_iter().map(object).collect())
}

/// Objects below `key` with the rest of their names, from `/` on; if there are none and `key` need
/// not be a directory, those beside each other whose names continue it.
async fn below(place: &Place, key: &str, is_directory: bool) -> Result<Vec<(String, ObjectMeta)>> {
    let address = format!("{}{key}", place.base);
    let at = Path::new(&address);
    let fail = |error| Error::io(at, "list", explain(place.service, &error));
    let prefix = place.path(key)?;
    let mut found = Vec::new();
    let mut all = place.store.list(Some(&prefix));
    while let Some(meta) = all.try_next().await.map_err(fail)? {
        let name = meta.location.as_ref().strip_prefix(prefix.as_ref()).unwrap_or_default();
        let name = format!("/{}", name.trim_start_matches('/'));
        // The prefix itself may be an empty object that stands for a directory.
        if name.len() > 1 {
            found.push((name, meta));
        }
        if found.len() > MAX_OBJECTS {
            let message = format!("more than {MAX_OBJECTS} objects; name a smaller directory, or an archive");
            return Err(Error::format(at, "objects", message));
        }
    }
    if found.is_empty() && !is_directory {
        let parent = place.path(key.rsplit_once('/').map_or("", |(parent, _)| parent))?;
        let listed = place.store.list_with_delimiter(Some(&parent)).await.map_err(fail)?;
        let rest = |meta: &ObjectMeta| {
            let rest = meta.location.as_ref().strip_prefix(prefix.as_ref())?;
            rest.starts_with(['.', '-', '_']).then(|| rest.to_string())
        };
        found.extend(listed.objects.into_iter().filter_map(|meta| Some((rest(&meta)?, meta))));
    }
    found.sort_unstable_by(|a, b| a.0.cmp(&b.0));
    Ok(found)
}

/// Object of the exact key; `None` if a bucket has none.
async fn one(place: &Place) -> Result<Option<Object>> {
    let address = format!("{}{}", place.base, place.key);
    let key = place.path(&place.key)?;
    // Signed addresses of web servers do not allow HEAD.
    let options = GetOptions { head: place.service != Service::Web, ..GetOptions::default() };
    match place.store.get_opts(&key, options).await {
        Ok(result) => Ok(Some(Object::new(address, place.service, place.store.clone(), result.meta))),
        Err(object_store::Error::NotFound { .. }) if place.service != Service::Web => Ok(None),
        Err(error) => Err(Error::io(Path::new(&address), "open", explain(place.service, &error))),
    }
}

/// Objects below the prefix, or that match the pattern.
async fn several(place: &Place, has_pattern: bool) -> Result<Vec<ObjectMeta>> {
    let address = format!("{}{}", place.base, place.key);
    let at = Path::new(&address);
    let fixed = place.key.find(WILDCARDS).filter(|_| has_pattern).unwrap_or(place.key.len());
    let (prefix, rest) = match has_pattern {
        true => place.key.split_at(place.key[..fixed].rfind('/').map_or(0, |slash| slash + 1)),
        false => (&place.key[..], ""),
    };
    let pattern = has_pattern.then(|| Pattern::new(&place.key)).transpose();
    let pattern = pattern.map_err(|e| Error::format(at, "pattern", format!("{e}; fix the pattern")))?;
    let prefix = place.path(prefix.trim_end_matches('/'))?;
    let fail = |error| Error::io(at, "list", explain(place.service, &error));
    let mut found = Vec::new();
    let mut add = |meta: ObjectMeta| {
        let options = MatchOptions { require_literal_separator: true, ..MatchOptions::new() };
        let name = meta.location.filename().unwrap_or_default();
        // The prefix itself may be an empty object that stands for a directory.
        let is_part = meta.location != prefix && !name.starts_with(['.', '_']);
        let matches = |pattern: &Pattern| pattern.matches_with(meta.location.as_ref(), options);
        if is_part && pattern.as_ref().is_none_or(matches) {
            found.push(meta);
        }
        if found.len() > MAX_OBJECTS {
            let message = format!("more than {MAX_OBJECTS} objects; write a narrower pattern");
            return Err(Error::format(at, "objects", message));
        }
        Ok(())
    };
    if rest.contains('/') {
        let mut all = place.store.list(Some(&prefix));
        while let Some(meta) = all.try_next().await.map_err(fail)? {
            add(meta)?;
        }
    } else {
        let listed = place.store.list_with_delimiter(Some(&prefix)).await.map_err(fail)?;
        listed.objects.into_iter().try_for_each(add)?;
    }
    Ok(found)
}
