//! Writes the table of compiled kernels that the library embeds; with the feature `shim`, also
//! compiles the kernels for the CPU.

use std::{env, fmt::Write as _, fs, io, path::PathBuf};

/// Advice at the end of every error about the bundle.
const FIX: &str = "restore ptx.zip and ptx.sha256 from version control, or run cargo xtask cuda compile";

fn main() -> io::Result<()> {
    let root = PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").expect("cargo sets it"));
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets it"));
    for name in ["kernels", "ptx.zip", "ptx.sha256", "shim"] {
        println!("cargo::rerun-if-changed={}", root.join(name).display());
    }
    println!("cargo::rerun-if-changed=build.rs");
    if !root.join("ptx.zip").is_file() {
        return Err(io::Error::other(format!("{} is missing; {FIX}", root.join("ptx.zip").display())));
    }
    let path = root.join("ptx.sha256");
    let failed = |why: String| io::Error::other(format!("{}: {why}; {FIX}", path.display()));
    let checksums = fs::read_to_string(&path).map_err(|why| failed(why.to_string()))?;
    fs::write(out.join("ptx_table.rs"), ptx_table(&checksums).map_err(failed)?)?;
    #[cfg(feature = "shim")]
    shim::compile(&root, &out)?;
    Ok(())
}

/// Converts the list of checksums to Rust's table of modules: name, SHA-256 and kernels.
///
/// A line has a SHA-256, a size in bytes and a name: `ptx.zip`, then each `MODULE.ptx`, followed by
/// its kernels as `MODULE.ptx/KERNEL`.
fn ptx_table(checksums: &str) -> Result<String, String> {
    let mut modules: Vec<(&str, &str, Vec<&str>)> = Vec::new();
    for (index, line) in checksums.lines().enumerate().filter(|(_, line)| !line.starts_with('#')) {
        let fields: Vec<_> = line.split_whitespace().collect();
        let &[sha256, _, name] = &fields[..] else {
            return Err(format!("line {} has no SHA-256, size and name: {line:?}", index + 1));
        };
        match (name.split_once(".ptx"), modules.last_mut()) {
            (Some((module, "")), _) => modules.push((module, sha256, Vec::new())),
            (Some((module, kernel)), Some(last)) if module == last.0 && kernel.starts_with('/') => {
                last.2.push(&kernel[1..]);
            }
            _ if name == "ptx.zip" => {}
            _ => return Err(format!("line {}: {name:?} does not follow its module", index + 1)),
        }
    }
    let mut table = String::from("&[\n");
    for (name, sha256, kernels) in modules {
        writeln!(table, "Module {{ name: {name:?}, sha256: {sha256:?}, kernels: &{kernels:?} }},")
            .expect("a string accepts all text");
    }
    table.push(']');
    Ok(table)
}

/// Kernels as C++.
#[cfg(feature = "shim")]
mod shim {
    use std::{
        fmt::Write as _,
        fs, io,
        path::{Path, PathBuf},
    };

    /// Start of every kernel's declaration.
    const KERNEL: &str = "extern \"C\" __global__ void";

