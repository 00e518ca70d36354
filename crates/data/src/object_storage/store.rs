//! Stores: which service an address names, with the credentials of the environment.

use std::{path::Path, sync::Arc, time::Duration};

use graphmill_core::{Error, Result};
use object_store::{
    BackoffConfig, ClientOptions, ObjectStore, RetryConfig, aws::AmazonS3Builder,
    azure::MicrosoftAzureBuilder, gcp::GoogleCloudStorageBuilder, http::HttpBuilder, path::Path as Key,
};

use super::http::Connector;

/// Kind of a service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Service {
    S3,
    Google,
    Azure,
    Web,
}

/// Services by the scheme of an address.
const SCHEMES: &[(&str, Service)] = &[
    ("s3", Service::S3),
    ("gs", Service::Google),
    ("az", Service::Azure),
    ("https", Service::Web),
    ("http", Service::Web),
];

/// Address of an object, a prefix or a pattern, and its store.
#[derive(Clone, Debug)]
pub(super) struct Place {
    pub(super) service: Service,
    pub(super) store: Arc<dyn ObjectStore>,
    /// Part of the address before the key, with its `/`.
    pub(super) base: String,
    /// Key, prefix or pattern within the bucket.
    pub(super) key: String,
}

/// Repetition of failed requests.
fn retry() -> RetryConfig {
    RetryConfig {
        backoff: BackoffConfig {
            init_backoff: Duration::from_millis(100),
            max_backoff: Duration::from_secs(5),
            base: 2.0,
        },
        max_retries: 5,
        retry_timeout: Duration::from_secs(120),
    }
}

impl Place {
    /// Opens the store of an address.
    ///
    /// # Errors
    /// The scheme is unknown, the bucket is missing, or the environment's settings are wrong.
    pub(super) fn open(address: &str) -> Result<Self> {
        let wrong = |why: String| Error::format(Path::new(address), "address", why);
        let (scheme, rest) = address.split_once("://").unwrap_or_default();
        let service = SCHEMES.iter().find(|(known, _)| *known == scheme).map(|(_, service)| *service);
        let service = service.ok_or_else(|| {
            let known: Vec<String> = SCHEMES.iter().map(|(known, _)| format!("{known}://")).collect();
            wrong(format!("'{scheme}://' is not known; use one of {}", known.join(", ")))
        })?;
        let (bucket, key) = rest.split_once('/').unwrap_or((rest, ""));
        if bucket.is_empty() {
            return Err(wrong(format!("the bucket or host is missing; write {scheme}://NAME/PATH")));
        }
        let (key, query) = match service {
            // Signed addresses carry their signature in the query.
            Service::Web => key.split_once('?').map_or((key, None), |(key, query)| (key, Some(query))),
            _ => (key, None),
        };
        let store = store(service, scheme, bucket, query).map_err(|error| {
            wrong(format!("{error}; check the address and the environment variables {}", names(service)))
        })?;
        let base = format!("{scheme}://{bucket}/");
        Ok(Self { service, store, base, key: key.to_string() })
    }

    /// Name of the bucket or host.
    pub(super) fn bucket(&self) -> &str {
        self.base.trim_end_matches('/').rsplit('/').next().unwrap_or_default()
    }

    /// Path of the exact key.
    ///
    /// # Errors
    /// The key has empty parts.
    pub(super) fn path(&self, key: &str) -> Result<Key> {
        let path = match self.service {
            Service::Web => Key::from_url_path(key),
            _ => Key::parse(key),
        };
        path.map_err(|error| {
            let address = format!("{}{key}", self.base);
            Error::format(Path::new(&address), "address", format!("{error}; correct the address"))
        })
    }
}

fn store(
    service: Service,
    scheme: &str,
    bucket: &str,
    query: Option<&str>,
) -> object_store::Result<Arc<dyn ObjectStore>> {
    Ok(match service {
        Service::S3 => Arc::new(
            AmazonS3Builder::from_env()
                .with_bucket_name(bucket)
                .with_http_connector(Connector)
                .with_retry(retry())
                .build()?,
        ),
        Service::Google => Arc::new(
            GoogleCloudStorageBuilder::from_env()
                .with_bucket_name(bucket)
                .with_http_connector(Connector)
                .with_retry(retry())
                .build()?,
        ),
        Service::Azure => Arc::new(
            MicrosoftAzureBuilder::from_env()
                .with_container_name(bucket)
                .with_http_connector(Connector)
                .with_retry(retry())
                .build()?,
        ),
        Service::Web => {
            let query = query.map(|query| format!("?{query}")).unwrap_or_default();
            Arc::new(
                HttpBuilder::new()
                    .with_url(format!("{scheme}://{bucket}/{query}"))
                    .with_client_options(ClientOptions::new().with_allow_http(true))
                    .with_http_connector(Connector)
                    .with_retry(retry())
                    .build()?,
            )
        }
    })
}

/// Environment variables of a service.
pub(super) fn names(service: Service) -> &'static str {
    match service {
        Service::S3 => {
            "AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and AWS_REGION (also AWS_SESSION_TOKEN and \
             AWS_ENDPOINT_URL), or AWS_SKIP_SIGNATURE=true for public buckets"
        }
        Service::Google => {
            "GOOGLE_APPLICATION_CREDENTIALS or GOOGLE_SERVICE_ACCOUNT (a file), or \
             GOOGLE_SKIP_SIGNATURE=true for public buckets"
        }
        Service::Azure => {
            "AZURE_STORAGE_ACCOUNT_NAME and AZURE_STORAGE_ACCOUNT_KEY or AZURE_STORAGE_SAS_TOKEN, or \
             AZURE_SKIP_SIGNATURE=true for public containers"
        }
        Service::Web => "HTTPS_PROXY and NO_PROXY",
    }
}
