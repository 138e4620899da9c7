//! Checks the ranges and what each binary cannot do without.
use std::time::Duration;

use super::{Algorithm, Config, ImportTable, SecretUrl, duration};
use crate::files::s3;

/// The shortest secret that HS256 is safe with, in bytes (RFC 7518, 3.2).
pub(crate) const MIN_SECRET_BYTES: usize = 32;

/// Collects what is wrong.
struct Checks(Vec<String>);

impl Checks {
    fn need(&mut self, ok: bool, key: &str, why: impl Into<String>) {
        if !ok {
            self.0.push(format!("{key}: {}", why.into()));
        }
    }

    fn within<T: PartialOrd + std::fmt::Display>(&mut self, key: &str, value: T, min: T, max: T) {
        let ok = value >= min && value <= max;
        self.need(ok, key, format!("is {value}, must be from {min} to {max}"));
    }

    fn lasts(&mut self, key: &str, value: Duration, min: Duration, max: Duration) {
        let ok = value >= min && value <= max;
        let [value, min, max] = [value, min, max].map(duration::format);
        self.need(ok, key, format!("is {value}, must be from {min} to {max}"));
    }

    fn url(&mut self, key: &str, short: &str, url: &SecretUrl, schemes: &[&str], required: bool) {
        if url.is_empty() {
            self.need(
                !required,
                key,
                format!("is required; set it, {short} or {key}_file"),
            );
            return;
        }
        let ok = url.scheme().is_some_and(|scheme| schemes.contains(&scheme));
        self.need(
            ok,
            key,
            format!("must start with {}://", schemes.join(":// or ")),
        );
        // Found here and not at the first connection; the text itself stays unsaid.
        if ok && !url.is_readable() {
            self.need(false, key, "is not an address: look at its host and port");
        }
    }
}

const MS: Duration = Duration::from_millis(1);
const SECOND: Duration = Duration::from_secs(1);
const MINUTE: Duration = Duration::from_mins(1);
const HOUR: Duration = Duration::from_hours(1);

impl Config {
    /// Everything that is out of range or missing for the binary with this
    /// name (such as `tenure-worker`), or for its command (`tenure-sweeper migrate`);
    /// empty if the configuration can be used.
    pub fn problems(&self, binary: &str) -> Vec<String> {
        let mut checks = Checks(Vec::new());
        self.check_service(&mut checks);
        self.check_connections(&mut checks);
        self.check_auth(
            &mut checks,
            matches!(binary, "tenure-gateway" | "tenure-dead-letter-admin"),
        );
        self.check_retention(&mut checks);
        self.check_alerts(&mut checks);
        self.check_files(
            &mut checks,
            matches!(
                binary,
                "tenure-gateway" | "tenure-worker" | "tenure-sweeper"
            ),
        );
        self.check_imports(&mut checks);
        self.check_gateway(&mut checks);
        self.check_admission(&mut checks);
        self.check_worker(&mut checks);
        self.check_sweeper(&mut checks);
        self.check_webhooks(&mut checks);
        checks.0
    }

    fn check_service(&self, c: &mut Checks) {
        let s = &self.service;
        c.lasts(
            "service.shutdown_grace",
            s.shutdown_grace,
            Duration::ZERO,
            HOUR,
        );
        c.need(
            s.tls_cert_file.is_some() == s.tls_key_file.is_some(),
            "service.tls_cert_file",
            "needs service.tls_key_file, and the other way round",
        );
        let filter = tracing_subscriber::EnvFilter::try_new(&self.telemetry.filter);
        c.need(
            filter.is_ok(),
            "telemetry.filter",
            "is not a filter; write a level such as `info`, or `info,tenure_core=debug`",
        );
    }

