//! Graph generators, deterministic for a seed regardless of the number of threads.
//!
//! One file per generator, listed in [`TABLE`]; [`demo`] is the default graph of `graphmill train`.
//! Every edge, node and class draws from a keyed stream ([`graphmill_core::keyed`]), so any
//! division of the work over threads gives the same bytes.

mod attributes;
mod draw;
mod igbh;
mod kronecker;
mod options;
mod relation;
mod sbm;
mod typed;

pub use options::{FeatureType, GenerateOptions, unread_option};

use std::path::Path;

use graphmill_core::{
    Result,
    progress::{Progress, Quiet},
    table::{Entry, find},
};

use crate::{
    Dataset, TypedDataset,
    dataset::work::{self, Work},
    external::Scratch,
};

/// Suffix of the directory beside the destination that holds data beyond the memory budget.
const SUFFIX: &str = ".generating";

/// Generates a dataset from options, with edges and features collected in the scratch, so that the
/// result may exceed memory. Each generator documents the options it reads.
pub type Make = fn(&GenerateOptions, &Scratch) -> Result<Dataset>;

/// Table of the generators.
pub const TABLE: &[Entry<Make>] = &[
    Entry {
        name: "kronecker",
        summary: "stochastic Kronecker graph of a 2x2 initiator (R-MAT), random features and labels",
        source: "Leskovec, Chakrabarti, Kleinberg, Faloutsos, Ghahramani: Kronecker graphs, JMLR 11, 2010, \
            section 3",
        options: &[],
        make: kronecker::generate,
    },
    Entry {
        name: "sbm",
        summary: "degree-corrected block model, features and labels that a model can learn",
        source: "Karrer, Newman: Stochastic blockmodels and community structure in networks, Phys. Rev. E \
            83, 2011",
        options: &[],
        make: sbm::generate,
    },
];

/// Generates a dataset of several types, with edges and features collected in the scratch. Each
/// generator documents the options it reads.
pub type MakeTyped = fn(&GenerateOptions, &Scratch) -> Result<TypedDataset>;

/// Table of the generators of datasets of several types.
pub const TYPED_TABLE: &[Entry<MakeTyped>] = &[
    Entry {
        name: "typed",
        summary: "papers, authors, topics and institutions, whose classes follow from relations",
        source: "",
        options: &[],
        make: typed::generate,
    },
    Entry {
        name: "igbh",
        summary: "the types and relations of IGB-H with its proportions, features that carry the class",
        source: "Khatua and others: IGB: addressing the gaps in labeling, features, heterogeneity, and size \
            of public graph datasets for deep learning research, KDD 2023",
        options: &[],
        make: igbh::generate,
    },
];

/// Generates a dataset of several types by the generator `name` in memory.
///
/// ```
/// use graphmill_data::generate::{GenerateOptions, generate_typed};
/// let options = GenerateOptions { nodes: 200, classes: 4, ..Default::default() };
/// let dataset = generate_typed("typed", &options)?;
/// assert_eq!((dataset.nodes.len(), dataset.edges.len()), (4, 8));
/// # Ok::<(), graphmill_core::Error>(())
/// ```
///
/// # Errors
/// The generator is unknown, or the options are invalid.
pub fn generate_typed(name: &str, options: &GenerateOptions) -> Result<TypedDataset> {
    (find("generator", TYPED_TABLE, name)?.make)(options, &Scratch::in_memory())
}

/// Generates a dataset of several types into the directory `dst`, as [`generate_to`] does for one
/// type.
///
/// # Errors
/// As for [`generate_to`].
pub fn generate_typed_to(
    name: &str,
    dst: impl AsRef<Path>,
    options: &GenerateOptions,
    work: Work,
) -> Result<TypedDataset> {
    let (entry, dst, replace) = (find("generator", TYPED_TABLE, name)?, dst.as_ref(), work.replace);
    let make = |scratch: &Scratch| {
        let mut dataset = (entry.make)(options, scratch)?;
        if let Some(name) = dst.file_name() {
            dataset.name = name.to_string_lossy().into_owned();
        }
        Ok(dataset)
    };
    work::run_saved(work, dst, SUFFIX, identity(name, options), make, |data: &TypedDataset, scratch| {
        data.save_by_way_of(scratch, dst, replace)
    })
}

/// Description of everything that a generated dataset depends on.
fn identity(name: &str, options: &GenerateOptions) -> impl FnOnce() -> Result<String> {
    let text = format!("{} generate {name} {options:?}", env!("CARGO_PKG_VERSION"));
    || Ok(text)
}

