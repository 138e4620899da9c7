//! UserLimitService.

use std::sync::Arc;

use tenure_core::domain::ids::check_text;
use tenure_core::storage::Store;
use tenure_core::storage::admission::MAX_JOBS;
use tenure_core::storage::user_limits::{LIMITS, StoredLimits, UserLimits as Limited};
use tenure_core::{Error, Result};
use tenure_proto::v1;
use tonic::{Request, Response, Status};
use v1::user_limit_service_server::UserLimitService;

use crate::admission::Limits;
use crate::call::{self, OPERATORS, READERS};
use crate::convert;
use crate::fields::Findings;
use crate::page_token::Question;

/// The entries of a page where the caller names no number, and the most.
const PAGE: (i32, i32) = (50, 200);
/// The highest rate.
const MAX_RATE: f64 = 1e6;
/// The largest burst.
const MAX_BURST: i64 = 10_000_000;
/// The greatest share.
const MAX_WEIGHT: i32 = 100;

/// The service.
pub(crate) struct UserLimits {
    /// The database.
    pub(crate) store: Store,
    /// The copy of this gateway, which looks at once after a change.
    pub(crate) limits: Arc<Limits>,
}

#[tonic::async_trait]
impl UserLimitService for UserLimits {
    async fn get_user_limits(
        &self,
        request: Request<v1::GetUserLimitsRequest>,
    ) -> Result<Response<v1::GetUserLimitsResponse>, Status> {
        call::unary(
            "GetUserLimits",
            READERS,
            request,
            async |caller, request| {
                let user = named(&request.user_id)?;
                // What holds for oneself is no secret.
                if user != caller.principal.user.as_str() {
                    caller.principal.require(OPERATORS)?;
                }
                let stored = self.store.find_user_limits(user).await?;
                let own = stored.as_ref().map(|it| it.limits).unwrap_or_default();
                let effective = self.limits.effective(&own);
                let most = effective.max_jobs.unwrap_or(MAX_JOBS).saturating_add(1);
                let jobs = self.store.live_jobs_of(user, most).await?;
                Ok(v1::GetUserLimitsResponse {
                    entry: stored.map(entry),
                    effective: Some(limits(effective)),
                    jobs,
                })
            },
        )
        .await
    }

    async fn list_user_limits(
        &self,
        request: Request<v1::ListUserLimitsRequest>,
    ) -> Result<Response<v1::ListUserLimitsResponse>, Status> {
        call::unary("ListUserLimits", OPERATORS, request, async |_, request| {
            let (usual, most) = PAGE;
            let size = match request.page_size {
                0 => usual,
                size if (1..=most).contains(&size) => size,
                _ => {
                    return Err(Error::invalid(
                        "page_size",
                        format!("must be 1 to {most}, or 0 for {usual}"),
                    ));
                }
            };
            let question = Question::new(["user_limits"]);
            let after = question.open_text(&request.page_token)?.unwrap_or_default();
            // One more than asked for tells whether there is another page.
            let mut stored = self
                .store
                .list_user_limits(&after, i64::from(size) + 1)
                .await?;
            let more = stored.len() > size as usize;
            stored.truncate(size as usize);
            let next = stored.last().filter(|_| more);
            Ok(v1::ListUserLimitsResponse {
                next_page_token: next
                    .map(|last| question.seal(last.user_id.as_bytes()))
                    .unwrap_or_default(),
                entries: stored.into_iter().map(entry).collect(),
            })
        })
        .await
    }

    async fn set_user_limits(
        &self,
        request: Request<v1::SetUserLimitsRequest>,
    ) -> Result<Response<v1::SetUserLimitsResponse>, Status> {
        call::unary(
            "SetUserLimits",
            OPERATORS,
            request,
            async |caller, request| {
                let user = named(&request.user_id)?;
                let given = request
                    .limits
                    .ok_or_else(|| Error::invalid("limits", "is required"))?;
                let names = masked(request.update_mask)?;
                let by = caller.principal.user.as_str();
                let stored = self.set(user, read(given)?, &names, by).await?;
                Ok(v1::SetUserLimitsResponse {
                    entry: Some(entry(stored)),
                })
            },
        )
        .await
    }

    async fn reset_user_limits(
        &self,
        request: Request<v1::ResetUserLimitsRequest>,
    ) -> Result<Response<v1::ResetUserLimitsResponse>, Status> {
        call::unary(
            "ResetUserLimits",
            OPERATORS,
            request,
            async |caller, request| {
                let user = named(&request.user_id)?;
                let by = caller.principal.user.as_str();
                self.set(user, Limited::default(), &LIMITS, by).await?;
                Ok(v1::ResetUserLimitsResponse {})
            },
        )
        .await
    }
}

