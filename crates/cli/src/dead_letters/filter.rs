//! Which letters: from the command line to the service, and back to a command line.

use chrono::{DateTime, Utc};
use tenure_proto::v1;

use crate::args::LetterFilter;
use crate::errors::Failure;
use crate::shell::Line;
use crate::view;

/// The filter of a request, without statuses. Times are fixed here, so that all that
/// follows is about the same letters.
pub(super) fn filter(
    args: LetterFilter,
    now: DateTime<Utc>,
) -> Result<v1::DeadLetterFilter, Failure> {
    Ok(v1::DeadLetterFilter {
        statuses: Vec::new(),
        queue: args.queue.unwrap_or_default(),
        job_type: args.job_type.unwrap_or_default(),
        user_id: args.user.unwrap_or_default(),
        error_code: args.code.unwrap_or_default(),
        error_class: args
            .class
            .map_or(v1::ErrorClass::Unspecified, v1::ErrorClass::from)
            .into(),
        cause_id: args.cause.unwrap_or_default(),
        failed_from: args.from.map(|past| past.from(now)).transpose()?,
        failed_before: args.before.map(|past| past.from(now)).transpose()?,
        text: args.text.unwrap_or_default(),
    })
}

/// Adds the options that mean this filter.
pub(super) fn options(line: Line, filter: &view::bulk_replays::Filter) -> Line {
    line.option("--queue", filter.queue.as_deref())
        .option("--type", filter.job_type.as_deref())
        .option("--user", filter.user_id.as_deref())
        .option("--code", filter.error_code.as_deref())
        .option("--class", filter.error_class.as_deref())
        .option("--cause", filter.cause_id.as_deref())
        .option("--from", filter.failed_from.as_deref())
        .option("--before", filter.failed_before.as_deref())
        .option("--text", filter.text.as_deref())
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;
    use crate::args::{Cli, DeadLetterVerb, Verb};

    fn parse(line: &[&str]) -> v1::DeadLetterFilter {
        let now = DateTime::from_timestamp(10_000, 0).expect("in range");
        let line = ["tenure", "dead-letters", "bulk-replay"].iter().chain(line);
        match Cli::try_parse_from(line).expect("parses").verb {
            Verb::DeadLetters {
                verb: DeadLetterVerb::BulkReplay(args),
            } => filter(args.filter, now).expect("in range"),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn the_options_mean_the_filter_that_they_were_made_of() {
        let given = [
            "--queue",
            "q",
            "--type",
            "t",
            "--user",
            "it's me",
            "--code",
            "X",
            "--class",
            "temporary",
            "--cause",
            "c",
            "--from",
            "2h",
            "--before",
            "1970-01-01T02:00:00Z",
            "--text",
            "-100%",
        ];
        // A value with a dash needs its equals sign.
        let mut line: Vec<String> = given.iter().map(|&word| word.to_owned()).collect();
        let text = line.split_off(line.len() - 2).join("=");
        line.push(text);
        let first = parse(&line.iter().map(String::as_str).collect::<Vec<_>>());
        assert_eq!(first.failed_from.map(|time| time.seconds), Some(2_800));
        let view = view::bulk_replays::Filter::from(first.clone());
        let text = options(Line::new([]), &view).text();
        assert!(text.contains(r"--user 'it'\''s me'"), "{text}");
        // What a shell makes of it.
        let text = text.replace(r"'it'\''s me'", "it's_me");
        let words: Vec<String> = text
            .split(' ')
            .skip(1)
            .map(|word| word.replace("it's_me", "it's me"))
            .collect();
        assert_eq!(
            parse(&words.iter().map(String::as_str).collect::<Vec<_>>()),
            first
        );
    }
}
