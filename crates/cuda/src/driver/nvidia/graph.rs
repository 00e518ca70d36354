//! Work of a stream as a graph.

use std::ptr;

use cudarc::driver::sys::{self, CUresult};

use super::{Device, library};
use crate::{
    Result,
    driver::{Graph, Stream},
};

/// Captures what this thread gives to the stream. Other threads go on as ever: only this one must
/// not call what cannot be captured.
pub(super) fn begin(device: &Device, stream: Stream) -> Result<()> {
    if let Some(call) = library::missing_for_graphs() {
        return Err(device.failed(call, "the driver does not have it"));
    }
    device.enter()?;
    let mode = sys::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
    // SAFETY: the call was found; streams stay until the context goes.
    let status = unsafe { sys::cuStreamBeginCapture_v2(stream.0 as sys::CUstream, mode) };
    device.check("cuStreamBeginCapture", status)
}

/// What was captured, made ready to run. The stream leaves its capture whether that was valid or
/// not.
pub(super) fn end(device: &Device, stream: Stream) -> Result<Graph> {
    device.enter()?;
    let (mut graph, mut ready) = (ptr::null_mut(), ptr::null_mut());
    // SAFETY: capturing began, so that the calls were found; what they write to outlives them. The
    // description of the work is not needed once it is ready.
    unsafe {
        let status = sys::cuStreamEndCapture(stream.0 as sys::CUstream, &raw mut graph);
        device.check("cuStreamEndCapture", status)?;
        let status = sys::cuGraphInstantiateWithFlags(&raw mut ready, graph, 0);
        let _: CUresult = sys::cuGraphDestroy(graph);
        device.check("cuGraphInstantiate", status)?;
    }
    Ok(Graph(ready as u64))
}

/// Has it done.
///
/// # Safety
/// As [`crate::driver::Driver::launch_graph`].
pub(super) unsafe fn launch(device: &Device, graph: Graph, stream: Stream) -> Result<()> {
    device.enter()?;
    // SAFETY: graphs come from `end` and stay until they are destroyed; the rest is the caller's
    // promise.
    let status = unsafe { sys::cuGraphLaunch(graph.0 as sys::CUgraphExec, stream.0 as sys::CUstream) };
    device.check("cuGraphLaunch", status)
}

/// Gives it back; the driver keeps it until it has run.
///
/// # Safety
/// Nobody names it again.
pub(super) unsafe fn destroy(device: &Device, graph: Graph) {
    if device.enter().is_ok() {
        // SAFETY: a graph of `end`, which nobody names again.
        let _: CUresult = unsafe { sys::cuGraphExecDestroy(graph.0 as sys::CUgraphExec) };
    }
}
