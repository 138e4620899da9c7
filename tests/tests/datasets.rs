//! Data sets through the running product: what is added, replaced, judged only, refused.

use std::fmt::Write as _;
use std::time::Duration;

use serde_json::{Value, json};
use tenure_tests::caller::result;
use tenure_tests::imports::{quoted_csv, rows_of};
use tenure_tests::v1::{DeleteDatasetRequest, Job, ListDatasetsRequest, ListRowsRequest};
use tenure_tests::{Caller, JobState, Refusal, Stack, wait_until};

const BOUND: Duration = Duration::from_secs(90);

async fn imported(caller: &Caller, name: &str, content: &str, more: Value) -> Job {
    let job_id = caller.import(name, content.as_bytes(), more).await;
    caller.wait_state(&job_id, JobState::Success, BOUND).await
}

async fn failed(caller: &Caller, content: &str, more: Value) -> Job {
    let job_id = caller.import("bad.csv", content.as_bytes(), more).await;
    caller.wait_state(&job_id, JobState::Failed, BOUND).await
}

/// Name, rows and imports of all data sets of a caller.
async fn sets(caller: &Caller) -> Vec<(String, i64, i32)> {
    let all = caller.all_datasets().await.expect("data sets");
    all.into_iter()
        .map(|s| (s.name, s.rows, s.imports))
        .collect()
}

/// A column of all rows of a data set.
async fn column(caller: &Caller, dataset: &str, name: &str) -> Vec<String> {
    let rows = caller.all_rows(rows_of(dataset)).await.expect("rows");
    rows.iter()
        .map(|row| {
            let row: Value = serde_json::from_str(&row.data).expect("JSON");
            row[name].to_string()
        })
        .collect()
}

