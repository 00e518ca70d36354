//! Bundle of the kernels' PTX: a ZIP archive with one `NAME.ptx` for each `NAME.cu`, and a text
//! file with its checksums.
//!
//! The same PTX gives the same bytes: entries are sorted by name and carry neither times nor
//! owners. `Cargo.lock` pins the compressor, whose output does not depend on the processor.

use std::{
    collections::BTreeMap,
    fmt::Write as _,
    io::{Cursor, Read as _, Write as _},
};

use anyhow::{Context, Result, bail};
use sha2::{Digest as _, Sha256};
use zip::{CompressionMethod, DateTime, ZipArchive, ZipWriter, write::SimpleFileOptions};

/// PTX of each file, by file name.
pub(super) type Modules = BTreeMap<String, Vec<u8>>;

/// Level of Deflate's compression. Zopfli (levels above 9) saves 8 % and takes
/// half a minute.
const LEVEL: i64 = 9;

/// Comment above the checksums.
const HEADER: &str = "\
# Checksums of the kernels' PTX, written by `cargo xtask cuda compile`: SHA-256, bytes and name of the
# bundle, of each file in it, and of each kernel in a file.
";

/// Packs PTX into a bundle.
pub(super) fn pack(modules: &Modules) -> Result<Vec<u8>> {
    let mut zip = ZipWriter::new(Cursor::new(Vec::new()));
    let options = SimpleFileOptions::default()
        .compression_method(CompressionMethod::Deflated)
        .compression_level(Some(LEVEL))
        .last_modified_time(DateTime::default())
        .unix_permissions(0o644);
    for (name, text) in modules {
        zip.start_file(name.as_str(), options)?;
        zip.write_all(text)?;
    }
    Ok(zip.finish()?.into_inner())
}

/// Unpacks all files of a bundle.
pub(super) fn unpack(bundle: &[u8]) -> Result<Modules> {
    let mut zip = ZipArchive::new(Cursor::new(bundle))?;
    let mut modules = Modules::new();
    for index in 0..zip.len() {
        let mut file = zip.by_index(index)?;
        let name = file.name().to_owned();
        let mut text = Vec::new();
        file.read_to_end(&mut text).with_context(|| name.clone())?;
        modules.insert(name, text);
    }
    Ok(modules)
}

/// Lists the checksums of a bundle called `name`, of its files and of their kernels.
pub(super) fn checksums(name: &str, bundle: &[u8], modules: &Modules) -> Result<String> {
    let mut list = String::from(HEADER);
    let mut add = |name: &str, bytes: &[u8]| {
        for byte in Sha256::digest(bytes) {
            write!(list, "{byte:02x}").expect("a string accepts all text");
        }
        writeln!(list, "  {:>7}  {name}", bytes.len()).expect("a string accepts all text");
    };
    add(name, bundle);
    for (file, text) in modules {
        add(file, text);
        let text = std::str::from_utf8(text).with_context(|| file.clone())?;
        for (kernel, text) in kernels(text).with_context(|| file.clone())? {
            add(&format!("{file}/{kernel}"), text.as_bytes());
        }
    }
    Ok(list)
}

/// Finds the kernels of a file, in its order: their names, and their PTX from `.visible .entry` to
/// the closing brace.
fn kernels(ptx: &str) -> Result<Vec<(&str, &str)>> {
    const START: &str = ".visible .entry ";
    const END: &str = "\n}\n";
    let mut found = Vec::new();
    let mut rest = ptx;
    while let Some(start) = rest.find(START) {
        let kernel = &rest[start..];
        let name = kernel[START.len()..].split('(').next().unwrap_or_default();
        let end =
            kernel.find(END).with_context(|| format!("kernel {name} has no closing brace"))? + END.len();
        if kernel[START.len()..end].contains(START) {
            bail!("kernel {name} has no closing brace in front of the next kernel");
        }
        found.push((name, &kernel[..end]));
        rest = &kernel[end..];
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    const PTX: &str = "\
.target sm_80

.visible .entry second(
)
{
\tret;

}
\t// .globl\tfirst
.visible .entry first(
\t.param .u64 first_param_0
)
{
$L__BB1_1:
\tbra \t$L__BB1_1;
}

";

    fn modules() -> Modules {
        [("walk.ptx", PTX), ("empty.ptx", ".target sm_80\n")]
            .map(|(name, text)| (name.to_owned(), text.as_bytes().to_vec()))
            .into()
    }

    #[test]
    fn packing_is_reproducible_and_lossless() {
        let bundle = pack(&modules()).unwrap();
        assert_eq!(bundle, pack(&modules()).unwrap());
        assert_eq!(unpack(&bundle).unwrap(), modules());
    }

    #[test]
    fn entries_carry_no_times_and_are_sorted() {
        let bundle = pack(&modules()).unwrap();
        let mut zip = ZipArchive::new(Cursor::new(&bundle[..])).unwrap();
        let names: Vec<_> = (0..zip.len()).map(|at| zip.by_index(at).unwrap().name().to_owned()).collect();
        assert_eq!(names, ["empty.ptx", "walk.ptx"]);
        for name in names {
            let file = zip.by_name(&name).unwrap();
            assert_eq!(file.last_modified(), Some(DateTime::default()), "{name}");
            assert_eq!(file.extra_data().unwrap_or_default(), b"", "{name}");
        }
    }

    #[test]
    fn damaged_bundles_are_errors() {
        let bundle = pack(&modules()).unwrap();
        for end in 0..bundle.len() {
            assert!(unpack(&bundle[..end]).is_err(), "cut at {end}");
        }
    }

    #[test]
    fn checksums_name_the_bundle_its_files_and_their_kernels() {
        let list = checksums("ptx.zip", b"bundle", &modules()).unwrap();
        let lines = list.lines().filter(|line| !line.starts_with('#'));
        let names: Vec<_> = lines.map(|line| line.split("  ").last().unwrap()).collect();
        assert_eq!(names, ["ptx.zip", "empty.ptx", "walk.ptx", "walk.ptx/second", "walk.ptx/first"]);
    }

    #[test]
    fn kernels_end_at_their_closing_brace() {
        let found = kernels(PTX).unwrap();
        assert_eq!(found[0], ("second", ".visible .entry second(\n)\n{\n\tret;\n\n}\n"));
        assert!(found[1].1.ends_with("$L__BB1_1;\n}\n"), "{:?}", found[1]);
        assert!(kernels(".visible .entry cut(\n)\n{\n").is_err());
    }
}
