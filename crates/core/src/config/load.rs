//! Reads the file and the environment into a [`Config`].
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fmt;
use std::path::{Path, PathBuf};

use serde::Deserialize as _;
use toml::{Table, Value};

use super::names::{section_names, unknown, unknown_section};
use super::{Config, Secret, SecretUrl};
use crate::error::{Code, Error};

/// The well-known short names of environment variables, and what they set.
pub const SHORT_NAMES: &[(&str, &str)] = &[
    ("DATABASE_URL", "database.url"),
    ("AMQP_URL", "broker.url"),
    ("REDIS_URL", "cache.url"),
    ("TENURE_LEASE", "worker.lease"),
    ("TENURE_SLOTS", "worker.slots"),
    ("TENURE_DIAGNOSTICS", "worker.diagnostics"),
    ("TENURE_SWEEP_INTERVAL", "sweeper.wake_interval"),
    ("TENURE_BACKOFF_BASE", "retry.backoff_base"),
    ("TENURE_JWT_SECRET", "auth.secret"),
    ("TENURE_JWT_SECRET_FILE", "auth.secret_file"),
    ("TENURE_SHUTDOWN_GRACE", "service.shutdown_grace"),
    ("TENURE_LOG", "telemetry.filter"),
    ("TENURE_FILES", "files.root"),
    ("TENURE_KEY_PREFIX", "cache.key_prefix"),
];

/// Keys whose value may not appear in a message.
const SECRET_KEYS: [&str; 6] = [
    "database.url",
    "broker.url",
    "cache.url",
    "auth.secret",
    "files.s3_secret_access_key",
    "webhooks.secret",
];

/// The environment variable of a key: `TENURE_SECTION__KEY`.
pub fn environment_name(section: &str, key: &str) -> String {
    format!("TENURE_{}__{}", section.to_uppercase(), key.to_uppercase())
}

/// All that is wrong with a configuration, one entry a problem.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Problems(pub Vec<String>);

impl fmt::Display for Problems {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.join("\n"))
    }
}

impl std::error::Error for Problems {}

impl From<Problems> for Error {
    fn from(problems: Problems) -> Self {
        Self::new(Code::ConfigInvalid, problems.0.join("; "))
    }
}

/// Where a value came from; a later layer wins over an earlier one.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Origin {
    File(PathBuf),
    Environment(String),
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(path) => write!(f, "{}", path.display()),
            Self::Environment(name) => write!(f, "{name}"),
        }
    }
}

impl Origin {
    fn layer(&self) -> u8 {
        match self {
            Self::File(_) => 0,
            Self::Environment(_) => 1,
        }
    }
}

/// The values that were given, by `section.key`.
type Given = BTreeMap<(String, String), (Value, Origin)>;

impl Config {
    /// Reads the file, if one is named, and the environment of this process.
    /// The ranges are checked by [`Config::problems`], not here.
    pub fn load(file: Option<&Path>) -> Result<Self, Problems> {
        Self::load_from(file, std::env::vars_os())
    }

    /// Reads the file, if one is named, and the environment that is given.
    pub fn load_from(
        file: Option<&Path>,
        environment: impl IntoIterator<Item = (OsString, OsString)>,
    ) -> Result<Self, Problems> {
        let (config, problems) = read(file, environment);
        if problems.is_empty() {
            Ok(config)
        } else {
            Err(Problems(problems))
        }
    }

    /// Like [`Config::load`], and in range for the binary with this name.
    pub fn load_for(binary: &str, file: Option<&Path>) -> Result<Self, Problems> {
        let (config, mut problems) = read(file, std::env::vars_os());
        for problem in config.problems(binary) {
            // What could not be read has its default here, which is not worth a word.
            let key = problem.split(':').next().unwrap_or_default();
            if !problems.iter().any(|known| known.contains(key)) {
                problems.push(problem);
            }
        }
        if problems.is_empty() {
            Ok(config)
        } else {
            Err(Problems(problems))
        }
    }
}

/// What could be read, and everything that could not.
fn read(
    file: Option<&Path>,
    environment: impl IntoIterator<Item = (OsString, OsString)>,
) -> (Config, Vec<String>) {
    let mut problems = Vec::new();
    let mut given = Given::new();
    if let Some(path) = file {
        read_file(path, &mut given, &mut problems);
    }
    read_environment(environment, &mut given, &mut problems);
    let mut config = assemble(&given, &mut problems);
    read_secret_files(&mut config, &given, &mut problems);
    (config, problems)
}

