//! Imports into tables of the operator's through the running product.

use std::time::Duration;

use serde_json::{Value, json};
use tenure_tests::caller::result;
use tenure_tests::imports::quoted_csv;
use tenure_tests::{Caller, JobState, Stack, wait_until};

const BOUND: Duration = Duration::from_secs(90);

async fn stack() -> Stack {
    let stack = Stack::builder()
        .env("TENURE_IMPORTS__TABLES", "crm.contacts(owner),crm.gone")
        .start()
        .await;
    sqlx::raw_sql(
        "create schema crm;
         create table crm.contacts (
             owner text not null, email varchar(12) not null, born date, paid numeric(8,2) check (paid >= 0),
             made timestamptz not null default now(), primary key (owner, email));
         insert into crm.contacts (owner, email, paid) values ('bob', 'a@b.c', 1);
         create table crm.secrets (email text);",
    )
    .execute(stack.pool())
    .await
    .expect("a table");
    stack
}

/// Email, birthday and payment of a user's contacts.
async fn contacts(stack: &Stack, owner: &str) -> Vec<(String, Option<String>, Option<String>)> {
    sqlx::query_as(
        "select email, born::text, paid::text from crm.contacts where owner = $1 order by 1",
    )
    .bind(owner)
    .fetch_all(stack.pool())
    .await
    .expect("contacts")
}

fn row(
    email: &str,
    born: Option<&str>,
    paid: Option<&str>,
) -> (String, Option<String>, Option<String>) {
    (
        email.to_owned(),
        born.map(str::to_owned),
        paid.map(str::to_owned),
    )
}

async fn import(
    caller: &Caller,
    content: &str,
    more: Value,
    end: JobState,
) -> tenure_tests::v1::Job {
    let job_id = caller
        .import("contacts.csv", content.as_bytes(), more)
        .await;
    caller.wait_state(&job_id, end, BOUND).await
}

#[tokio::test]
async fn rows_go_into_a_table_and_refused_ones_to_the_rejects() {
    let stack = stack().await;
    let ann = stack.user("ann");
    let content = "E-Mail,born,paid\na@b.c,2000-01-31,10.50\nb@b.c,31.1.2000,1\nmuch.too.long@b.c,,2\n\
                   ,2000-01-01,3\na@b.c,,4\nc@b.c,,-1\nd@b.c,,\n";
    let more = json!({"target": {"table": "crm.contacts", "columns": {"e-mail": "email"}}});
    let job = import(&ann, content, more, JobState::Success).await;
    let told = result(&job);
    assert_eq!(told["table"], "crm.contacts");
    assert!(told.get("dataset").is_none());
    assert_eq!(
        (&told["rows_accepted"], &told["rows_rejected"]),
        (&json!(2), &json!(5))
    );
    assert_eq!(
        contacts(&stack, "ann").await,
        [
            row("a@b.c", Some("2000-01-31"), Some("10.50")),
            row("d@b.c", None, None)
        ]
    );
    assert_eq!(contacts(&stack, "bob").await.len(), 1);
    let rejects = quoted_csv(&ann.result_file(&job, "rejects_file_id").await);
    let told: Vec<_> = rejects[1..]
        .iter()
        .map(|r| (r[0].as_str(), r[1].as_str(), r[2].as_str()))
        .collect();
    assert_eq!(
        told,
        [
            ("3", "born", "BAD_DATE"),
            ("4", "", "TABLE_REFUSED"),
            ("5", "E-Mail", "REQUIRED_MISSING"),
            ("6", "", "TABLE_REFUSED"),
            ("7", "", "TABLE_REFUSED"),
        ]
    );
    let originals: Vec<&str> = rejects[1..].iter().map(|r| r[5].as_str()).collect();
    assert_eq!(
        originals,
        [
            "b@b.c,31.1.2000,1",
            "much.too.long@b.c,,2",
            ",2000-01-01,3",
            "a@b.c,,4",
            "c@b.c,,-1"
        ]
    );
    assert_eq!(stack.number("select count(*) from import_rows").await, 0);
    assert_eq!(ann.all_datasets().await.expect("data sets"), []);
}

