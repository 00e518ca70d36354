//! Records of a run: `config.toml`, `metrics.jsonl`, `summary.json`, and the report made from them.

use graphmill_engine::RunDir;
use graphmill_report::html;

use super::Answer;
use crate::{alloc::limited, input::Input, scratch::with_files};

pub(super) const TOKENS: &[&[u8]] = &[
    crate::input::FILE,
    b"config.toml\n",
    b"metrics.jsonl\n",
    b"summary.json\n",
    b"{\"epoch\":1,\"loss\":0.5}\n",
    b"\"valid_score\":0.5",
    b"\"grad_norm\":1e308",
    b"\"seconds\":",
    b"\"lr\":0.1",
    b"\"hit_rate\":0.5",
    b"\"stages\":{\"order\":1.0,\"sample\":1.0,\"extract\":1.0,\"train\":1.0}",
    b"\"traffic\":{\"device\":{\"rows\":1,\"bytes\":1}}",
    b"\"dataset\":{}",
    b"\"best\":{\"epoch\":1}",
    b"\"epochs\":[]",
    b"\"staleness\":{}",
    b"18446744073709551615",
    b"-1e308",
    b"1e-320",
];

/// One input: options (none are known), and files of the directory.
pub fn run(data: &[u8]) -> Answer {
    let input = Input::read(data, &["config.toml", "metrics.jsonl", "summary.json"]);
    with_files("run_dir", &input.files, |dir| {
        limited(input.unpacked, || {
            let summary = RunDir::open(dir)?.summary()?;
            html(&summary);
            Ok(())
        })
    })
}
