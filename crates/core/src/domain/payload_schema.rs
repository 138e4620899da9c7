//! JSON Schemas of payloads (draft 2020-12): what a schema may be, and what it says of a
//! payload.
//!
//! A schema comes from an operator, and payloads from anybody, so the work of a check is
//! bounded by the schema alone: a schema refers to nothing outside of itself and never to
//! what it stands in, its expanded size is bounded, and its patterns are matched in linear
//! time.

use std::collections::HashMap;
use std::fmt::Write as _;

use jsonschema::error::{TypeKind, ValidationErrorKind};
use jsonschema::{Draft, PatternOptions, ValidationError, Validator};
use serde_json::{Map, Value};

use crate::error::clean_text;

/// The most bytes of a schema.
pub const MAX_SCHEMA_BYTES: usize = 64 * 1024;
/// The most violations that are told of one payload.
pub const MAX_VIOLATIONS: usize = 10;

/// The most schemas inside of a schema, each counted as often as it is referred to.
const MAX_EXPANDED: usize = 2_000;
/// The most schemas that stand inside of each other.
const MAX_NESTED: usize = 40;
/// The most regular expressions.
const MAX_PATTERNS: usize = 64;
/// The most bytes of one regular expression when it is compiled.
const MAX_PATTERN_BYTES: usize = 1 << 20;
const DRAFT: &str = "https://json-schema.org/draft/2020-12/schema";

/// Keywords whose value is one schema.
const ONE: &[&str] = &[
    "additionalProperties",
    "contains",
    "contentSchema",
    "else",
    "if",
    "items",
    "not",
    "propertyNames",
    "then",
    "unevaluatedItems",
    "unevaluatedProperties",
];
/// Keywords whose value is a list of schemas.
const LIST: &[&str] = &["allOf", "anyOf", "oneOf", "prefixItems"];
/// Keywords whose value is an object of schemas.
const NAMED: &[&str] = &[
    "$defs",
    "definitions",
    "dependentSchemas",
    "patternProperties",
    "properties",
];

/// A schema that is ready to check payloads.
#[derive(Debug)]
pub struct PayloadSchema {
    text: Value,
    validator: Validator,
}

/// One place of a payload that does not fit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Misfit {
    /// The path below the payload, such as `.columns[0].type`; empty: the payload itself.
    pub path: String,
    /// What would be right. Never holds the value.
    pub description: String,
}

impl PayloadSchema {
    /// Compiles a schema. Takes up to some milliseconds for a large one.
    ///
    /// # Errors
    /// A sentence that says what is wrong, and where.
    pub fn compile(text: &str) -> Result<Self, String> {
        if text.len() > MAX_SCHEMA_BYTES {
            return Err(format!(
                "has {} bytes; the limit is {MAX_SCHEMA_BYTES}",
                text.len()
            ));
        }
        let schema: Value =
            serde_json::from_str(text).map_err(|error| format!("is not valid JSON: {error}"))?;
        if !schema.is_object() {
            return Err("must be a JSON object".to_owned());
        }
        Bounds::check(&schema)?;
        let patterns = PatternOptions::regex()
            .size_limit(MAX_PATTERN_BYTES)
            .dfa_size_limit(MAX_PATTERN_BYTES);
        let validator = jsonschema::options()
            .with_draft(Draft::Draft202012)
            .with_pattern_options(patterns)
            .offline()
            .build(&schema)
            .map_err(|error| not_a_schema(&error))?;
        Ok(Self {
            text: schema,
            validator,
        })
    }

    /// What of a payload does not fit, in the order of the schema; empty: all of it fits.
    pub fn misfits(&self, payload: &Value) -> Vec<Misfit> {
        // The common case makes no error and remembers nothing.
        if self.validator.is_valid(payload) {
            return Vec::new();
        }
        let mut found = Vec::new();
        for error in self.validator.iter_errors(payload) {
            self.tell(&error, payload, &mut found);
            if found.len() >= MAX_VIOLATIONS {
                found.truncate(MAX_VIOLATIONS);
                break;
            }
        }
        found
    }

    fn tell(&self, error: &ValidationError<'_>, payload: &Value, found: &mut Vec<Misfit>) {
        let path = path_of(error.instance_path().as_str(), payload);
        match error.kind() {
            ValidationErrorKind::Required { property } => {
                let name = property.as_str().unwrap_or_default();
                found.push(Misfit {
                    path: format!("{path}{}", step(name)),
                    description: "is required".to_owned(),
                });
            }
            ValidationErrorKind::AdditionalProperties { unexpected }
            | ValidationErrorKind::UnevaluatedProperties { unexpected } => {
                for name in unexpected.iter().take(MAX_VIOLATIONS) {
                    found.push(Misfit {
                        path: format!("{path}{}", step(name)),
                        description: "is not a field that this job type knows".to_owned(),
                    });
                }
            }
            kind => {
                let mut description = sentence(kind);
                if let ValidationErrorKind::Pattern { .. } = kind
                    && let Some(meaning) = self.described(error.schema_path().as_str())
                {
                    let _ = write!(description, " ({meaning})");
                }
                found.push(Misfit { path, description });
            }
        }
    }

