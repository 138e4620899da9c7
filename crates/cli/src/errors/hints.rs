//! What to do about a refusal.

use tonic::Code;

use super::{NO_ROOM, Peer};

/// The option that names the dead-letter admin.
pub(super) const DEAD_LETTER_ADMIN: &str = "--dead-letter-admin";

/// What the services call their methods, and how a person at a terminal gets there. A
/// name that another one begins with stands behind it.
const VERBS: [(&str, &str); 34] = [
    ("ListJobTypes", "`tenure types`"),
    ("ApplyJobTypes", "`tenure types apply`"),
    ("ListJobs", "`tenure list`"),
    ("GetJob", "`tenure get`"),
    ("WatchJob", "`tenure watch`"),
    ("CancelJobs", "`tenure cancel` with filters"),
    ("CancelJob", "`tenure cancel`"),
    ("RetryJobNow", "`tenure retry-now`"),
    ("RescheduleJob", "`tenure reschedule`"),
    ("SetJobMaxAttempts", "`tenure set-attempts`"),
    ("ListQueues", "`tenure queues`"),
    ("PauseQueue", "`tenure queues pause`"),
    ("ResumeQueue", "`tenure queues resume`"),
    ("ListWorkers", "`tenure workers`"),
    ("ListDatasets", "`tenure datasets`"),
    ("ListFiles", "`tenure files list`"),
    ("DeleteFile", "`tenure files delete`"),
    ("UploadFile", "`tenure upload`"),
    ("ListDeadLetterCauses", "`tenure dead-letters causes`"),
    ("ListDeadLetters", "`tenure dead-letters list`"),
    ("GetDeadLetter", "`tenure dead-letters show`"),
    ("ReplayDeadLetters", "`tenure dead-letters replay`"),
    ("IgnoreDeadLetters", "`tenure dead-letters ignore`"),
    ("ResolveDeadLetters", "`tenure dead-letters resolve`"),
    ("ReopenDeadLetters", "`tenure dead-letters reopen`"),
    ("PreviewBulkReplay", "`tenure dead-letters bulk-replay`"),
    ("StartBulkReplay", "`tenure dead-letters bulk-replay --yes`"),
    (
        "ListBulkReplayOutcomes",
        "`tenure dead-letters operations outcomes`",
    ),
    ("ListBulkReplays", "`tenure dead-letters operations list`"),
    ("GetBulkReplay", "`tenure dead-letters operations show`"),
    ("ControlBulkReplay", "`tenure dead-letters operations`"),
    ("ListNotifications", "`tenure notifications list`"),
    ("SetUserLimits", "`tenure limits set`"),
    ("ListUserLimits", "`tenure limits list`"),
];

/// A service's text with its methods named as verbs.
pub(super) fn as_verbs(text: &str) -> String {
    let mut text = text.to_owned();
    for (method, verb) in VERBS {
        text = text.replace(method, verb);
    }
    text
}

/// What to do about a refusal with this code and, where the service gave one, this reason.
pub(super) fn hint_for(code: Code, reason: Option<&str>, peer: &Peer) -> Option<String> {
    reason
        .and_then(|reason| hint_for_reason(reason, peer))
        .or_else(|| hint_for_code(code, peer))
}

