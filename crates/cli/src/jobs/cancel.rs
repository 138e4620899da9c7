//! `cancel`: one job, or all that match.

use anyhow::Context as _;
use tenure_proto::v1;

use super::READ_REPEATS;
use crate::args::{CancelArgs, JobFilter};
use crate::choices::LiveStateArg;
use crate::client::Client;
use crate::errors::{Exit, Failure};
use crate::output::Output;
use crate::progress::{Meter, Unit};
use crate::shell::Line;
use crate::{values, view};

/// `tenure cancel JOB`.
pub(crate) async fn cancel(
    client: &Client,
    job_id: String,
    reason: String,
    out: &mut Output,
) -> Result<Exit, Failure> {
    let request = v1::CancelJobRequest { job_id, reason };
    let call = |request| {
        let mut jobs = client.jobs();
        async move { jobs.cancel_job(request).await }
    };
    // A second cancel finds a cancelled job and changes nothing.
    let answer = client.unary(READ_REPEATS, request, call).await?;
    let cancelled = view::Cancelled {
        outcome: view::cancel_outcome(answer.outcome),
        job: answer.job.map(view::Job::from),
    };
    out.emit(&cancelled, |it| {
        let state = it.job.as_ref().map_or("", |job| job.state.as_str());
        let what = match it.outcome.as_str() {
            "cancelled" => "the job is cancelled".to_owned(),
            "requested" => {
                "the job runs; it was asked to stop, `tenure watch` shows its end".to_owned()
            }
            "already_ended" => format!("the job had ended before: {state}"),
            other => other.to_owned(),
        };
        crate::output::escape(&what).into_owned() + "\n"
    })?;
    Ok(Exit::Ok)
}

/// `tenure cancel` with filters: counts, and with `--yes` cancels.
pub(crate) async fn cancel_many(
    client: &Client,
    args: CancelArgs,
    out: &mut Output,
) -> Result<Exit, Failure> {
    let again = (!args.yes).then(|| command(&args.filter, args.all_users));
    let request = v1::CancelJobsRequest {
        states: args.filter.states(),
        job_type: args.filter.job_type.unwrap_or_default(),
        queue: args.filter.queue.unwrap_or_default(),
        user_id: args.filter.user.unwrap_or_default(),
        labels: values::labels(args.filter.labels)?,
        reason: args.reason,
        dry_run: !args.yes,
        page_token: String::new(),
    };
    let mut sums = view::BulkCancelled {
        dry_run: request.dry_run,
        ..view::BulkCancelled::default()
    };
    let walked = tokio::select! {
        walked = walk(client, request, &mut sums) => walked,
        signal = tokio::signal::ctrl_c() => {
            signal.context("cannot wait for Ctrl-C")?;
            Err(Failure::new(Exit::Interrupted, "interrupted before all jobs were looked at"))
        }
    };
    // What was cancelled stays so, however the walk ended.
    if walked.is_err() && (sums.dry_run || sums.cancelled + sums.requested == 0) {
        return walked.map(|()| Exit::Ok);
    }
    let complete = walked.is_ok();
    out.emit(&sums, |it| many_text(it, complete, again))?;
    walked.map(|()| {
        if sums.failed > 0 && !sums.dry_run {
            Exit::Failed
        } else {
            Exit::Ok
        }
    })
}

/// Goes through all pages. A page whose answer was lost is asked for again; what its first
/// call cancelled is then missing in the sums, and cancelled all the same.
async fn walk(
    client: &Client,
    mut request: v1::CancelJobsRequest,
    sums: &mut view::BulkCancelled,
) -> Result<(), Failure> {
    let label = if request.dry_run {
        "counting"
    } else {
        "cancelling"
    };
    let mut meter = Meter::new(label, Unit::Steps);
    loop {
        let call = |request| {
            let mut jobs = client.jobs();
            async move { jobs.cancel_jobs(request).await }
        };
        let page = client.unary(READ_REPEATS, request.clone(), call).await?;
        sums.cancelled += page.cancelled;
        sums.requested += page.requested;
        sums.already_ended += page.already_ended;
        sums.failed += page.failed;
        if page.next_page_token.is_empty() {
            return Ok(());
        }
        if page.next_page_token == request.page_token {
            return Err(Failure::local(
                "the service answered with the same page token again",
            ));
        }
        request.page_token = page.next_page_token;
        let done = sums.cancelled + sums.requested + sums.already_ended + sums.failed;
        meter.set(u64::try_from(done).unwrap_or(0), 0, "");
    }
}

