//! One request: a file from one of its bytes on.

use std::{io::Read, time::Duration};

use ureq::{
    Agent, Body, BodyReader,
    http::{HeaderMap, Response, StatusCode, header},
};

use super::{Error, Result};

/// What a server says of the version of a file that it sends; empty where it says nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(default)]
pub(crate) struct Version {
    /// The strong entity tag (RFC 9110, section 8.8.3).
    pub(crate) etag: Option<String>,
    /// When it was changed, as the server writes it.
    pub(crate) modified: Option<String>,
    /// All its bytes.
    pub(crate) total: Option<u64>,
}

impl Version {
    fn of(headers: &HeaderMap, total: Option<u64>) -> Self {
        // a weak tag does not promise equal bytes, which is what a range needs
        let etag = text(headers, header::ETAG).filter(|tag| !tag.starts_with("W/"));
        Self { etag, modified: text(headers, header::LAST_MODIFIED), total }
    }

    /// Whether both may be the same bytes: nothing that both say differs.
    pub(crate) fn agrees(&self, other: &Self) -> bool {
        fn same<T: PartialEq>(a: &Option<T>, b: &Option<T>) -> bool {
            a.is_none() || b.is_none() || a == b
        }
        same(&self.etag, &other.etag)
            && same(&self.modified, &other.modified)
            && same(&self.total, &other.total)
    }
}

/// What came back.
pub(crate) enum Reply {
    /// The file's bytes, from `start` on.
    Bytes {
        /// The first byte's place in the file.
        start: u64,
        /// Which file that is.
        version: Version,
        /// The bytes.
        body: BodyReader<'static>,
    },
    /// There is nothing from that byte on; the file has so many bytes, where the server says it.
    Beyond(Option<u64>),
    /// Not now, but perhaps later.
    Later(String),
}

/// Talks to servers.
#[derive(Debug)]
pub(crate) struct Client {
    agent: Agent,
}

impl Client {
    /// A client that gives up on a server silent for `idle`, and that goes through the proxy that the environment
    /// names (`https_proxy`, `all_proxy`, `no_proxy` and their kin) where `proxy` says so.
    pub(crate) fn new(idle: Duration, proxy: bool) -> Self {
        let mut config = Agent::config_builder()
            .http_status_as_error(false)
            .user_agent(concat!("graphmill/", env!("CARGO_PKG_VERSION")))
            // the bytes as they are: a compressed transfer has other ranges and another checksum
            .accept_encoding("identity")
            .timeout_resolve(Some(idle))
            .timeout_connect(Some(idle))
            .timeout_recv_response(Some(idle))
            .timeout_per_read(Some(idle));
        if !proxy {
            config = config.proxy(None);
        }
        Self { agent: config.build().new_agent() }
    }

    /// Asks for the file from byte `start` on, if it is still the `version` that we have the beginning of.
    ///
    /// The outer error is final; the inner one says what broke, and a later try may fare better.
    pub(crate) fn get(&self, url: &str, start: u64, version: &Version) -> Result<Result<Reply, ureq::Error>> {
        let mut request = self.agent.get(url);
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
            let message = "the server has no such file (any more): ask for a mirror that has it with --mirror, or \
                           look at the dataset's page";
            return Err(Error::refused(url, format!("{}: {message}", said(status))));
        }
        _ => return Err(Error::refused(url, format!("{}: fetch the file by hand", said(status)))),
    }
    if text(headers, header::CONTENT_TYPE).is_some_and(|kind| kind.starts_with("text/html")) {
        let message = "the server sent a web page and not the file (a login, a quota, a warning): open the address in \
                       a browser and save the file by hand";
        return Err(Error::refused(url, message));
    }
    let length = text(headers, header::CONTENT_LENGTH).and_then(|text| text.parse().ok());
    let (start, total) = if status == StatusCode::OK {
        (0, length)
    } else {
        let range = text(headers, header::CONTENT_RANGE).unwrap_or_default();
        parse_range(&range).ok_or_else(|| {
            Error::refused(url, format!("the server sent the range '{range}', which means nothing"))
        })?
    };
    let version = Version::of(headers, total);
    Ok(Reply::Bytes { start, version, body: body.into_with_config().limit(u64::MAX).reader() })
}

/// `bytes 10-99/100`: where it starts, and the whole length where that is known.
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

/// Whether trying again is of no use.
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

/// Whether the error says that there is no way to that server, at least not now.
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

/// The error for a person.
pub(crate) fn format_error(error: &ureq::Error) -> String {
    match error {
        ureq::Error::HostNotFound => "its host is not known here (no network, or no name server)".into(),
        ureq::Error::Timeout(what) => format!("the server was silent for too long ({what})"),
        ureq::Error::Io(error) => error.to_string(),
        error => error.to_string(),
    }
}

/// Reads on; an end before the announced one is an error here.
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
