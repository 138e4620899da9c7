//! The shapes of `notifications`.

use serde::Serialize;
use serde_json::value::RawValue;
use tenure_proto::v1;

use super::{Embedded, none_if_empty, time};

/// A page of an inbox, or several pages in one.
#[derive(Debug, Serialize)]
pub(crate) struct NotificationList {
    pub(crate) notifications: Vec<Notification>,
    pub(crate) next_page_token: Option<String>,
}

/// A notification.
#[derive(Debug, Serialize)]
pub(crate) struct Notification {
    pub(crate) notification_id: String,
    pub(crate) user_id: String,
    pub(crate) template: String,
    pub(crate) key: String,
    pub(crate) data: Option<Box<RawValue>>,
    pub(crate) job_id: Option<String>,
    pub(crate) create_time: Option<String>,
    pub(crate) read_time: Option<String>,
}

impl From<v1::Notification> for Notification {
    fn from(it: v1::Notification) -> Self {
        Self {
            notification_id: it.notification_id,
            user_id: it.user_id,
            template: it.template,
            key: it.key,
            data: Embedded::new(it.data.as_bytes()).json,
            job_id: none_if_empty(it.job_id),
            create_time: time(it.create_time),
            read_time: time(it.read_time),
        }
    }
}

/// How many were marked as read.
#[derive(Debug, Serialize)]
pub(crate) struct Marked {
    pub(crate) marked: i32,
}
