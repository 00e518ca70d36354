//! Messages of failed requests: cause and remedy, by the service.

use std::{error::Error as _, io};

use object_store::Error;

use super::store::{Service, names};

/// Maximum number of characters of a server's answer in a message.
const MAX_CHARS: usize = 300;

/// Error of a request as an input error, whose message has a remedy.
pub(super) fn explain(service: Service, error: &Error) -> io::Error {
    let cause = cause(error);
    let text = match error {
        Error::NotFound { .. } => {
            return io::Error::new(
                io::ErrorKind::NotFound,
                "the server has no such file; check the address, and that the bucket exists",
            );
        }
        Error::Unauthenticated { .. } | Error::PermissionDenied { .. } if service == Service::Web => {
            format!("the server refuses access ({cause}); fetch the file by hand and name the copy")
        }
        Error::Unauthenticated { .. } | Error::PermissionDenied { .. } => {
            format!("the server refuses access ({cause}); set {}", names(service))
        }
        Error::NotSupported { .. } if service == Service::Web => {
            let text = format!(
                "{cause}; the server does not send parts of files: download the file and name the copy"
            );
            return io::Error::new(io::ErrorKind::Unsupported, text);
        }
        Error::InvalidPath { .. } => {
            format!("{cause}: the name of an object cannot be that of a file; rename it")
        }
        // Addresses at which machines of the services get their credentials.
        _ if ["169.254.169.254", "metadata.google.internal"]
            .iter()
            .any(|host| error.to_string().contains(host)) =>
        {
            format!("there are no credentials ({cause}); set {}", names(service))
        }
        _ if cause.contains("incorrectly configured region") => {
            format!("{cause}; set AWS_REGION to the region of the bucket")
        }
        _ if cause.contains("Content-Length") => {
            format!("{cause}; the server does not state the size of the file: download it and name the copy")
        }
        _ => format!("{cause}; check the address and the network, and start again"),
    };
    io::Error::other(text)
}

/// Innermost cause on one line.
fn cause(error: &Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(inner) = source {
        let inner_text = inner.to_string();
        // An inner error without a text of its own.
        if !inner_text.is_empty() {
            text = inner_text;
        }
        source = inner.source();
    }
    let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    match line.char_indices().nth(MAX_CHARS) {
        Some((end, _)) => format!("{} ...", &line[..end]),
        None => line,
    }
}
