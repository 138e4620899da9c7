//! Submits that come together share commits.

use std::sync::Arc;
use std::time::Duration;

use serde_json::json;
use sqlx::{Connection as _, PgConnection};
use tenure_tests::environment::variable;
use tenure_tests::{Caller, Stack, wait_until, within};
use tokio::sync::Barrier;
use tokio::time::Instant;

const BOUND: Duration = Duration::from_mins(1);
const TOGETHER: usize = 64;
/// A server process that has gone idle tells its commits after ten seconds at the latest,
/// so a window has all commits of what was done in its first second.
const WINDOW: Duration = Duration::from_secs(12);

/// Counts the commits of a database from outside it.
struct Commits {
    connection: tokio::sync::Mutex<PgConnection>,
    database: String,
}

impl Commits {
    async fn of(database: &str) -> Self {
        let url = variable("TENURE_PG_ADMIN_URL");
        let connection = PgConnection::connect(&url).await.expect("a connection");
        Self {
            connection: tokio::sync::Mutex::new(connection),
            database: database.to_owned(),
        }
    }

    async fn now(&self) -> i64 {
        sqlx::query_scalar("select xact_commit from pg_stat_database where datname = $1")
            .bind(&self.database)
            .fetch_one(&mut *self.connection.lock().await)
            .await
            .expect("the statistics")
    }

    /// The commits of one window, from the end of the one before.
    async fn of_a_window(&self) -> i64 {
        let before = self.now().await;
        let end = Instant::now() + WINDOW;
        wait_until("the end of the window", WINDOW * 2, || async {
            (Instant::now() >= end).then_some(())
        })
        .await;
        self.now().await - before
    }
}

/// The commits that wrote jobs, so far.
async fn job_commits(stack: &Stack) -> i64 {
    stack
        .number("select count(distinct xmin::text) from jobs")
        .await
}

/// Submits jobs from many calls at the same instant; how many were accepted.
async fn released_together(caller: &Caller) -> usize {
    let barrier = Arc::new(Barrier::new(TOGETHER));
    let calls: Vec<_> = (0..TOGETHER)
        .map(|n| {
            let (caller, barrier) = (caller.clone(), barrier.clone());
            tokio::spawn(async move {
                barrier.wait().await;
                caller.submit("noop", json!({"n": n})).await
            })
        })
        .collect();
    let answers = within("all answers", BOUND, futures::future::join_all(calls)).await;
    answers.iter().filter(|answer| answer.is_ok()).count()
}

#[tokio::test]
async fn sixty_four_submits_released_together_cost_at_most_eight_commits() {
    let stack = Stack::builder().workers(0).sweepers(0).start().await;
    let ann = stack.user("ann");
    // Connections are opened and statements prepared once, which costs commits as well.
    for _ in 0..4 {
        released_together(&ann).await;
    }
    let before = job_commits(&stack).await;
    let commits = Commits::of(stack.database_name()).await;
    commits.of_a_window().await;
    // The gateway reads the job types now and then, which costs a commit each.
    let quiet = commits.of_a_window().await;

    let (answers, busy) = tokio::join!(released_together(&ann), commits.of_a_window(),);
    assert_eq!(answers, TOGETHER);

    let cost = busy - quiet;
    let writes = job_commits(&stack).await - before;
    println!(
        "{TOGETHER} submits: {cost} commits in all, {} of them wrote jobs",
        writes - 1
    );
    let jobs = 5 * TOGETHER as i64;
    assert_eq!(stack.number("select count(*) from jobs").await, jobs);
    assert!(cost <= 8, "{cost} commits");
}
