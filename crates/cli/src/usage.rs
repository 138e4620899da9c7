//! What is said of a command line that is wrong.

use clap::CommandFactory as _;
use clap::builder::StyledStr;
use clap::error::{ContextKind, ContextValue};

use crate::args::Cli;

/// The usage of a verb without the options that every verb takes: those that have a value, by
/// a default or from the environment, would stand there as if they were required.
pub(crate) fn without_globals(mut error: clap::Error) -> clap::Error {
    let Some(ContextValue::StyledStr(usage)) = error.get(ContextKind::Usage) else {
        return error;
    };
    let mut usage = usage.to_string();
    let command = Cli::command();
    for arg in command.get_arguments().filter(|arg| arg.is_global_set()) {
        let (Some(long), Some([value])) = (arg.get_long(), arg.get_value_names()) else {
            continue;
        };
        usage = usage.replace(&format!(" --{long} <{value}>"), "");
    }
    let usage = ContextValue::StyledStr(StyledStr::from(usage));
    error.insert(ContextKind::Usage, usage);
    error
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_of_every_verb_are_not_shown_as_required() {
        let line = ["tenure", "--token", "t", "dead-letters", "replay"];
        let error = Cli::command()
            .try_get_matches_from(line)
            .expect_err("no letter is named");
        let text = without_globals(error).to_string();
        assert!(text.contains("Usage: tenure dead-letters replay"), "{text}");
        assert!(text.contains("--reason <TEXT>"), "{text}");
        for global in [
            "--gateway",
            "--dead-letter-admin",
            "--token",
            "--output",
            "--call-timeout",
        ] {
            assert!(!text.contains(global), "{global} in {text}");
        }
    }
}
