//! How fast an operator sees a million dead letters: the list with and without filters, and
//! the causes with their counts, through the running service.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use tenure_proto::v1::{
    DeadLetterFilter, DeadLetterStatus, ListDeadLetterCausesRequest, ListDeadLettersRequest,
};
use tenure_tests::{Caller, Stack, wait_until};
use tokio::time::Instant;

use crate::catalogue::Wanted;
use crate::measure::Effort;
use crate::report::{Report, percentile, progress};

/// The letters.
const LETTERS: i64 = 1_000_000;
/// Calls of each kind in one run.
const CALLS: usize = 60;
/// They are written in so many transactions at once.
const LOADERS: i64 = 2;
/// The longest that counting all of them may take.
const BOUND: Duration = Duration::from_mins(2);

/// A month of failures: 40 types in 4 queues, 5,000 users, 100 messages a type, nine in ten
/// open; the numbers from $2 to $3 of $1. None is seen, and none counted, before all are there.
const LOAD: &str = "insert into dead_letters (id, job_id, message_key, queue_name, job_type, user_id, payload, error_code, \
     error_class, error_message, attempts, replayable, status, first_failed_at, last_failed_at) \
     select i, i, i::text, 'queue_' || n % 4, 'type_' || n % 40, 'user-' || n % 5000, '{\"n\":1}', \
     case n % 3 when 0 then 'PANIC' when 1 then 'HTTP_503' else 'DISK_FULL' end, 'temporary', \
     'no answer from ' || chr(97 + (n / 40 % 10)::int) || chr(97 + (n / 400 % 10)::int) || ' after ' || n || ' ms', 3, true, \
     case when n % 10 = 0 then 'ignored' else 'open' end, t, t \
     from (select n, tenure_uuid7() as i, now() - ($1 - n) * interval '2.5 seconds' as t from generate_series($2, $3) n) s";
const UNCOUNTED: &str = "select exists (select 1 from dead_letter_counts)";
const ANALYZE: &str = "vacuum analyze dead_letters";

/// Measures it where its figures are asked for.
pub(crate) async fn measure(
    report: &mut Report<'_>,
    wanted: &Wanted,
    effort: Effort,
) -> Result<()> {
    // Loading takes minutes: measured only where it is asked for by its name.
    if !wanted.asked("dead_letters") {
        return Ok(());
    }
    let letters = if effort.runs == 1 {
        LETTERS / 100
    } else {
        LETTERS
    };
    let stack = Stack::builder().dead_letter_admin().start().await;
    load(&stack, letters).await?;
    progress(format_args!("{letters} dead letters are there"));
    let loaded = Instant::now();
    wait_until("all letters are counted", BOUND, async || {
        let left: bool = sqlx::query_scalar(UNCOUNTED)
            .fetch_one(stack.pool())
            .await
            .ok()?;
        (!left).then_some(())
    })
    .await;
    let counted = loaded.elapsed().as_secs_f64();
    sqlx::query(ANALYZE).execute(stack.pool()).await?;
    progress(format_args!("they are counted after {counted:.1} s"));
    let operator = stack.dead_letters();
    let (mut lists, mut filtered, mut causes) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..effort.runs {
        lists.push(p95(async |n| list(&operator, DeadLetterFilter::default(), n).await).await?);
        filtered.push(p95(async |n| list(&operator, filter(n), n).await).await?);
        causes.push(p95(async |n| list_causes(&operator, n).await).await?);
    }
    report.add("dead_letters_counted_s", vec![counted]);
    report.add("dead_letters_list_p95_ms", lists);
    report.add("dead_letters_list_filtered_p95_ms", filtered);
    report.add("dead_letters_causes_p95_ms", causes);
    Ok(())
}

/// Writes the letters. All are committed within a moment of each other.
async fn load(stack: &Stack, letters: i64) -> Result<()> {
    let (pool, part) = (stack.pool(), letters / LOADERS);
    let parts = (0..LOADERS).map(|loader| async move {
        let mut transaction = pool.begin().await?;
        sqlx::query(LOAD)
            .bind(letters)
            .bind(loader * part + 1)
            .bind((loader + 1) * part)
            .execute(&mut *transaction)
            .await?;
        Ok::<_, sqlx::Error>(transaction)
    });
    for transaction in futures::future::try_join_all(parts).await? {
        transaction.commit().await?;
    }
    Ok(())
}

/// The 95th percentile of many calls one after the other, in milliseconds.
async fn p95(mut call: impl AsyncFnMut(usize) -> Result<()>) -> Result<f64> {
    let mut times = Vec::with_capacity(CALLS);
    for number in 0..CALLS {
        let start = Instant::now();
        call(number).await?;
        times.push(start.elapsed().as_secs_f64() * 1000.0);
    }
    times.sort_by(f64::total_cmp);
    Ok(percentile(&times, 0.95))
}

/// What operators ask for, one kind after the other.
fn filter(number: usize) -> DeadLetterFilter {
    let open = DeadLetterFilter {
        statuses: vec![DeadLetterStatus::Open.into()],
        ..DeadLetterFilter::default()
    };
    match number % 5 {
        0 => open,
        1 => DeadLetterFilter {
            job_type: format!("type_{}", number % 40),
            ..open
        },
        2 => DeadLetterFilter {
            user_id: format!("user-{number}"),
            ..open
        },
        3 => DeadLetterFilter {
            queue: "queue_1".to_owned(),
            error_code: "PANIC".to_owned(),
            ..open
        },
        _ => DeadLetterFilter {
            text: "from AB after".to_owned(),
            ..open
        },
    }
}

async fn list(operator: &Caller, filter: DeadLetterFilter, number: usize) -> Result<()> {
    let request = ListDeadLettersRequest {
        page_size: 50,
        filter: Some(filter),
        ..ListDeadLettersRequest::default()
    };
    let page = operator.dead_letters().list_dead_letters(request).await?;
    let page = page.into_inner();
    let some = !page.dead_letters.is_empty() || !page.next_page_token.is_empty();
    ensure!(some, "call {number} found nothing");
    Ok(())
}

async fn list_causes(operator: &Caller, number: usize) -> Result<()> {
    let request = ListDeadLetterCausesRequest {
        page_size: 50,
        order: i32::try_from(number % 3 + 1).context("an order")?,
        ..ListDeadLetterCausesRequest::default()
    };
    let page = operator
        .dead_letters()
        .list_dead_letter_causes(request)
        .await?;
    ensure!(!page.into_inner().causes.is_empty(), "no cause was found");
    Ok(())
}