/// Generates a dataset by the generator `name` in memory.
///
/// ```
/// use graphmill_data::generate::{GenerateOptions, generate};
/// let options = GenerateOptions { scale: 8, degree: Some(6.0), dim: 4, ..Default::default() };
/// let dataset = generate("kronecker", &options)?;
/// assert_eq!(dataset.num_nodes(), 256);
/// # Ok::<(), graphmill_core::Error>(())
/// ```
///
/// # Errors
/// The generator is unknown, or the options are invalid.
pub fn generate(name: &str, options: &GenerateOptions) -> Result<Dataset> {
    generate_with(name, options, Box::new(Quiet))
}

/// Generates a dataset as [`generate`] does and reports to `progress`.
///
/// # Errors
/// As for [`generate`]; `progress` cancels the work.
pub fn generate_with(name: &str, options: &GenerateOptions, progress: Box<dyn Progress>) -> Result<Dataset> {
    (find("generator", TABLE, name)?.make)(options, &Scratch::reporting(progress))
}

/// Generates into the dataset directory `dst`, atomically and within a memory budget; the directory
/// gives the dataset its name. Data beyond the budget is kept in the directory `dst.generating`
/// meanwhile. A killed process leaves that directory, and the same call resumes from it; after an
/// error it is removed.
///
/// Returns the dataset, mapped from the files written on the way.
///
/// # Errors
/// As for [`generate`]; `dst` is not empty; the disk is too small.
pub fn generate_to(
    name: &str,
    dst: impl AsRef<Path>,
    options: &GenerateOptions,
    work: Work,
) -> Result<Dataset> {
    let (entry, dst) = (find("generator", TABLE, name)?, dst.as_ref());
    work::run(work, dst, SUFFIX, identity(name, options), |scratch| {
        let mut dataset = (entry.make)(options, scratch)?;
        if let Some(name) = dst.file_name() {
            dataset.name = name.to_string_lossy().into_owned();
        }
        Ok(dataset)
    })
}

/// Name of [`demo`].
pub const DEMO: &str = "demo";

