//! The PTX that the library carries: that it is of the kernels, all of them.

use std::{collections::BTreeSet, fs, path::Path};

use graphmill_cuda::ptx::MODULES;

/// What declares a kernel in a source.
const KERNEL: &str = "extern \"C\" __global__ void";

#[test]
fn every_kernel_of_the_sources_has_been_compiled() {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("kernels");
    let mut files = BTreeSet::new();
    let mut all = BTreeSet::new();
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_none_or(|extension| extension != "cu") {
            continue;
        }
        let name = path.file_stem().unwrap().to_str().unwrap().to_owned();
        let mend = "cargo xtask cuda compile";
        let module = MODULES.iter().find(|module| module.name == name);
        let module = module.unwrap_or_else(|| panic!("{name}.ptx is missing: {mend}"));
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
        let compiled: BTreeSet<_> = module.kernels.iter().map(|&kernel| kernel.to_owned()).collect();
        assert_eq!(compiled, kernels, "{name}.ptx is of other kernels: {mend}");
        files.insert(name);
    }
    let compiled: BTreeSet<_> = MODULES.iter().map(|module| module.name.to_owned()).collect();
    assert_eq!(compiled, files, "modules without a source");
}

#[test]
fn modules_are_for_the_oldest_devices_and_drivers() {
    for module in MODULES {
        assert!(module.text.contains(".target sm_80"), "{}", module.name);
        // drivers of the 580 series and later take it
        assert!(module.text.contains(".version 8.7"), "{}", module.name);
    }
}
