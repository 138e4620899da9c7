//! Uploads: the quota of each user, the same upload again, lists, and what is pruned.

use std::time::Duration;

use sha2::{Digest as _, Sha256};
use sqlx::AssertSqlSafe;
use tenure_core::Code;
use tenure_core::domain::ids::{FileId, JobId, UserId};
use tenure_core::storage::files::list::{FileFilter, list};
use tenure_core::storage::files::prune::{described, expired, prune};
use tenure_core::storage::files::uploads::{self, Announced, UploadRules};
use tenure_core::storage::files::{self, FileKind, NewFile};
use tenure_core::test_util::TestDb;

const DAY: Duration = Duration::from_hours(24);

fn rules(max_user_bytes: u64) -> UploadRules {
    UploadRules {
        max_user_bytes,
        retention: 30 * DAY,
    }
}

fn user(name: &str) -> UserId {
    UserId::from_stored(name.to_owned())
}

fn upload(owner: &str, name: &str, size: i64) -> NewFile {
    NewFile {
        file_id: FileId::new(),
        user_id: user(owner),
        name: name.to_owned(),
        content_type: "text/csv".to_owned(),
        size_bytes: size,
        sha256: Sha256::digest(name).into(),
        kind: FileKind::Upload,
        job_id: None,
        expires_at: None,
    }
}

async fn run(db: &TestDb, statement: String) {
    sqlx::query(AssertSqlSafe(statement))
        .execute(db.store.pool())
        .await
        .expect("a statement");
}

/// What `file_usage` says, and what the rows come to.
async fn usage(db: &TestDb, owner: &str) -> ((i64, i64), (i64, i64)) {
    let told = sqlx::query_as(
        "select coalesce(sum(files), 0)::bigint, coalesce(sum(bytes), 0)::bigint from file_usage where user_id = $1",
    )
    .bind(owner)
    .fetch_one(db.store.pool())
    .await
    .expect("the usage");
    let counted = sqlx::query_as(
        "select count(*), coalesce(sum(size_bytes), 0)::bigint from files where user_id = $1 and kind = 'upload'",
    )
    .bind(owner)
    .fetch_one(db.store.pool())
    .await
    .expect("the rows");
    (told, counted)
}

#[tokio::test]
async fn a_quota_is_exact_when_many_upload_at_once() {
    let db = TestDb::create().await;
    let calls = (0..12).map(|n| {
        let store = db.store.clone();
        tokio::spawn(async move {
            let file = upload("ada", &format!("{n}.csv"), 100);
            uploads::insert(&store, &file, Some("text/csv"), rules(550)).await
        })
    });
    let mut accepted = 0;
    for call in futures::future::join_all(calls).await {
        match call.expect("no panic") {
            Ok(row) => {
                assert_eq!(row.detected_type.as_deref(), Some("text/csv"));
                let lasts = row.file.expires_at.expect("an end") - row.created_at;
                assert_eq!(lasts.num_days(), 30);
                accepted += 1;
            }
            Err(error) => {
                assert_eq!(error.code(), Code::FileQuotaExceeded);
                assert!(error.meta().contains(&("limit_bytes", "550".to_owned())));
            }
        }
    }
    assert_eq!(accepted, 5);
    assert_eq!(usage(&db, "ada").await, ((5, 500), (5, 500)));

    // Another user has room of their own, and reports never count.
    uploads::insert(&db.store, &upload("bob", "b", 550), None, rules(550))
        .await
        .expect("stored");
    let report = NewFile {
        kind: FileKind::Report,
        ..upload("ada", "report", 10_000)
    };
    files::insert(&db.store, &report).await.expect("stored");
    assert_eq!(usage(&db, "ada").await, ((5, 500), (5, 500)));

    // A removed upload gives its room back, once; a removed report gives none.
    let one: uuid::Uuid = sqlx::query_scalar(
        "select file_id from files where user_id = 'ada' and kind = 'upload' limit 1",
    )
    .fetch_one(db.store.pool())
    .await
    .expect("a file");
    for _ in 0..2 {
        let deletes = (0..3).map(|_| uploads::delete(&db.store, FileId(one)));
        futures::future::try_join_all(deletes)
            .await
            .expect("deleted");
    }
    assert!(
        uploads::delete(&db.store, report.file_id)
            .await
            .expect("deleted")
    );
    assert_eq!(usage(&db, "ada").await, ((4, 400), (4, 400)));
    uploads::insert(&db.store, &upload("ada", "new", 150), None, rules(550))
        .await
        .expect("there is room again");
}

