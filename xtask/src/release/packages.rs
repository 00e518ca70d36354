//! Fields and files that the registry and its readers expect of each published package.

use std::{fs, path::Path};

use anyhow::{Context, Result};

use super::metadata::{Metadata, Package};

/// Number of keywords that the registry takes.
const MAX_KEYWORDS: usize = 5;
/// Package that readers meet first: its README is the project's.
const FIRST: &str = "graphmill";
/// Address of the project's files in a README.
const ADDRESS: &str = "https://github.com/graphmill/graphmill/blob/main/";
/// Feature that needs headers, which docs.rs does not have.
const HEADERS: &str = "mpi";

/// Faults of the published packages.
///
/// # Errors
/// A manifest cannot be read, or packages need each other.
pub(super) fn faults(root: &Path, metadata: &Metadata) -> Result<Vec<String>> {
    let mut faults = Vec::new();
    for package in metadata.in_order()? {
        let mut fault = |message: String| faults.push(format!("{}: {message}", package.name));
        let texts = [
            ("description", &package.description),
            ("license", &package.license),
            ("repository", &package.repository),
            ("rust-version", &package.rust_version),
        ];
        for (field, _) in texts.iter().filter(|(_, text)| text.as_ref().is_none_or(String::is_empty)) {
            fault(format!("the manifest has no {field}"));
        }
        if package.keywords.is_empty() || package.keywords.len() > MAX_KEYWORDS {
            fault(format!("{} keywords; give 1 to {MAX_KEYWORDS}", package.keywords.len()));
        }
        if package.categories.is_empty() {
            fault("the manifest has no categories".into());
        }
        for of in package.dependencies.iter().filter(|of| of.path.is_some() && !of.is_of_tests()) {
            let is_published = metadata.members().any(|own| own.name == of.name && own.is_published());
            if !is_published || of.req == "*" {
                fault(format!("{} is not published, or its version is not given", of.name));
            }
        }
        for feature in undocumented(package)? {
            fault(format!("the feature {feature} has no comment above it"));
        }
        faults_of_files(root, package).into_iter().chain(faults_of_docs(package)).for_each(fault);
    }
    Ok(faults)
}

/// Faults of the README and of the licences.
fn faults_of_files(root: &Path, package: &Package) -> Vec<String> {
    let mut faults = Vec::new();
    for name in ["LICENSE-APACHE", "LICENSE-MIT"] {
        if !package.directory().join(name).is_file() {
            faults.push(format!("there is no {name}; link it to the project's"));
        }
    }
    let Some(readme) = &package.readme else { return [faults, vec!["there is no README".into()]].concat() };
    let Ok(text) = fs::read_to_string(package.directory().join(readme)) else {
        return [faults, vec![format!("{} cannot be read", readme.display())]].concat();
    };
    if package.name != FIRST {
        if readme != Path::new("README.md") || !text.starts_with(&format!("# {}\n", package.name)) {
            faults.push("the README is not one of its own".into());
        }
        if !text.contains(&format!("{ADDRESS}book/src/")) {
            faults.push("the README does not name the book".into());
        }
    }
    let addresses = text.split(ADDRESS).skip(1).filter_map(|rest| rest.split([')', '#']).next());
    let missing = addresses.filter(|path| !root.join(path).exists());
    faults.extend(missing.map(|path| format!("the README names {path}, which does not exist")));
    faults
}

/// Faults of the features with which docs.rs builds the documentation.
fn faults_of_docs(package: &Package) -> Vec<String> {
    if package.features.is_empty() {
        return Vec::new();
    }
    let Some(features) = package.documented_features() else {
        return vec!["the manifest has no [package.metadata.docs.rs] with features".into()];
    };
    let mut faults = Vec::new();
    for feature in features {
        if !package.features.contains_key(feature) {
            faults.push(format!("docs.rs: there is no feature {feature}"));
        } else if enables_headers(package, feature) {
            faults.push(format!("docs.rs: the feature {feature} enables {HEADERS}, whose headers it lacks"));
        }
    }
    faults
}

