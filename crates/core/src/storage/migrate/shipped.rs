//! The job types that ship with Tenure: `migrations/job_types.toml`, embedded.

use std::collections::BTreeSet;

use serde::Deserialize;

use crate::config::HumanDuration;
use crate::domain::job::Lane;
use crate::domain::job_type::{DedupePolicy, JobType};
use crate::error::{Code, Error, Result};

/// The file's text.
pub(super) const CATALOGUE: &str = include_str!("../../../../../migrations/job_types.toml");

/// A job type of the catalogue.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ShippedJobType {
    /// The job type, with the defaults for what the file leaves out.
    pub job_type: JobType,
    /// Handled only where `worker.diagnostics` is on.
    pub diagnostic: bool,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    job_type: Vec<Entry>,
}

/// An entry as it is written; what is left out has the default of [`JobType::new`].
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    name: String,
    description: String,
    queue: Option<String>,
    lane: Option<Lane>,
    max_attempts: Option<i32>,
    backoff: Option<Vec<HumanDuration>>,
    timeout: Option<HumanDuration>,
    dedupe_policy: Option<DedupePolicy>,
    dedupe_period: Option<HumanDuration>,
    max_payload_bytes: Option<i32>,
    payload_schema: Option<String>,
    #[serde(default)]
    diagnostic: bool,
}

/// The shipped job types, in the order of the file.
///
/// # Errors
/// INTERNAL: the embedded file is broken, which a test rules out.
pub fn shipped_job_types() -> Result<Vec<ShippedJobType>> {
    parse(CATALOGUE)
        .map_err(|message| Error::new(Code::Internal, format!("job_types.toml: {message}")))
}

fn parse(text: &str) -> Result<Vec<ShippedJobType>, String> {
    let file: File = toml::from_str(text).map_err(|error| error.to_string())?;
    let mut names = BTreeSet::new();
    file.job_type
        .into_iter()
        .map(|entry| {
            let shipped = entry.into_shipped();
            let JobType { name, .. } = &shipped.job_type;
            shipped
                .job_type
                .check()
                .map_err(|(field, wrong)| format!("{name}: {field} {wrong}"))?;
            if !names.insert(name.clone()) {
                return Err(format!("{name} stands there twice"));
            }
            Ok(shipped)
        })
        .collect()
}

impl Entry {
    fn into_shipped(self) -> ShippedJobType {
        let base = JobType::new(self.name);
        let job_type = JobType {
            description: self.description,
            queue: self.queue.unwrap_or(base.queue),
            lane: self.lane.unwrap_or(base.lane),
            max_attempts: self.max_attempts.unwrap_or(base.max_attempts),
            backoff: self.backoff.map_or(base.backoff, |waits| {
                waits.into_iter().map(|wait| wait.0).collect()
            }),
            timeout: self.timeout.map_or(base.timeout, |limit| limit.0),
            dedupe_policy: self.dedupe_policy.unwrap_or(base.dedupe_policy),
            dedupe_period: self
                .dedupe_period
                .map_or(base.dedupe_period, |period| period.0),
            max_payload_bytes: self.max_payload_bytes.unwrap_or(base.max_payload_bytes),
            payload_schema: self.payload_schema,
            ordering_blocks: false,
            max_concurrency: 1,
            name: base.name,
        };
        ShippedJobType {
            job_type,
            diagnostic: self.diagnostic,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn the_shipped_file_is_valid() {
        let types = shipped_job_types().expect("a valid file");
        let import = types
            .iter()
            .find(|t| t.job_type.name == "import_csv")
            .expect("import_csv");
        assert!(!import.diagnostic);
        assert_eq!(import.job_type.queue, "imports");
        assert_eq!(import.job_type.timeout, Duration::from_hours(6));
        assert!(
            types
                .iter()
                .any(|t| t.job_type.name == "noop" && t.diagnostic)
        );
    }

    #[test]
    fn every_field_can_be_given() {
        let types = parse(
            r#"[[job_type]]
               name = "a"
               description = "b"
               queue = "q"
               lane = "low"
               max_attempts = 7
               backoff = ["1s", "2m"]
               timeout = "1h30m"
               dedupe_policy = "while_active"
               dedupe_period = "2d"
               max_payload_bytes = 1000
               payload_schema = '{"required": ["x"]}'
               diagnostic = true"#,
        )
        .expect("valid");
        let [
            ShippedJobType {
                job_type,
                diagnostic,
            },
        ] = &types[..]
        else {
            panic!("{types:?}")
        };
        assert!(diagnostic);
        assert_eq!(job_type.lane, Lane::Low);
        assert_eq!(
            job_type.backoff,
            [Duration::from_secs(1), Duration::from_mins(2)]
        );
        assert_eq!(job_type.timeout, Duration::from_mins(90));
        assert_eq!(job_type.dedupe_policy, DedupePolicy::WhileActive);
        assert_eq!(job_type.dedupe_period, Duration::from_hours(48));
        assert_eq!(
            (job_type.max_attempts, job_type.max_payload_bytes),
            (7, 1000)
        );
        assert_eq!(
            job_type.payload_schema.as_deref(),
            Some("{\"required\": [\"x\"]}")
        );
    }

    #[test]
    fn mistakes_are_named() {
        let entry =
            |text: &str| format!("[[job_type]]\nname = \"a\"\ndescription = \"\"\n{text}\n");
        for (text, word) in [
            (entry("max_attempts = 0"), "max_attempts"),
            (entry("timeout = 5"), "duration"),
            (entry("payload_schema = '{\"type\": 1}'"), "payload_schema"),
            (entry("colour = \"red\""), "colour"),
            (entry("") + &entry(""), "twice"),
        ] {
            let error = parse(&text).expect_err(word);
            assert!(error.contains(word), "{error}");
        }
    }
}
