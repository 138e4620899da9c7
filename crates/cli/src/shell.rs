//! Command lines to type next, quoted so that they can be pasted.

use std::borrow::Cow;
use std::fmt::Write as _;

use crate::output::escape;

/// Where a person has to say why.
const WHY: &str = " --reason 'WHY'";

/// A command line of this program.
#[derive(Debug, Clone)]
pub(crate) struct Line {
    text: String,
    /// The first word that cannot be typed.
    unfit: Option<String>,
}

impl Line {
    /// `tenure` and these words.
    pub(crate) fn new<'a>(words: impl IntoIterator<Item = &'a str>) -> Self {
        let line = Self {
            text: "tenure".to_owned(),
            unfit: None,
        };
        words.into_iter().fold(line, |mut line, word| {
            line.text.push(' ');
            line.word(word);
            line
        })
    }

    /// Adds an option where it has a value.
    pub(crate) fn option(mut self, name: &str, value: Option<&str>) -> Self {
        if let Some(value) = value {
            // Behind a space such a value would be read as another option.
            let between = if value.starts_with('-') { '=' } else { ' ' };
            let _ = write!(self.text, " {name}{between}");
            self.word(value);
        }
        self
    }

    /// Adds a flag where it is set.
    pub(crate) fn flag(mut self, name: &str, set: bool) -> Self {
        if set {
            self.text.push(' ');
            self.text.push_str(name);
        }
        self
    }

    /// Adds a name that somebody chose; no option may follow it.
    pub(crate) fn name(mut self, name: &str) -> Self {
        // It would be read as an option.
        self.text
            .push_str(if name.starts_with('-') { " -- " } else { " " });
        self.word(name);
        self
    }

    /// Leaves room for the reason.
    pub(crate) fn why(mut self) -> Self {
        self.text.push_str(WHY);
        self
    }

    /// The line. Where a word has characters that a terminal acts on it is a comment instead,
    /// which does nothing where it is pasted.
    pub(crate) fn text(self) -> String {
        match self.unfit {
            None => self.text,
            Some(word) => format!(
                "# no line to paste: `{}` has characters that cannot be typed",
                escape(&word)
            ),
        }
    }

    fn word(&mut self, word: &str) {
        if self.unfit.is_none() && matches!(escape(word), Cow::Owned(_)) {
            self.unfit = Some(word.to_owned());
        }
        self.text.push_str(&quoted(word));
    }
}

/// A word as a POSIX shell takes it.
pub(crate) fn quoted(word: &str) -> Cow<'_, str> {
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

    #[test]
    fn a_shell_reads_the_words_back() {
        const MARKS: [&str; 22] = [
            "'", "\"", "\\", "$", "`", "!", "*", "?", "[", "~", "#", "&", ";", "|", "<", ">", "(",
            "{", " ", "é", "-", "=",
        ];
        let mut words = vec![String::new()];
        for one in MARKS {
            words.push(one.to_owned());
            for other in MARKS {
                words.push(format!("{one}a{other}"));
                words.push(format!("{one}{other}{one}"));
            }
        }
        let list: Vec<_> = words.iter().map(|word| quoted(word)).collect();
        let output = std::process::Command::new("sh")
            .arg("-c")
            .arg(format!("printf '%s\n' {}", list.join(" ")))
            .output()
            .expect("a shell");
        let text = String::from_utf8(output.stdout).expect("UTF-8");
        let read: Vec<_> = text.trim_end_matches('\n').split('\n').collect();
        assert_eq!(read, words);
    }

    #[test]
    fn a_name_is_no_option_and_one_that_cannot_be_typed_makes_no_line() {
        let line = |name: &str| Line::new(["rows"]).option("--user", Some("o'b")).name(name);
        assert_eq!(
            line("it's").text(),
            r"tenure rows --user 'o'\''b' 'it'\''s'"
        );
        assert_eq!(line("-x").text(), r"tenure rows --user 'o'\''b' -- -x");
        for name in ["a\u{1b}[2Jb", "a\nrm -rf x", "\u{202e}abc"] {
            let text = line(name).text();
            assert!(text.starts_with("# no line"), "{text}");
            assert!(!text.contains(['\u{1b}', '\n', '\u{202e}']), "{text:?}");
        }
    }
}
