//! A single HTTP request: a file from a given byte on.

use std::{io::Read, time::Duration};

use ureq::{
    Agent, Body, BodyReader,
    http::{HeaderMap, Response, StatusCode, header},
};

use super::{Error, Result};

/// Version of a file as reported by the server; empty if it reports none.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(default)]
pub(crate) struct Version {
    /// Strong entity tag (RFC 9110, section 8.8.3).
    pub(crate) etag: Option<String>,
    /// Modification date, as the server formats it.
    pub(crate) modified: Option<String>,
    /// Total length in bytes.
    pub(crate) total: Option<u64>,
}

impl Version {
    fn of(headers: &HeaderMap, total: Option<u64>) -> Self {
        // A weak tag does not guarantee equal bytes, which ranges require.
        let etag = text(headers, header::ETAG).filter(|tag| !tag.starts_with("W/"));
        Self { etag, modified: text(headers, header::LAST_MODIFIED), total }
    }

    /// Returns true if a later request can ask for the rest of exactly this version.
    pub(crate) fn can_resume(&self) -> bool {
        self.etag.is_some() || self.modified.is_some()
    }

    /// Returns true if both versions may have the same bytes: no field present in both differs.
    pub(crate) fn agrees(&self, other: &Self) -> bool {
        fn same<T: PartialEq>(a: &Option<T>, b: &Option<T>) -> bool {
            a.is_none() || b.is_none() || a == b
        }
        same(&self.etag, &other.etag)
            && same(&self.modified, &other.modified)
            && same(&self.total, &other.total)
    }
}

/// Response to a request.
pub(crate) enum Reply {
    /// Bytes of the file, from `start` on.
    Bytes {
        /// Offset of the first byte in the file.
        start: u64,
        /// Version of the file.
        version: Version,
        /// Reader of the bytes.
        body: BodyReader<'static>,
    },
    /// No data beyond the requested byte; the file's length, if the server reports it.
    Beyond(Option<u64>),
    /// Temporary failure.
    Later(String),
}

/// HTTP client.
#[derive(Debug)]
pub(crate) struct Client {
    /// Follows redirects to encrypted addresses only.
    encrypted: Agent,
    /// For the plain address of a mirror.
    plain: Agent,
}

impl Client {
    /// Creates a client that times out after `idle` without data and, if `proxy` is set, uses the
    /// proxy of the environment (`https_proxy`, `all_proxy`, `no_proxy` and variants).
    pub(crate) fn new(idle: Duration, proxy: bool) -> Self {
        let [encrypted, plain] = [true, false].map(|only| Self::agent(idle, proxy, only));
        Self { encrypted, plain }
    }

    fn agent(idle: Duration, proxy: bool, https_only: bool) -> Agent {
        let mut config = Agent::config_builder()
            .http_status_as_error(false)
            .https_only(https_only)
            .user_agent(concat!("graphmill/", env!("CARGO_PKG_VERSION")))
            // No compression: it would change ranges and checksums.
            .accept_encoding("identity")
            .timeout_resolve(Some(idle))
            .timeout_connect(Some(idle))
            .timeout_recv_response(Some(idle))
            .timeout_per_read(Some(idle));
        if !proxy {
            config = config.proxy(None);
        }
        config.build().new_agent()
    }

    /// Requests the file from byte `start` on, if it still has the `version` of the existing
    /// beginning.
    ///
    /// The outer error is final; the inner one is temporary and may be retried.
    pub(crate) fn get(&self, url: &str, start: u64, version: &Version) -> Result<Result<Reply, ureq::Error>> {
        let is_encrypted = url.get(..8).is_some_and(|start| start.eq_ignore_ascii_case("https://"));
        let mut request = if is_encrypted { &self.encrypted } else { &self.plain }.get(url);
        if start > 0 {
            request = request.header(header::RANGE, format!("bytes={start}-"));
            if let Some(known) = version.etag.as_ref().or(version.modified.as_ref()) {
                request = request.header(header::IF_RANGE, known);
            }
        }
        let response = match request.call() {
            Ok(response) => response,
            Err(error) if is_final(&error) => return Err(Error::refused(url, format_error(&error))),
            Err(error) => return Ok(Err(error)),
        };
        reply(url, response).map(Ok)
    }
}