#[tokio::test]
async fn the_same_upload_again_is_the_earlier_file_and_lives_longer() {
    let db = TestDb::create().await;
    let first = uploads::insert(&db.store, &upload("ada", "a", 60), None, rules(100))
        .await
        .expect("stored");
    let age = |days: i32| {
        format!(
            "update files set expires_at = now() + interval '{days} days' + interval '1 minute'"
        )
    };
    run(&db, age(1)).await;
    // Also where the quota would not take it a second time.
    let again = uploads::insert(&db.store, &upload("ada", "a", 60), None, rules(100))
        .await
        .expect("found");
    assert_eq!(again.file.file_id, first.file.file_id);
    let lasts = again.file.expires_at.expect("an end") - first.created_at;
    assert!(lasts.num_days() >= 30, "{lasts}");
    assert_eq!(usage(&db, "ada").await, ((1, 60), (1, 60)));
    // Soon to end: too old to be handed out, and still in the way of a second copy.
    run(&db, age(0)).await;
    let refused = uploads::insert(&db.store, &upload("ada", "a", 60), None, rules(100))
        .await
        .expect_err("no room");
    assert_eq!(refused.code(), Code::FileQuotaExceeded);
    let fresh = uploads::insert(&db.store, &upload("ada", "a", 60), None, rules(200))
        .await
        .expect("stored");
    assert_ne!(fresh.file.file_id, first.file.file_id);
    assert_eq!(usage(&db, "ada").await, ((2, 120), (2, 120)));
    // A short retention: half of it is enough.
    let short = UploadRules {
        max_user_bytes: 1000,
        retention: Duration::from_mins(10),
    };
    let one = uploads::insert(&db.store, &upload("bob", "b", 1), None, short)
        .await
        .expect("stored");
    let two = uploads::insert(&db.store, &upload("bob", "b", 1), None, short)
        .await
        .expect("found");
    assert_eq!(one.file.file_id, two.file.file_id);
}

#[tokio::test]
async fn an_announced_upload_without_room_is_refused_unless_it_is_there_already() {
    let db = TestDb::create().await;
    let file = upload("ada", "a", 60);
    uploads::insert(&db.store, &file, None, rules(100))
        .await
        .expect("stored");
    let check = async |name: &str, size: u64, sha256: Option<[u8; 32]>| {
        let announced = Announced {
            user_id: &file.user_id,
            name,
            content_type: "text/csv",
            size,
            sha256,
        };
        uploads::check_room(&db.store, announced, rules(100))
            .await
            .map_err(|error| error.code())
    };
    assert_eq!(check("b", 40, None).await, Ok(()));
    assert_eq!(check("b", 41, None).await, Err(Code::FileQuotaExceeded));
    assert_eq!(check("a", 60, Some(file.sha256)).await, Ok(()));
    assert_eq!(check("a", 60, None).await, Ok(()));
    assert_eq!(
        check("a", 60, Some([1; 32])).await,
        Err(Code::FileQuotaExceeded)
    );
}

