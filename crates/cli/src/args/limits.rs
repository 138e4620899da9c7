//! The arguments of `tenure limits`.

use std::str::FromStr;

use clap::{ArgGroup, Args, Subcommand};

use super::Paging;
use crate::values::given;

/// `tenure limits`.
#[derive(Debug, Subcommand)]
pub(crate) enum LimitVerb {
    /// Lists the users that have limits of their own.
    List(LimitListArgs),
    /// Shows what holds for a user, and how many jobs the user has. Your own
    /// limits need no operator.
    Get(LimitUserArgs),
    /// Sets limits of a user. What is not named stays as it is; `default` takes
    /// a limit back.
    Set(LimitSetArgs),
    /// Lets the defaults hold for a user again.
    Reset(LimitUserArgs),
}

/// `tenure limits list`.
#[derive(Debug, Args)]
pub(crate) struct LimitListArgs {
    /// How many to list.
    #[command(flatten)]
    pub(crate) paging: Paging,
}

/// `tenure limits get` and `reset`.
#[derive(Debug, Args)]
pub(crate) struct LimitUserArgs {
    /// The user.
    #[arg(value_name = "USER", value_parser = given)]
    pub(crate) user: String,
}

/// `tenure limits set`.
#[derive(Debug, Args)]
#[command(group = ArgGroup::new("limit").required(true).multiple(true))]
pub(crate) struct LimitSetArgs {
    /// The user.
    #[arg(value_name = "USER", value_parser = given)]
    pub(crate) user: String,
    /// The most jobs that wait or run; 0 refuses every submit.
    #[arg(long, value_name = "N", group = "limit", value_parser = max_jobs)]
    pub(crate) max_jobs: Option<Setting<i64>>,
    /// The most submits in a second, such as 50 or 0.5; 0 refuses every submit.
    #[arg(long, value_name = "N", group = "limit", value_parser = rate)]
    pub(crate) rate: Option<Setting<f64>>,
    /// How many submits may come at once after a pause.
    #[arg(long, value_name = "N", group = "limit", value_parser = burst)]
    pub(crate) burst: Option<Setting<i64>>,
    /// The share of a backlog beside other users, who have 1.
    #[arg(long, value_name = "N", group = "limit", value_parser = weight)]
    pub(crate) weight: Option<Setting<i32>>,
}

/// What becomes of a limit.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Setting<T> {
    /// The default holds again.
    Default,
    /// This holds.
    To(T),
}

fn setting<T: FromStr>(
    text: &str,
    fits: impl FnOnce(&T) -> bool,
    range: &str,
) -> Result<Setting<T>, String> {
    let text = text.trim();
    if text == "default" {
        return Ok(Setting::Default);
    }
    text.parse()
        .ok()
        .filter(fits)
        .map(Setting::To)
        .ok_or_else(|| format!("must be {range}, or `default`"))
}

fn max_jobs(text: &str) -> Result<Setting<i64>, String> {
    let most = 1_000_000_000;
    setting(text, |n| (0..=most).contains(n), "from 0 to 1000000000")
}

fn rate(text: &str) -> Result<Setting<f64>, String> {
    let fits = |rate: &f64| *rate == 0.0 || (0.001..=1e6).contains(rate);
    setting(text, fits, "0, or a number from 0.001 to 1000000")
}

fn burst(text: &str) -> Result<Setting<i64>, String> {
    setting(text, |n| (0..=10_000_000).contains(n), "from 0 to 10000000")
}

fn weight(text: &str) -> Result<Setting<i32>, String> {
    setting(text, |n| (1..=100).contains(n), "from 1 to 100")
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;
    use crate::args::Cli;

    #[test]
    fn a_set_names_a_limit() {
        let parse = |line: &[&str]| {
            let line = [&["tenure", "limits", "set", "ada"], line].concat();
            Cli::try_parse_from(line).is_ok()
        };
        assert_eq!(rate(" default "), Ok(Setting::Default));
        assert_eq!(weight("7"), Ok(Setting::To(7)));
        assert!(parse(&["--burst", "default"]));
        assert!(parse(&["--max-jobs", "0"]) && parse(&["--rate", "0.5", "--burst", "9"]));
        for wrong in [
            &[][..],
            &["--rate", "-1"],
            &["--rate", "NaN"],
            &["--weight", "0"],
            &["--max-jobs", "x"],
        ] {
            assert!(!parse(wrong), "{wrong:?}");
        }
    }
}