fn read_file(path: &Path, given: &mut Given, problems: &mut Vec<String>) {
    let text = match std::fs::read_to_string(path) {
        Ok(text) => text,
        Err(error) => {
            problems.push(format!("{}: cannot be read: {error}", path.display()));
            return;
        }
    };
    let table: Table = match text.parse() {
        Ok(table) => table,
        Err(error) => {
            // Without the line's text, which could hold a secret.
            let error: toml::de::Error = error;
            let line = error.span().map_or(1, |span| {
                1 + text[..span.start.min(text.len())].matches('\n').count()
            });
            problems.push(format!(
                "{}, line {line}: {}",
                path.display(),
                error.message()
            ));
            return;
        }
    };
    for (section, value) in table {
        let Value::Table(keys) = value else {
            problems.push(format!(
                "{}: `{section}` stands outside a section; the sections are {}",
                path.display(),
                section_names().join(", ")
            ));
            continue;
        };
        for (key, value) in keys {
            match unknown(&section, &key) {
                Some(problem) => problems.push(format!("{}: {problem}", path.display())),
                None => {
                    given.insert(
                        (section.clone(), key),
                        (value, Origin::File(path.to_owned())),
                    );
                }
            }
        }
        if let Some(problem) = unknown_section(&section) {
            problems.push(format!("{}: {problem}", path.display()));
        }
    }
    problems.dedup();
}

fn read_environment(
    environment: impl IntoIterator<Item = (OsString, OsString)>,
    given: &mut Given,
    problems: &mut Vec<String>,
) {
    let mut sorted: Vec<_> = environment
        .into_iter()
        .filter_map(|(name, value)| name.into_string().ok().map(|name| (name, value)))
        .collect();
    sorted.sort();
    for (name, value) in sorted {
        let (section, key) = match target_of(&name) {
            Ok(Some(target)) => target,
            Ok(None) => continue,
            Err(problem) => {
                problems.push(format!("{name}: {problem}"));
                continue;
            }
        };
        let Ok(value) = value.into_string() else {
            problems.push(format!("{name}: is not UTF-8"));
            continue;
        };
        // Orchestrators often pass variables that are set to nothing.
        if value.is_empty() {
            continue;
        }
        let value = match typed(&section, &key, &value) {
            Ok(value) => value,
            Err(problem) => {
                problems.push(format!("{name}: {problem}"));
                continue;
            }
        };
        let slot = (section, key);
        if let Some((other, Origin::Environment(other_name))) = given.get(&slot)
            && *other != value
        {
            problems.push(format!(
                "{name} and {other_name} set the same key to different values"
            ));
        }
        given.insert(slot, (value, Origin::Environment(name)));
    }
}

/// The key that an environment variable sets; none for variables of others.
fn target_of(name: &str) -> Result<Option<(String, String)>, String> {
    if let Some((_, path)) = SHORT_NAMES.iter().find(|(short, _)| *short == name) {
        return Ok(path
            .split_once('.')
            .map(|(s, k)| (s.to_owned(), k.to_owned())));
    }
    let Some((section, key)) = name
        .strip_prefix("TENURE_")
        .and_then(|n| n.split_once("__"))
    else {
        return Ok(None);
    };
    let (section, key) = (section.to_lowercase(), key.to_lowercase());
    match unknown(&section, &key).or_else(|| unknown_section(&section)) {
        Some(problem) => Err(problem),
        None => Ok(Some((section, key))),
    }
}