#[tokio::test]
async fn files_are_listed_newest_first_in_pages() {
    let db = TestDb::create().await;
    let job = JobId::new();
    let mut wanted = Vec::new();
    for n in 0..7 {
        let mut file = upload("ada", &format!("{n}"), 1);
        if n % 3 == 2 {
            file.kind = FileKind::Report;
            file.job_id = Some(job);
            // As reports have it: an id that does not tell its time.
            file.file_id = FileId(uuid::Uuid::from_bytes([(255 - n) as u8; 16]));
            files::insert(&db.store, &file).await.expect("stored");
        } else {
            uploads::insert(&db.store, &file, None, rules(100))
                .await
                .expect("stored");
        }
        wanted.insert(0, file.file_id);
    }
    // Two of one moment are told apart by their ids.
    run(&db, "update files set created_at = (select min(created_at) from files) where name in ('0', '1')".into()).await;
    uploads::insert(&db.store, &upload("bob", "b", 1), None, rules(100))
        .await
        .expect("stored");
    let filter = |kind, job_id| FileFilter {
        user_id: user("ada"),
        kind,
        job_id,
    };
    for limit in [1, 2, 7, 100] {
        let (mut seen, mut after) = (Vec::new(), None);
        loop {
            let page = list(&db.store, &filter(None, None), after, limit)
                .await
                .expect("a page");
            seen.extend(page.files.iter().map(|row| row.file.file_id));
            after = page.next;
            if after.is_none() {
                break;
            }
        }
        assert_eq!(seen, wanted, "pages of {limit}");
    }
    let count = async |filter: &FileFilter| {
        let page = list(&db.store, filter, None, 100).await.expect("a page");
        page.files.len()
    };
    assert_eq!(count(&filter(Some(FileKind::Upload), None)).await, 5);
    assert_eq!(count(&filter(None, Some(job))).await, 2);
    assert_eq!(count(&filter(Some(FileKind::Rejects), Some(job))).await, 0);
    run(
        &db,
        "update files set expires_at = now() where name = '0'".into(),
    )
    .await;
    assert_eq!(count(&filter(None, None)).await, 6);
}

#[tokio::test]
async fn expired_files_go_with_their_room_and_all_others_stay() {
    let db = TestDb::create().await;
    let mut dead = Vec::new();
    for n in 0..6 {
        let owner = if n % 2 == 0 { "ada" } else { "bob" };
        let file = upload(owner, &format!("{n}"), 10);
        uploads::insert(&db.store, &file, None, rules(100))
            .await
            .expect("stored");
        if n < 4 {
            dead.push(file.file_id);
        }
    }
    let report = NewFile {
        kind: FileKind::Report,
        expires_at: Some(chrono::Utc::now() - chrono::TimeDelta::seconds(5)),
        ..upload("ada", "report", 7)
    };
    files::insert(&db.store, &report).await.expect("stored");
    dead.push(report.file_id);
    run(
        &db,
        "update files set expires_at = now() - interval '1 minute' where name in ('0', '1', '2', '3')".into(),
    )
    .await;
    let all: Vec<FileId> = {
        let ids: Vec<uuid::Uuid> = sqlx::query_scalar("select file_id from files")
            .fetch_all(db.store.pool())
            .await
            .expect("ids");
        ids.into_iter().map(FileId).collect()
    };

    let (mut seen, mut after) = (Vec::new(), None);
    loop {
        let step = expired(&db.store, after, 2).await.expect("a step");
        let Some(last) = step.last() else { break };
        after = Some(*last);
        seen.extend(step.iter().map(|file| file.file_id));
    }
    seen.sort_unstable();
    let mut wanted = dead.clone();
    wanted.sort_unstable();
    assert_eq!(seen, wanted);

    // While somebody uploads as ada, her files wait; the others go.
    let mut held = db.store.pool().begin().await.expect("a transaction");
    sqlx::query("select 1 from file_usage where user_id = 'ada' for update")
        .execute(&mut *held)
        .await
        .expect("a lock");
    // All ids: what has not expired stays, whoever asks.
    let first = prune(&db.store, &all).await.expect("pruned");
    assert_eq!((first.files, first.bytes), (3, 27));
    held.rollback().await.expect("released");
    let both = futures::future::try_join_all((0..4).map(|_| prune(&db.store, &all)))
        .await
        .expect("pruned");
    assert_eq!(both.iter().map(|it| it.files).sum::<u64>(), 2);
    for owner in ["ada", "bob"] {
        assert_eq!(usage(&db, owner).await, ((1, 10), (1, 10)), "{owner}");
    }
    let left = described(&db.store, &all).await.expect("ids");
    assert_eq!(left.len(), 2);
    assert!(dead.iter().all(|id| !left.contains(id)));
}