/// Reports whether a feature enables [`HEADERS`], here or in another package.
fn enables_headers(package: &Package, feature: &str) -> bool {
    feature.rsplit('/').next() == Some(HEADERS)
        || package.features.get(feature).into_iter().flatten().any(|of| enables_headers(package, of))
}

/// Features without a comment above.
fn undocumented(package: &Package) -> Result<Vec<String>> {
    let path = &package.manifest_path;
    let text = fs::read_to_string(path).with_context(|| path.display().to_string())?;
    Ok(undocumented_in(&text))
}

fn undocumented_in(manifest: &str) -> Vec<String> {
    let (mut is_features, mut is_explained, mut found) = (false, false, Vec::new());
    for line in manifest.lines() {
        let begins_table = line.starts_with('[');
        is_features = if begins_table { line == "[features]" } else { is_features };
        if is_features && let Some((name, _)) = line.split_once('=').filter(|_| !line.starts_with([' ', '#']))
        {
            let name = name.trim();
            if !is_explained && name != "default" {
                found.push(name.to_string());
            }
        }
        is_explained = line.starts_with('#');
    }
    found
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn package(directory: &Path, features: Value, documented: &Value) -> Package {
        serde_json::from_value(json!({
            "id": "a", "name": "a", "version": "1.0.0", "readme": "README.md", "keywords": [],
            "categories": [], "manifest_path": directory.join("Cargo.toml"), "dependencies": [],
            "features": features, "metadata": documented,
        }))
        .unwrap()
    }

    #[test]
    fn packages_have_licences_and_a_readme_of_their_own() {
        let directory = tempfile::tempdir().unwrap();
        let root = directory.path();
        let own = package(root, json!({}), &Value::Null);
        assert_eq!(faults_of_files(root, &own).len(), 3);
        for name in ["LICENSE-APACHE", "LICENSE-MIT"] {
            fs::write(root.join(name), "text").unwrap();
        }
        fs::create_dir_all(root.join("book/src")).unwrap();
        fs::write(root.join("book/src/a.md"), "").unwrap();
        let with = |text: String| {
            fs::write(root.join("README.md"), text).unwrap();
            faults_of_files(root, &own)
        };
        assert_eq!(with(format!("# a\n\n[book]({ADDRESS}book/src/a.md#b)\n")), [""; 0]);
        let faults = with(format!("# Project\n\n[book]({ADDRESS}book/src/b.md)\n")).join("\n");
        assert!(faults.contains("not one of its own") && faults.contains("book/src/b.md"), "{faults}");
        assert_eq!(with("# a\n".into()).len(), 1);
    }

    #[test]
    fn documentation_is_built_with_features_that_exist_and_need_no_headers() {
        let features = json!({ "a": ["b"], "b": ["other/mpi"], "c": [] });
        let with = |documented| faults_of_docs(&package(Path::new(""), features.clone(), &documented));
        let of = |names| json!({ "docs": { "rs": { "features": names } } });
        assert_eq!(with(of(json!(["c"]))), [""; 0]);
        assert_eq!(with(of(json!(["a", "c", "d"]))).len(), 2);
        assert_eq!(with(json!({ "docs": { "rs": { "all-features": true } } })).len(), 1);
        assert_eq!(faults_of_docs(&package(Path::new(""), json!({}), &Value::Null)), [""; 0]);
    }

    #[test]
    fn features_need_a_comment() {
        let manifest = "[package]\nname = \"a\"\n[features]\ndefault = [\"x\"]\n# Adds x.\n\
                        x = [\n    \"y\",\n]\ny = []\n\
                        [dependencies]\nz = \"1\"\n";
        assert_eq!(undocumented_in(manifest), ["y"]);
    }
}