    /// What the schema says of the place that a keyword stands in.
    fn described(&self, keyword: &str) -> Option<String> {
        let (place, _) = keyword.rsplit_once('/')?;
        let text = self.text.pointer(place)?.get("description")?.as_str()?;
        Some(clean_text(text, 200).trim_end_matches('.').to_owned())
    }
}

fn not_a_schema(error: &ValidationError<'_>) -> String {
    let place = error.instance_path().as_str();
    let place = if place.is_empty() {
        "the schema"
    } else {
        place
    };
    clean_text(
        &format!("is not a schema of draft 2020-12: {place}: {error}"),
        400,
    )
}

/// The sentence about a place that does not fit. It tells of the schema, never of the value.
fn sentence(kind: &ValidationErrorKind) -> String {
    use ValidationErrorKind as Kind;
    match kind {
        Kind::Type { kind } => {
            let names: Vec<String> = match kind {
                TypeKind::Single(one) => vec![one.to_string()],
                TypeKind::Multiple(several) => several.iter().map(|one| one.to_string()).collect(),
            };
            format!("must be of the type {}", names.join(" or "))
        }
        Kind::Enum { options } => match options.as_array() {
            Some(list) => {
                let shown: Vec<String> = list.iter().take(20).map(shown).collect();
                format!("must be one of {}", shown.join(", "))
            }
            None => "is not one of the values that are allowed".to_owned(),
        },
        Kind::Constant { expected_value } => format!("must be {}", shown(expected_value)),
        Kind::Pattern { pattern } => format!("must match {}", clean_text(pattern, 200)),
        Kind::Minimum { limit } => format!("must be at least {}", shown(limit)),
        Kind::Maximum { limit } => format!("must be at most {}", shown(limit)),
        Kind::ExclusiveMinimum { limit } => format!("must be more than {}", shown(limit)),
        Kind::ExclusiveMaximum { limit } => format!("must be less than {}", shown(limit)),
        Kind::MultipleOf { multiple_of } => format!("must be a multiple of {multiple_of}"),
        Kind::MinLength { limit } => format!("must have at least {limit} characters"),
        Kind::MaxLength { limit } => format!("must have at most {limit} characters"),
        Kind::MinItems { limit } => format!("must have at least {limit} items"),
        Kind::MaxItems { limit } => format!("must have at most {limit} items"),
        Kind::AdditionalItems { limit } => format!("must have at most {limit} items"),
        Kind::MinProperties { limit } => format!("must have at least {limit} fields"),
        Kind::MaxProperties { limit } => format!("must have at most {limit} fields"),
        Kind::UniqueItems => "must not hold an item twice".to_owned(),
        Kind::FalseSchema => "must not be there".to_owned(),
        Kind::AnyOf { .. } | Kind::OneOfNotValid { .. } => {
            "has none of the forms that are allowed".to_owned()
        }
        Kind::OneOfMultipleValid { .. } => {
            "has several forms of which only one is allowed".to_owned()
        }
        Kind::Not { .. } => "has a form that is not allowed".to_owned(),
        Kind::PropertyNames { .. } => "has a field whose name is not allowed".to_owned(),
        other => format!(
            "does not fit the job type's schema ({})",
            clean_text(other.keyword(), 40)
        ),
    }
}

/// A value of the schema, short.
fn shown(value: &Value) -> String {
    clean_text(&value.to_string(), 60)
}

/// The path of a JSON pointer in a payload.
fn path_of(pointer: &str, payload: &Value) -> String {
    let mut path = String::new();
    let mut at = Some(payload);
    for part in pointer.split('/').skip(1) {
        let name = part.replace("~1", "/").replace("~0", "~");
        if let Some(Value::Array(items)) = at {
            let _ = write!(path, "[{name}]");
            at = name
                .parse::<usize>()
                .ok()
                .and_then(|index| items.get(index));
        } else {
            path.push_str(&step(&name));
            at = at.and_then(|value| value.get(&name));
        }
    }
    path
}

/// The step to a member. A name that is no plain word stands in brackets, escaped.
fn step(name: &str) -> String {
    let plain = |b: u8| b.is_ascii_alphanumeric() || b == b'_' || b == b'-';
    if (1..=64).contains(&name.len()) && name.bytes().all(plain) {
        format!(".{name}")
    } else {
        format!("[{:?}]", clean_text(name, 40))
    }
}

