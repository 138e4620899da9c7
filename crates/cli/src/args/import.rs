//! The arguments of `tenure import`.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;

use super::positive_duration;

/// `tenure import`.
#[derive(Debug, Args)]
pub(crate) struct ImportArgs {
    /// The CSV file; it may be packed with gzip or zip. `-` takes standard input, up
    /// to 1 GiB, which is kept in a temporary file until it is sent.
    #[arg(value_name = "FILE")]
    pub(crate) file: PathBuf,
    /// How the file is read, as JSON: {"columns": [{"name": "id", "type":
    /// "integer", "required": true}]}, and whatever else docs/IMPORT_CSV.md
    /// names. Without columns all are imported as text.
    #[arg(long, value_name = "FILE.json")]
    pub(crate) schema: Option<PathBuf>,
    /// Stores the file's column HEADER as NAME; may be repeated. Without columns
    /// in a schema only these are imported, as text.
    #[arg(long = "map", value_name = "HEADER=NAME", value_parser = parse_mapping)]
    pub(crate) maps: Vec<(String, String)>,
    /// What separates the fields: `,` `;` `tab` `pipe`, another mark, or `auto`.
    #[arg(long, value_name = "DELIMITER", value_parser = parse_delimiter)]
    pub(crate) delimiter: Option<String>,
    /// What stands around fields: `"`, `'`, `none` or `auto`.
    #[arg(long, value_name = "QUOTE")]
    pub(crate) quote: Option<String>,
    /// The file's encoding, such as `windows-1252`, where it is neither UTF-8 nor
    /// begins with a byte order mark.
    #[arg(long, value_name = "NAME")]
    pub(crate) encoding: Option<String>,
    /// A value that stands for an empty field, such as `NA`. May be repeated.
    #[arg(long = "null", value_name = "VALUE")]
    pub(crate) null_values: Vec<String>,
    /// The first line is a row already: columns go by their place.
    #[arg(long)]
    pub(crate) no_header: bool,
    /// The data set that the rows go to; named after the file otherwise.
    #[arg(long, value_name = "NAME", conflicts_with = "table")]
    pub(crate) dataset: Option<String>,
    /// The rows replace those of the data set, all at once at the end.
    #[arg(long, conflicts_with = "table")]
    pub(crate) replace: bool,
    /// A table that the rows go to instead; an operator has to allow it.
    #[arg(long, value_name = "SCHEMA.TABLE")]
    pub(crate) table: Option<String>,
    /// A column of the table's key: rows that are there are changed. May be
    /// repeated. For tables only; rows of a data set are appended, or replace it.
    #[arg(long = "upsert-key", value_name = "COLUMN", value_delimiter = ',')]
    pub(crate) upsert_keys: Vec<String>,
    /// Judge every row and report, and store none.
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Fail where more rows than this are rejected: a number (0: at the first
    /// one) or a part such as `2%`. Without it rejected rows are left out.
    #[arg(long, value_name = "N|P%", allow_hyphen_values = true, value_parser = parse_limit)]
    pub(crate) max_rejected: Option<Limit>,
    /// Tell this address of the end, good or bad; an operator has to allow its host. A
    /// cancelled import tells nobody.
    #[arg(long, value_name = "URL")]
    pub(crate) webhook: Option<String>,
    /// Where the rejected rows go, as CSV. A file that is there is replaced; it is
    /// removed where no row was rejected. Where no row was judged it stays.
    #[arg(long, value_name = "FILE.csv", conflicts_with = "no_wait")]
    pub(crate) rejects: Option<PathBuf>,
    /// Where the report goes: a page to read where the name ends in `.html`, JSON
    /// otherwise. A file that is there is replaced.
    #[arg(long, value_name = "FILE", conflicts_with = "no_wait")]
    pub(crate) report: Option<PathBuf>,
    /// One import per user and key: the same one again (file, name and options)
    /// is answered with the first job, another one is refused. A key is kept for a
    /// day after the end, also where the import failed.
    #[arg(long, value_name = "KEY")]
    pub(crate) dedupe_key: Option<String>,
    /// The user whom the import is for. Needs the role `service`.
    #[arg(long, value_name = "USER")]
    pub(crate) for_user: Option<String>,
    /// Do not follow the job.
    #[arg(long)]
    pub(crate) no_wait: bool,
    /// The longest wait; without it: until the job ends.
    #[arg(long, value_name = "DURATION", conflicts_with = "no_wait", value_parser = positive_duration)]
    pub(crate) wait_timeout: Option<Duration>,
}

/// How many rejected rows are too many.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Limit {
    /// More than so many.
    Rows(u64),
    /// More than so many in a hundred.
    Percent(f64),
}

fn parse_limit(text: &str) -> Result<Limit, String> {
    let wrong = || {
        if text.starts_with('-') {
            "must not be negative; 0 fails at the first rejected row".to_owned()
        } else {
            "use a number such as 10, or a part such as 2%".to_owned()
        }
    };
    match text.strip_suffix('%') {
        None => text.parse().map(Limit::Rows).map_err(|_| wrong()),
        Some(part) => part
            .parse()
            .ok()
            .filter(|percent| (0.0..=100.0).contains(percent))
            .map(Limit::Percent)
            .ok_or_else(wrong),
    }
}

fn parse_mapping(text: &str) -> Result<(String, String), String> {
    // A name has no `=`; a header may.
    match text.rsplit_once('=') {
        Some((header, name)) if !header.trim().is_empty() && !name.trim().is_empty() => {
            Ok((header.to_owned(), name.trim().to_owned()))
        }
        _ => Err("use HEADER=NAME".to_owned()),
    }
}

/// Reads a delimiter; those that a shell would take away have names.
fn parse_delimiter(text: &str) -> Result<String, String> {
    let mark = match text {
        "comma" => ",",
        "semicolon" => ";",
        "tab" | "\\t" => "\t",
        "pipe" => "|",
        other => other,
    };
    if mark == "auto" || mark.chars().count() == 1 {
        Ok(mark.to_owned())
    } else {
        Err("use `,`, `;`, `tab`, `pipe`, another mark, or `auto`".to_owned())
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;

    #[test]
    fn delimiters_have_names_for_what_a_shell_would_take_away() {
        assert_eq!(parse_delimiter("tab").as_deref(), Ok("\t"));
        assert_eq!(parse_delimiter("pipe").as_deref(), Ok("|"));
        assert_eq!(parse_delimiter(";").as_deref(), Ok(";"));
        assert!(parse_delimiter("spaces").is_err() && parse_delimiter("").is_err());
    }

    #[test]
    fn limits_are_numbers_or_parts() {
        assert_eq!(parse_limit("0"), Ok(Limit::Rows(0)));
        assert_eq!(parse_limit("2.5%"), Ok(Limit::Percent(2.5)));
        for wrong in ["", "%", "-1", "101%", "NaN%", "x", "1e9"] {
            assert!(parse_limit(wrong).is_err(), "{wrong}");
        }
        for negative in ["-1", "-0.5%"] {
            let line = ["tenure", "import", "a.csv", "--max-rejected", negative];
            let error = crate::args::Cli::try_parse_from(line).expect_err("is negative");
            assert!(
                error.to_string().contains("must not be negative"),
                "{error}"
            );
        }
    }

    #[test]
    fn a_mapping_is_a_header_and_a_name() {
        assert_eq!(
            parse_mapping("Betrag (a=b)=amount"),
            Ok(("Betrag (a=b)".to_owned(), "amount".to_owned()))
        );
        assert!(parse_mapping("a").is_err() && parse_mapping("a=").is_err());
    }
}
