//! Jobs for people.

use crate::output::pairs;
use crate::values::human_duration;
use crate::view;

/// An error on one line.
pub(crate) fn error_text(error: &view::JobError) -> String {
    if error.error_class == "unspecified" {
        // The history keeps no class.
        return format!("{}: {}", error.code, error.message);
    }
    format!("{} ({}): {}", error.code, error.error_class, error.message)
}

/// Why a job waits, on one line.
pub(crate) fn wait_text(wait: &view::Wait) -> String {
    let mut text = if wait.message.is_empty() {
        // A reason that has no sentence still says something.
        wait.reason.replace('_', " ")
    } else {
        wait.message.clone()
    };
    // A sentence that has the time already has it to the second.
    let said = |until: &str| {
        let second = until.get(..19).unwrap_or(until).replace('T', " ");
        text.contains(&second)
    };
    if let Some(until) = wait.until.as_deref().filter(|until| !said(until)) {
        text.push_str(", until ");
        text.push_str(until);
    }
    text
}

/// What the error of a job in this state is: why it is so, or a thing of the past.
pub(crate) fn error_label(state: &str) -> &'static str {
    match state {
        "failed" | "retrying" => "error",
        "success" => "earlier error",
        _ => "last error",
    }
}

/// A job for people.
pub(crate) fn job_text(job: &view::Job) -> String {
    let time = |time: &Option<String>| time.clone().unwrap_or_default();
    let raw = |json: &Option<Box<serde_json::value::RawValue>>, hex: &Option<String>| {
        json.as_ref()
            .map(|json| json.get().to_owned())
            .or_else(|| {
                hex.as_ref()
                    .map(|hex| format!("not JSON; in hexadecimal: {hex}"))
            })
            .unwrap_or_default()
    };
    let mut state = job.state.clone();
    if job.cancel_requested && matches!(state.as_str(), "running" | "retrying" | "pending") {
        state.push_str(" (a cancel was asked for)");
    }
    let progress = job.progress.as_ref().map_or_else(String::new, |progress| {
        let total = if progress.total > 0 {
            format!(" of {}", progress.total)
        } else {
            String::new()
        };
        format!("{}{total} {}", progress.done, progress.message)
    });
    let error = job.last_error.as_ref().map_or_else(String::new, error_text);
    let labels: Vec<String> = job.labels.iter().map(|(k, v)| format!("{k}={v}")).collect();
    let timeout = u64::try_from(job.timeout_ms)
        .ok()
        .filter(|ms| *ms > 0)
        .map(|ms| human_duration(std::time::Duration::from_millis(ms)));
    let ordering = match (&job.ordering_key, job.ordering_policy.as_deref()) {
        (Some(key), Some("block")) => format!("{key}; its failure blocks those behind it"),
        (Some(key), _) => key.clone(),
        (None, _) => String::new(),
    };
    let concurrency = job
        .concurrency_key
        .as_ref()
        .map_or_else(String::new, |key| {
            format!("{key}; at most {} at once", job.max_concurrency)
        });
    pairs([
        ("job", job.job_id.clone()),
        ("type", job.job_type.clone()),
        ("state", state),
        (
            "waits",
            job.wait.as_ref().map_or_else(String::new, wait_text),
        ),
        ("progress", progress),
        (error_label(&job.state), error),
        (
            "attempt",
            format!("{} of {}", job.attempt, job.max_attempts),
        ),
        ("queue", format!("{}, lane {}", job.queue, job.lane)),
        ("user", job.user_id.clone()),
        ("submitted by", job.submitted_by.clone().unwrap_or_default()),
        ("labels", labels.join(", ")),
        ("dedupe key", job.dedupe_key.clone().unwrap_or_default()),
        ("ordering key", ordering),
        ("concurrency key", concurrency),
        ("created", time(&job.create_time)),
        ("run at", time(&job.run_at)),
        ("started", time(&job.start_time)),
        ("finished", time(&job.finish_time)),
        ("expires", time(&job.expires_at)),
        ("timeout", timeout.unwrap_or_default()),
        ("event id", job.event_id.clone()),
        ("payload", raw(&job.payload, &job.payload_hex)),
        ("result", raw(&job.result, &job.result_hex)),
    ])
}

#[cfg(test)]
mod tests {
    use tenure_proto::v1;

    use super::*;

    #[test]
    fn a_job_is_shown_without_control_characters() {
        let job = view::Job::from(v1::Job {
            job_id: "id".to_owned(),
            job_type: "noop".to_owned(),
            state: v1::JobState::Failed.into(),
            last_error: Some(v1::JobError {
                code: "X".to_owned(),
                error_class: v1::ErrorClass::Permanent.into(),
                message: "\u{1b}[2Jgone".to_owned(),
            }),
            ..v1::Job::default()
        });
        let text = job_text(&job);
        assert!(text.contains(r"X (permanent): \u{1b}[2Jgone"), "{text}");
        assert!(!text.contains('\u{1b}'));
    }

    #[test]
    fn an_error_that_was_overcome_is_the_last_one() {
        let text = |state: v1::JobState| {
            job_text(&view::Job::from(v1::Job {
                state: state.into(),
                last_error: Some(v1::JobError {
                    code: "X".to_owned(),
                    ..v1::JobError::default()
                }),
                ..v1::Job::default()
            }))
        };
        let running = text(v1::JobState::Running);
        assert!(running.contains("\nlast error"), "{running}");
        let success = text(v1::JobState::Success);
        assert!(success.contains("\nearlier error"), "{success}");
        for state in [v1::JobState::Failed, v1::JobState::Retrying] {
            assert!(text(state).contains("\nerror"), "{}", text(state));
        }
    }

    #[test]
    fn a_wait_takes_one_line() {
        let mut wait = v1::Wait {
            reason: v1::wait::Reason::Backoff.into(),
            message: "waits after an error".to_owned(),
            until: Some(prost_types::Timestamp {
                seconds: 60,
                nanos: 0,
            }),
            ..v1::Wait::default()
        };
        let job = view::Job::from(v1::Job {
            state: v1::JobState::Retrying.into(),
            wait: Some(wait.clone()),
            ..v1::Job::default()
        });
        let text = job_text(&job);
        assert!(
            text.contains("waits    waits after an error, until 1970-01-01T00:01:00Z\n"),
            "{text}"
        );
        let told = v1::Wait {
            message: "attempt 2 of 5 is due at 1970-01-01 00:01:00 UTC".to_owned(),
            ..wait.clone()
        };
        assert_eq!(wait_text(&view::Wait::from(told.clone())), told.message);
        wait.message.clear();
        wait.until = None;
        wait.reason = v1::wait::Reason::NoWorker.into();
        assert_eq!(wait_text(&view::Wait::from(wait)), "no worker");
    }
}
