//! The embedded PTX: its bundle matches the checksums, and it defines the kernels of the sources.
//!
//! `cargo xtask cuda check` compares it with a fresh compilation of the sources.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    io::Read as _,
    path::Path,
};

use graphmill_cuda::ptx::MODULES;
use sha2::{Digest as _, Sha256};
use zip::ZipArchive;

/// Declaration of a kernel in a source.
const KERNEL: &str = "extern \"C\" __global__ void";
/// Declaration of a kernel in PTX.
const ENTRY: &str = ".visible .entry ";
/// Advice at the end of every failure.
const FIX: &str = "run cargo xtask cuda compile";

/// Directory of the crate.
fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

#[test]
fn every_kernel_of_the_sources_is_compiled() {
    let mut files = BTreeSet::new();
    let mut all = BTreeSet::new();
    for entry in fs::read_dir(root().join("kernels")).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_none_or(|extension| extension != "cu") {
            continue;
        }
        let name = path.file_stem().unwrap().to_str().unwrap().to_owned();
        let module = MODULES.iter().find(|module| module.name == name);
        let module = module.unwrap_or_else(|| panic!("{name}.ptx is missing; {FIX}"));
        let source = fs::read_to_string(&path).unwrap();
        let lines = source.lines().filter(|line| !line.trim_start().starts_with("//"));
        let declared = lines.clone().filter(|line| line.contains("__global__")).count();
        let code: String = lines.collect::<Vec<_>>().join("\n");
        let mut kernels = BTreeSet::new();
        for rest in code.split(KERNEL).skip(1) {
            let rest = rest.trim_start();
            let bounds = rest.strip_prefix("__launch_bounds__").and_then(|rest| rest.split_once(')'));
            let name = bounds.map_or(rest, |(_, rest)| rest).split('(').next().unwrap().trim().to_owned();
            assert!(all.insert(name.clone()), "{name} is the name of two kernels");
            kernels.insert(name);
        }
        assert_eq!(kernels.len(), declared, "{name}.cu: a kernel is declared other than by {KERNEL} NAME(");
        let listed: BTreeSet<_> = module.kernels.iter().map(|&kernel| kernel.to_owned()).collect();
        assert_eq!(listed, kernels, "{name}.ptx is listed with other kernels; {FIX}");
        let text = module.text().unwrap();
        let entries =
            text.lines().filter_map(|line| line.trim_start().strip_prefix(ENTRY)?.split('(').next());
        let compiled: BTreeSet<_> = entries.map(str::to_owned).collect();
        assert_eq!(compiled, kernels, "{name}.ptx defines other kernels; {FIX}");
        files.insert(name);
    }
    let compiled: BTreeSet<_> = MODULES.iter().map(|module| module.name.to_owned()).collect();
    assert_eq!(compiled, files, "modules without a source");
}

#[test]
fn modules_target_the_oldest_supported_devices_and_drivers() {
    for module in MODULES {
        let text = module.text().unwrap();
        assert!(text.contains(".target sm_80"), "{}", module.name);
        // drivers of the 570 series and later accept it
        assert!(text.contains(".version 8.7"), "{}", module.name);
    }
}

#[test]
fn bundle_matches_its_checksums() {
    let bundle = fs::read(root().join("ptx.zip")).unwrap();
    let mut contents = BTreeMap::from([("ptx.zip".to_owned(), bundle.clone())]);
    let mut zip = ZipArchive::new(std::io::Cursor::new(&bundle)).unwrap();
    for index in 0..zip.len() {
        let mut file = zip.by_index(index).unwrap();
        let mut text = String::new();
        file.read_to_string(&mut text).unwrap();
        for (start, _) in text.match_indices(ENTRY) {
            let kernel = &text[start..];
            let name = kernel[ENTRY.len()..].split('(').next().unwrap();
            let end = kernel.find("\n}\n").unwrap() + 3;
            contents.insert(format!("{}/{name}", file.name()), kernel.as_bytes()[..end].to_vec());
        }
        contents.insert(file.name().to_owned(), text.into_bytes());
    }
    let list = fs::read_to_string(root().join("ptx.sha256")).unwrap();
    let mut listed = BTreeSet::new();
    for line in list.lines().filter(|line| !line.starts_with('#')) {
        let [sha256, bytes, name] = line.split_whitespace().collect::<Vec<_>>()[..] else {
            panic!("{line:?}")
        };
        let found = contents.get(name).unwrap_or_else(|| panic!("{name} is not in the bundle; {FIX}"));
        let digest: String = Sha256::digest(found).iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!((digest.as_str(), found.len().to_string().as_str()), (sha256, bytes), "{name}; {FIX}");
        assert!(listed.insert(name.to_owned()), "{name} is listed twice");
    }
    assert_eq!(listed, contents.into_keys().collect(), "the list and the bundle have other contents; {FIX}");
}