#[tokio::test]
async fn imports_add_to_a_data_set_or_replace_it() {
    let stack = Stack::builder().start().await;
    let ann = stack.user("ann");
    let typed = json!({"columns": [{"name": "n", "type": "decimal"}], "delimiter": ","});
    let first = imported(&ann, "My numbers.csv", "n\n1.50\n2\n", typed.clone()).await;
    assert_eq!(result(&first)["dataset"], "My numbers");
    let more = |extra: Value| {
        let mut more = typed.clone();
        for (key, value) in extra.as_object().expect("an object") {
            more[key] = value.clone();
        }
        more
    };
    let into = json!({"dataset": "My numbers"});
    let second = imported(&ann, "more.csv", "n\n3\n", more(into)).await;
    imported(&ann, "a.csv", "n\n", more(json!({}))).await;
    assert_eq!(
        sets(&ann).await,
        [("My numbers".into(), 3, 2), ("a".into(), 0, 1)]
    );
    assert_eq!(column(&ann, "My numbers", "n").await, ["1.5", "2", "3"]);
    let mut some = rows_of("My numbers");
    some.page_size = 1;
    let rows = ann.all_rows(some.clone()).await.expect("rows");
    assert_eq!(rows[0].data, r#"{"n": 1.50}"#);
    let places: Vec<_> = rows.iter().map(|r| (r.job_id.as_str(), r.line)).collect();
    let (one, two) = (first.job_id.as_str(), second.job_id.as_str());
    assert_eq!(places, [(one, 2), (one, 3), (two, 2)]);
    some.job_id.clone_from(&second.job_id);
    assert_eq!(ann.all_rows(some).await.expect("rows").len(), 1);

    let replace = json!({"dataset": "My numbers", "mode": "replace"});
    imported(&ann, "new.csv", "n\n7\n", more(replace)).await;
    assert_eq!(sets(&ann).await[0], ("My numbers".into(), 1, 1));
    assert_eq!(column(&ann, "My numbers", "n").await, ["7"]);
}

#[tokio::test]
async fn what_was_replaced_or_cancelled_is_pruned() {
    let stack = Stack::builder()
        .env("TENURE_SWEEPER__PRUNE_INTERVAL", "1s")
        .start()
        .await;
    let ann = stack.user("ann");
    let more = json!({"delimiter": ",", "dataset": "set", "mode": "replace"});
    imported(&ann, "a.csv", "n\n1\n2\n", more.clone()).await;
    imported(&ann, "b.csv", "n\n3\n", more).await;
    wait_until("the replaced rows gone", BOUND, || async {
        let rows = stack.number("select count(*) from import_rows").await;
        let imports = stack.number("select count(*) from imports").await;
        ((rows, imports) == (1, 1)).then_some(())
    })
    .await;
    assert_eq!(column(&ann, "set", "n").await, ["\"3\""]);
    // A cancelled import leaves nothing.
    let mut content = String::from("n\n");
    for n in 0..400_000 {
        let _ = writeln!(content, "{n}");
    }
    let large = json!({"delimiter": ",", "dataset": "other"});
    let job_id = ann.import("c.csv", content.as_bytes(), large).await;
    wait_until("some rows", BOUND, || async {
        let rows = stack.number("select count(*) from import_rows").await;
        (rows > 1).then_some(())
    })
    .await;
    ann.cancel(&job_id, "").await.expect("cancelled");
    ann.wait_state(&job_id, JobState::Cancelled, BOUND).await;
    wait_until("the cancelled rows gone", BOUND, || async {
        let rows = stack.number("select count(*) from import_rows").await;
        (rows == 1).then_some(())
    })
    .await;
    assert_eq!(sets(&ann).await, [("set".into(), 1, 1)]);
}

#[tokio::test]
async fn a_dry_run_reports_and_stores_no_row() {
    let stack = Stack::builder().start().await;
    let ann = stack.user("ann");
    let more = json!({
        "validate_only": true,
        "columns": [{"name": "id", "type": "integer"}, {"name": "name"}],
    });
    let job = imported(&ann, "try.csv", "id,name\n1,a\nx,b\n", more).await;
    let told = result(&job);
    assert_eq!(told["validate_only"], true);
    assert_eq!(
        (&told["rows_accepted"], &told["rows_rejected"]),
        (&json!(1), &json!(1))
    );
    let report = ann.report(&job).await;
    assert_eq!(report["validate_only"], true);
    assert_eq!(report["rejects"][0]["line"], 3);
    assert_eq!(
        quoted_csv(&ann.result_file(&job, "rejects_file_id").await).len(),
        2
    );
    assert_eq!(stack.number("select count(*) from import_rows").await, 0);
    assert_eq!(sets(&ann).await, []);
}

#[tokio::test]
async fn report_and_rejects_come_as_files() {
    let stack = Stack::builder().start().await;
    let ann = stack.user("ann");
    let more = json!({"columns": [{"name": "id", "type": "integer"}, {"name": "name"}]});
    let content = "id,name\n1,a\n=1+1,<script>x</script>\n\"@x\",\"b \"\"q\"\"\"\n2\n";
    let job = imported(&ann, "some.csv", content, more).await;
    let report = ann.report(&job).await;
    assert_eq!(report["report"], "import_csv/2");
    assert_eq!(
        report["rejects_by_reason"],
        json!([
            {"reason": "BAD_INTEGER", "column": "id", "rows": 2},
            {"reason": "TOO_FEW_FIELDS", "column": "name", "rows": 1},
        ])
    );
    assert!(report["timing"]["duration_ms"].is_i64());
    let page = ann.result_file(&job, "report_html_file_id").await;
    let page = String::from_utf8(page).expect("UTF-8");
    assert!(page.starts_with("<!doctype html>") && !page.contains("<script"));
    assert!(page.contains("BAD_INTEGER"));
    let rejects = quoted_csv(&ann.result_file(&job, "rejects_file_id").await);
    assert_eq!(
        rejects[0],
        ["line", "column", "reason", "message", "value", "original"]
    );
    let told: Vec<_> = rejects[1..]
        .iter()
        .map(|r| (r[0].as_str(), r[1].as_str(), r[2].as_str(), r[4].as_str()))
        .collect();
    assert_eq!(
        told,
        [
            ("3", "id", "BAD_INTEGER", "'=1+1"),
            ("4", "id", "BAD_INTEGER", "'@x"),
            ("5", "name", "TOO_FEW_FIELDS", ""),
        ]
    );
    let kinds: Vec<(String, String, bool)> = sqlx::query_as(
        "select kind, content_type, expires_at > now() + interval '80 days' from files where job_id = $1::uuid \
         order by 1, 2",
    )
    .bind(&job.job_id)
    .fetch_all(stack.pool())
    .await
    .expect("files");
    let kinds: Vec<_> = kinds
        .iter()
        .map(|(k, t, e)| (k.as_str(), t.as_str(), *e))
        .collect();
    assert_eq!(
        kinds,
        [
            ("rejects", "text/csv; charset=utf-8", true),
            ("report", "application/json", true),
            ("report", "text/html; charset=utf-8", true),
        ]
    );
    // Not for others.
    let file_id = result(&job)["rejects_file_id"]
        .as_str()
        .expect("an id")
        .to_owned();
    let refusal = stack
        .user("bob")
        .download(&file_id)
        .await
        .expect_err("refused");
    assert_eq!(Refusal::of(&refusal).reason, "FILE_NOT_FOUND");
}

#[tokio::test]
async fn too_many_rejects_fail_the_import_and_leave_its_report() {
    let stack = Stack::builder().start().await;
    let ann = stack.user("ann");
    let content = "id,name\n1,a\nx,b\n2,c\ny,d\n";
    let typed = |extra: Value| {
        let mut more = json!({"columns": [{"name": "id", "type": "integer"}, {"name": "name"}]});
        for (key, value) in extra.as_object().expect("an object") {
            more[key] = value.clone();
        }
        more
    };
    for limit in [
        json!({"max_rejected_rows": 0}),
        json!({"max_rejected_rows": 1}),
        json!({"max_rejected_percent": 49.9}),
        json!({"max_rejected_rows": 0, "validate_only": true}),
    ] {
        let job = failed(&ann, content, typed(limit.clone())).await;
        let error = job.last_error.as_ref().expect("an error");
        assert_eq!(error.code, "IMPORT_TOO_MANY_REJECTS", "{limit}");
        assert_eq!(job.attempt, 1);
        assert!(
            error.message.contains("line 3, column 'id': BAD_INTEGER"),
            "{}",
            error.message
        );
        let (_, report) = error
            .message
            .rsplit_once("the report is file ")
            .expect("a report");
        let report = ann.download(report).await.expect("the report's bytes");
        let report: Value = serde_json::from_slice(&report).expect("JSON");
        assert_eq!(report["rows_rejected"], 2, "{limit}");
        assert!(report["failure"].is_string());
        let rejects = report["rejects_file_id"].as_str().expect("the rejects");
        let rejects = quoted_csv(&ann.download(rejects).await.expect("the rejects' bytes"));
        assert_eq!(rejects.len(), 3);
    }
    assert_eq!(sets(&ann).await, []);
    for limit in [
        json!({"max_rejected_rows": 2}),
        json!({"max_rejected_percent": 50}),
    ] {
        imported(&ann, "good.csv", content, typed(limit)).await;
    }
    assert_eq!(sets(&ann).await, [("good".into(), 4, 2)]);
}

#[tokio::test]
async fn data_sets_are_their_owners() {
    let stack = Stack::builder().start().await;
    let ann = stack.user("ann");
    imported(&ann, "mine.csv", "a,b\n1,2\n", json!({})).await;
    let bob = stack.user("bob");
    assert_eq!(sets(&bob).await, []);
    let refused = |status: tonic::Status| Refusal::of(&status).reason;
    let rows = bob.all_rows(rows_of("mine")).await;
    assert_eq!(rows.map_err(refused), Err("DATASET_NOT_FOUND".into()));
    let anns = ListRowsRequest {
        user_id: "ann".into(),
        ..rows_of("mine")
    };
    let rows = bob.all_rows(anns.clone()).await;
    assert_eq!(rows.map_err(refused), Err("PERMISSION_DENIED".into()));
    let list = ListDatasetsRequest {
        user_id: "ann".into(),
        ..ListDatasetsRequest::default()
    };
    let listed = bob.datasets().list_datasets(list.clone()).await;
    assert_eq!(
        listed.map(|_| ()).map_err(refused),
        Err("PERMISSION_DENIED".into())
    );
    for caller in [stack.operator(), stack.caller("crm", &["service"])] {
        assert_eq!(caller.all_rows(anns.clone()).await.expect("rows").len(), 1);
        let listed = caller.datasets().list_datasets(list.clone()).await;
        assert_eq!(listed.expect("a list").into_inner().datasets.len(), 1);
        assert_eq!(sets(&caller).await, []);
    }
    // A token belongs to its question.
    imported(&ann, "mine.csv", "a,b\n3,4\n", json!({})).await;
    let first = ListRowsRequest {
        page_size: 1,
        ..rows_of("mine")
    };
    let page = ann
        .datasets()
        .list_rows(first)
        .await
        .expect("a page")
        .into_inner();
    for other in [rows_of("other"), anns] {
        let request = ListRowsRequest {
            page_token: page.next_page_token.clone(),
            ..other
        };
        let answer = stack.operator().all_rows(request).await;
        assert_eq!(answer.map_err(refused), Err("PAGE_TOKEN_INVALID".into()));
    }
    for (field, request) in [
        ("dataset", ListRowsRequest::default()),
        (
            "page_size",
            ListRowsRequest {
                page_size: -1,
                ..rows_of("mine")
            },
        ),
        (
            "job_id",
            ListRowsRequest {
                job_id: "x".into(),
                ..rows_of("mine")
            },
        ),
    ] {
        let status = ann.all_rows(request).await.expect_err(field);
        assert!(Refusal::of(&status).names(field), "{status:?}");
    }
}

/// Rows and rejects of a job, as one text.
async fn stored(stack: &Stack, job_id: &str) -> (String, String, i64) {
    sqlx::query_as(
        "select (select md5(string_agg(line_no || data::text, ',' order by line_no)) from import_rows where job_id = $1::uuid), \
         (select md5(string_agg(concat_ws('|', line_no, column_name, reason, message, value, original), ',' order by line_no)) \
             from import_rejects where job_id = $1::uuid), \
         (select count(*) from import_rejects where job_id = $1::uuid)",
    )
    .bind(job_id)
    .fetch_one(stack.pool())
    .await
    .expect("digests")
}

/// A report without what differs between two runs.
fn comparable(mut report: Value) -> Value {
    for key in ["job_id", "file_id", "timing", "rejects_file_id", "dataset"] {
        report.as_object_mut().expect("an object").remove(key);
    }
    report
}

#[tokio::test]
async fn a_large_import_that_is_killed_again_and_again_ends_like_an_undisturbed_one() {
    let stack = Stack::builder()
        .lease("2s")
        .env("TENURE_SWEEP_INTERVAL", "200ms")
        // Killed more often in a row than a job may be before it counts as poison.
        .env("TENURE_RETRY__POISON_LOST", "100")
        .start()
        .await;
    let ann = stack.user("ann");
    // Each fiftieth id stands far above already, each seventieth amount is none.
    let mut content = String::from("id,amount\n");
    let rows = 60_000;
    for n in 0..rows {
        let id = if n % 50 == 49 { n / 2 } else { n };
        let amount = if n % 70 == 69 {
            "x".to_owned()
        } else {
            format!("{n}.50")
        };
        let _ = writeln!(content, "{id},{amount}");
    }
    let wish = |dataset: &str| {
        json!({"dataset": dataset, "columns": [
            {"name": "id", "type": "integer", "unique": true},
            {"name": "amount", "type": "decimal"},
        ]})
    };
    let calm = imported(&ann, "a.csv", &content, wish("calm")).await;
    let job_id = ann
        .import("a.csv", content.as_bytes(), wish("killed"))
        .await;
    for batches in [3, 9, 16, 23] {
        wait_until("enough batches", BOUND, || async {
            let at: Option<i32> = sqlx::query_scalar(
                "select batch_no from import_checkpoints where job_id = $1::uuid",
            )
            .bind(&job_id)
            .fetch_optional(stack.pool())
            .await
            .expect("the checkpoint");
            (at >= Some(batches)).then_some(())
        })
        .await;
        stack.worker(0).kill();
        stack.worker(0).start().await;
    }
    let killed = ann.wait_state(&job_id, JobState::Success, BOUND * 2).await;
    assert!(killed.run > 1);
    let (ours, theirs) = (
        stored(&stack, &killed.job_id).await,
        stored(&stack, &calm.job_id).await,
    );
    assert_eq!(ours, theirs);
    assert!(ours.2 > i64::from(rows) / 70);
    let (ours, theirs) = (ann.report(&killed).await, ann.report(&calm).await);
    let reasons = ours["rejects_by_reason"].as_array().expect("reasons");
    assert!(reasons.iter().any(|it| it["reason"] == "DUPLICATE_VALUE"));
    assert_eq!(comparable(ours), comparable(theirs));
    let files = (
        ann.result_file(&killed, "rejects_file_id").await,
        ann.result_file(&calm, "rejects_file_id").await,
    );
    assert!(files.0 == files.1);
    let told = sets(&ann).await;
    assert_eq!((told[0].1, told[0].2), (told[1].1, 1));
}

#[tokio::test]
async fn a_data_set_is_removed_by_its_owner_or_an_operator_and_its_name_is_free() {
    let stack = Stack::builder()
        .env("TENURE_SWEEPER__PRUNE_INTERVAL", "200ms")
        .start()
        .await;
    let (ann, bob, olga) = (stack.user("ann"), stack.user("bob"), stack.operator());
    let remove = async |caller: &Caller, dataset: &str, owner: &str| {
        let request = DeleteDatasetRequest {
            dataset: dataset.to_owned(),
            user_id: owner.to_owned(),
        };
        let answer = caller.datasets().delete_dataset(request).await;
        answer.map_err(|status| Refusal::of(&status).reason)
    };
    imported(&ann, "one.csv", "n\n1\n2\n", json!({"delimiter": ","})).await;
    imported(&ann, "two.csv", "n\n1\n", json!({"delimiter": ","})).await;
    assert_eq!(
        remove(&bob, "one", "ann").await.expect_err("ann's"),
        "PERMISSION_DENIED"
    );
    assert_eq!(
        remove(&bob, "one", "").await.expect_err("none of bob's"),
        "DATASET_NOT_FOUND"
    );
    assert_eq!(
        remove(&ann, "", "").await.expect_err("no name"),
        "INVALID_ARGUMENT"
    );
    remove(&ann, "one", "").await.expect("removed");
    remove(&olga, "two", "ann").await.expect("removed");
    assert_eq!(sets(&ann).await, []);
    assert_eq!(
        remove(&ann, "one", "").await.expect_err("gone"),
        "DATASET_NOT_FOUND"
    );
    imported(&ann, "one.csv", "n\n7\n", json!({"delimiter": ","})).await;
    assert_eq!(sets(&ann).await, [("one".to_owned(), 1, 1)]);
    assert_eq!(column(&ann, "one", "n").await, ["\"7\""]);
    wait_until("nothing is left of them", BOUND, async || {
        let rows = stack.number("select count(*) from import_rows").await;
        let sets = stack.number("select count(*) from datasets").await;
        ((rows, sets) == (1, 1)).then_some(())
    })
    .await;
}
