//! `limits`.

use tenure_proto::v1;

use crate::args::{LimitListArgs, LimitSetArgs, LimitUserArgs, LimitVerb, Setting};
use crate::client::Client;
use crate::errors::{Exit, Failure};
use crate::jobs::READ_REPEATS;
use crate::output::{Output, pairs, table};
use crate::pages::{more_text, pages};
use crate::view::limits::{LimitEntry, LimitList, LimitsReset, UserLimits};

/// `tenure limits`.
pub(crate) async fn run(
    client: &Client,
    verb: LimitVerb,
    out: &mut Output,
) -> Result<Exit, Failure> {
    match verb {
        LimitVerb::List(args) => list(client, args, out).await,
        LimitVerb::Get(args) => get(client, args, out).await,
        LimitVerb::Set(args) => set(client, args, out).await,
        LimitVerb::Reset(args) => reset(client, args, out).await,
    }
}

async fn list(client: &Client, args: LimitListArgs, out: &mut Output) -> Result<Exit, Failure> {
    let (users, next) = pages(args.paging, async |page_size, page_token| {
        let request = v1::ListUserLimitsRequest {
            page_size,
            page_token,
        };
        let call = |request| {
            let mut limits = client.user_limits();
            async move { limits.list_user_limits(request).await }
        };
        let page = client.unary(READ_REPEATS, request, call).await?;
        Ok((page.entries, page.next_page_token))
    })
    .await?;
    let list = LimitList {
        users: users.into_iter().map(LimitEntry::from).collect(),
        next_page_token: next,
    };
    out.emit(&list, list_text)?;
    Ok(Exit::Ok)
}

fn list_text(list: &LimitList) -> String {
    if list.users.is_empty() {
        return "no user has limits of its own; the defaults hold for all\n".to_owned();
    }
    let rows = list.users.iter().map(|it| {
        vec![
            it.user_id.clone(),
            shown(it.limits.max_jobs),
            shown(it.limits.submits_per_second),
            shown(it.limits.submit_burst),
            shown(it.limits.weight),
            it.update_time.clone().unwrap_or_default(),
            it.updated_by.clone(),
        ]
    });
    let header = [
        "USER", "MAX JOBS", "RATE/S", "BURST", "WEIGHT", "CHANGED", "BY",
    ];
    let mut text = table(&header, rows);
    text.push_str(&more_text(list.next_page_token.as_deref()));
    text
}

/// A limit of a user's own, or that the default holds.
fn shown<T: ToString>(limit: Option<T>) -> String {
    limit.map_or_else(|| "default".to_owned(), |limit| limit.to_string())
}

async fn get(client: &Client, args: LimitUserArgs, out: &mut Output) -> Result<Exit, Failure> {
    let request = v1::GetUserLimitsRequest {
        user_id: args.user.clone(),
    };
    let call = |request| {
        let mut limits = client.user_limits();
        async move { limits.get_user_limits(request).await }
    };
    let answer = client.unary(READ_REPEATS, request, call).await?;
    let limits = UserLimits {
        user_id: args.user,
        set: answer.entry.map(LimitEntry::from),
        effective: answer.effective.unwrap_or_default().into(),
        jobs: answer.jobs,
    };
    out.emit(&limits, get_text)?;
    Ok(Exit::Ok)
}

fn get_text(it: &UserLimits) -> String {
    let own = |set: bool| if set { "" } else { " (the default)" };
    let set = it.set.as_ref().map(|entry| &entry.limits);
    let most = it.effective.max_jobs;
    let jobs = match most {
        Some(most) if it.jobs > most => format!("more than {most}"),
        Some(most) if most > 0 && it.jobs == most => {
            format!("{most}: no more are taken until some have ended")
        }
        _ => it.jobs.to_string(),
    };
    let rate = match (it.effective.submits_per_second, it.effective.submit_burst) {
        (None, _) => "any".to_owned(),
        (Some(rate), Some(burst)) => format!("{rate} in a second, {burst} at once"),
        (Some(rate), None) => format!("{rate} in a second"),
    };
    let text = |own_one: bool, value: String| format!("{value}{}", own(own_one));
    pairs([
        ("user", it.user_id.clone()),
        ("jobs that wait or run", jobs),
        (
            "at most",
            text(
                set.is_some_and(|set| set.max_jobs.is_some()),
                most.map_or_else(|| "any number".to_owned(), |most| most.to_string()),
            ),
        ),
        (
            "submits",
            text(
                set.is_some_and(|set| {
                    set.submits_per_second.is_some() || set.submit_burst.is_some()
                }),
                rate,
            ),
        ),
        (
            "weight",
            text(
                set.is_some_and(|set| set.weight.is_some()),
                it.effective.weight.unwrap_or(1).to_string(),
            ),
        ),
        (
            "changed",
            it.set.as_ref().map_or_else(String::new, |entry| {
                let time = entry.update_time.clone().unwrap_or_default();
                format!("{time} by {}", entry.updated_by)
            }),
        ),
    ])
}