    fn check_connections(&self, c: &mut Checks) {
        let d = &self.database;
        c.url(
            "database.url",
            "DATABASE_URL",
            &d.url,
            &["postgres", "postgresql"],
            true,
        );
        c.within("database.max_connections", d.max_connections, 2, 1000);
        c.lasts(
            "database.acquire_timeout",
            d.acquire_timeout,
            100 * MS,
            60 * SECOND,
        );
        c.lasts("database.idle_timeout", d.idle_timeout, SECOND, 24 * HOUR);
        c.lasts(
            "database.max_lifetime",
            d.max_lifetime,
            10 * SECOND,
            24 * HOUR,
        );
        let b = &self.broker;
        c.url("broker.url", "AMQP_URL", &b.url, &["amqp", "amqps"], true);
        let named = |text: &str| {
            !text.is_empty()
                && text.len() <= 64
                && text
                    .bytes()
                    .all(|b| b.is_ascii_alphanumeric() || b"._-".contains(&b))
        };
        c.need(
            named(&b.prefix),
            "broker.prefix",
            "must be 1 to 64 letters, digits, `.`, `_` or `-`",
        );
        c.within("broker.max_length", b.max_length, 100, 10_000_000);
        c.lasts(
            "broker.connect_timeout",
            b.connect_timeout,
            100 * MS,
            60 * SECOND,
        );
        c.lasts(
            "broker.confirm_timeout",
            b.confirm_timeout,
            100 * MS,
            60 * SECOND,
        );
        let r = &self.cache;
        c.url(
            "cache.url",
            "REDIS_URL",
            &r.url,
            &["redis", "rediss", "unix", "redis+unix"],
            false,
        );
        c.within("the length of cache.key_prefix", r.key_prefix.len(), 0, 64);
    }

    fn check_auth(&self, c: &mut Checks, needed: bool) {
        let a = &self.auth;
        c.lasts("auth.leeway", a.leeway, Duration::ZERO, 300 * SECOND);
        c.within("auth.cache_entries", a.cache_entries, 0, 1_000_000);
        c.need(!a.issuer.is_empty(), "auth.issuer", "must not be empty");
        c.need(!a.audience.is_empty(), "auth.audience", "must not be empty");
        if !needed {
            return;
        }
        if a.algorithm == Algorithm::HS256 {
            c.need(
                a.secret.expose().len() >= MIN_SECRET_BYTES,
                "auth.secret",
                format!(
                    "must be {MIN_SECRET_BYTES} bytes or more; set it, TENURE_JWT_SECRET or auth.secret_file"
                ),
            );
        } else {
            c.need(
                a.jwks_file.is_some(),
                "auth.jwks_file",
                "is required with this auth.algorithm: the file with the public keys",
            );
        }
    }

    fn check_alerts(&self, c: &mut Checks) {
        let a = &self.alerts;
        let is_web = |url: &url::Url| matches!(url.scheme(), "http" | "https") && url.has_host();
        c.need(
            a.webhook.is_empty() || url::Url::parse(&a.webhook).is_ok_and(|url| is_web(&url)),
            "alerts.webhook",
            "must be an http or https address",
        );
        c.lasts("alerts.interval", a.interval, 100 * MS, HOUR);
        c.lasts("alerts.growth_window", a.growth_window, MINUTE, 24 * HOUR);
        c.lasts(
            "alerts.oldest_after",
            a.oldest_after,
            SECOND,
            3650 * 24 * HOUR,
        );
        c.lasts("alerts.repeat", a.repeat, SECOND, 30 * 24 * HOUR);
    }

    fn check_retention(&self, c: &mut Checks) {
        let r = &self.retention;
        let years = 3650 * 24 * HOUR;
        // A request id holds for a day, and names its job.
        c.lasts("retention.jobs", r.jobs, 48 * HOUR, years);
        // PROTOCOL.md §1: thirty days longer than jobs, at least.
        c.lasts(
            "retention.events_beyond_jobs",
            r.events_beyond_jobs,
            30 * 24 * HOUR,
            years,
        );
        c.lasts("retention.notifications", r.notifications, HOUR, years);
        for (key, keep) in [
            ("retention.closed_letters", r.closed_letters),
            ("retention.audit", r.audit),
        ] {
            if let Some(keep) = keep {
                c.lasts(key, keep, 24 * HOUR, years);
            }
        }
    }