/// Gives an environment text the type of the key's default.
fn typed(section: &str, key: &str, text: &str) -> Result<Value, String> {
    let defaults = default_values();
    let default = defaults
        .get(section)
        .and_then(Value::as_table)
        .and_then(|table| table.get(key));
    match default {
        Some(Value::Integer(_)) => text
            .trim()
            .parse()
            .map(Value::Integer)
            .map_err(|_| format!("`{}` is not a whole number", text.escape_debug())),
        Some(Value::Float(_)) => text
            .trim()
            .parse()
            .map(Value::Float)
            .map_err(|_| format!("`{}` is not a number", text.escape_debug())),
        Some(Value::Boolean(_)) => match text.trim() {
            "true" | "1" => Ok(Value::Boolean(true)),
            "false" | "0" => Ok(Value::Boolean(false)),
            _ => Err(format!(
                "`{}` is neither true nor false",
                text.escape_debug()
            )),
        },
        Some(Value::Array(items)) if matches!(items.first(), Some(Value::Integer(_))) => text
            .split(',')
            .map(|item| {
                item.trim().parse().map(Value::Integer).map_err(|_| {
                    format!("`{}` is not a list of whole numbers", text.escape_debug())
                })
            })
            .collect::<Result<_, _>>()
            .map(Value::Array),
        Some(Value::Array(_)) => Ok(Value::Array(
            text.split(',')
                .map(|item| Value::String(item.trim().to_owned()))
                .collect(),
        )),
        _ => Ok(Value::String(text.to_owned())),
    }
}

/// Takes each value on its own first, so that each problem names its key and place.
fn assemble(given: &Given, problems: &mut Vec<String>) -> Config {
    let mut all = Table::new();
    for ((section, key), (value, origin)) in given {
        let mut one = Table::new();
        let mut inner = Table::new();
        inner.insert(key.clone(), value.clone());
        one.insert(section.clone(), Value::Table(inner));
        if let Err(error) = Config::deserialize(one) {
            let path = format!("{section}.{key}");
            let why = if SECRET_KEYS.contains(&path.as_str()) {
                "must be a text"
            } else {
                error.message().trim()
            };
            problems.push(format!("{path} (from {origin}): {why}"));
            continue;
        }
        if let Value::Table(table) = all
            .entry(section.clone())
            .or_insert_with(|| Value::Table(Table::new()))
        {
            table.insert(key.clone(), value.clone());
        }
    }
    Config::deserialize(all).unwrap_or_else(|error| {
        problems.push(error.message().to_owned());
        Config::default()
    })
}

/// Secrets that are in files of their own, as orchestrators mount them.
fn read_secret_files(config: &mut Config, given: &Given, problems: &mut Vec<String>) {
    let mut read = |section: &str, key: &str, file: Option<&PathBuf>| -> Option<String> {
        let path = file?;
        let file_key = format!("{key}_file");
        let layer = |key: &str| {
            given
                .get(&(section.to_owned(), key.to_owned()))
                .map(|(_, origin)| origin.layer())
        };
        let (direct, by_file) = (layer(key), layer(&file_key));
        if direct > by_file {
            return None;
        }
        if direct.is_some() && direct == by_file {
            problems.push(format!(
                "{section}.{key} and {section}.{file_key}: set one of the two"
            ));
            return None;
        }
        match std::fs::read_to_string(path) {
            Ok(text) if text.trim().is_empty() => {
                problems.push(format!("{section}.{file_key}: {} is empty", path.display()));
                None
            }
            Ok(text) => Some(text.trim().to_owned()),
            Err(error) => {
                problems.push(format!(
                    "{section}.{file_key}: {} cannot be read: {error}",
                    path.display()
                ));
                None
            }
        }
    };
    if let Some(url) = read("database", "url", config.database.url_file.as_ref()) {
        config.database.url = SecretUrl::new(url);
    }
    if let Some(url) = read("broker", "url", config.broker.url_file.as_ref()) {
        config.broker.url = SecretUrl::new(url);
    }
    if let Some(url) = read("cache", "url", config.cache.url_file.as_ref()) {
        config.cache.url = SecretUrl::new(url);
    }
    if let Some(secret) = read("auth", "secret", config.auth.secret_file.as_ref()) {
        config.auth.secret = Secret::new(secret);
    }
    let file = config.files.s3_secret_access_key_file.as_ref();
    if let Some(secret) = read("files", "s3_secret_access_key", file) {
        config.files.s3_secret_access_key = Secret::new(secret);
    }
    if let Some(secret) = read("webhooks", "secret", config.webhooks.secret_file.as_ref()) {
        config.webhooks.secret = Secret::new(secret);
    }
}

/// The defaults as TOML; keys without a default are missing.
pub(super) fn default_values() -> Table {
    Table::try_from(Config::default()).unwrap_or_default()
}

#[cfg(test)]
#[path = "load_tests.rs"]
mod tests;
