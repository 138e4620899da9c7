//! `notifications`.

use tenure_proto::v1;

use crate::args::{NotificationListArgs, NotificationReadArgs};
use crate::client::Client;
use crate::errors::{Exit, Failure};
use crate::jobs::READ_REPEATS;
use crate::output::{Output, cut, table};
use crate::pages::{NOTHING, more_text, pages};
use crate::view::notifications::{Marked, Notification, NotificationList};

/// So many characters of the data stand in the table.
const SHOWN_DATA: usize = 100;

/// `tenure notifications list`.
pub(crate) async fn list(
    client: &Client,
    args: NotificationListArgs,
    out: &mut Output,
) -> Result<Exit, Failure> {
    let filters = v1::ListNotificationsRequest {
        unread_only: args.unread,
        user_id: args.user.unwrap_or_default(),
        ..v1::ListNotificationsRequest::default()
    };
    let (notifications, next) = pages(args.paging, async |page_size, page_token| {
        let request = v1::ListNotificationsRequest {
            page_size,
            page_token,
            ..filters.clone()
        };
        let call = |request| {
            let mut notifications = client.notifications();
            async move { notifications.list_notifications(request).await }
        };
        let page = client.unary(READ_REPEATS, request, call).await?;
        Ok((page.notifications, page.next_page_token))
    })
    .await?;
    let list = NotificationList {
        notifications: notifications.into_iter().map(Notification::from).collect(),
        next_page_token: next,
    };
    out.emit(&list, |list| {
        let header = ["NOTIFICATION", "TIME", "", "TEMPLATE", "JOB", "DATA"];
        if list.notifications.is_empty() {
            return NOTHING.to_owned();
        }
        let mut text = table(&header, list.notifications.iter().map(row));
        text.push_str(&more_text(list.next_page_token.as_deref()));
        text
    })?;
    Ok(Exit::Ok)
}

fn row(it: &Notification) -> Vec<String> {
    vec![
        it.notification_id.clone(),
        it.create_time.clone().unwrap_or_default(),
        if it.read_time.is_none() { "unread" } else { "" }.to_owned(),
        it.template.clone(),
        it.job_id.clone().unwrap_or_default(),
        it.data
            .as_ref()
            .map_or_else(String::new, |data| cut(data.get(), SHOWN_DATA)),
    ]
}

/// `tenure notifications read`.
pub(crate) async fn read(
    client: &Client,
    args: NotificationReadArgs,
    out: &mut Output,
) -> Result<Exit, Failure> {
    let request = v1::MarkNotificationsReadRequest {
        // None: all.
        notification_ids: args.ids,
        user_id: args.for_user.unwrap_or_default(),
    };
    let call = |request| {
        let mut notifications = client.notifications();
        async move { notifications.mark_notifications_read(request).await }
    };
    // What is read stays read, so a second call harms nothing.
    let answer = client.unary(READ_REPEATS, request, call).await?;
    let marked = Marked {
        marked: answer.marked,
    };
    out.emit(&marked, |it| format!("marked as read: {}\n", it.marked))?;
    Ok(Exit::Ok)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(data: &str) -> Vec<String> {
        row(&Notification::from(v1::Notification {
            template: "import_finished".to_owned(),
            data: data.to_owned(),
            ..v1::Notification::default()
        }))
    }

    #[test]
    fn data_is_shown_as_data() {
        let cells = shown("{\"name\":\"<script>\\u001b[31m\u{202e}{{7*7}}\"}");
        let text = table(&["A", "B", "C", "D", "E", "F"], [cells]);
        assert!(
            text.contains(r"<script>\u001b[31m\u{202e}{{7*7}}"),
            "{text}"
        );
        assert_eq!(text.lines().count(), 2);
        assert!(text.contains("unread"));
        let long = format!("{{\"a\":\"{}\"}}", "😀".repeat(200));
        assert_eq!(shown(&long)[5].chars().count(), SHOWN_DATA + 1);
    }

    #[test]
    fn ids_or_all_of_them_but_never_neither() {
        use clap::Parser as _;
        let parse = |line: &[&str]| {
            let line = [&["tenure", "notifications", "read"], line].concat();
            crate::args::Cli::try_parse_from(line).is_ok()
        };
        assert!(parse(&["a"]) && parse(&["a", "b"]) && parse(&["--all"]));
        assert!(!parse(&[]) && !parse(&["--all", "a"]));
    }
}