/// The line that does what a dry run counted.
fn command(filter: &JobFilter<LiveStateArg>, all_users: bool) -> String {
    let mut line = Line::new(["cancel"]);
    for state in &filter.states {
        line = line.option("--state", Some(state.name()));
    }
    line = line
        .option("--type", filter.job_type.as_deref())
        .option("--queue", filter.queue.as_deref())
        .option("--user", filter.user.as_deref())
        .flag("--all-users", all_users);
    for (key, value) in &filter.labels {
        line = line.option("--label", Some(&format!("{key}={value}")));
    }
    line.flag("--yes", true).why().text()
}

fn many_text(it: &view::BulkCancelled, complete: bool, again: Option<String>) -> String {
    let some = |count: i64| match count {
        0 => String::new(),
        count => count.to_string(),
    };
    let failed = match it.failed {
        0 => String::new(),
        count => format!("{count}, damaged and left as they are; the gateway's log names them"),
    };
    let sums = crate::output::pairs([
        ("waiting", it.cancelled.to_string()),
        ("running", it.requested.to_string()),
        ("ended meanwhile", some(it.already_ended)),
        ("failed", failed),
    ]);
    let (head, tail) = if it.dry_run {
        let tail = if it.cancelled + it.requested == 0 {
            "no job matches\n".to_owned()
        } else {
            let again = again.unwrap_or_default();
            format!(
                "nothing was changed; this cancels them:\n  {}\n",
                crate::output::escape(&again)
            )
        };
        ("would cancel", tail)
    } else if complete {
        ("cancelled (running ones were asked to end)", String::new())
    } else {
        (
            "cancelled so far (running ones were asked to end)",
            "not all jobs were looked at; the same command goes on\n".to_owned(),
        )
    };
    format!("{head}:\n{sums}{tail}")
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;
    use crate::args::{Cli, Verb};

    fn parse(line: &[&str]) -> Option<CancelArgs> {
        let line = ["tenure", "cancel"].iter().chain(line);
        match Cli::try_parse_from(line).ok()?.verb {
            Verb::Cancel(args) => Some(args),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn an_id_or_filters_but_never_both_or_neither() {
        assert!(parse(&["j"]).is_some());
        assert!(parse(&["--queue", "q"]).is_some());
        assert!(parse(&["--queue", "q", "--all-users", "--yes"]).is_some());
        assert!(parse(&[]).is_none());
        assert!(parse(&["--yes"]).is_none());
        assert!(parse(&["--all-users"]).is_none());
        assert!(parse(&["j", "--queue", "q"]).is_none());
        assert!(parse(&["j", "--yes"]).is_none());
        assert!(parse(&["--user", "ann", "--all-users"]).is_none());
    }

    #[test]
    fn the_line_to_type_is_the_line_that_was_typed_and_yes() {
        let typed = [
            "--state",
            "pending",
            "--type",
            "a b",
            "--label",
            "k=v",
            "--all-users",
        ];
        let args = parse(&typed).expect("parses");
        let line = command(&args.filter, args.all_users);
        assert_eq!(
            line,
            "tenure cancel --state pending --type 'a b' --all-users --label k=v --yes --reason 'WHY'"
        );
    }

    #[test]
    fn a_dry_run_says_what_it_would_do_and_how_to_do_it() {
        let mut sums = view::BulkCancelled {
            dry_run: true,
            cancelled: 5,
            requested: 2,
            already_ended: 0,
            failed: 0,
        };
        let text = many_text(
            &sums,
            true,
            Some("tenure cancel --queue q --yes".to_owned()),
        );
        assert_eq!(
            text,
            "would cancel:\nwaiting  5\nrunning  2\nnothing was changed; this cancels them:\n  tenure cancel --queue q --yes\n"
        );
        sums.dry_run = false;
        sums.already_ended = 1;
        sums.failed = 3;
        let text = many_text(&sums, false, None);
        assert!(text.contains("3, damaged"), "{text}");
        assert!(text.starts_with("cancelled so far"), "{text}");
        assert!(text.contains("ended meanwhile  1"), "{text}");
        let none = view::BulkCancelled {
            dry_run: true,
            ..view::BulkCancelled::default()
        };
        assert!(many_text(&none, true, None).contains("no job matches"));
    }
}
