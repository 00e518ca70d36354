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

#[cfg(test)]
mod tests {
    use super::*;

    /// Program `a` that needs `b`, whose build needs `c`, and tests by `d`.
    fn metadata() -> Metadata {
        let package = |name: &str, more: Value| {
            let mut package = json!({
                "id": name, "name": name, "version": "1.2.0", "keywords": [], "categories": [],
                "manifest_path": format!("{name}/Cargo.toml"), "dependencies": [],
            });
            package.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            package
        };
        let needs = |name: &str, kind: Option<&str>| json!({ "pkg": name, "dep_kinds": [{ "kind": kind }] });
        serde_json::from_value(json!({
            "packages": [
                package("d", json!({})),
                package("c", json!({})),
                package("b", json!({ "license": "MIT/Zlib", "repository": "https://example.org/b" })),
                package("a", json!({ "license": "MIT" })),
            ],
            "workspace_members": ["a"],
            "resolve": { "nodes": [
                { "id": "a", "deps": [needs("b", None), needs("d", Some("dev"))] },
                { "id": "b", "deps": [needs("c", Some("build"))] },
                { "id": "c", "deps": [] },
                { "id": "d", "deps": [] },
            ] },
        }))
        .unwrap()
    }

    #[test]
    fn parts_are_those_of_the_program_and_its_build_with_their_licences() {
        let document = document(&metadata(), "a", "3.0.0");
        assert_eq!([&document["bomFormat"], &document["specVersion"]], ["CycloneDX", "1.5"]);
        assert_eq!(document["metadata"]["component"]["name"], "a");
        assert_eq!(document["metadata"]["component"]["version"], "3.0.0");
        let parts = document["components"].as_array().unwrap();
        let names: Vec<_> = parts.iter().map(|part| part["purl"].as_str().unwrap()).collect();
        assert_eq!(names, ["pkg:cargo/b@1.2.0", "pkg:cargo/c@1.2.0"]);
        assert!(parts.iter().all(|part| part["bom-ref"] == part["purl"] && part["type"] == "library"));
        assert_eq!(parts[0]["licenses"], json!([{ "expression": "MIT OR Zlib" }]));
        assert_eq!(parts[0]["externalReferences"][0]["url"], "https://example.org/b");
        assert!(parts[1].get("licenses").is_none() && parts[1].get("externalReferences").is_none());
    }
}