fn reply(url: &str, response: Response<Body>) -> Result<Reply> {
    let (head, body) = response.into_parts();
    let (status, headers) = (head.status, &head.headers);
    match status {
        StatusCode::OK | StatusCode::PARTIAL_CONTENT => {}
        StatusCode::RANGE_NOT_SATISFIABLE => {
            let range = text(headers, header::CONTENT_RANGE);
            return Ok(Reply::Beyond(range.and_then(|text| text.strip_prefix("bytes */")?.parse().ok())));
        }
        StatusCode::REQUEST_TIMEOUT | StatusCode::TOO_MANY_REQUESTS => return Ok(Reply::Later(said(status))),
        _ if status.is_server_error() => return Ok(Reply::Later(said(status))),
        StatusCode::NOT_FOUND | StatusCode::GONE => {
            let message = "the server does not have the file (any more); name a mirror that has it with \
                --mirror, or \
                           look at the dataset's page";
            return Err(Error::refused(url, format!("{}: {message}", said(status))));
        }
        _ => return Err(Error::refused(url, format!("{}: fetch the file by hand", said(status)))),
    }
    if text(headers, header::CONTENT_TYPE).is_some_and(|kind| kind.starts_with("text/html")) {
        let message = "the server sent a web page and not the file (a login, a quota, a warning): open the \
            address in \
                       a browser and save the file by hand";
        return Err(Error::refused(url, message));
    }
    let length = text(headers, header::CONTENT_LENGTH).and_then(|text| text.parse().ok());
    let (start, total) = if status == StatusCode::OK {
        (0, length)
    } else {
        let range = text(headers, header::CONTENT_RANGE).unwrap_or_default();
        parse_range(&range)
            .ok_or_else(|| Error::refused(url, format!("the server sent the invalid range '{range}'")))?
    };
    let version = Version::of(headers, total);
    Ok(Reply::Bytes { start, version, body: body.into_with_config().limit(u64::MAX).reader() })
}

/// Parses `bytes 10-99/100`: the start, and the total length if known.
pub(crate) fn parse_range(text: &str) -> Option<(u64, Option<u64>)> {
    let (range, total) = text.strip_prefix("bytes ")?.split_once('/')?;
    let total = if total == "*" { None } else { Some(total.parse().ok()?) };
    Some((range.split_once('-')?.0.parse().ok()?, total))
}

fn text(headers: &HeaderMap, name: header::HeaderName) -> Option<String> {
    headers.get(name)?.to_str().ok().map(str::to_string)
}

fn said(status: StatusCode) -> String {
    format!("the server answered {} {}", status.as_u16(), status.canonical_reason().unwrap_or_default())
        .trim_end()
        .to_string()
}

/// Returns true if a retry cannot help.
fn is_final(error: &ureq::Error) -> bool {
    !matches!(
        error,
        ureq::Error::Io(_)
            | ureq::Error::Timeout(_)
            | ureq::Error::HostNotFound
            | ureq::Error::ConnectionFailed
            | ureq::Error::Protocol(_)
    )
}

/// Returns true if the server cannot be reached, at least currently.
pub(crate) fn is_unreachable(error: &ureq::Error) -> bool {
    match error {
        ureq::Error::HostNotFound => true,
        ureq::Error::Io(error) => {
            use std::io::ErrorKind as Kind;
            let kinds = [Kind::ConnectionRefused, Kind::NetworkUnreachable, Kind::HostUnreachable];
            kinds.contains(&error.kind())
        }
        _ => false,
    }
}

/// Formats the error for users.
pub(crate) fn format_error(error: &ureq::Error) -> String {
    match error {
        ureq::Error::HostNotFound => {
            "its host name cannot be resolved (no network, or no name server)".into()
        }
        ureq::Error::RequireHttpsOnly(url) => {
            format!("it redirects to {url}, which is not encrypted, so anybody could change the file")
        }
        ureq::Error::Timeout(what) => format!("the server was silent for too long ({what})"),
        ureq::Error::Io(error) => error.to_string(),
        error => error.to_string(),
    }
}

/// Reads on; an end before the announced length is an error.
pub(crate) fn read(body: &mut BodyReader<'static>, buffer: &mut [u8]) -> std::io::Result<usize> {
    loop {
        match body.read(buffer) {
            Err(e) if e.kind() == std::io::ErrorKind::Interrupted => {}
            done => return done,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_read() {
        assert_eq!(parse_range("bytes 10-99/100"), Some((10, Some(100))));
        assert_eq!(parse_range("bytes 0-0/*"), Some((0, None)));
        for bad in ["", "bytes", "bytes 1-2", "bytes x-2/3", "bytes 1-2/x", "items 1-2/3", "bytes 12/3"] {
            assert_eq!(parse_range(bad), None, "{bad}");
        }
    }

    #[test]
    fn versions_agree_unless_something_differs() {
        let a = Version { etag: Some("\"a\"".into()), modified: None, total: Some(3) };
        assert!(a.agrees(&Version::default()) && a.agrees(&a));
        assert!(!a.agrees(&Version { etag: Some("\"b\"".into()), ..a.clone() }));
        assert!(!a.agrees(&Version { total: Some(4), ..a.clone() }));
    }
}
