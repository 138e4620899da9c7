//! Submits that are refused, unless they repeat an accepted one: who asks again after a lost
//! answer is told of the job, however full the queue is by now.
//!
//! Only what would be refused is looked for, one look-up at a time, and each for all that
//! came while the last one was made.

use std::sync::Arc;

use parking_lot::Mutex;
use tenure_core::domain::job::NewJob;
use tenure_core::error::Result;
use tenure_core::storage::Store;
use tenure_core::storage::batch_writer::Submitted;
use tokio::sync::oneshot;

/// The jobs of one look-up, but for a call with more.
const AT_ONCE: usize = 1_000;
/// The most jobs that wait for one; beyond, they are refused without.
const WAITING_MAX: usize = 10_000;

/// An answer for each job; `None`: it repeats nothing.
type Answers = Vec<Option<Result<Submitted>>>;

/// Looks for them.
pub(super) struct Repeats {
    store: Store,
    queue: Mutex<Queue>,
}

#[derive(Default)]
struct Queue {
    questions: Vec<Question>,
    jobs: usize,
    busy: bool,
}

struct Question {
    jobs: Vec<NewJob>,
    reply: oneshot::Sender<Answers>,
}

impl Repeats {
    /// Looks in this database.
    pub(super) fn new(store: Store) -> Arc<Self> {
        Arc::new(Self {
            store,
            queue: Mutex::default(),
        })
    }

    /// Whether a job can repeat another one.
    pub(super) fn may_repeat(job: &NewJob) -> bool {
        job.request_id.is_some() || job.dedupe.is_some()
    }

    /// What jobs are answered with that repeat an accepted one. Where the database does not
    /// tell, they are taken for new.
    pub(super) async fn find(self: &Arc<Self>, jobs: Vec<NewJob>) -> Answers {
        let count = jobs.len();
        let Some(answer) = self.ask(jobs) else {
            return unknown(count);
        };
        answer.await.unwrap_or_else(|_| unknown(count))
    }

    fn ask(self: &Arc<Self>, jobs: Vec<NewJob>) -> Option<oneshot::Receiver<Answers>> {
        let mut queue = self.queue.lock();
        if queue.jobs + jobs.len() > WAITING_MAX {
            return None;
        }
        let (reply, answer) = oneshot::channel();
        queue.jobs += jobs.len();
        queue.questions.push(Question { jobs, reply });
        if !queue.busy {
            queue.busy = true;
            // An owned task: a caller that goes away takes no answer from the others.
            tokio::spawn(self.clone().run());
        }
        Some(answer)
    }

    async fn run(self: Arc<Self>) {
        while let Some(questions) = self.next() {
            let jobs: Vec<&NewJob> = questions.iter().flat_map(|it| &it.jobs).collect();
            let found = self.store.find_repeats(&jobs).await;
            let mut found = found
                .unwrap_or_else(|error| {
                    tracing::warn!(
                        error = &error as &dyn std::error::Error,
                        "refused submits are not known to repeat others"
                    );
                    unknown(jobs.len())
                })
                .into_iter();
            for question in questions {
                let answers = found.by_ref().take(question.jobs.len()).collect();
                // Its caller may have gone away.
                let _ = question.reply.send(answers);
            }
        }
    }

    /// The questions of the next look-up; `None`: there are none, and the next one that comes
    /// begins anew.
    fn next(&self) -> Option<Vec<Question>> {
        let mut queue = self.queue.lock();
        let mut jobs = 0;
        let mut count = 0;
        for question in &queue.questions {
            if count > 0 && jobs + question.jobs.len() > AT_ONCE {
                break;
            }
            jobs += question.jobs.len();
            count += 1;
        }
        queue.jobs -= jobs;
        queue.busy = count > 0;
        (count > 0).then(|| queue.questions.drain(..count).collect())
    }
}

fn unknown(count: usize) -> Answers {
    (0..count).map(|_| None).collect()
}
