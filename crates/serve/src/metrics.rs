//! Counts and times of the service, for Prometheus.

use std::time::Duration;

use prometheus_client::{
    encoding::text::encode,
    metrics::{
        counter::Counter,
        family::Family,
        gauge::Gauge,
        histogram::{Histogram, exponential_buckets},
    },
    registry::Registry,
};

/// Labels of a series: the endpoint and the status, or one of them.
type Labels = Vec<(&'static str, String)>;

/// Metrics of a service.
pub(crate) struct Metrics {
    registry: Registry,
    requests: Family<Labels, Counter>,
    seconds: Family<Labels, Histogram>,
    errors: Counter,
    reloads: Family<Labels, Counter>,
    batch_nodes: Histogram,
    batch_requests: Histogram,
    /// Requests that are being answered.
    pub(crate) in_flight: Gauge,
}

impl Metrics {
    pub(crate) fn new() -> Self {
        let powers = || Histogram::new(exponential_buckets(1.0, 2.0, 13));
        let seconds: fn() -> Histogram = || Histogram::new(exponential_buckets(0.0005, 2.0, 16));
        let mut metrics = Self {
            registry: Registry::with_prefix("graphmill"),
            requests: Family::default(),
            seconds: Family::new_with_constructor(seconds),
            errors: Counter::default(),
            reloads: Family::default(),
            batch_nodes: powers(),
            batch_requests: powers(),
            in_flight: Gauge::default(),
        };
        let Self { registry, requests, seconds, errors, reloads, batch_nodes, batch_requests, in_flight } =
            &mut metrics;
        registry.register("requests", "Requests by endpoint and status", requests.clone());
        registry.register("request_seconds", "Time from a request to its answer", seconds.clone());
        registry.register("errors", "Requests that were not answered as asked", errors.clone());
        registry.register("reloads", "Reloads of the run by result", reloads.clone());
        registry.register("batch_nodes", "Nodes of a batch", batch_nodes.clone());
        registry.register("batch_requests", "Requests of a batch", batch_requests.clone());
        registry.register("requests_in_flight", "Requests that are being answered", in_flight.clone());
        metrics
    }

    /// Counts an answered request.
    pub(crate) fn answered(&self, endpoint: &str, status: u16, took: Duration) {
        let endpoint = ("endpoint", endpoint.to_owned());
        self.requests.get_or_create(&vec![endpoint.clone(), ("status", status.to_string())]).inc();
        self.seconds.get_or_create(&vec![endpoint]).observe(took.as_secs_f64());
        if status >= 400 {
            self.errors.inc();
        }
    }

    /// Counts a batch.
    pub(crate) fn batch(&self, requests: usize, nodes: usize) {
        self.batch_requests.observe(requests as f64);
        self.batch_nodes.observe(nodes as f64);
    }

    /// Counts a reload.
    pub(crate) fn reloaded(&self, done: bool) {
        let result = if done { "done" } else { "refused" };
        self.reloads.get_or_create(&vec![("result", result.into())]).inc();
    }

    /// All metrics in the text format of OpenMetrics.
    pub(crate) fn text(&self) -> String {
        let mut text = String::new();
        // writing to a string cannot fail
        let _ = encode(&mut text, &self.registry);
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_text_has_all_series() {
        let metrics = Metrics::new();
        metrics.answered("/v1/predict", 200, Duration::from_millis(3));
        metrics.answered("/v1/predict", 422, Duration::from_millis(1));
        metrics.batch(3, 70);
        metrics.reloaded(false);
        let text = metrics.text();
        for line in [
            "graphmill_requests_total{endpoint=\"/v1/predict\",status=\"200\"} 1",
            "graphmill_request_seconds_count{endpoint=\"/v1/predict\"} 2",
            "graphmill_errors_total 1",
            "graphmill_reloads_total{result=\"refused\"} 1",
            "graphmill_batch_nodes_sum 70.0",
            "graphmill_batch_requests_count 1",
            "graphmill_requests_in_flight 0",
            "# EOF",
        ] {
            assert!(text.contains(line), "{line} is missing:\n{text}");
        }
    }
}
