//! One of a list of values.

use super::text::push_string;
use super::{Misfit, shown, told};

/// The values that are shown in a message.
const SHOWN: usize = 10;

/// The values that are allowed.
#[derive(Debug)]
pub(super) struct Choice {
    /// Each value and its JSON, sorted.
    values: Vec<(String, String)>,
    /// What is said of another one.
    message: String,
}

impl Choice {
    /// These values.
    pub(super) fn new(declared: &[String]) -> Self {
        let mut values: Vec<(String, String)> = declared
            .iter()
            .map(|value| {
                let mut json = String::new();
                push_string(value, &mut json);
                (value.clone(), json)
            })
            .collect();
        values.sort();
        let mut list: Vec<String> = declared
            .iter()
            .take(SHOWN)
            .map(|value| format!("'{}'", shown(value)))
            .collect();
        if declared.len() > SHOWN {
            list.push(format!("and {} more", declared.len() - SHOWN));
        }
        Self {
            values,
            message: format!("is not one of {}", list.join(", ")),
        }
    }

    /// Appends the value's JSON.
    pub(super) fn convert(&self, text: &str, out: &mut String) -> Result<(), Misfit> {
        match self
            .values
            .binary_search_by(|(value, _)| value.as_str().cmp(text))
        {
            Ok(at) => {
                out.push_str(&self.values[at].1);
                Ok(())
            }
            Err(_) => Err(told("NOT_ALLOWED", self.message.clone())),
        }
    }
}
