//! The tables that imports may write to, as they are named in the configuration.

/// The longest name of PostgreSQL, in bytes.
const MAX_NAME: usize = 63;

/// A table that imports may write to: `schema.table(user_column)`, `schema.table(*)`, or
/// `schema.table`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ImportTable {
    /// The schema.
    pub schema: String,
    /// The table.
    pub table: String,
    /// The column that gets the user's id in each row.
    pub user_column: Option<String>,
    /// Whether its rows belong to all users, so that each may change what others brought in.
    pub shared: bool,
}

impl ImportTable {
    /// Reads an entry. Names are those of the catalog, without quotes.
    ///
    /// # Errors
    /// A sentence that says what is wrong.
    pub fn parse(text: &str) -> Result<Self, &'static str> {
        const FORM: &str =
            "must look like `crm.contacts(owner)`, `crm.contacts` or `crm.contacts(*)`";
        let (name, user_column) = match text.trim().split_once('(') {
            Some((name, rest)) => (name, Some(rest.strip_suffix(')').ok_or(FORM)?)),
            None => (text.trim(), None),
        };
        let shared = user_column == Some("*");
        let user_column = user_column.filter(|_| !shared);
        let (schema, table) = name.split_once('.').ok_or(FORM)?;
        let named = |part: &str| {
            !part.is_empty()
                && part.len() <= MAX_NAME
                && part.trim() == part
                && !part.contains(['.', '(', ')', '"'])
                && !part.contains(char::is_control)
        };
        if [Some(schema), Some(table), user_column]
            .into_iter()
            .flatten()
            .all(named)
        {
            Ok(Self {
                schema: schema.to_owned(),
                table: table.to_owned(),
                user_column: user_column.map(str::to_owned),
                shared,
            })
        } else {
            Err(FORM)
        }
    }

    /// The name with its schema.
    pub fn name(&self) -> String {
        format!("{}.{}", self.schema, self.table)
    }
}

#[cfg(test)]
mod tests {
    use super::ImportTable;

    #[test]
    fn entries_are_read() {
        let read = |text: &str| {
            ImportTable::parse(text)
                .ok()
                .map(|entry| (entry.name(), entry.user_column))
        };
        assert_eq!(read("crm.contacts"), Some(("crm.contacts".into(), None)));
        assert_eq!(
            read(" crm.Con tacts(owner) "),
            Some(("crm.Con tacts".into(), Some("owner".into())))
        );
        let shared = ImportTable::parse("crm.contacts(*)").expect("an entry");
        assert!(shared.shared && shared.user_column.is_none());
        assert!(!ImportTable::parse("crm.contacts").expect("an entry").shared);
        for bad in [
            "contacts",
            "crm.",
            ".contacts",
            "a.b.c",
            "crm.contacts(",
            "crm.contacts()",
            "crm.contacts(a)b",
            "crm.contacts (a)",
            "crm.\"contacts\"",
            &format!("crm.{}", "x".repeat(64)),
        ] {
            assert_eq!(read(bad), None, "{bad}");
        }
    }
}