    /// Compiles one unit per file of kernels, with its table, and one with all tables.
    pub(super) fn compile(root: &Path, out: &Path) -> io::Result<()> {
        let mut sources = files(&root.join("kernels"), "cu")?;
        sources.extend(files(&root.join("shim"), "cu")?);
        let mut build = cc::Build::new();
        build.cpp(true).std("c++17").opt_level(2).define("GRAPHMILL_SHIM", None).define("NDEBUG", None);
        build.include(root.join("kernels")).include(root.join("shim"));
        // no fused multiply-adds and no assumptions about aliasing; arrays are accessed without a
        // check for initialization
        for flag in ["-ffp-contract=off", "-fno-strict-aliasing", "-fno-extern-tls-init", "-U_FORTIFY_SOURCE"]
        {
            build.flag(flag);
        }
        // large frames touch every page, and so also the guard page of a fiber's stack
        build.flag("-fstack-clash-protection");
        build.flag("-fsanitize=alignment,bounds,shift-exponent,integer-divide-by-zero");
        // some variants of a kernel leave parameters unused; a device's compiler does not warn
        // either
        build.flag("-Wno-unused-parameter").flag("-Wno-unknown-pragmas");
        let mut list = String::from("#include \"shim.h\"\n");
        let mut names = Vec::new();
        for source in &sources {
            let name = stem(source);
            let kernels = kernels(&fs::read_to_string(source)?);
            // a namespace per file, so that functions of equal names in two files do not collide
            let mut unit = format!(
                "#include \"shim.h\"\nnamespace kernels_{name} {{\n\
                 extern thread_local unsigned char dynamic_shared[] __asm__(\"shim_dynamic_shared\");\n\
                 #include \"{}\"\n}}\nusing namespace kernels_{name};\n\
                 extern const shim_kernel kernels_of_{name}[];\nconst shim_kernel kernels_of_{name}[] = {{\n",
                source.display()
            );
            for kernel in kernels {
                writeln!(unit, "    SHIM_KERNEL({kernel}),").expect("a string takes all");
            }
            unit.push_str("    {nullptr, 0, nullptr, nullptr},\n};\n");
            let path = out.join(format!("kernels_{name}.cpp"));
            fs::write(&path, unit)?;
            build.file(path);
            writeln!(list, "extern const shim_kernel kernels_of_{name}[];").expect("a string takes all");
            names.push(format!("kernels_of_{name}"));
        }
        let count = names.len();
        writeln!(list, "static const shim_kernel* const files[] = {{{}}};", names.join(", "))
            .expect("a string takes all");
        // the kernel of this name, or null
        write!(
            list,
            "extern \"C\" const shim_kernel* shim_find(const char* name) {{\n    \
             for (unsigned file = 0; file < {count}; file++) {{\n        \
             for (const shim_kernel* at = files[file]; at->name != nullptr; at++) {{\n            \
             if (strcmp(at->name, name) == 0) return at;\n        }}\n    }}\n    return nullptr;\n}}\n"
        )
        .expect("a string takes all");
        let path = out.join("kernels_all.cpp");
        fs::write(&path, list)?;
        build.file(path).file(root.join("shim/shim.cpp"));
        build.compile("graphmill_shim");
        stand_ins(&build, root, out)
    }

    /// Builds libraries that replace the vendor's, each in a separate directory.
    fn stand_ins(build: &cc::Build, root: &Path, out: &Path) -> io::Result<()> {
        for (name, version, kernels) in [("cuda", 1, true), ("cublas", 12, false), ("nccl", 2, false)] {
            let directory = out.join(name);
            fs::create_dir_all(&directory)?;
            let mut command = build.get_compiler().to_command();
            command.arg("-shared").arg("-o").arg(directory.join(format!("lib{name}.so")));
            command.arg(format!("-Wl,-soname,lib{name}.so.{version}"));
            command.arg(root.join(format!("shim/lib{name}.cpp")));
            if kernels {
                command.arg("-Wl,--whole-archive").arg(out.join("libgraphmill_shim.a"));
                command.arg("-Wl,--no-whole-archive");
            }
            if !command.status()?.success() {
                return Err(io::Error::other(format!("the compiler failed: {command:?}")));
            }
            println!("cargo::rustc-env=GRAPHMILL_STAND_IN_{}={}", name.to_uppercase(), directory.display());
        }
        Ok(())
    }

    /// Files of a directory with this extension, sorted by name.
    fn files(directory: &Path, extension: &str) -> io::Result<Vec<PathBuf>> {
        let mut found = Vec::new();
        for entry in fs::read_dir(directory)? {
            let path = entry?.path();
            if path.extension().is_some_and(|of| of == extension) {
                found.push(path);
            }
        }
        found.sort();
        Ok(found)
    }

    /// Stem of a path in these directories.
    fn stem(path: &Path) -> &str {
        path.file_stem().and_then(|name| name.to_str()).expect("files of this directory have plain names")
    }

    /// Names of a source's kernels.
    fn kernels(source: &str) -> Vec<String> {
        let mut found = Vec::new();
        let code: Vec<_> = source.lines().filter(|line| !line.trim_start().starts_with("//")).collect();
        for rest in code.join("\n").split(KERNEL).skip(1) {
            let rest = rest.trim_start();
            let rest = rest
                .strip_prefix("__launch_bounds__")
                .and_then(|rest| rest.split_once(')'))
                .map_or(rest, |(_, rest)| rest);
            let name = rest.split('(').next().unwrap_or_default().trim();
            found.push(name.to_owned());
        }
        found
    }
}