/// Generates the built-in demo: a block model of fifty thousand nodes in ten classes, whose
/// features are weak individually and strong together with those of the neighbours. One label in
/// twenty is random, so no model exceeds about 0.955; a two-layer GraphSAGE reaches about 0.91, a
/// perceptron on the features alone 0.42. Takes a tenth of a second on one core.
///
/// # Errors
/// None in practice: only if some ten megabytes of memory are not available.
pub fn demo() -> Result<Dataset> {
    let options = GenerateOptions {
        nodes: 50_000,
        classes: 10,
        degree: Some(16.0),
        degree_exponent: 2.5,
        p_in: 0.7,
        dim: 48,
        signal: 0.2,
        label_noise: 0.05,
        train: 0.5,
        valid: 0.25,
        test: 0.25,
        seed: 1,
        ..Default::default()
    };
    let mut dataset = sbm::generate(&options, &Scratch::in_memory())?;
    dataset.name = DEMO.into();
    Ok(dataset)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

    use graphmill_core::{Error, features::FeatureData};

    use super::*;

    fn in_pool(threads: usize, make: impl FnOnce() -> Result<Dataset> + Send) -> Dataset {
        rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap().install(make).unwrap()
    }

    /// Progress receiver that cancels the work at a given check.
    struct CancelAt(AtomicU64);

    impl Progress for CancelAt {
        fn is_stopped(&self) -> bool {
            self.0.fetch_update(SeqCst, SeqCst, |left| Some(left.saturating_sub(1))) == Ok(0)
        }
    }

    #[test]
    fn cancelled_work_leaves_no_files() {
        let root = tempfile::tempdir().unwrap();
        let dst = root.path().join("it");
        let options = GenerateOptions { scale: 12, degree: Some(20.0), dim: 8, ..Default::default() };
        let to = |asked: u64| {
            let progress = Box::new(CancelAt(AtomicU64::new(asked)));
            generate_to("kronecker", &dst, &options, Work { progress, ..Work::default() })
        };
        let whole = generate("kronecker", &options).unwrap();
        let mut asked = 0;
        loop {
            match to(asked) {
                Ok(made) => {
                    assert_same(&made, &whole);
                    break;
                }
                Err(error) => assert!(matches!(error, Error::Stopped), "{error}"),
            }
            assert_eq!(std::fs::read_dir(root.path()).unwrap().count(), 0, "{asked}");
            let in_memory =
                generate_with("kronecker", &options, Box::new(CancelAt(AtomicU64::new(asked / 2))));
            assert!(matches!(in_memory, Err(Error::Stopped)), "{asked}");
            asked += 1;
        }
        // Between batches of edges and of rows, and before writing.
        assert!(asked >= 3, "{asked}");
    }

    fn make(entry: &Entry<Make>, options: &GenerateOptions) -> Result<Dataset> {
        (entry.make)(options, &Scratch::in_memory())
    }

    fn assert_same(a: &Dataset, b: &Dataset) {
        assert_eq!(a.graph.indptr(), b.graph.indptr());
        assert_eq!(a.graph.indices(), b.graph.indices());
        let (FeatureData::F32(x), FeatureData::F32(y)) = (&a.features.data, &b.features.data) else {
            panic!("generators make f32 features");
        };
        assert_eq!(x[..], y[..]);
        assert_eq!(classes(a), classes(b));
        for ((_, x), (_, y)) in a.split.parts().iter().zip(b.split.parts()) {
            assert_eq!(x[..], y[..]);
        }
    }

    fn classes(dataset: &Dataset) -> Vec<i32> {
        match &dataset.labels {
            graphmill_core::Labels::Single { class, .. } => class.to_vec(),
            _ => panic!("generators make single labels"),
        }
    }

    #[test]
    fn every_generator_is_deterministic_for_any_number_of_threads() {
        for entry in TABLE {
            for directed in [false, true] {
                let options = GenerateOptions {
                    nodes: 3000,
                    scale: 11,
                    degree: Some(9.0),
                    dim: 5,
                    directed,
                    ..Default::default()
                };
                let one = in_pool(1, || make(entry, &options));
                for threads in [2, 5] {
                    assert_same(&one, &in_pool(threads, || make(entry, &options)));
                }
                one.validate().unwrap();
                assert_eq!(one.name, entry.name);
                let other = make(entry, &GenerateOptions { seed: 7, ..options }).unwrap();
                assert_ne!(one.graph.indices(), other.graph.indices(), "{}: the seed matters", entry.name);
                assert_ne!(classes(&one), classes(&other));
            }
        }
    }

    #[test]
    fn every_generator_rejects_impossible_options() {
        let good = GenerateOptions { nodes: 10, scale: 4, degree: Some(2.0), ..Default::default() };
        let bad: &[(GenerateOptions, &str)] = &[
            (GenerateOptions { classes: 0, ..good.clone() }, "classes"),
            (GenerateOptions { classes: 1 << 40, ..good.clone() }, "classes"),
            (
                GenerateOptions { train: 0.7, valid: 0.3, test: 0.1, ..good.clone() },
                "train 0.7 + valid 0.3 + test 0.1",
            ),
            (GenerateOptions { valid: -0.1, ..good.clone() }, "valid"),
            (GenerateOptions { test: f64::NAN, ..good.clone() }, "test"),
            (GenerateOptions { degree: Some(-1.0), ..good.clone() }, "degree"),
            (GenerateOptions { degree: Some(f64::INFINITY), ..good.clone() }, "degree"),
            (GenerateOptions { degree: Some(400.0), ..good.clone() }, "degree"),
            (GenerateOptions { edges: Some(5), ..good.clone() }, "edges"),
            (GenerateOptions { edges: Some(u64::MAX), degree: None, ..good.clone() }, "edges"),
            (GenerateOptions { dim: usize::MAX / 2, ..good.clone() }, "features"),
            (GenerateOptions { dim: 1 << 50, ..good.clone() }, "memory"),
        ];
        for entry in TABLE {
            make(entry, &good).unwrap().validate().unwrap();
            for (options, word) in bad {
                let message = make(entry, options).unwrap_err().to_string();
                assert!(message.contains(word), "{}: '{word}' not in '{message}'", entry.name);
            }
        }
        let message = generate("ring", &good).unwrap_err().to_string();
        assert_eq!(message, "unknown generator 'ring'; known: kronecker, sbm");
    }

    #[test]
    fn budgeted_and_in_memory_generation_agree() {
        let root = tempfile::tempdir().unwrap();
        let dst = root.path().join("kronecker");
        // More edges and rows than the smallest budget, 64 MiB, keeps in memory.
        let options = GenerateOptions { scale: 16, degree: Some(40.0), dim: 20, ..Default::default() };
        let written =
            generate_to("kronecker", &dst, &options, Work { memory: Some(0), ..Work::default() }).unwrap();
        let FeatureData::F32(features) = &written.features.data else { panic!("f32 was requested") };
        assert!(features.is_mapped(), "the rows went to a file");
        let made = generate("kronecker", &options).unwrap();
        assert_same(&written, &made);
        assert_same(&Dataset::open(&dst).unwrap(), &made);
        assert_eq!(std::fs::read_dir(root.path()).unwrap().count(), 1, "nothing is left beside it");
        let again = generate_to("kronecker", &dst, &options, Work::default()).unwrap_err().to_string();
        assert!(again.contains("--force"), "{again}");
    }

    #[test]
    fn the_demo_has_the_documented_figures() {
        let demo = demo().unwrap();
        demo.validate().unwrap();
        assert_eq!((demo.name.as_str(), demo.num_nodes(), demo.labels.classes()), ("demo", 50_000, 10));
        assert_eq!(demo.split.parts().map(|(_, ids)| ids.len()), [25_000, 12_500, 12_500]);
    }
}
