//! Command lines to type next, quoted so that they can be pasted.

use std::borrow::Cow;
use std::fmt::Write as _;

/// Where a person has to say why.
const WHY: &str = " --reason 'WHY'";

/// A command line of this program.
#[derive(Debug, Clone)]
pub(crate) struct Line(String);

impl Line {
    /// `tenure` and these words.
    pub(crate) fn new<'a>(words: impl IntoIterator<Item = &'a str>) -> Self {
        let mut line = Self("tenure".to_owned());
        for word in words {
            line.0.push(' ');
            line.0.push_str(&quoted(word));
        }
        line
    }

    /// Adds an option where it has a value.
    pub(crate) fn option(mut self, name: &str, value: Option<&str>) -> Self {
        if let Some(value) = value {
            // Behind a space such a value would be read as another option.
            let between = if value.starts_with('-') { '=' } else { ' ' };
            let _ = write!(self.0, " {name}{between}{}", quoted(value));
        }
        self
    }

    /// Adds a flag where it is set.
    pub(crate) fn flag(mut self, name: &str, set: bool) -> Self {
        if set {
            self.0.push(' ');
            self.0.push_str(name);
        }
        self
    }

    /// Leaves room for the reason.
    pub(crate) fn why(mut self) -> Self {
        self.0.push_str(WHY);
        self
    }

    /// The line.
    pub(crate) fn text(self) -> String {
        self.0
    }
}

/// A word as a POSIX shell takes it.
fn quoted(word: &str) -> Cow<'_, str> {
    let plain = |c: char| c.is_ascii_alphanumeric() || "_-./:=@%+,".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        Cow::Borrowed(word)
    } else {
        Cow::Owned(format!("'{}'", word.replace('\'', r"'\''")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_survive_a_shell() {
        assert_eq!(quoted("a-b_c.1"), "a-b_c.1");
        assert_eq!(quoted(""), "''");
        assert_eq!(quoted("it's $HOME"), r"'it'\''s $HOME'");
    }

    #[test]
    fn a_line_has_what_is_set() {
        let line = Line::new(["cancel"])
            .option("--queue", Some("a b"))
            .option("--type", None)
            .option("--text", Some("-x"))
            .flag("--yes", true)
            .flag("--all", false)
            .why();
        assert_eq!(
            line.text(),
            "tenure cancel --queue 'a b' --text=-x --yes --reason 'WHY'"
        );
    }
}
