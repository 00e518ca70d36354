//! Options of the service.

use std::{
    net::{SocketAddr, ToSocketAddrs},
    path::PathBuf,
    str::FromStr,
    time::Duration,
};

use graphmill_engine::{Error, Result};

use crate::Token;

/// Rows of known nodes that a service computes once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum EmbeddingCache {
    /// None.
    #[default]
    None,
    /// The input rows of the last layer, in memory (`V x H`): an exact answer reads one hop.
    Bottom,
}

impl FromStr for EmbeddingCache {
    type Err = Error;

    fn from_str(word: &str) -> Result<Self> {
        match word {
            "none" => Ok(Self::None),
            "bottom" => Ok(Self::Bottom),
            _ => Err(Error::usage(format!("--cache-embeddings {word}: pass none or bottom"))),
        }
    }
}

/// Options of [`serve`](crate::serve()).
#[derive(Clone, Debug)]
pub struct ServeOptions {
    /// Run directory; a reload opens it again.
    pub run: PathBuf,
    /// Dataset to answer for; the run's own by default.
    pub dataset: Option<PathBuf>,
    /// True for the model of the last checkpoint, false for the best one.
    pub last: bool,
    /// True if the embeddings of a run on links read all edges, and not those of training only.
    pub all_edges: bool,
    /// Host and port to listen at; port 0 takes a free one.
    pub listen: String,
    /// Token that requests must have.
    pub token: Option<Token>,
    /// True to listen at an address of the network without a token.
    pub anonymous: bool,
    /// Rows of known nodes that are computed once.
    pub cache: EmbeddingCache,
    /// Time for which a batch waits for more requests after its first one.
    pub window: Duration,
    /// Nodes of a batch, from which on it takes no further request.
    pub max_batch: usize,
    /// Maximum number of nodes of a request, or of pairs of a run on links.
    pub max_nodes: usize,
    /// Maximum number of candidates of a request to a run on links.
    pub max_candidates: usize,
    /// Maximum number of new edges, or events, of a request.
    pub max_edges: usize,
    /// Maximum bytes of a request's body.
    pub max_body: usize,
    /// Maximum number of requests that are answered at the same time.
    pub max_requests: usize,
    /// Maximum number of open connections; others wait.
    pub max_connections: usize,
    /// Time in which a header, a body and the reading of an answer must end, and requests in flight
    /// after a stop.
    pub patience: Duration,
}

impl Default for ServeOptions {
    fn default() -> Self {
        Self {
            run: PathBuf::new(),
            dataset: None,
            last: false,
            all_edges: false,
            listen: "127.0.0.1:8080".into(),
            token: None,
            anonymous: false,
            cache: EmbeddingCache::None,
            window: Duration::ZERO,
            max_batch: 1024,
            max_nodes: 1000,
            max_candidates: 100_000,
            max_edges: 10_000,
            max_body: 1 << 20,
            max_requests: 256,
            max_connections: 4096,
            patience: Duration::from_secs(30),
        }
    }
}

impl ServeOptions {
    /// Addresses to listen at.
    ///
    /// # Errors
    /// Wrong usage: a limit of 0, an address that cannot be resolved, or one of the network without
    /// a token.
    pub(crate) fn addresses(&self) -> Result<Vec<SocketAddr>> {
        let limits = [
            ("--max-batch", self.max_batch),
            ("--max-nodes", self.max_nodes),
            ("--max-candidates", self.max_candidates),
            ("--max-edges", self.max_edges),
            ("--max-body", self.max_body),
            ("--max-requests", self.max_requests),
            ("--max-connections", self.max_connections),
        ];
        if let Some((flag, _)) = limits.iter().find(|(_, value)| *value == 0) {
            return Err(Error::usage(format!("{flag} 0: nothing could be answered; pass at least 1")));
        }
        if self.patience.is_zero() {
            return Err(Error::usage("--timeout 0: nothing could arrive in time; pass at least 1"));
        }
        let resolved = self.listen.to_socket_addrs();
        let addresses: Vec<SocketAddr> = resolved.map(Iterator::collect).unwrap_or_default();
        if addresses.is_empty() {
            return Err(Error::usage(format!(
                "--listen {}: it is not a host and a port; pass an address such as 127.0.0.1:8080",
                self.listen
            )));
        }
        let is_local = addresses.iter().all(|address| address.ip().is_loopback());
        if !is_local && self.token.is_none() && !self.anonymous {
            return Err(Error::usage(format!(
                "--listen {}: the address can be reached from the network, and there is no token; pass \
                 --token-file, set GRAPHMILL_TOKEN, or pass --anonymous if everybody may ask",
                self.listen
            )));
        }
        Ok(addresses)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_network_needs_a_token_and_limits_are_positive() {
        let listen = |listen: &str| ServeOptions { listen: listen.into(), ..ServeOptions::default() };
        for local in ["127.0.0.1:0", "[::1]:0"] {
            assert!(listen(local).addresses().is_ok(), "{local}");
        }
        let open = listen("0.0.0.0:0");
        let message = open.addresses().unwrap_err().to_string();
        assert!(message.contains("--token-file") && message.contains("--anonymous"), "{message}");
        assert!(ServeOptions { anonymous: true, ..open.clone() }.addresses().is_ok());
        assert!(
            ServeOptions { token: Some(Token::new("x".repeat(16)).unwrap()), ..open }.addresses().is_ok()
        );
        assert!(listen("here").addresses().unwrap_err().to_string().contains("--listen here"));
        let none = ServeOptions { max_nodes: 0, ..ServeOptions::default() };
        assert!(none.addresses().unwrap_err().to_string().contains("--max-nodes 0"));
    }
}
