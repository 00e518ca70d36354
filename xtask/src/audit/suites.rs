//! Rows of tests for Miri and the sanitizers.

/// Installs the standard library's sources, which sanitizers instrument.
pub(super) const NIGHTLY: &str = "rustup toolchain install nightly --component rust-src";

/// Tests of one package.
pub(super) struct Suite {
    pub(super) name: &'static str,
    pub(super) package: &'static str,
    /// Words of `cargo test`: targets and features.
    pub(super) options: &'static [&'static str],
    /// Parts of the names of the tests; none selects all.
    pub(super) filters: &'static [&'static str],
    /// Tests that are left out, with reasons.
    pub(super) skipped: &'static [(&'static str, &'static str)],
    /// Environment of these tests.
    pub(super) variables: &'static [(&'static str, &'static str)],
    /// True if `--short` includes the row.
    pub(super) is_short: bool,
}

/// Row with the library's tests, without options; the others override fields.
const LIBRARY: Suite = Suite {
    name: "",
    package: "",
    options: &["--lib"],
    filters: &[],
    skipped: &[],
    variables: &[],
    is_short: false,
};

/// Instructions that Miri interprets, beyond those of every x86-64.
const AVX2: &[(&str, &str)] = &[("RUSTFLAGS", "-Ctarget-feature=+avx,+avx2,+bmi1,+bmi2,+fma,+f16c,+popcnt")];

/// Tests for Miri. Without [`AVX2`], it reports a processor that has only SSE2, so kernels take
/// their portable form.
///
/// Left out, because Miri does not interpret them: mapped files, `mprotect` and io_uring
/// (`core::buffer`, `loader::feature::disk`), signal handlers, and foreign libraries.
pub(super) const MIRI: &[Suite] = &[
    Suite {
        // atomic slices of transposes, prefetches, sets of bits, the list of maps
        name: "core, portable",
        package: "graphmill-core",
        filters: &["block::membership::", "block::tests::", "block::transpose::", "maps::"],
        is_short: true,
        ..LIBRARY
    },
    Suite {
        // the same, from the builder of graphs on; a minute for each random graph
        name: "core blocks, portable",
        package: "graphmill-core",
        filters: &["block::induce::"],
        ..LIBRARY
    },
    Suite {
        // rows scattered by several threads, streamed stores, conversions of 16-bit rows, shards
        name: "loader rows, portable",
        package: "graphmill-loader",
        filters: &["feature::host::", "feature::widen::", "feature::stream::", "feature::cached::"],
        skipped: &[
            ("no_schedule_of_readers_mixes_rows", "shuttle switches stacks in assembly"),
            ("caches_return_the_rows_of_a_plain_read", "minutes; concurrent_readers reads the same caches"),
            ("streamed_results_equal_plain_copies", "8 Mi values; the stores themselves are in stream::"),
        ],
        ..LIBRARY
    },
    Suite {
        // unchecked indices of the Dashboard, volatile stores, sums of eight numbers
        name: "loader frontier, portable",
        package: "graphmill-loader",
        filters: &["subgraph::frontier::"],
        skipped: &[("pops_are_distributed_by_weight", "statistics of 250,000 draws")],
        is_short: true,
        ..LIBRARY
    },
    Suite {
        name: "loader frontier, AVX2",
        package: "graphmill-loader",
        filters: &["subgraph::frontier::simd::"],
        variables: AVX2,
        ..LIBRARY
    },
    Suite {
        // slices of columns that threads write, vectors from raw pointers
        filters: KERNELS,
        name: "nn kernels, portable",
        ..NN
    },
    Suite { filters: KERNELS, name: "nn kernels, AVX2", variables: AVX2, ..NN },
];

/// Tests of every kernel with small inputs.
const KERNELS: &[&str] = &[
    "slices::slices_of_any_width",
    "backend_cpu::empty",
    "backend_cpu::wide",
    "epilogue::",
    "infinities",
    // of AVX2 alone
    "cpu::tiles::",
];

/// Row of the kernels' tests.
const NN: Suite = Suite { package: "graphmill-nn", options: &["--lib", "--test", "main"], ..LIBRARY };

/// Tests for AddressSanitizer and ThreadSanitizer, which run the vector instructions of the
/// processor and system calls.
pub(super) const SANITIZED: &[Suite] = &[
    Suite {
        // maps of files and of huge pages, vector gathers beyond a row's end
        name: "core",
        package: "graphmill-core",
        is_short: true,
        ..LIBRARY
    },
    Suite {
        // rings, scattered rows, caches, samplers on all threads
        name: "loader",
        package: "graphmill-loader",
        filters: &["feature::", "subgraph::", "sampler::", "compact::"],
        skipped: &[("no_schedule_of_readers_mixes_rows", "shuttle switches stacks")],
        ..LIBRARY
    },
    Suite {
        // masked loads and stores of every level, slices of columns on all threads
        name: "nn kernels",
        package: "graphmill-nn",
        options: &["--lib", "--test", "main"],
        filters: &["backend", "slices::", "rows_alone::"],
        ..LIBRARY
    },
    Suite {
        // threads of the messenger, which have no unsafe code but share queues
        name: "distributed",
        package: "graphmill-distributed",
        is_short: true,
        ..LIBRARY
    },
    Suite {
        // workers of every strategy, tiers and what they share
        name: "engine",
        package: "graphmill-engine",
        options: &["--lib", "--test", "main"],
        filters: &[
            "strategy::",
            "tiers::",
            "reuse::history::",
            "strategies::gradients",
            "strategies::synchronous",
        ],
        skipped: &[("no_schedule", "shuttle switches stacks")],
        ..LIBRARY
    },
];
