//! docs/CONFIGURATION.md, generated from the sections.
use std::fmt::Write as _;

use toml::Value;

use super::load::default_values;
use super::{SECTIONS, SHORT_NAMES, environment_name};

const HEAD: &str = "\
# Configuration

<!-- Generated from crates/core/src/config. To renew it: TENURE_UPDATE_DOCS=1 cargo test -p tenure-core config::docs -->

Every service (`tenure-gateway`, `tenure-worker`, `tenure-sweeper`, `tenure-dead-letter-admin`) reads the
same configuration, so one file can serve all. The layers, where a later one wins:

1. the defaults below;
2. a TOML file, named by `--config FILE`;
3. environment variables: `TENURE_SECTION__KEY`, or the short name where one is listed.

| option | does |
|---|---|
| `--config FILE` | reads the file |
| `--print-config` | prints the whole configuration as TOML, with secrets masked |
| `--check-config` | says `ok`, or lists everything that is wrong and ends with exit code 2 |
| `--help`, `--version` | as usual |

An unknown key is refused, in the file and in the environment. Variables that are set to nothing count as
not set. Durations are texts such as `500ms`, `10s`, `5m`, `6h`, `7d`; sizes are texts such as `4 MiB`, or a
count of bytes. Lists in the environment are separated by commas. Addresses are `IP:PORT`.

Secrets come from the environment or from files: each `…_file` key names a file whose text, without the
white space around it, is the value. Set the value or its file, not both in one layer.

Exit codes of a service: 0 an orderly end, 1 it failed, 2 the configuration is wrong, 3 an orderly stop took
longer than `service.shutdown_grace`. A second SIGTERM or SIGINT ends a service at once.
";

/// The whole document.
pub fn markdown() -> String {
    let defaults = default_values();
    let mut text = HEAD.to_owned();
    for section in SECTIONS {
        let _ = write!(
            text,
            "\n## `[{}]`\n\n{}\n\n| key | environment | default | meaning |\n|---|---|---|---|\n",
            section.name,
            joined(section.doc)
        );
        for key in section.keys {
            let path = format!("{}.{}", section.name, key.name);
            let default = defaults
                .get(section.name)
                .and_then(|table| table.get(key.name));
            let mut names = format!("`{}`", environment_name(section.name, key.name));
            for (short, target) in SHORT_NAMES {
                if *target == path {
                    let _ = write!(names, ", `{short}`");
                }
            }
            let _ = writeln!(
                text,
                "| `{}` | {names} | {} | {} |",
                key.name,
                default.map_or_else(|| "none".to_owned(), shown),
                joined(key.doc).replace('|', "\\|")
            );
        }
    }
    text
}

fn shown(value: &Value) -> String {
    match value {
        Value::String(text) if text.is_empty() => "empty".to_owned(),
        Value::String(text) => format!("`{text}`"),
        other => format!("`{other}`"),
    }
}

fn joined(doc: &[&str]) -> String {
    doc.iter()
        .map(|line| line.trim())
        .collect::<Vec<_>>()
        .join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_document_says_what_the_code_does() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/CONFIGURATION.md");
        let want = markdown();
        if std::env::var_os("TENURE_UPDATE_DOCS").is_some() {
            std::fs::write(path, &want).expect("docs/CONFIGURATION.md can be written");
        }
        let have = std::fs::read_to_string(path).unwrap_or_default();
        assert!(
            have == want,
            "docs/CONFIGURATION.md is out of date; renew it: \
             TENURE_UPDATE_DOCS=1 cargo test -p tenure-core config::docs"
        );
    }

    #[test]
    fn every_key_has_a_meaning() {
        for section in SECTIONS {
            assert!(!section.doc.is_empty(), "{}", section.name);
            for key in section.keys {
                assert!(!key.doc.is_empty(), "{}.{}", section.name, key.name);
            }
        }
    }
}