impl UserLimits {
    async fn set(
        &self,
        user: &str,
        limits: Limited,
        names: &[&str],
        by: &str,
    ) -> Result<StoredLimits> {
        let stored = self
            .store
            .change_user_limits(user, limits, names, by)
            .await?;
        tracing::info!(user, by, ?names, limits = ?stored.limits, "limits of a user set");
        // Known here at once; elsewhere within seconds. The change itself is durable.
        let _ = self.limits.look().await;
        Ok(stored)
    }
}

fn named(user: &str) -> Result<&str> {
    check_text(user)
        .map(|()| user)
        .map_err(|why| Error::invalid("user_id", why))
}

/// The limits that a change is about; no mask: all of them.
fn masked(mask: Option<prost_types::FieldMask>) -> Result<Vec<&'static str>> {
    let paths = mask.unwrap_or_default().paths;
    if paths.is_empty() {
        return Ok(LIMITS.to_vec());
    }
    let known = |path: &String| {
        LIMITS.into_iter().find(|name| name == path).ok_or_else(|| {
            Error::invalid(
                "update_mask",
                format!("names of limits are {}", LIMITS.join(", ")),
            )
        })
    };
    paths.iter().map(known).collect()
}

/// Checks limits, and tells all that is wrong with them. None at all are the defaults.
fn read(given: v1::UserLimits) -> Result<Limited> {
    let mut findings = Findings::default();
    let mut check = |name: &str, ok: bool, why: String| {
        if !ok {
            findings.add(format!("limits.{name}"), why);
        }
    };
    let jobs = given.max_jobs;
    check(
        "max_jobs",
        jobs.is_none_or(|jobs| (0..=MAX_JOBS).contains(&jobs)),
        format!("must be 0 to {MAX_JOBS}"),
    );
    let rate = given.submits_per_second;
    check(
        "submits_per_second",
        rate.is_none_or(|rate| rate == 0.0 || (0.001..=MAX_RATE).contains(&rate)),
        format!("must be 0, or 0.001 to {MAX_RATE}"),
    );
    let burst = given.submit_burst;
    check(
        "submit_burst",
        burst.is_none_or(|burst| (0..=MAX_BURST).contains(&burst)),
        format!("must be 0 to {MAX_BURST}"),
    );
    let weight = given.weight;
    check(
        "weight",
        weight.is_none_or(|weight| (1..=MAX_WEIGHT).contains(&weight)),
        format!("must be 1 to {MAX_WEIGHT}"),
    );
    findings.finish()?;
    Ok(Limited {
        max_jobs: jobs,
        submits_per_second: rate,
        submit_burst: burst,
        weight,
    })
}

fn limits(it: Limited) -> v1::UserLimits {
    v1::UserLimits {
        max_jobs: it.max_jobs,
        submits_per_second: it.submits_per_second,
        submit_burst: it.submit_burst,
        weight: it.weight,
    }
}

fn entry(it: StoredLimits) -> v1::UserLimitsEntry {
    v1::UserLimitsEntry {
        user_id: it.user_id,
        limits: Some(limits(it.limits)),
        update_time: Some(convert::time(it.updated_at)),
        updated_by: it.updated_by.unwrap_or_default(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mask_names_limits_and_none_means_all() {
        let mask = |paths: &[&str]| {
            masked(Some(prost_types::FieldMask {
                paths: paths.iter().map(|&path| path.to_owned()).collect(),
            }))
        };
        assert_eq!(masked(None).expect("all"), LIMITS);
        assert_eq!(mask(&[]).expect("all"), LIMITS);
        assert_eq!(mask(&["weight"]).expect("one"), ["weight"]);
        let error = mask(&["weight", "limits.weight"]).expect_err("refused");
        assert_eq!(error.violations()[0].field, "update_mask");
    }

    #[test]
    fn all_that_is_wrong_with_limits_is_told() {
        let error = read(v1::UserLimits {
            max_jobs: Some(-1),
            submits_per_second: Some(f64::NAN),
            submit_burst: Some(MAX_BURST + 1),
            weight: Some(0),
        })
        .expect_err("refused");
        let fields: Vec<_> = error
            .violations()
            .iter()
            .map(|v| v.field.as_str())
            .collect();
        assert_eq!(
            fields,
            [
                "limits.max_jobs",
                "limits.submits_per_second",
                "limits.submit_burst",
                "limits.weight"
            ]
        );
        let zero = v1::UserLimits {
            max_jobs: Some(0),
            submits_per_second: Some(0.0),
            ..v1::UserLimits::default()
        };
        assert_eq!(read(zero).expect("accepted").max_jobs, Some(0));
    }
}