#[tokio::test]
async fn an_upsert_changes_ones_own_rows_only() {
    let stack = stack().await;
    let ann = stack.user("ann");
    let wish = json!({"target": {"table": "crm.contacts", "mode": "upsert", "key": ["email"]}});
    let first = "email,paid\na@b.c,1\nb@b.c,2\na@b.c,3\n";
    import(&ann, first, wish.clone(), JobState::Success).await;
    let second = "email,paid\nb@b.c,9\nc@b.c,4\n";
    import(&ann, second, wish.clone(), JobState::Success).await;
    let expected = [
        row("a@b.c", None, Some("3.00")),
        row("b@b.c", None, Some("9.00")),
        row("c@b.c", None, Some("4.00")),
    ];
    assert_eq!(contacts(&stack, "ann").await, expected);
    assert_eq!(
        contacts(&stack, "bob").await,
        [row("a@b.c", None, Some("1.00"))]
    );
    // A dry run leaves the table as it is.
    let mut dry = wish;
    dry["validate_only"] = json!(true);
    let job = import(&ann, "email,paid\na@b.c,7\n", dry, JobState::Success).await;
    assert_eq!(result(&job)["table"], "crm.contacts");
    assert_eq!(contacts(&stack, "ann").await, expected);
}

#[tokio::test]
async fn what_does_not_fit_is_refused_before_the_first_row() {
    let stack = stack().await;
    let ann = stack.user("ann");
    for (content, target, text) in [
        (
            "email\nx\n",
            json!({"table": "crm.secrets"}),
            "may not write to 'crm.secrets'",
        ),
        (
            "email\nx\n",
            json!({"table": "crm.gone"}),
            "may not write to 'crm.gone'",
        ),
        (
            "email\nx\n",
            json!({"table": "jobs"}),
            "may not write to 'jobs'",
        ),
        (
            "email,x\nx,y\n",
            json!({"table": "crm.contacts"}),
            "no column 'x'",
        ),
        (
            "paid,born\n1,\n",
            json!({"table": "crm.contacts"}),
            "value in 'email'",
        ),
        (
            "email,owner\nx,bob\n",
            json!({"table": "crm.contacts"}),
            "filled with the user's id",
        ),
        (
            "email,born\nx,\n",
            json!({"table": "crm.contacts", "mode": "upsert", "key": ["born"]}),
            "no unique index",
        ),
    ] {
        let more = json!({"target": target, "delimiter": ","});
        let job = import(&ann, content, more, JobState::Failed).await;
        let error = job.last_error.as_ref().expect("an error");
        assert_eq!(
            error.code, "IMPORT_TARGET_INVALID",
            "{target}: {}",
            error.message
        );
        assert!(error.message.contains(text), "{target}: {}", error.message);
        assert_eq!(job.attempt, 1);
    }
    assert_eq!(stack.number("select count(*) from crm.contacts").await, 1);
    assert_eq!(
        stack
            .number("select count(*) from import_checkpoints")
            .await,
        0
    );
}

#[tokio::test]
async fn an_import_that_waits_for_others_keeps_no_slot_and_spends_no_attempt() {
    let stack = stack().await;
    let ann = stack.user("ann");
    let mut other = stack.pool().begin().await.expect("begun");
    sqlx::query("lock table crm.contacts in access exclusive mode")
        .execute(&mut *other)
        .await
        .expect("locked");
    let mut jobs = Vec::new();
    // Two may write to one table at once.
    for n in 0..3 {
        let content = format!("email\n{n}@b.c\n");
        let more = json!({"delimiter": ",", "target": {"table": "crm.contacts"}});
        jobs.push(ann.import("c.csv", content.as_bytes(), more).await);
    }
    wait_until("one is put off", BOUND, || async {
        let waits =
            "select count(*) from jobs where status = 'pending' and snoozes > 0 and attempt = 0";
        (stack.number(waits).await > 0).then_some(())
    })
    .await;
    other.rollback().await.expect("let go");
    for job in jobs {
        let job = ann.wait_state(&job, JobState::Success, BOUND).await;
        assert_eq!(job.attempt, 1);
    }
}
