//! Copies of feature rows of random nodes, as in the extract stage: GB/s read and written.
//!
//! Limits: copying a large array; and reading random rows of this width, which is half of the work
//! of a gather.

use graphmill_core::{
    Features, Matrix,
    keyed::{Stream, key},
    matrix::TableType,
};
use graphmill_loader::{
    Feature,
    feature::{
        Host,
        cached::{CacheLayout, Placement},
    },
};

use super::measure::{Bench, DIM, Limit, random};
use crate::{Result, accelerator::RowsBehind};

/// Number of rows of a call.
const ROWS: usize = 300_000;
/// Maximum number of rows of a call on an NVIDIA device, which needs more rows to be busy; and the
/// maximum per node of the graph.
const MAX_DEVICE_ROWS: (usize, usize) = (2 << 20, 8);

/// Measures all cases.
pub(super) fn run(bench: &mut Bench) -> Result<()> {
    let own = if bench.data.features.dim > 0 { bench.data.features.dim } else { DIM };
    let width = bench.options.dim.unwrap_or(own);
    let nodes = bench.data.num_nodes();
    let mut stream = Stream::new(key(&[bench.options.train.seed, 0x6964_7321]));
    let mut draw =
        |rows: usize| -> Vec<u32> { (0..rows).map(|_| stream.below(nodes as u64) as u32).collect() };
    if !bench.computers.gpus().is_empty() {
        let (max, per_node) = MAX_DEVICE_ROWS;
        return on_device(bench, &draw(max.min(per_node * nodes)), width);
    }
    let ids = draw(ROWS);
    let mut out = vec![0.0; ROWS * width];
    let limit = bench.moving(width)?;
    for (storage, table) in tables(nodes, width)? {
        let bytes = table.read(&ids, &mut out)?.total().bytes as f64 + 4.0 * out.len() as f64;
        let times = bench.time(|| {
            table.read(&ids, &mut out).expect("the first read succeeded");
        });
        bench.rate(format!("{storage} F={width}"), "GB/s", bytes / 1e9, &times, limit);
    }
    Ok(())
}

/// Measures on an NVIDIA device: from its memory, and from page-locked host memory that the kernel
/// reads in place, counting the bytes over the link. The ids are on the device, as after sampling.
fn on_device(bench: &mut Bench, ids: &[u32], width: usize) -> Result<()> {
    let computers = bench.computers.clone();
    let gpu = &computers.gpus()[0];
    let nodes = bench.data.num_nodes();
    let on_device = gpu.upload(ids)?;
    let all: Vec<u32> = (0..nodes as u32).collect();
    let (copy, link) = (bench.machine.copy()?, bench.machine.link()?.unwrap_or(f64::INFINITY));
    for (storage, host) in tables(nodes, width)? {
        let values = host.table().expect("rows in host memory are a table");
        let stored = RowsBehind::table(gpu, &values, width)?;
        let inside = Limit { value: copy, of: "copy within the device", row: None };
        let outside = Limit { value: link, of: "copy from the host", row: None };
        for (place, held, limit) in [("device", &all[..], inside), ("host, read in place", &[], outside)] {
            let held = CacheLayout::new(held, held.len(), 1, Placement::Interleave);
            let tier = stored.tiered(std::slice::from_ref(gpu), &[], &held)?.remove(0);
            let tier = tier.capabilities().device.expect("the rows are on a device");
            let mut out = Matrix::default();
            let traffic = tier.gather_on_device(ids, &on_device, &mut out)?;
            let written = 4 * (ids.len() * width) as u64;
            let bytes =
                if traffic.host.rows > 0 { traffic.host.bytes } else { traffic.device.bytes + written };
            let times = bench.time(|| {
                tier.gather_on_device(ids, &on_device, &mut out).expect("the first read succeeded");
            });
            bench.rate(format!("{storage} F={width}, {place}"), "GB/s", bytes as f64 / 1e9, &times, limit);
        }
    }
    gpu.check()
}

/// Tables to gather from, by number type.
fn tables(nodes: usize, width: usize) -> Result<Vec<(&'static str, Host)>> {
    let wide = random(nodes, width);
    let wide = Features::f32(width, wide.view().host().to_vec());
    TableType::ALL.into_iter().map(|(name, kind)| Ok((name, Host::resident(&wide, kind)?))).collect()
}
