//! Letters of messages that could not be used: there is no job, only their bytes.

use sha2::{Digest, Sha256};
use sqlx::types::Json;
use uuid::Uuid;

use super::DeadLetterStatus;
use crate::domain::ids::DeadLetterId;
use crate::error::{Code, Result, clean_text};
use crate::storage::{Store, db_error};

/// The bytes of an unreadable message that are kept.
pub const MAX_UNREADABLE_BYTES: usize = 1024 * 1024;

/// The longest reason that is kept, in characters.
const MAX_REASON_CHARS: usize = 1800;

const LOCK: &str = "select status from dead_letters where message_key = $1 for no key update";
const STORE: &str = "insert into dead_letters as d (id, message_key, queue_name, payload, error_code, \
     error_class, error_message, attempts, replayable, status_changed_at, message_properties) \
     values ($1, $2, $3, $4, $5, 'permanent', $6, 0, false, now(), $7) \
     on conflict (message_key) do update set failures = d.failures + 1, last_failed_at = now(), status = 'open', \
     error_code = excluded.error_code, error_message = excluded.error_message, \
     message_properties = coalesce(excluded.message_properties, d.message_properties), \
     status_changed_at = case when d.status = 'open' then d.status_changed_at else now() end \
     returning id, failures";
const REOPENED: &str = "insert into dead_letter_actions (action_id, letter_id, action, status_before, status_after) \
     values (tenure_uuid7(), $1, 'failed_again', $2, 'open')";

pub(super) const STATEMENTS: &[(&str, &str)] = &[
    ("dead_letter_lock_unreadable", LOCK),
    ("dead_letter_store_unreadable", STORE),
    ("dead_letter_reopened_unreadable", REOPENED),
];

/// Why a message could not be used.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Unreadable {
    /// It is not an envelope.
    Unparseable,
    /// It names a job that neither the jobs nor the ledger know.
    Orphan,
}

impl Unreadable {
    /// The code of its letter.
    pub const fn code(self) -> Code {
        match self {
            Self::Unparseable => Code::UnparseableMessage,
            Self::Orphan => Code::OrphanMessage,
        }
    }
}

/// The letter of an unreadable message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct StoredUnreadable {
    /// Its id.
    pub id: DeadLetterId,
    /// How often the same message came; 1: the letter is new.
    pub failures: i32,
}

impl Store {
    /// Keeps a message that cannot be used, before it is acked. The same message again,
    /// in the same queue, counts on its one letter and opens it again. `properties`: what it
    /// had beside its body, the last time that it came.
    ///
    /// # Errors
    /// DATABASE_UNAVAILABLE; repeating is safe, and can at most count once too often.
    pub async fn store_unreadable(
        &self,
        queue: &str,
        body: &[u8],
        properties: Option<&serde_json::Value>,
        why: Unreadable,
        reason: &str,
    ) -> Result<StoredUnreadable> {
        let kept = &body[..body.len().min(MAX_UNREADABLE_BYTES)];
        let reason = clean_text(reason, MAX_REASON_CHARS);
        let message = if kept.len() < body.len() {
            format!(
                "{reason} (kept are the first {} of {} bytes)",
                kept.len(),
                body.len()
            )
        } else {
            reason
        };
        let key = message_key(queue, body);
        let mut tx = self.pool().begin().await.map_err(db_error)?;
        let before: Option<String> = sqlx::query_scalar(LOCK)
            .bind(&key)
            .fetch_optional(&mut *tx)
            .await
            .map_err(db_error)?;
        let (id, failures): (Uuid, i32) = sqlx::query_as(STORE)
            .bind(DeadLetterId::new().uuid())
            .bind(key)
            .bind(queue)
            .bind(kept)
            .bind(why.code().as_str())
            .bind(message)
            .bind(properties.map(Json))
            .fetch_one(&mut *tx)
            .await
            .map_err(db_error)?;
        // Somebody had dealt with it, and will want to know why it is open again.
        if let Some(before) = before.filter(|status| status != DeadLetterStatus::Open.as_str()) {
            sqlx::query(REOPENED)
                .bind(id)
                .bind(before)
                .execute(&mut *tx)
                .await
                .map_err(db_error)?;
        }
        tx.commit().await.map_err(db_error)?;
        Ok(StoredUnreadable {
            id: DeadLetterId(id),
            failures,
        })
    }
}

/// What a message is recognised by: a digest of its queue and its whole body.
fn message_key(queue: &str, body: &[u8]) -> String {
    let mut hash = Sha256::new();
    hash.update(queue);
    // No queue's name holds this byte, so the two cannot run into each other.
    hash.update([0]);
    hash.update(body);
    hex::encode(hash.finalize())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_is_its_queue_and_body() {
        assert_eq!(message_key("a", b"bc"), message_key("a", b"bc"));
        assert_ne!(message_key("a", b"bc"), message_key("ab", b"c"));
        assert_ne!(message_key("a", b"bc"), message_key("b", b"bc"));
        assert_eq!(message_key("a", b"").len(), 64);
    }
}