    fn check_files(&self, c: &mut Checks, needed: bool) {
        let f = &self.files;
        let (root, url) = (!f.root.as_os_str().is_empty(), !f.url.is_empty());
        c.need(
            root || url || !needed,
            "files.root",
            "is required; set it or TENURE_FILES to the folder of the object store, or files.url to a bucket",
        );
        c.need(
            !(root && url),
            "files.url",
            "cannot be set beside files.root (TENURE_FILES); the store is one of the two",
        );
        let largest = if url { s3::MAX_BYTES } else { 1 << 44 };
        c.within("files.max_bytes", f.max_bytes, 1, largest);
        c.within("files.max_user_bytes", f.max_user_bytes, 1, 1 << 50);
        let years = 3650 * 24 * HOUR;
        c.lasts("files.upload_retention", f.upload_retention, MINUTE, years);
        c.lasts("files.report_retention", f.report_retention, MINUTE, years);
        c.lasts(
            "files.upload_idle_timeout",
            f.upload_idle_timeout,
            SECOND,
            HOUR,
        );
        if url {
            self.check_bucket(c);
        }
    }

    fn check_bucket(&self, c: &mut Checks) {
        let f = &self.files;
        c.need(
            s3::bucket_of(&f.url).is_some(),
            "files.url",
            "must look like s3://BUCKET or s3://BUCKET/PREFIX, in letters, digits, `.`, `_` and `-`",
        );
        c.need(
            !f.s3_region.is_empty(),
            "files.s3_region",
            "must not be empty",
        );
        for (key, set) in [
            ("files.s3_access_key_id", !f.s3_access_key_id.is_empty()),
            (
                "files.s3_secret_access_key",
                !f.s3_secret_access_key.is_empty(),
            ),
        ] {
            c.need(set, key, "is required with files.url");
        }
        if f.s3_endpoint.is_empty() {
            return;
        }
        // What is wrong is not shown: a key could have been put into the address.
        let endpoint = url::Url::parse(&f.s3_endpoint).ok().filter(|url| {
            matches!(url.scheme(), "http" | "https")
                && url.has_host()
                && url.username().is_empty()
                && url.password().is_none()
                && url.query().is_none()
        });
        c.need(
            endpoint.is_some(),
            "files.s3_endpoint",
            "must be an address such as https://s3.example.com, without keys in it",
        );
        c.need(
            f.s3_allow_http || endpoint.is_none_or(|url| url.scheme() == "https"),
            "files.s3_endpoint",
            "must begin with https://; files.s3_allow_http allows http://",
        );
    }

    fn check_imports(&self, c: &mut Checks) {
        for (index, entry) in self.imports.tables.iter().enumerate() {
            if let Err(why) = ImportTable::parse(entry) {
                c.need(false, &format!("imports.tables[{index}]"), why);
            }
        }
    }

    fn check_gateway(&self, c: &mut Checks) {
        let g = &self.gateway;
        c.within(
            "gateway.max_message_bytes",
            g.max_message_bytes,
            64 << 10,
            256 << 20,
        );
        c.lasts("gateway.max_deadline", g.max_deadline, 100 * MS, HOUR);
        c.within("gateway.writers", g.writers, 1, 64);
        c.within("gateway.batch_max", g.batch_max, 1, 10_000);
        c.within("gateway.queue_max", g.queue_max, 1, 1_000_000);
        c.lasts(
            "gateway.connection_age",
            g.connection_age,
            SECOND,
            24 * HOUR,
        );
        c.within(
            "gateway.connection_age_jitter",
            g.connection_age_jitter,
            0.0,
            0.9,
        );
        c.lasts(
            "gateway.connection_grace",
            g.connection_grace,
            SECOND,
            48 * HOUR,
        );
        c.lasts(
            "gateway.keepalive_interval",
            g.keepalive_interval,
            SECOND,
            HOUR,
        );
        c.lasts(
            "gateway.keepalive_timeout",
            g.keepalive_timeout,
            SECOND,
            HOUR,
        );
        c.within(
            "gateway.concurrency_per_connection",
            g.concurrency_per_connection,
            1,
            100_000,
        );
        c.within("gateway.publish_bundle_max", g.publish_bundle_max, 1, 1000);
        let d = &self.dead_letter_admin;
        c.within(
            "dead_letter_admin.max_message_bytes",
            d.max_message_bytes,
            64 << 10,
            256 << 20,
        );
    }

