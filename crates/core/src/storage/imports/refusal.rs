//! Why a table refuses a row.

use sqlx::postgres::PgDatabaseError;

use crate::error::clean_text;

/// The classes of errors that PostgreSQL gives itself. Another one is of a trigger's making.
const OWN_CLASSES: [&str; 43] = [
    "00", "01", "02", "03", "08", "09", "0A", "0B", "0F", "0L", "0P", "0Z", "20", "21", "22", "23",
    "24", "25", "26", "27", "28", "2B", "2D", "2F", "34", "38", "39", "3B", "3D", "3F", "40", "42",
    "44", "53", "54", "55", "57", "58", "72", "F0", "HV", "P0", "XX",
];

/// Why a table refused a row, in words: neither the statement nor values of other rows
/// belong into a report.
#[derive(Debug)]
pub(super) struct Refusal {
    /// The column of the table that is at fault, where PostgreSQL names one.
    pub(super) column: Option<String>,
    /// In words.
    pub(super) message: String,
}

impl Refusal {
    /// The table took the row and did not store it.
    pub(super) fn skipped() -> Self {
        Self {
            column: None,
            message: "the table refused it: a trigger of the table leaves the row out".to_owned(),
        }
    }

    /// `None`: the error is not about a row.
    pub(super) fn of(error: &sqlx::Error) -> Option<Self> {
        let sqlx::Error::Database(db) = error else {
            return None;
        };
        let code = db.code()?.into_owned();
        let raised = code.starts_with("P0")
            || code
                .get(..2)
                .is_some_and(|class| !OWN_CLASSES.contains(&class));
        let refused = code.starts_with("22") || code.starts_with("23");
        // An upsert that meets its own row, and one too large for an index.
        if !refused && !raised && code != "21000" && code != "54000" {
            return None;
        }
        let column = db
            .try_downcast_ref::<PgDatabaseError>()
            .and_then(PgDatabaseError::column)
            .map(str::to_owned);
        let cause = match code.as_str() {
            "21000" => "another row of the file has the same key",
            "54000" => "the row is too large for the table or one of its indexes",
            _ if raised => "a trigger of the table refuses the row",
            "22001" => "a text is too long for its column",
            "22003" => "a number is out of the range of its column",
            "22007" | "22008" => "a date or time is not one that its column takes",
            "22P02" | "22030" | "22032" => "a value is not of the type of its column",
            "23502" => "a column that must have a value has none",
            "23503" => "the row refers to one that is not there",
            "23505" => "a row with the same key is there already",
            "23514" => "the row breaks a condition of the table",
            "23P01" => "the row excludes one that is there already",
            _ => "a value cannot be stored",
        };
        let named = match (&column, db.constraint()) {
            (Some(column), _) => format!(" (column '{}')", clean_text(column, 63)),
            (None, Some(constraint)) => format!(" (rule '{}')", clean_text(constraint, 63)),
            (None, None) => String::new(),
        };
        Some(Self {
            column,
            message: format!("the table refused it: {cause}{named}"),
        })
    }
}
