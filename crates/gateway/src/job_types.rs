//! JobTypeService.

use std::collections::HashSet;
use std::time::Duration;

use tenure_core::domain::job_type::{DedupePolicy, JobType};
use tenure_core::storage::Store;
use tenure_core::storage::job_types::Catalogue;
use tenure_core::{Code, Error, Result};
use tenure_proto::v1;
use tonic::{Request, Response, Status};
use v1::job_type_service_server::JobTypeService;

use crate::call::{self, OPERATORS};
use crate::convert;
use crate::fields::{Findings, known};

/// The most job types of one call.
const MAX_TYPES: usize = 500;

/// The service.
pub(crate) struct JobTypes {
    /// The database.
    pub(crate) store: Store,
    /// The copy in memory, which is taken anew after a change.
    pub(crate) catalogue: Catalogue,
}

#[tonic::async_trait]
impl JobTypeService for JobTypes {
    async fn list_job_types(
        &self,
        request: Request<v1::ListJobTypesRequest>,
    ) -> Result<Response<v1::ListJobTypesResponse>, Status> {
        call::unary("ListJobTypes", &[], request, async |_, _| {
            let job_types = self.store.list_job_types().await?;
            Ok(v1::ListJobTypesResponse {
                job_types: job_types.into_iter().map(convert::job_type).collect(),
            })
        })
        .await
    }

    async fn apply_job_types(
        &self,
        request: Request<v1::ApplyJobTypesRequest>,
    ) -> Result<Response<v1::ApplyJobTypesResponse>, Status> {
        call::unary(
            "ApplyJobTypes",
            OPERATORS,
            request,
            async |caller, request| {
                let dry_run = request.validate_only;
                // Compiling schemas takes time that others would wait for.
                let types = tokio::task::spawn_blocking(|| read_all(request.job_types))
                    .await
                    .map_err(|e| {
                        Error::new(Code::Internal, "checking the job types broke off")
                            .with_source(e)
                    })??;
                let applied = self.store.apply_job_types(types, dry_run).await?;
                if !dry_run {
                    tracing::info!(
                        user = caller.principal.user.as_str(),
                        created = ?applied.created,
                        updated = ?applied.updated,
                        created_queues = ?applied.created_queues,
                        "job types applied"
                    );
                    // Known here at once; elsewhere within seconds. The change itself is
                    // durable, so a failure only leaves that to the next round.
                    let _ = self.catalogue.refresh(Duration::ZERO).await;
                }
                Ok(v1::ApplyJobTypesResponse {
                    created: applied.created,
                    updated: applied.updated,
                    unchanged: applied.unchanged,
                    created_queues: applied.created_queues,
                })
            },
        )
        .await
    }
}

/// Checks all types of a request, and tells all that is wrong with any.
fn read_all(types: Vec<v1::JobType>) -> Result<Vec<JobType>> {
    if types.is_empty() || types.len() > MAX_TYPES {
        return Err(Error::invalid(
            "job_types",
            format!("must be 1 to {MAX_TYPES}; there are {}", types.len()),
        ));
    }
    let mut findings = Findings::default();
    let mut seen = HashSet::new();
    let mut read = Vec::with_capacity(types.len());
    for (index, given) in types.into_iter().enumerate() {
        let path = format!("job_types[{index}]");
        if !seen.insert(given.name.clone()) {
            findings.add(
                format!("{path}.name"),
                format!("{:?} stands there twice", given.name),
            );
        }
        read.extend(read_one(&mut findings, &path, given));
    }
    findings.finish()?;
    Ok(read)
}