    fn check_admission(&self, c: &mut Checks) {
        const MOST: i64 = 1_000_000_000;
        let a = &self.admission;
        c.within("admission.max_jobs_per_user", a.max_jobs_per_user, 0, MOST);
        c.within(
            "admission.submits_per_second",
            a.submits_per_second,
            0.0,
            1e6,
        );
        c.within("admission.submit_burst", a.submit_burst, 0, 10_000_000);
        c.within(
            "admission.max_backlog_per_queue",
            a.max_backlog_per_queue,
            0,
            MOST,
        );
        c.within("admission.max_backlog", a.max_backlog, 0, MOST);
    }

    fn check_worker(&self, c: &mut Checks) {
        let w = &self.worker;
        c.within("worker.slots", w.slots, 1, 10_000);
        c.lasts("worker.lease", w.lease, 2 * SECOND, HOUR);
        c.lasts("worker.hold_unclaimed", w.hold_unclaimed, MS, 60 * SECOND);
        c.within("worker.finish_writers", w.finish_writers, 1, 64);
        c.within("worker.prefetch_messages", w.prefetch_messages, 1, 10_000);
        c.lasts("worker.cancel_grace", w.cancel_grace, Duration::ZERO, HOUR);
        c.need(!w.queues.is_empty(), "worker.queues", "must name a queue");
        c.need(
            w.queues.iter().all(|q| !q.is_empty()),
            "worker.queues",
            "has an empty name",
        );
        c.need(
            w.lane_weights.len() == 3 && w.lane_weights.iter().all(|w| (1..=100).contains(w)),
            "worker.lane_weights",
            "must be three numbers from 1 to 100: of the lanes high, normal and low",
        );
        c.lasts(
            "worker.results_late_after",
            w.results_late_after,
            SECOND,
            HOUR,
        );
        c.within("the length of worker.name", w.name.len(), 0, 128);
        let r = &self.retry;
        if let Some(base) = r.backoff_base {
            c.lasts("retry.backoff_base", base, MS, 24 * HOUR);
        }
        c.within("retry.jitter", r.jitter, 0.0, 1.0);
        c.within("retry.poison_lost", r.poison_lost, 1, 1000);
        c.lasts(
            "retry.outage_patience",
            r.outage_patience,
            Duration::ZERO,
            24 * 366 * HOUR,
        );
        c.within("retry.max_snoozes", r.max_snoozes, 0, 1_000_000_000);
    }

    fn check_webhooks(&self, c: &mut Checks) {
        for (key, why) in self.webhooks.problems() {
            c.need(false, key, why);
        }
        c.lasts(
            "webhooks.timeout",
            self.webhooks.timeout,
            100 * MS,
            50 * SECOND,
        );
    }

