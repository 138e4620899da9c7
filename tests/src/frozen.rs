//! A worker that freezes in the middle of a job, which another one then runs: what several
//! tests look at from different sides.

use std::time::Duration;

use serde_json::json;

use crate::v1::Job;
use crate::{Caller, JobState, Kind, Signal, Sink, Stack, wait_until};

/// The longest that any step takes.
const BOUND: Duration = Duration::from_secs(90);
/// The key under which the job's effect arrives.
const KEY: &str = "k";

/// A stack of two workers, of which the first runs the only job.
#[derive(Debug)]
pub struct Frozen {
    /// The stack.
    pub stack: Stack,
    /// The owner of the job.
    pub owner: Caller,
    /// The job: an `effect` that ends when the sink opens.
    pub job_id: String,
    sink: Sink,
}

impl Frozen {
    /// Starts the stack; the first worker has begun the job, and the second is not there yet.
    ///
    /// # Panics
    /// Where the stack does not start.
    pub async fn begin() -> Self {
        let sink = Sink::start(false).await;
        let stack = Stack::builder()
            .workers(2)
            .lease("3s")
            .asleep(Kind::Worker)
            .start()
            .await;
        stack.worker(0).start().await;
        let owner = stack.user("ann");
        let payload = json!({"url": sink.url(), "key": KEY});
        let job_id = owner.submit("effect", payload).await;
        sink.arrived(KEY, 1, BOUND).await;
        Self {
            stack,
            owner,
            job_id,
            sink,
        }
    }

    /// Freezes the first worker past its lease; the second runs the job to its end.
    ///
    /// # Panics
    /// Where it does not.
    pub async fn taken_over(&self) -> Job {
        self.stack.worker(0).signal(Signal::STOP);
        self.stack.worker(1).start().await;
        self.sink.arrived(KEY, 2, BOUND).await;
        self.sink.open(true);
        self.owner
            .wait_state(&self.job_id, JobState::Success, BOUND)
            .await
    }

    /// Lets the first worker go on, with an answer in its hands to a job that is not its
    /// own any more, until it has seen that.
    ///
    /// # Panics
    /// Where it does not.
    pub async fn thaw(&self) {
        self.stack.worker(0).signal(Signal::CONT);
        wait_until("the lost lease seen", BOUND, || async {
            let metrics = self.stack.worker(0).metrics().await;
            (metrics.sum("tenure_lease_lost_total", &[]) > 0.0).then_some(())
        })
        .await;
    }

    /// How often the job has taken effect.
    pub fn effects(&self) -> usize {
        self.sink.count(KEY)
    }
}
