//! Keeps the synopsis in `docs/CLI.md` equal to the help.

use std::fmt::Write as _;

use clap::{Command, CommandFactory as _};

use crate::args::Cli;

const BEGIN: &str = "<!-- synopsis: begin -->";
const END: &str = "<!-- synopsis: end -->";

#[test]
fn the_arguments_do_not_contradict_each_other() {
    Cli::command().debug_assert();
}

fn section(out: &mut String, path: &str, command: &Command) {
    // The options of every verb stand in the first section only.
    let mut command = command
        .clone()
        .disable_help_flag(!path.is_empty() && path != "tenure")
        .term_width(96);
    if path != "tenure" {
        command = command.mut_args(|arg| {
            let global = arg.is_global_set();
            arg.hide(global)
        });
    }
    let help = command.render_long_help().to_string();
    let _ = writeln!(out, "\n### `{path}`\n\n```text");
    for line in help.trim_end().lines() {
        let _ = writeln!(out, "{}", line.trim_end());
    }
    out.push_str("```\n");
    for sub in command.get_subcommands() {
        if sub.get_name() != "help" {
            section(out, &format!("{path} {}", sub.get_name()), sub);
        }
    }
}

#[test]
fn the_documentation_repeats_the_help() {
    let mut command = Cli::command();
    command.build();
    let mut synopsis = String::new();
    section(&mut synopsis, "tenure", &command);

    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/CLI.md");
    let text = std::fs::read_to_string(path).expect("docs/CLI.md");
    let (head, rest) = text.split_once(BEGIN).expect("the begin mark");
    let (written, tail) = rest.split_once(END).expect("the end mark");
    if std::env::var_os("TENURE_UPDATE_DOCS").is_some() {
        std::fs::write(path, format!("{head}{BEGIN}\n{synopsis}\n{END}{tail}"))
            .expect("docs/CLI.md is writable");
        return;
    }
    assert_eq!(
        written.trim(),
        synopsis.trim(),
        "run `TENURE_UPDATE_DOCS=1 cargo test -p tenure-cli` to renew docs/CLI.md"
    );
}
