//! Reports of a run: `report.html`, a timeline for Perfetto and event files for TensorBoard.
//!
//! The engine trains and writes records, which this crate reads. A [`Recorder`] observes a run and
//! writes its report files during training, [`write_report`] rewrites the page of a recorded run,
//! and [`html`] renders the page from a summary. [`write_sweep_report`] writes
//! the page of a sweep.
//!
//! ```
//! use graphmill_engine::{RunContext, RunDir, TrainConfig, observer::Quiet, train};
//! use graphmill_data::generate::{GenerateOptions, generate};
//! use graphmill_report::Recorder;
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let data = generate("sbm", &GenerateOptions { nodes: 200, dim: 8, ..GenerateOptions::default() })?;
//! let config = TrainConfig { epochs: 2, trace: true, ..TrainConfig::default() };
//! # let dir = tempfile::tempdir()?;
//! # let dir = dir.path().join("run");
//! let run = RunDir::create(&dir)?;
//! let mut recorder = Recorder::new(&config, Some(&run), Box::new(Quiet));
//! let job = RunContext { run: Some(&run), resume: false, observer: &mut recorder, stop: &|| false };
//! train(&config, &data, job)?;
//! assert!(dir.join("report.html").is_file() && dir.join("trace.json").is_file());
//! # Ok(())
//! # }
//! ```

#![forbid(unsafe_code)]

mod page;
mod recorder;
mod tensorboard;
mod trace;

pub use page::{html, runs_html, sweep_html};
pub use recorder::{Recorder, write_report, write_runs_report, write_sweep_report};
