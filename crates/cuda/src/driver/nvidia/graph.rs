//! Captured work of a stream as a graph.

#![allow(unsafe_code, reason = "device memory and kernels")]

use std::ptr;

use cudarc::driver::sys::{self, CUresult};

use super::{Device, library};
use crate::{
    Result,
    driver::{Graph, Stream},
};

/// Captures what this thread queues in the stream. Other threads continue as usual; only this one
/// must avoid calls that cannot be captured.
pub(super) fn begin(device: &Device, stream: Stream) -> Result<()> {
    if let Some(call) = library::missing_for_graphs() {
        return Err(device.failed(call, "the driver lacks this call; install version 570 or later"));
    }
    device.enter()?;
    let mode = sys::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
    // SAFETY: the call was found; streams are valid as long as the context.
    let status = unsafe { sys::cuStreamBeginCapture_v2(stream.0 as sys::CUstream, mode) };
    device.check("cuStreamBeginCapture", status)
}

/// Ends the capture and instantiates the graph. The stream leaves its capture even if it was
/// invalid.
pub(super) fn end(device: &Device, stream: Stream) -> Result<Graph> {
    device.enter()?;
    let (mut graph, mut ready) = (ptr::null_mut(), ptr::null_mut());
    // SAFETY: the capture began, so the calls were found; outputs outlive them. The description of
    // the work is not needed after instantiation.
    unsafe {
        let status = sys::cuStreamEndCapture(stream.0 as sys::CUstream, &raw mut graph);
        device.check("cuStreamEndCapture", status)?;
        let status = sys::cuGraphInstantiateWithFlags(&raw mut ready, graph, 0);
        let _: CUresult = sys::cuGraphDestroy(graph);
        device.check("cuGraphInstantiate", status)?;
    }
    Ok(Graph(ready as u64))
}

/// Launches the graph.
///
/// # Safety
/// As [`crate::driver::Driver::launch_graph`].
pub(super) unsafe fn launch(device: &Device, graph: Graph, stream: Stream) -> Result<()> {
    device.enter()?;
    // SAFETY: graphs come from `end` and are valid until they are destroyed; the rest is the
    // caller's guarantee.
    let status = unsafe { sys::cuGraphLaunch(graph.0 as sys::CUgraphExec, stream.0 as sys::CUstream) };
    device.check("cuGraphLaunch", status)
}

/// Destroys the graph; the driver keeps it until it has run.
///
/// # Safety
/// The graph is not used again.
pub(super) unsafe fn destroy(device: &Device, graph: Graph) {
    if device.enter().is_ok() {
        // SAFETY: a graph of `end`, which is not used again.
        let _: CUresult = unsafe { sys::cuGraphExecDestroy(graph.0 as sys::CUgraphExec) };
    }
}