/// A reason comes from a service that was reached: its address is right.
fn hint_for_reason(reason: &str, peer: &Peer) -> Option<String> {
    let name = peer.name;
    let behind = |what: &str| {
        format!(
            "{name} answers, but its {what} does not; try again, and look after the {what} if it lasts"
        )
    };
    Some(match reason {
        NO_ROOM => "`tenure files list --kind upload` shows them, `tenure files delete FILE_ID` removes one".to_owned(),
        "DATABASE_UNAVAILABLE" => behind("database"),
        "BROKER_UNAVAILABLE" => behind("broker"),
        "STORE_UNAVAILABLE" => behind("object store"),
        "SHUTTING_DOWN" => format!("{name} is being stopped; another one answers, or it does when it is back: try again"),
        "SCHEMA_MISMATCH" => format!("the database's schema and {name} are of different versions; `tenure-sweeper migrate` brings the schema up to date"),
        "TOO_MANY_PENDING_JOBS" => "`tenure list --state pending,running,retrying` shows the jobs that count; wait until some have ended, or ask an operator for another limit (`tenure limits`)".to_owned(),
        "RATE_LIMITED" => "wait as long as said and send it again; submit more slowly, or ask an operator for a higher rate (`tenure limits`)".to_owned(),
        "QUEUE_FULL" => "wait as long as said and send it again; `tenure queues` shows what waits, `tenure workers` who works".to_owned(),
        "STORAGE_FULL" => "an operator has to make room on the disk of the database or of the object store".to_owned(),
        "DATASET_NOT_FOUND" => "`tenure datasets` lists them; one is there from its first import on that ended with success".to_owned(),
        "UNKNOWN_JOB_TYPE" => "`tenure types` lists the job types".to_owned(),
        "PAGE_TOKEN_INVALID" => "a page token is good for the same filters and the same verb only; begin again without it".to_owned(),
        "JOB_STATE_CONFLICT" => "`tenure explain JOB` says how the job stands".to_owned(),
        "JOB_DAMAGED" => "an operator has to look at its rows in the database; `tenure explain JOB` shows what is left of its story".to_owned(),
        "DEAD_LETTER_NOT_FOUND" => "check the id; `tenure dead-letters list --status any` shows what there is".to_owned(),
        "QUEUE_NOT_FOUND" => "check the name; `tenure queues` shows what there is".to_owned(),
        "BULK_REPLAY_NOT_FOUND" => "check the id; `tenure dead-letters operations list` shows what there is".to_owned(),
        "BULK_REPLAY_ENDED" => "`tenure dead-letters operations outcomes ID` lists what became of each letter; a new `tenure dead-letters bulk-replay` takes what is still open".to_owned(),
        _ => return None,
    })
}

fn hint_for_code(code: Code, peer: &Peer) -> Option<String> {
    let Peer {
        name,
        option,
        url,
        operator,
    } = peer;
    let role = if *operator { "operator" } else { "submitter" };
    let variable = if *operator {
        "TENURE_OPERATOR_TOKEN"
    } else {
        "TENURE_TOKEN"
    };
    Some(match code {
        Code::Unavailable => format!(
            "is {name} running at {url}? `make up` starts a local one; {option} names another address"
        ),
        Code::Unauthenticated => format!(
            "`tenure token --user USER --role {role}` makes a token; put it into {variable}"
        ),
        Code::PermissionDenied if *operator => {
            "this needs the role `operator`; put such a token into TENURE_OPERATOR_TOKEN".to_owned()
        }
        Code::PermissionDenied => {
            "the token's roles do not allow this; `--for-user` needs the role `service` (`tenure token --user USER --role service` makes such a token), `--user` and `--all-users` need `service` or `operator`: `--token \"$TENURE_OPERATOR_TOKEN\"`".to_owned()
        }
        Code::NotFound if *option == DEAD_LETTER_ADMIN => {
            "check the id; `tenure dead-letters list` shows what there is".to_owned()
        }
        Code::NotFound if *operator => "check the id".to_owned(),
        Code::NotFound => "check the id; without the role `operator` you see what is your own only: `--token \"$TENURE_OPERATOR_TOKEN\"`".to_owned(),
        Code::ResourceExhausted => "wait a little and try again".to_owned(),
        Code::DeadlineExceeded => format!("{name} took too long; `--call-timeout` gives it more time"),
        Code::Unimplemented => {
            format!("{url} does not know this call; is it {name}, and of this version? See {option}")
        }
        Code::Internal => format!("this is a fault of {name}; its log says more"),
        _ => return None,
    })
}
