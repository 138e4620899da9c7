//! A store in a bucket of an S3-compatible service.

use std::sync::Arc;
use std::time::Duration;

use object_store::aws::AmazonS3Builder;
use object_store::client::{HttpClient, HttpConnector};
use object_store::path::Path as ObjectPath;
use object_store::{BackoffConfig, ClientOptions, RetryConfig};

use super::FileStore;
use crate::config::FilesConfig;
use crate::error::{Code, Error, Result};

/// The bytes of a part: the least that S3 allows, since an upload keeps two in memory.
const PART: usize = 5 * 1024 * 1024;
/// The most parts of one object.
const MAX_PARTS: u64 = 10_000;
/// The largest file that fits into a bucket in such parts.
pub(crate) const MAX_BYTES: u64 = PART as u64 * MAX_PARTS;

/// How long a new connection may take.
const CONNECT: Duration = Duration::from_secs(3);
/// How long one request may take, its body included.
const REQUEST: Duration = Duration::from_secs(15);
/// How often a request is repeated.
const RETRIES: usize = 3;
/// After this time it is not repeated any more.
const RETRY_FOR: Duration = Duration::from_secs(20);

/// The bucket and the prefix of `s3://BUCKET/PREFIX`; `None`: it is not one.
pub(crate) fn bucket_of(url: &str) -> Option<(&str, &str)> {
    let rest = url.strip_prefix("s3://")?;
    let (bucket, prefix) = rest.split_once('/').unwrap_or((rest, ""));
    let prefix = prefix.trim_end_matches('/');
    let plain = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b"-.".contains(&b);
    let named = (3..=63).contains(&bucket.len()) && bucket.bytes().all(plain);
    let fine = |part: &str| {
        !part.is_empty()
            && part != "."
            && part != ".."
            && part
                .bytes()
                .all(|b| b.is_ascii_alphanumeric() || b"-._".contains(&b))
    };
    let prefixed = prefix.is_empty() || prefix.len() <= 512 && prefix.split('/').all(fine);
    (named && prefixed).then_some((bucket, prefix))
}

/// Opens the bucket; contacts nothing.
pub(super) fn open(config: &FilesConfig) -> Result<FileStore> {
    let invalid = |why: &str| Error::new(Code::ConfigInvalid, format!("files.url: {why}"));
    let (bucket, prefix) = bucket_of(&config.url)
        .ok_or_else(|| invalid("must look like s3://BUCKET or s3://BUCKET/PREFIX"))?;
    let mut builder = AmazonS3Builder::new()
        .with_bucket_name(bucket)
        .with_region(&config.s3_region)
        .with_access_key_id(&config.s3_access_key_id)
        .with_secret_access_key(config.s3_secret_access_key.expose())
        .with_client_options(
            ClientOptions::new()
                .with_allow_http(config.s3_allow_http)
                .with_connect_timeout(CONNECT)
                .with_timeout(REQUEST),
        )
        .with_retry(RetryConfig {
            backoff: BackoffConfig {
                init_backoff: Duration::from_millis(100),
                max_backoff: Duration::from_secs(2),
                base: 2.0,
            },
            max_retries: RETRIES,
            retry_timeout: RETRY_FOR,
        })
        // Not every store knows the call that deletes many.
        .with_disable_bulk_delete(true)
        .with_http_connector(Direct {
            allow_http: config.s3_allow_http,
        });
    builder = if config.s3_endpoint.is_empty() {
        // A certificate for the host of a bucket does not cover a name with dots.
        builder.with_virtual_hosted_style_request(!bucket.contains('.'))
    } else {
        builder.with_endpoint(&config.s3_endpoint)
    };
    let objects = builder
        .build()
        .map_err(|error| invalid("the bucket cannot be used").with_source(error))?;
    Ok(FileStore {
        objects: Arc::new(objects),
        prefix: ObjectPath::from(prefix),
        part_bytes: PART,
        folder: None,
    })
}

/// Connects straight to the store: a proxy that the environment happens to name would
/// see every file.
#[derive(Debug)]
struct Direct {
    allow_http: bool,
}

impl HttpConnector for Direct {
    fn connect(&self, _: &ClientOptions) -> object_store::Result<HttpClient> {
        // In a test or a tool nobody has chosen the provider yet; a second choice fails.
        let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
        let client = reqwest::Client::builder()
            .user_agent(concat!("tenure/", env!("CARGO_PKG_VERSION")))
            .no_proxy()
            .redirect(reqwest::redirect::Policy::none())
            .connect_timeout(CONNECT)
            .timeout(REQUEST)
            .https_only(!self.allow_http)
            .build()
            .map_err(|source| object_store::Error::Generic {
                store: "S3",
                source: source.into(),
            })?;
        Ok(HttpClient::new(client))
    }
}

#[cfg(test)]
mod tests {
    use super::bucket_of;

    #[test]
    fn only_a_bucket_with_a_plain_prefix_is_an_address() {
        for (url, parts) in [
            ("s3://tenure", ("tenure", "")),
            ("s3://tenure/", ("tenure", "")),
            ("s3://my.files-1/a/B_2", ("my.files-1", "a/B_2")),
        ] {
            assert_eq!(bucket_of(url), Some(parts), "{url}");
        }
        for url in [
            "",
            "s3://",
            "s3://ab",
            "s3://Upper",
            "s3://u:p@host/x",
            "s3://tenure//x",
            "s3://tenure/../x",
            "s3://tenure/a b",
            "http://tenure",
            "tenure",
        ] {
            assert_eq!(bucket_of(url), None, "{url}");
        }
    }
}