    fn check_sweeper(&self, c: &mut Checks) {
        let s = &self.sweeper;
        c.lasts("sweeper.wake_interval", s.wake_interval, 10 * MS, HOUR);
        c.within("sweeper.wake_batch", s.wake_batch, 1, 10_000);
        c.lasts(
            "sweeper.full_pass_interval",
            s.full_pass_interval,
            SECOND,
            24 * HOUR,
        );
        c.lasts("sweeper.dispatch_busy", s.dispatch_busy, MS, 60 * SECOND);
        c.lasts("sweeper.dispatch_idle", s.dispatch_idle, MS, 60 * SECOND);
        c.lasts(
            "sweeper.lost_horizon",
            s.lost_horizon,
            SECOND,
            24 * 7 * HOUR,
        );
        c.lasts(
            "sweeper.prune_interval",
            s.prune_interval,
            100 * MS,
            24 * HOUR,
        );
        c.lasts(
            "sweeper.orphan_age",
            s.orphan_age,
            10 * MINUTE,
            24 * 365 * HOUR,
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Secret;

    fn complete() -> Config {
        let mut config = Config::default();
        config.database.url = SecretUrl::new("postgres://h/db");
        config.broker.url = SecretUrl::new("amqp://h");
        config.auth.secret = Secret::new("x".repeat(MIN_SECRET_BYTES));
        config.files.root = "/srv/files".into();
        config
    }

    #[test]
    fn the_defaults_lack_only_what_has_no_default() {
        for binary in [
            "tenure-gateway",
            "tenure-worker",
            "tenure-sweeper",
            "tenure-dead-letter-admin",
        ] {
            assert_eq!(
                complete().problems(binary),
                Vec::<String>::new(),
                "{binary}"
            );
        }
        let gateway = Config::default().problems("tenure-gateway");
        for key in ["database.url", "broker.url", "auth.secret", "files.root"] {
            assert!(
                gateway.iter().any(|p| p.starts_with(key)),
                "{key}: {gateway:?}"
            );
        }
        assert_eq!(Config::default().problems("tenure-sweeper").len(), 3);
        assert_eq!(
            Config::default().problems("tenure-sweeper migrate").len(),
            2
        );
    }

    #[test]
    fn what_is_out_of_range_is_named() {
        let mut config = complete();
        config.worker.lease = SECOND;
        config.worker.slots = 0;
        config.retry.jitter = f64::NAN;
        config.telemetry.filter = "a=b=c".to_owned();
        config.cache.url = SecretUrl::new("http://h");
        config.broker.prefix = "a b".to_owned();
        config.service.tls_cert_file = Some("cert.pem".into());
        config.auth.secret = Secret::new("short");
        config.webhooks.allowed_hosts = vec!["http://a".to_owned()];
        config.webhooks.allowed_private = vec!["10.0.0.1".to_owned()];
        config.webhooks.secret = Secret::new("whsec_c2hvcnQ=");
        config.webhooks.timeout = HOUR;
        let problems = config.problems("tenure-gateway");
        for key in [
            "worker.lease: is 1s, must be from 2s to 1h",
            "worker.slots: is 0",
            "retry.jitter",
            "telemetry.filter",
            "cache.url: must start with",
            "broker.prefix",
            "service.tls_cert_file",
            "auth.secret",
            "webhooks.allowed_hosts",
            "webhooks.allowed_private",
            "webhooks.secret",
            "webhooks.timeout",
        ] {
            assert!(
                problems.iter().any(|p| p.starts_with(key)),
                "{key}: {problems:?}"
            );
        }
        assert_eq!(problems.len(), 12, "{problems:?}");
    }

    #[test]
    fn the_object_store_is_a_folder_or_a_bucket() {
        let mut config = complete();
        config.files.url = "s3://tenure/files".to_owned();
        let problems = config.problems("tenure-sweeper");
        for key in [
            "files.url: cannot be set beside files.root",
            "files.s3_access_key_id",
            "files.s3_secret_access_key",
        ] {
            assert!(
                problems.iter().any(|p| p.starts_with(key)),
                "{key}: {problems:?}"
            );
        }
        assert_eq!(problems.len(), 3, "{problems:?}");
        config.files.root = "".into();
        config.files.s3_access_key_id = "key".to_owned();
        config.files.s3_secret_access_key = Secret::new("hidden");
        assert_eq!(config.problems("tenure-worker"), Vec::<String>::new());
        for (endpoint, problem) in [
            ("http://127.0.0.1:9000", "must begin with https://"),
            ("https://key:hidden@store", "must be an address"),
            ("store:9000", "must be an address"),
        ] {
            config.files.s3_endpoint = endpoint.to_owned();
            let problems = config.problems("tenure-worker");
            assert!(
                problems.len() == 1 && problems[0].contains(problem),
                "{endpoint}: {problems:?}"
            );
            assert!(!problems[0].contains("hidden"));
        }
        config.files.s3_endpoint = "http://127.0.0.1:9000".to_owned();
        config.files.s3_allow_http = true;
        config.files.max_bytes = 1 << 40;
        config.files.url = "s3://tenure/../etc".to_owned();
        let problems = config.problems("tenure-gateway");
        assert!(
            problems.len() == 2
                && problems[0].starts_with("files.max_bytes")
                && problems[1].starts_with("files.url: must look like"),
            "{problems:?}"
        );
    }

    #[test]
    fn public_keys_are_needed_where_the_algorithm_has_them() {
        let mut config = complete();
        config.auth.algorithm = Algorithm::ES256;
        let problems = config.problems("tenure-gateway");
        assert!(
            problems.len() == 1 && problems[0].starts_with("auth.jwks_file"),
            "{problems:?}"
        );
    }
}
