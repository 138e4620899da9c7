//! An admin that is killed while it replays: each letter is open with no new run, or
//! replayed with exactly one.

use parking_lot::Mutex;
use rand::Rng as _;
use tenure_tests::v1::{DeadLetterOutcome, ReplayDeadLettersRequest};
use tenure_tests::{Stack, wait_until};

use crate::{BOUND, failed_jobs};

const LETTERS: i64 = 100;
const KILLS: i64 = 10;

#[tokio::test]
async fn v4_a_hundred_replays_with_ten_crashes_of_the_admin_are_a_hundred_runs() {
    let stack = Stack::builder().dead_letter_admin().start().await;
    let ids = failed_jobs(&stack, LETTERS as i32, "noop", "{}").await;
    let caller = Mutex::new(stack.dead_letters());
    let replayed = || stack.number("select count(*) from replays");
    let killer = async {
        for kill in 0..KILLS {
            // Somewhere in the next ten, after a fact and not after a time.
            let at = kill * (LETTERS / KILLS) + rand::rng().random_range(0..LETTERS / KILLS);
            wait_until(format!("replay {at}"), BOUND, || async {
                (replayed().await >= at).then_some(())
            })
            .await;
            stack.dead_letter_admin().kill();
            stack.dead_letter_admin().start().await;
            *caller.lock() = stack.dead_letters();
        }
    };
    let replayer = async {
        let mut done = 0;
        for id in &ids {
            let outcome = wait_until(format!("the replay of {id}"), BOUND, || async {
                let operator = caller.lock().clone();
                let request = ReplayDeadLettersRequest {
                    dead_letter_ids: vec![id.to_string()],
                    reason: "one by one".to_owned(),
                };
                let answer = operator.dead_letters().replay_dead_letters(request).await;
                Some(answer.ok()?.into_inner().results[0].outcome())
            })
            .await;
            match outcome {
                DeadLetterOutcome::Done => done += 1,
                // The answer to the first call was lost with the process.
                DeadLetterOutcome::AlreadyDone => {}
                other => panic!("{id}: {other:?}"),
            }
        }
        done
    };
    let ((), done) = tokio::join!(killer, replayer);
    println!("{done} of {LETTERS} calls had their answer at once");
    assert_eq!(replayed().await, LETTERS);
    let once = "select count(*) from jobs j where life = 2 and run >= 2 and \
                (select count(*) from replays r where r.job_id = j.job_id) = 1";
    assert_eq!(stack.number(once).await, LETTERS);
    wait_until("the end of them all", BOUND, || async {
        let ended = "select count(*) from dead_letters where status = 'resolved'";
        (stack.number(ended).await == LETTERS).then_some(())
    })
    .await;
    let succeeded = "select count(*) from jobs where status = 'success' and run = 2";
    assert_eq!(
        stack.number(succeeded).await,
        LETTERS,
        "each in its one new run"
    );
    let audited =
        "select count(*) from dead_letter_actions where action in ('replay', 'succeeded')";
    assert_eq!(stack.number(audited).await, 2 * LETTERS);
}