/// Measures a schema before it is compiled: both compiling and checking go through it as
/// often as it is referred to, and as deep.
struct Bounds<'a> {
    root: &'a Value,
    /// The expanded size and depth of what is known, by address.
    known: HashMap<*const Value, (usize, usize)>,
    /// What is being measured, for references that lead back.
    open: Vec<*const Value>,
    patterns: usize,
}

impl<'a> Bounds<'a> {
    fn check(root: &'a Value) -> Result<(), String> {
        let mut bounds = Self {
            root,
            known: HashMap::new(),
            open: Vec::new(),
            patterns: 0,
        };
        bounds.measure(root)?;
        if bounds.patterns > MAX_PATTERNS {
            return Err(format!(
                "has {} regular expressions; the limit is {MAX_PATTERNS}",
                bounds.patterns
            ));
        }
        Ok(())
    }

    /// The expanded size and depth of a schema.
    fn measure(&mut self, schema: &'a Value) -> Result<(usize, usize), String> {
        let Value::Object(members) = schema else {
            return Ok((1, 1));
        };
        let address: *const Value = schema;
        if let Some(known) = self.known.get(&address) {
            return Ok(*known);
        }
        if self.open.contains(&address) {
            return Err(
                "refers back to a schema from inside of it; a payload's depth must not decide how long a check takes"
                    .to_owned(),
            );
        }
        if self.open.len() >= MAX_NESTED {
            return Err(format!(
                "has more than {MAX_NESTED} schemas inside of each other"
            ));
        }
        self.plain(members)?;
        self.open.push(address);
        let (mut size, mut depth) = (1, 0);
        for inner in self.inner(members)? {
            let (inner_size, inner_depth) = self.measure(inner)?;
            size += inner_size;
            depth = depth.max(inner_depth);
            if size > MAX_EXPANDED {
                return Err(format!(
                    "has more than {MAX_EXPANDED} schemas in it, counted as often as they are referred to"
                ));
            }
        }
        self.open.pop();
        if depth >= MAX_NESTED {
            return Err(format!(
                "has more than {MAX_NESTED} schemas inside of each other"
            ));
        }
        self.known.insert(address, (size, depth + 1));
        Ok((size, depth + 1))
    }

    /// The schemas that stand in this one, and the one that it refers to.
    fn inner(&self, members: &'a Map<String, Value>) -> Result<Vec<&'a Value>, String> {
        let mut inner = Vec::new();
        for (keyword, value) in members {
            match value {
                one if ONE.contains(&keyword.as_str()) => inner.push(one),
                Value::Array(list) if LIST.contains(&keyword.as_str()) => inner.extend(list),
                Value::Object(named) if NAMED.contains(&keyword.as_str()) => {
                    inner.extend(named.values());
                }
                Value::String(reference) if keyword == "$ref" => {
                    inner.push(self.target(reference)?);
                }
                _ => {}
            }
        }
        Ok(inner)
    }

    fn target(&self, reference: &str) -> Result<&'a Value, String> {
        let shown = clean_text(reference, 100);
        let pointer = reference.strip_prefix('#').filter(|rest| {
            // An escaped octet would be a second spelling, which other readers may not know.
            (rest.is_empty() || rest.starts_with('/')) && !rest.contains('%')
        });
        let Some(pointer) = pointer else {
            return Err(format!(
                "$ref {shown:?}: must be `#/…`, a place in the schema itself; other documents are not read"
            ));
        };
        self.root
            .pointer(pointer)
            .ok_or_else(|| format!("$ref {shown:?}: there is no such place in the schema"))
    }

    /// Refuses what would lead a reference elsewhere, and counts patterns.
    fn plain(&mut self, members: &Map<String, Value>) -> Result<(), String> {
        for keyword in [
            "$id",
            "$anchor",
            "$dynamicRef",
            "$dynamicAnchor",
            "$recursiveRef",
            "$vocabulary",
        ] {
            let root_id = keyword == "$id" && self.open.is_empty();
            if members.contains_key(keyword) && !root_id {
                return Err(format!(
                    "has {keyword}, which is not supported; refer to `#/$defs/…` instead"
                ));
            }
        }
        if let Some(draft) = members.get("$schema")
            && draft
                .as_str()
                .is_none_or(|draft| draft.trim_end_matches('#') != DRAFT)
        {
            return Err(format!("$schema: must be {DRAFT:?}"));
        }
        if members.contains_key("pattern") {
            self.patterns += 1;
        }
        if let Some(Value::Object(named)) = members.get("patternProperties") {
            self.patterns += named.len();
        }
        Ok(())
    }
}

#[cfg(test)]
#[path = "payload_schema_tests.rs"]
mod tests;