async fn set(client: &Client, args: LimitSetArgs, out: &mut Output) -> Result<Exit, Failure> {
    let request = set_request(args);
    let call = |request| {
        let mut limits = client.user_limits();
        async move { limits.set_user_limits(request).await }
    };
    // What is set twice is the same.
    let answer = client.unary(READ_REPEATS, request, call).await?;
    let entry = answer
        .entry
        .map(LimitEntry::from)
        .ok_or_else(|| Failure::local("the service answered without the limits"))?;
    out.emit(&entry, |entry| {
        let limits = &entry.limits;
        let line = [
            ("max jobs", shown(limits.max_jobs)),
            ("rate/s", shown(limits.submits_per_second)),
            ("burst", shown(limits.submit_burst)),
            ("weight", shown(limits.weight)),
        ];
        let mut text = pairs(line);
        text.push_str("all gateways know it within two seconds\n");
        text
    })?;
    Ok(Exit::Ok)
}

/// Names what is to change, so that the rest stays as it is.
fn set_request(args: LimitSetArgs) -> v1::SetUserLimitsRequest {
    let mut mask = prost_types::FieldMask::default();
    let limits = v1::UserLimits {
        max_jobs: value("max_jobs", args.max_jobs, &mut mask),
        submits_per_second: value("submits_per_second", args.rate, &mut mask),
        submit_burst: value("submit_burst", args.burst, &mut mask),
        weight: value("weight", args.weight, &mut mask),
    };
    v1::SetUserLimitsRequest {
        user_id: args.user,
        limits: Some(limits),
        update_mask: Some(mask),
    }
}

fn value<T>(
    name: &str,
    setting: Option<Setting<T>>,
    mask: &mut prost_types::FieldMask,
) -> Option<T> {
    let setting = setting?;
    mask.paths.push(name.to_owned());
    match setting {
        Setting::Default => None,
        Setting::To(value) => Some(value),
    }
}

async fn reset(client: &Client, args: LimitUserArgs, out: &mut Output) -> Result<Exit, Failure> {
    let request = v1::ResetUserLimitsRequest {
        user_id: args.user.clone(),
    };
    let call = |request| {
        let mut limits = client.user_limits();
        async move { limits.reset_user_limits(request).await }
    };
    client.unary(READ_REPEATS, request, call).await?;
    let reset = LimitsReset { user_id: args.user };
    out.emit(&reset, |_| {
        "the defaults hold again; all gateways know it within two seconds\n".to_owned()
    })?;
    Ok(Exit::Ok)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::view::limits::Limits;

    #[test]
    fn a_set_names_what_changes_and_nothing_else() {
        let request = set_request(LimitSetArgs {
            user: "ada".to_owned(),
            max_jobs: None,
            rate: Some(Setting::Default),
            burst: None,
            weight: Some(Setting::To(5)),
        });
        let limits = request.limits.expect("limits");
        assert_eq!((limits.submits_per_second, limits.weight), (None, Some(5)));
        let mask = request.update_mask.expect("a mask");
        assert_eq!(mask.paths, ["submits_per_second", "weight"]);
    }

    #[test]
    fn what_holds_says_where_it_comes_from() {
        let limits = UserLimits {
            user_id: "ada".to_owned(),
            set: Some(LimitEntry::from(v1::UserLimitsEntry {
                user_id: "ada".to_owned(),
                limits: Some(v1::UserLimits {
                    max_jobs: Some(5),
                    ..v1::UserLimits::default()
                }),
                ..v1::UserLimitsEntry::default()
            })),
            effective: Limits {
                max_jobs: Some(5),
                weight: Some(1),
                ..Limits::default()
            },
            jobs: 5,
        };
        let text = get_text(&limits);
        for part in [
            "5: no more are taken until some have ended",
            "any (the default)",
            "1 (the default)",
        ] {
            assert!(text.contains(part), "{part} in {text}");
        }
        assert!(!text.contains("5 (the default)"), "{text}");
    }

    #[test]
    fn a_list_says_where_the_default_holds() {
        let mut list = LimitList {
            users: vec![LimitEntry::from(v1::UserLimitsEntry {
                user_id: "ada".to_owned(),
                limits: Some(v1::UserLimits {
                    submits_per_second: Some(0.5),
                    ..v1::UserLimits::default()
                }),
                updated_by: "olga".to_owned(),
                ..v1::UserLimitsEntry::default()
            })],
            next_page_token: None,
        };
        let text = list_text(&list);
        let row: Vec<&str> = text
            .lines()
            .nth(1)
            .expect("a row")
            .split_whitespace()
            .collect();
        assert_eq!(row, ["ada", "default", "0.5", "default", "default", "olga"]);
        list.users.clear();
        assert!(list_text(&list).starts_with("no user"));
    }
}
