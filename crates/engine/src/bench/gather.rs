//! Copying the feature rows of random nodes, as the extract stage does: GB/s read and written.
//!
//! Limits: copying a large array; and reading random rows of this width, which is half of what a gather does.

use graphmill_graph::{
    Features,
    keyed::{Stream, key},
    matrix::TableType,
};
use graphmill_loader::{Feature, feature::Host};

use super::{Bench, DIM, random};
use crate::Result;

/// Rows of a call.
const ROWS: usize = 300_000;

/// Measures.
pub(super) fn run(bench: &mut Bench) -> Result<()> {
    let own = if bench.data.features.dim > 0 { bench.data.features.dim } else { DIM };
    let width = bench.options.dim.unwrap_or(own);
    let nodes = bench.data.num_nodes();
    let mut stream = Stream::new(key(&[bench.options.train.seed, 0x6964_7321]));
    let ids: Vec<u32> = (0..ROWS).map(|_| stream.below(nodes as u64) as u32).collect();
    if !bench.computers.gpus().is_empty() {
        return on_device(bench, &ids, width);
    }
    let mut out = vec![0.0; ROWS * width];
    let limit = bench.moving(width)?;
    for (storage, table) in tables(nodes, width)? {
        let bytes = table.read(&ids, &mut out)?.total().bytes as f64 + 4.0 * out.len() as f64;
        let times = bench.time(|| {
            table.read(&ids, &mut out).expect("it was just read");
        });
        bench.rate(format!("{storage} F={width}"), "GB/s", bytes / 1e9, &times, limit);
    }
    Ok(())
}

/// Tables to gather from, by the way they store a value.
fn tables(nodes: usize, width: usize) -> Result<Vec<(&'static str, Host)>> {
    let wide = random(nodes, width);
    let wide = Features::f32(width, wide.view().host().to_vec());
    TableType::ALL.into_iter().map(|(name, kind)| Ok((name, Host::resident(&wide, kind)?))).collect()
}
