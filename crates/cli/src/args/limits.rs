//! The arguments of `tenure limits`.

use clap::{ArgGroup, Args, Subcommand};

use super::Paging;
use crate::values::given;

/// `tenure limits`.
#[derive(Debug, Subcommand)]
pub(crate) enum LimitVerb {
    /// Lists the users that have limits of their own.
    List(LimitListArgs),
    /// Shows what holds for a user, and how many jobs the user has.
    Get(LimitUserArgs),
    /// Sets the limits of a user. What is left out follows the default,
    /// whatever was set before.
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
    #[arg(long, value_name = "N", group = "limit", value_parser = clap::value_parser!(i64).range(0..=1_000_000_000))]
    pub(crate) max_jobs: Option<i64>,
    /// The most submits in a second, such as 50 or 0.5; 0 refuses every submit.
    #[arg(long, value_name = "N", group = "limit", value_parser = rate)]
    pub(crate) rate: Option<f64>,
    /// How many submits may come at once after a pause.
    #[arg(long, value_name = "N", group = "limit", value_parser = clap::value_parser!(i64).range(0..=10_000_000))]
    pub(crate) burst: Option<i64>,
    /// The share of a backlog beside other users, who have 1.
    #[arg(long, value_name = "N", group = "limit", value_parser = clap::value_parser!(i32).range(1..=100))]
    pub(crate) weight: Option<i32>,
}

fn rate(text: &str) -> Result<f64, String> {
    match text.trim().parse::<f64>() {
        Ok(rate) if rate == 0.0 || (0.001..=1e6).contains(&rate) => Ok(rate),
        _ => Err("must be 0, or a number from 0.001 to 1000000".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use crate::args::Cli;

    #[test]
    fn a_set_names_a_limit() {
        let parse = |line: &[&str]| {
            let line = [&["tenure", "limits", "set", "ada"], line].concat();
            Cli::try_parse_from(line).is_ok()
        };
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
