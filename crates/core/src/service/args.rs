//! The command line that all services share.
use std::path::PathBuf;

use clap::{Arg, ArgAction, value_parser};

/// What the command line asks for.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Args {
    pub(super) config: Option<PathBuf>,
    pub(super) mode: Mode,
}

/// What to do with the configuration.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Mode {
    Serve,
    Command(String),
    Print,
    Check,
}

/// The command of a service with these commands of its own, by name and help.
pub(super) fn command(
    name: &'static str,
    version: &'static str,
    commands: &[(&'static str, &'static str)],
) -> clap::Command {
    clap::Command::new(name)
        .version(version)
        .about(format!("{name}: a service of Tenure, the job queue"))
        .after_help(
            "Settings come from the defaults, then the file of --config, then the environment \
             (TENURE_SECTION__KEY). docs/CONFIGURATION.md lists them all.",
        )
        .arg(
            Arg::new("config")
                .long("config")
                .value_name("FILE")
                .value_parser(value_parser!(PathBuf))
                .global(true)
                .help("Reads the settings from this TOML file"),
        )
        .arg(
            Arg::new("print")
                .long("print-config")
                .action(ArgAction::SetTrue)
                .help("Prints the settings as TOML, with secrets masked, and ends"),
        )
        .arg(
            Arg::new("check")
                .long("check-config")
                .action(ArgAction::SetTrue)
                .conflicts_with("print")
                .help("Says `ok`, or lists all that is wrong and ends with exit code 2"),
        )
        .subcommands(
            commands
                .iter()
                .map(|(name, about)| clap::Command::new(*name).about(*about)),
        )
}

/// Reads the matches of [`command`].
pub(super) fn read(matches: &clap::ArgMatches) -> Args {
    let mode = if matches.get_flag("print") {
        Mode::Print
    } else if matches.get_flag("check") {
        Mode::Check
    } else if let Some(name) = matches.subcommand_name() {
        Mode::Command(name.to_owned())
    } else {
        Mode::Serve
    };
    let inner = matches.subcommand().map_or(matches, |(_, inner)| inner);
    Args {
        config: inner.get_one("config").cloned(),
        mode,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(args: &[&str]) -> Result<Args, clap::Error> {
        let all = std::iter::once(&"tenure-test").chain(args);
        command("tenure-test", "1.2.3", &[("migrate", "Migrates")])
            .try_get_matches_from(all)
            .map(|matches| read(&matches))
    }

    #[test]
    fn the_command_is_well_formed() {
        command("tenure-test", "1.2.3", &[("migrate", "Migrates")]).debug_assert();
    }

    #[test]
    fn arguments_are_read() {
        let args = |config: Option<&str>, mode| Args {
            config: config.map(PathBuf::from),
            mode,
        };
        for (given, want) in [
            (vec![], args(None, Mode::Serve)),
            (
                vec!["--config", "a.toml"],
                args(Some("a.toml"), Mode::Serve),
            ),
            (vec!["--print-config"], args(None, Mode::Print)),
            (vec!["--check-config"], args(None, Mode::Check)),
            (vec!["migrate"], args(None, Mode::Command("migrate".into()))),
            (
                vec!["--config", "a.toml", "migrate"],
                args(Some("a.toml"), Mode::Command("migrate".into())),
            ),
            (
                vec!["migrate", "--config", "a.toml"],
                args(Some("a.toml"), Mode::Command("migrate".into())),
            ),
        ] {
            assert_eq!(parse(&given).expect("valid"), want, "{given:?}");
        }
        for wrong in [
            vec!["--confg", "x"],
            vec!["nothing"],
            vec!["--print-config", "--check-config"],
        ] {
            assert_eq!(parse(&wrong).expect_err("refused").exit_code(), 2);
        }
    }
}
