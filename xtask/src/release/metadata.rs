//! The workspace as cargo describes it.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    path::{Path, PathBuf},
    process::Stdio,
};

use anyhow::{Context, Result, bail};
use serde::Deserialize;

/// Packages of the workspace and below it.
#[derive(Deserialize)]
pub(super) struct Metadata {
    pub(super) packages: Vec<Package>,
    workspace_members: Vec<String>,
    resolve: Resolve,
}

/// A package of the workspace, or one that it builds on.
#[derive(Clone, Deserialize)]
pub(super) struct Package {
    pub(super) id: String,
    pub(super) name: String,
    pub(super) version: String,
    pub(super) license: Option<String>,
    pub(super) description: Option<String>,
    pub(super) repository: Option<String>,
    pub(super) readme: Option<PathBuf>,
    pub(super) rust_version: Option<String>,
    pub(super) keywords: Vec<String>,
    pub(super) categories: Vec<String>,
    /// Registries that take the package: empty if none does.
    publish: Option<Vec<String>>,
    pub(super) manifest_path: PathBuf,
    pub(super) dependencies: Vec<Dependency>,
    /// Features with those that each enables.
    #[serde(default)]
    pub(super) features: BTreeMap<String, Vec<String>>,
    /// Tables for other tools.
    #[serde(default)]
    metadata: serde_json::Value,
}

/// Dependency that a package names.
#[derive(Clone, Deserialize)]
pub(super) struct Dependency {
    pub(super) name: String,
    pub(super) req: String,
    kind: Option<String>,
    pub(super) path: Option<PathBuf>,
}

impl Dependency {
    /// Returns true if only the package's tests use it.
    pub(super) fn is_of_tests(&self) -> bool {
        self.kind.as_deref() == Some("dev")
    }
}

#[derive(Deserialize)]
struct Resolve {
    nodes: Vec<Node>,
}

#[derive(Deserialize)]
struct Node {
    id: String,
    deps: Vec<Edge>,
}

#[derive(Deserialize)]
struct Edge {
    pkg: String,
    dep_kinds: Vec<Kind>,
}

#[derive(Deserialize)]
struct Kind {
    kind: Option<String>,
}

impl Package {
    /// Returns true if the package is meant for the registry.
    pub(super) fn is_published(&self) -> bool {
        self.publish.as_ref().is_none_or(|registries| !registries.is_empty())
    }

    /// Features of its documentation on docs.rs; `None` if the manifest has no table for it.
    pub(super) fn documented_features(&self) -> Option<Vec<&str>> {
        let features = self.metadata.pointer("/docs/rs/features")?.as_array()?;
        Some(features.iter().filter_map(serde_json::Value::as_str).collect())
    }

    /// Directory of the package.
    pub(super) fn directory(&self) -> &Path {
        self.manifest_path.parent().unwrap_or(Path::new(""))
    }
}

impl Metadata {
    /// Reads the metadata with the given features, for this machine.
    ///
    /// # Errors
    /// Cargo fails, or prints another format.
    pub(super) fn read(features: &[&str]) -> Result<Self> {
        let platform = crate::host()?;
        let mut command = crate::cargo();
        command.args(["metadata", "--format-version", "1", "--locked", "--filter-platform", &platform]);
        let output = command.args(features).stderr(Stdio::inherit()).output().context("cannot run cargo")?;
        if !output.status.success() {
            bail!("cargo metadata failed");
        }
        serde_json::from_slice(&output.stdout).context("cargo metadata has another format")
    }

    /// Packages of the workspace.
    pub(super) fn members(&self) -> impl Iterator<Item = &Package> {
        self.packages.iter().filter(|package| self.workspace_members.contains(&package.id))
    }

    /// Packages of the workspace that are published, each behind those that it needs.
    ///
    /// # Errors
    /// They need each other.
    pub(super) fn in_order(&self) -> Result<Vec<&Package>> {
        let mut left: BTreeMap<&str, &Package> = self
            .members()
            .filter(|package| package.is_published())
            .map(|package| (package.name.as_str(), package))
            .collect();
        let mut order = Vec::new();
        while !left.is_empty() {
            let needs = |package: &Package| {
                let mut own = package.dependencies.iter().filter(|of| of.path.is_some() && !of.is_of_tests());
                own.any(|of| left.contains_key(of.name.as_str()))
            };
            let Some(name) = left.iter().find(|(_, package)| !needs(package)).map(|(name, _)| *name) else {
                bail!("these packages need each other: {}", left.into_keys().collect::<Vec<_>>().join(", "));
            };
            order.extend(left.remove(name));
        }
        Ok(order)
    }

    /// Packages that a program of the package `name` contains, without itself: those that it needs
    /// when it runs or is built, by name.
    pub(super) fn below(&self, name: &str) -> Vec<&Package> {
        let edges: HashMap<&str, &Node> =
            self.resolve.nodes.iter().map(|node| (node.id.as_str(), node)).collect();
        let of_name = |package: &&Package| package.name == name;
        let mut open: Vec<&str> = self.members().filter(of_name).map(|package| package.id.as_str()).collect();
        let (top, mut seen) = (open.clone(), BTreeSet::new());
        while let Some(id) = open.pop() {
            if seen.insert(id) {
                let needed = edges.get(id).into_iter().flat_map(|node| &node.deps);
                let needed =
                    needed.filter(|edge| edge.dep_kinds.iter().any(|of| of.kind.as_deref() != Some("dev")));
                open.extend(needed.map(|edge| edge.pkg.as_str()));
            }
        }
        let mut found: Vec<&Package> = self
            .packages
            .iter()
            .filter(|package| seen.contains(package.id.as_str()) && !top.contains(&package.id.as_str()))
            .collect();
        found.sort_by_key(|package| (package.name.clone(), package.version.clone()));
        found
    }
}
