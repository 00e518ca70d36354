//! Bodies of requests: their type, and their limits of bytes and time.
//!
//! A body is read before its request counts against [`ServeOptions::max_requests`], so that slow
//! bodies do not keep other requests out. All bodies in memory share a budget of that many bodies
//! of the largest size. The first [`FREE`] bytes of a body do not count, so that small requests
//! are answered while large bodies fill the budget: the bodies of all connections take at most
//! `max_requests x max_body + max_connections x FREE` bytes.
//!
//! [`ServeOptions::max_requests`]: crate::ServeOptions::max_requests

use std::{future::poll_fn, ops::Deref, pin::Pin, time::Duration};

use axum::{
    body::{Body, HttpBody},
    extract::Request,
    http::{HeaderMap, StatusCode, header},
};
use tokio::{
    sync::{Semaphore, SemaphorePermit},
    time::timeout,
};

use crate::{ServeOptions, failure::Failure};

/// Bytes of a body that do not count against the budget.
const FREE: usize = 16 << 10;

/// Limits of bodies.
pub(crate) struct Bodies {
    /// Bytes of the budget that are left.
    budget: Semaphore,
    /// Maximum bytes of a body.
    max: usize,
    /// Time in which a body must arrive.
    patience: Duration,
}

/// Bytes of a body, with their share of the budget.
pub(crate) struct ReservedBytes<'a> {
    bytes: Vec<u8>,
    share: Option<SemaphorePermit<'a>>,
}

impl Deref for ReservedBytes<'_> {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Bodies {
    pub(crate) fn new(options: &ServeOptions) -> Self {
        let &ServeOptions { max_requests, max_body: max, patience, .. } = options;
        let budget = Semaphore::new(max_requests.saturating_mul(max).min(Semaphore::MAX_PERMITS));
        Self { budget, max, patience }
    }

    /// Reads the body of a request of JSON.
    ///
    /// # Errors
    /// The body has another type, exceeds a limit or breaks off.
    pub(crate) async fn read(&self, request: Request) -> Result<ReservedBytes<'_>, Failure> {
        if !is_json(request.headers()) {
            // pages of other sites cannot send this type to a service on this machine
            let (why, fix) = ("it is not JSON", "send Content-Type: application/json");
            return Err(failure(StatusCode::UNSUPPORTED_MEDIA_TYPE, why, fix));
        }
        timeout(self.patience, self.collect(request.into_body())).await.unwrap_or_else(|_| {
            let why = format!("it did not arrive within {} s", self.patience.as_secs_f32());
            Err(failure(StatusCode::REQUEST_TIMEOUT, why, "send it at once"))
        })
    }

    /// Collects the parts of a body within the limits.
    async fn collect(&self, mut body: Body) -> Result<ReservedBytes<'_>, Failure> {
        // the length that the header announces
        self.check(body.size_hint().lower())?;
        let mut held = ReservedBytes { bytes: Vec::new(), share: None };
        while let Some(frame) = poll_fn(|context| Pin::new(&mut body).poll_frame(context)).await {
            let fix = "send as many bytes as Content-Length says";
            let frame = frame.map_err(|_| failure(StatusCode::BAD_REQUEST, "it broke off", fix))?;
            let Ok(part) = frame.into_data() else { continue };
            let size = held.bytes.len() + part.len();
            self.check(size as u64)?;
            let more = self.reserve(size.saturating_sub(held.bytes.len().max(FREE)))?;
            match &mut held.share {
                Some(share) => share.merge(more),
                None => held.share = Some(more),
            }
            held.bytes.extend_from_slice(&part);
        }
        Ok(held)
    }

    /// Refuses a body of more bytes than the maximum.
    fn check(&self, size: u64) -> Result<(), Failure> {
        if size <= self.max as u64 {
            return Ok(());
        }
        let fix = "send several requests, or start the service with a larger --max-body";
        Err(failure(StatusCode::PAYLOAD_TOO_LARGE, format!("it has more than {} bytes", self.max), fix))
    }

    /// Takes `bytes` of the budget.
    fn reserve(&self, bytes: usize) -> Result<SemaphorePermit<'_>, Failure> {
        let bytes = u32::try_from(bytes).unwrap_or(u32::MAX);
        self.budget.try_acquire_many(bytes).map_err(|_| {
            let why = "the bodies that arrive fill their memory";
            let fix = "ask again, or start the service with a larger --max-requests";
            failure(StatusCode::SERVICE_UNAVAILABLE, why, fix)
        })
    }
}

/// A failure by the body.
fn failure(status: StatusCode, why: impl Into<String>, fix: &str) -> Failure {
    Failure::new(status, "body", why, fix)
}

fn is_json(headers: &HeaderMap) -> bool {
    let kind = headers.get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
    kind.split(';').next().is_some_and(|kind| kind.trim().eq_ignore_ascii_case("application/json"))
}
