//! List of the parts of the program (SBOM), in the format CycloneDX 1.5.

use serde_json::{Value, json};

use super::metadata::{Metadata, Package};

/// Parts of the program `name` as a document.
pub(super) fn document(metadata: &Metadata, name: &str, version: &str) -> Value {
    let component = |package: &&Package| {
        let url = format!("pkg:cargo/{}@{}", package.name, package.version);
        let mut part = json!({
            "type": "library",
            "bom-ref": url,
            "name": package.name,
            "version": package.version,
            "purl": url,
        });
        if let Some(license) = &package.license {
            part["licenses"] = json!([{ "expression": license.replace('/', " OR ") }]);
        }
        if let Some(repository) = &package.repository {
            part["externalReferences"] = json!([{ "type": "vcs", "url": repository }]);
        }
        part
    };
    json!({
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": { "component": { "type": "application", "name": name, "version": version } },
        "components": metadata.below(name).iter().map(component).collect::<Vec<_>>(),
    })
}
