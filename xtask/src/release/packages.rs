//! Fields that the registry and its readers expect of each published package.

use std::fs;

use anyhow::{Context, Result};

use super::metadata::{Metadata, Package};

/// Number of keywords that the registry takes.
const MAX_KEYWORDS: usize = 5;

/// Faults of the published packages.
///
/// # Errors
/// A manifest cannot be read, or packages need each other.
pub(super) fn faults(metadata: &Metadata) -> Result<Vec<String>> {
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
        let readme = package.readme.as_ref().map(|path| package.directory().join(path));
        if !readme.is_some_and(|path| path.is_file()) {
            fault("there is no README".into());
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
    }
    Ok(faults)
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
    use super::*;

    #[test]
    fn features_need_a_comment() {
        let manifest = "[package]\nname = \"a\"\n[features]\ndefault = [\"x\"]\n# Adds x.\n\
                        x = [\n    \"y\",\n]\ny = []\n\
                        [dependencies]\nz = \"1\"\n";
        assert_eq!(undocumented_in(manifest), ["y"]);
    }
}
