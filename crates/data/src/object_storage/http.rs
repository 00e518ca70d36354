//! HTTP client of `object_store`: the blocking client of the downloads, which is in the program
//! anyway. Futures block, which is harmless in the threads of [`super::worker`].

use std::{
    io::{self, Read},
    pin::Pin,
    sync::Mutex,
    task::{Context, Poll},
    time::Duration,
};

use async_trait::async_trait;
use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use object_store::{
    ClientConfigKey, ClientOptions,
    client::{
        HttpClient, HttpConnector, HttpError, HttpErrorKind, HttpRequest, HttpResponse, HttpResponseBody,
        HttpService,
    },
};
use ureq::{Agent, BodyReader, Timeout};

/// Bytes of a piece of a response.
pub(super) const PIECE_LEN: usize = 1 << 18;
/// Time without data after which a request fails.
const IDLE: Duration = Duration::from_secs(30);

/// Factory of the clients.
#[derive(Debug)]
pub(super) struct Connector;

impl HttpConnector for Connector {
    fn connect(&self, options: &ClientOptions) -> object_store::Result<HttpClient> {
        // The wait for a server of credentials, which only some machines have, is shorter.
        let connect = options.get_config_value(&ClientConfigKey::ConnectTimeout);
        let seconds = connect.and_then(|text| text.strip_suffix('s')?.parse().ok()).unwrap_or(5);
        let config = Agent::config_builder()
            .http_status_as_error(false)
            .user_agent(concat!("graphmill/", env!("CARGO_PKG_VERSION")))
            // No compression: it would change ranges.
            .accept_encoding("identity")
            .allow_non_standard_methods(true)
            .timeout_resolve(Some(IDLE))
            .timeout_connect(Some(Duration::from_secs(seconds)))
            .timeout_recv_response(Some(IDLE))
            .timeout_per_read(Some(IDLE));
        let allow = options.get_config_value(&ClientConfigKey::AllowHttp);
        let allow_http = allow.is_some_and(|text| text == "true");
        Ok(HttpClient::new(Client { agent: config.build().new_agent(), allow_http }))
    }
}

#[derive(Debug)]
struct Client {
    agent: Agent,
    allow_http: bool,
}

#[async_trait]
impl HttpService for Client {
    async fn call(&self, request: HttpRequest) -> Result<HttpResponse, HttpError> {
        if !self.allow_http && request.uri().scheme_str() == Some("http") {
            let message = "the address is not encrypted (http); use https, or allow it by \
                AWS_ALLOW_HTTP=true, GOOGLE_ALLOW_HTTP=true or AZURE_ALLOW_HTTP=true";
            return Err(HttpError::new(HttpErrorKind::Unknown, io::Error::other(message)));
        }
        let (parts, body) = request.into_parts();
        let is_plain = body.is_empty() && (parts.method == "GET" || parts.method == "HEAD");
        let response = if is_plain {
            self.agent.run(ureq::http::Request::from_parts(parts, ()))
        } else {
            let bytes = body.as_bytes().map(|bytes| bytes.to_vec()).unwrap_or_default();
            self.agent.run(ureq::http::Request::from_parts(parts, bytes))
        };
        let (parts, body) = response.map_err(failed)?.into_parts();
        let reader = body.into_with_config().limit(u64::MAX).reader();
        let body = HttpResponseBody::new(Reading { reader: Mutex::new(reader) });
        Ok(HttpResponse::from_parts(parts, body))
    }
}

/// Error of a request, classified so that `object_store` knows whether to repeat it.
fn failed(error: ureq::Error) -> HttpError {
    let kind = match &error {
        ureq::Error::Io(error) => kind_of(error, HttpErrorKind::Connect),
        ureq::Error::Timeout(Timeout::Resolve | Timeout::Connect) => HttpErrorKind::Connect,
        ureq::Error::Timeout(_) => HttpErrorKind::Timeout,
        ureq::Error::ConnectionFailed => HttpErrorKind::Connect,
        ureq::Error::Protocol(_) => HttpErrorKind::Interrupted,
        _ => HttpErrorKind::Unknown,
    };
    match error {
        ureq::Error::HostNotFound => {
            let message = "its host name cannot be resolved (no network, or no name server)";
            HttpError::new(kind, io::Error::other(message))
        }
        error => HttpError::new(kind, error),
    }
}

fn kind_of(error: &io::Error, before: HttpErrorKind) -> HttpErrorKind {
    match error.kind() {
        io::ErrorKind::TimedOut => HttpErrorKind::Timeout,
        io::ErrorKind::ConnectionRefused => before,
        io::ErrorKind::ConnectionReset
        | io::ErrorKind::ConnectionAborted
        | io::ErrorKind::BrokenPipe
        | io::ErrorKind::UnexpectedEof => HttpErrorKind::Interrupted,
        _ => HttpErrorKind::Unknown,
    }
}

/// Body of a response.
struct Reading {
    /// Locked never: the lock makes the reader shareable, which the trait asks for.
    reader: Mutex<BodyReader<'static>>,
}

impl Body for Reading {
    type Data = Bytes;
    type Error = HttpError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, HttpError>>> {
        let reader = match self.reader.get_mut() {
            Ok(reader) => reader,
            Err(poisoned) => poisoned.into_inner(),
        };
        let mut piece = Vec::with_capacity(PIECE_LEN);
        match reader.take(PIECE_LEN as u64).read_to_end(&mut piece) {
            Ok(0) => Poll::Ready(None),
            Ok(_) => Poll::Ready(Some(Ok(Frame::data(piece.into())))),
            Err(error) => {
                let kind = kind_of(&error, HttpErrorKind::Interrupted);
                Poll::Ready(Some(Err(HttpError::new(kind, error))))
            }
        }
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::default()
    }
}
