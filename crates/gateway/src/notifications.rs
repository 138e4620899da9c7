//! NotificationService.

use tenure_core::domain::ids::UserId;
use tenure_core::storage::Store;
use tenure_core::storage::notifications::MARK_MAX;
use tenure_core::{Code, Error, Result};
use tenure_proto::v1;
use tonic::{Request, Response, Status};
use uuid::Uuid;
use v1::notification_service_server::NotificationService;

use crate::call::{self, Caller, READERS};
use crate::convert;
use crate::fields::Findings;
use crate::page_token::Question;

/// The notifications of a page where the caller names no number.
const DEFAULT_PAGE: i32 = 50;
/// The most notifications of a page.
const MAX_PAGE: i32 = 200;

/// The service.
pub(crate) struct Notifications {
    /// The database.
    pub(crate) store: Store,
}

#[tonic::async_trait]
impl NotificationService for Notifications {
    async fn list_notifications(
        &self,
        request: Request<v1::ListNotificationsRequest>,
    ) -> Result<Response<v1::ListNotificationsResponse>, Status> {
        call::unary(
            "ListNotifications",
            READERS,
            request,
            async |caller, request| {
                let listing = listing(&caller, request)?;
                let page = self
                    .store
                    .list_notifications(
                        &listing.user,
                        listing.unread_only,
                        listing.after,
                        listing.limit,
                    )
                    .await?;
                let question = listing.question;
                Ok(v1::ListNotificationsResponse {
                    notifications: page
                        .notifications
                        .into_iter()
                        .map(convert::notification)
                        .collect(),
                    next_page_token: page
                        .next
                        .map(|after| question.token(after))
                        .unwrap_or_default(),
                })
            },
        )
        .await
    }

    async fn mark_notifications_read(
        &self,
        request: Request<v1::MarkNotificationsReadRequest>,
    ) -> Result<Response<v1::MarkNotificationsReadResponse>, Status> {
        call::unary(
            "MarkNotificationsRead",
            READERS,
            request,
            async |caller, request| {
                let (user, _) = caller.acting_for("user_id", &request.user_id)?;
                let marked = if request.notification_ids.is_empty() {
                    self.mark_all(user).await?
                } else {
                    let ids = read_ids(&request.notification_ids)?;
                    let store = self.store.clone();
                    owned(async move { store.mark_notifications_read(&user, &ids).await }).await?
                };
                Ok(v1::MarkNotificationsReadResponse {
                    marked: i32::try_from(marked).unwrap_or(i32::MAX),
                })
            },
        )
        .await
    }
}

impl Notifications {
    /// Marks all that is in the inbox now, a bounded number at a time. What comes in
    /// meanwhile stays unread, so this ends; a caller that goes away stops it between two
    /// steps.
    async fn mark_all(&self, user: UserId) -> Result<u64> {
        let Some(newest) = self.store.newest_unread(&user).await? else {
            return Ok(0);
        };
        let mut marked = 0;
        loop {
            let (store, user) = (self.store.clone(), user.clone());
            let step = owned(async move { store.mark_oldest_read(&user, newest).await }).await?;
            marked += step;
            if step < MARK_MAX as u64 {
                return Ok(marked);
            }
        }
    }
}

/// Runs a write in a task of its own, which a caller that goes away does not stop.
async fn owned(write: impl Future<Output = Result<u64>> + Send + 'static) -> Result<u64> {
    tokio::spawn(write)
        .await
        .map_err(|e| Error::new(Code::Internal, "marking notifications broke off").with_source(e))?
}

/// A list request that was checked.
struct Listing {
    user: UserId,
    unread_only: bool,
    question: Question,
    after: Option<Uuid>,
    limit: usize,
}

fn listing(caller: &Caller, request: v1::ListNotificationsRequest) -> Result<Listing> {
    let mut findings = Findings::default();
    if request.page_size < 0 {
        findings.add("page_size", "must not be negative");
    }
    let named = findings.optional_text("user_id", request.user_id);
    findings.finish()?;
    let own = caller.principal.user.as_str();
    let user = UserId::from_stored(named.unwrap_or_else(|| own.to_owned()));
    if !caller.may_see(&user) {
        return Err(Error::new(
            Code::PermissionDenied,
            "only operators and services may read the inbox of another user; leave user_id out",
        ));
    }
    let unread = if request.unread_only { "unread" } else { "" };
    let question = Question::new(["notifications", own, user.as_str(), unread]);
    Ok(Listing {
        after: question.after(&request.page_token)?,
        question,
        unread_only: request.unread_only,
        limit: match request.page_size {
            0 => DEFAULT_PAGE,
            size => size.min(MAX_PAGE),
        }
        .unsigned_abs() as usize,
        user,
    })
}

/// Ids of notifications, each once, in their order.
fn read_ids(texts: &[String]) -> Result<Vec<Uuid>> {
    if texts.len() > MARK_MAX {
        return Err(Error::invalid(
            "notification_ids",
            format!(
                "must be at most {MARK_MAX}; there are {}. Leave the list empty to mark all",
                texts.len()
            ),
        ));
    }
    let mut findings = Findings::default();
    let mut ids = Vec::with_capacity(texts.len());
    for (index, text) in texts.iter().enumerate() {
        match Uuid::try_parse(text) {
            // Other spellings of one id are nobody's need.
            Ok(id) if id.to_string() == *text => ids.push(id),
            _ => findings.add(
                format!("notification_ids[{index}]"),
                "must be a notification's id, a hyphenated UUID in lower case",
            ),
        }
    }
    findings.finish()?;
    ids.sort_unstable();
    ids.dedup();
    Ok(ids)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_read_once_each_and_checked() {
        let (a, b) = (Uuid::now_v7(), Uuid::now_v7());
        let texts = [b, a, b].map(|id| id.to_string());
        assert_eq!(read_ids(&texts).expect("ids"), [a, b]);
        let error = read_ids(&[a.simple().to_string(), a.to_string(), "' or 1=1".to_owned()])
            .expect_err("refused");
        let fields: Vec<_> = error
            .violations()
            .iter()
            .map(|v| v.field.as_str())
            .collect();
        assert_eq!(fields, ["notification_ids[0]", "notification_ids[2]"]);
        let many = vec![a.to_string(); MARK_MAX + 1];
        assert!(read_ids(&many).is_err());
    }
}