/// A job type as it was given; what was left out is the documented default.
fn read_one(findings: &mut Findings, path: &str, given: v1::JobType) -> Option<JobType> {
    let lane = known::<v1::Lane>(findings, format!("{path}.lane"), given.lane)?;
    let policy = known::<v1::DedupePolicy>(
        findings,
        format!("{path}.dedupe_policy"),
        given.dedupe_policy,
    )?;
    let ordering = known::<v1::OrderingPolicy>(
        findings,
        format!("{path}.ordering_policy"),
        given.ordering_policy,
    )?;
    let times = [given.timeout_ms, given.dedupe_period_ms]
        .into_iter()
        .chain(given.backoff_ms.iter().copied());
    if times.min().is_some_and(|least| least < 0) {
        findings.add(
            path,
            "timeout_ms, dedupe_period_ms and backoff_ms must not be negative",
        );
        return None;
    }
    let mut job_type = JobType::new(given.name);
    job_type.description = given.description;
    if !given.queue.is_empty() {
        job_type.queue = given.queue;
    }
    job_type.lane = convert::lane_from(lane).unwrap_or(job_type.lane);
    if given.max_attempts != 0 {
        job_type.max_attempts = given.max_attempts;
    }
    if !given.backoff_ms.is_empty() {
        job_type.backoff = given.backoff_ms.into_iter().map(millis).collect();
    }
    if given.timeout_ms != 0 {
        job_type.timeout = millis(given.timeout_ms);
    }
    job_type.dedupe_policy = match policy {
        v1::DedupePolicy::Unspecified => job_type.dedupe_policy,
        v1::DedupePolicy::Period => DedupePolicy::Period,
        v1::DedupePolicy::WhileActive => DedupePolicy::WhileActive,
        v1::DedupePolicy::Forever => DedupePolicy::Forever,
        v1::DedupePolicy::AfterEnd => DedupePolicy::AfterEnd,
    };
    if given.dedupe_period_ms != 0 {
        job_type.dedupe_period = millis(given.dedupe_period_ms);
    }
    if given.max_payload_bytes != 0 {
        job_type.max_payload_bytes = given.max_payload_bytes;
    }
    if given.max_concurrency != 0 {
        job_type.max_concurrency = given.max_concurrency;
    }
    job_type.ordering_blocks = ordering == v1::OrderingPolicy::Block;
    if !given.payload_schema.is_empty() {
        job_type.payload_schema = Some(given.payload_schema);
    }
    match job_type.check() {
        Ok(()) => Some(job_type),
        Err((field, why)) => {
            findings.add(format!("{path}.{field}"), why);
            None
        }
    }
}

fn millis(value: i64) -> Duration {
    Duration::from_millis(value.unsigned_abs())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn given(name: &str) -> v1::JobType {
        v1::JobType {
            name: name.into(),
            ..v1::JobType::default()
        }
    }

    #[test]
    fn what_is_left_out_is_the_default() {
        assert_eq!(
            read_all(vec![given("x")]).expect("accepted"),
            [JobType::new("x")]
        );
    }

    #[test]
    fn what_a_list_says_can_be_applied_again() {
        let mut job_type = JobType::new("x");
        job_type.description = "d".into();
        job_type.dedupe_policy = DedupePolicy::Forever;
        job_type.backoff = vec![Duration::from_millis(1), Duration::from_secs(9)];
        job_type.payload_schema = Some("{\"type\": \"object\"}".into());
        let stored = tenure_core::storage::job_types::StoredJobType {
            job_type: job_type.clone(),
            updated_at: chrono::DateTime::default(),
        };
        assert_eq!(
            read_all(vec![convert::job_type(stored)]).expect("accepted"),
            [job_type]
        );
    }

    #[test]
    fn all_mistakes_of_all_types_are_told() {
        let types = vec![
            given("ok"),
            given("Bad Name"),
            v1::JobType {
                max_attempts: 101,
                ..given("a")
            },
            v1::JobType {
                timeout_ms: -1,
                ..given("b")
            },
            v1::JobType {
                lane: 7,
                ..given("c")
            },
            given("ok"),
            v1::JobType {
                payload_schema: "{\"$ref\": \"file:///etc/passwd\"}".into(),
                ..given("d")
            },
        ];
        let error = read_all(types).expect_err("refused");
        let fields: Vec<_> = error
            .violations()
            .iter()
            .map(|v| v.field.as_str())
            .collect();
        assert_eq!(
            fields,
            [
                "job_types[1].name",
                "job_types[2].max_attempts",
                "job_types[3]",
                "job_types[4].lane",
                "job_types[5].name",
                "job_types[6].payload_schema"
            ]
        );
        assert!(read_all(Vec::new()).is_err());
    }
}
