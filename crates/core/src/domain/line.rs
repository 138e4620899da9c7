//! Lines: jobs of one queue that name the same key, and what they are to each other.

/// The most jobs of a limited line that may be named to run at once.
pub const MAX_CONCURRENCY: i32 = 10_000;

/// The line that a job stands in.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Line {
    /// Jobs with this ordering key run one after the other, in the order of their submits.
    Ordered {
        /// The ordering key.
        key: String,
        /// Whether those behind this job wait after it has failed.
        blocks: bool,
    },
    /// Of the jobs with this concurrency key at most so many run at once.
    Limited {
        /// The concurrency key.
        key: String,
        /// That number.
        most: i32,
    },
}

impl Line {
    /// The key as it is stored: the two kinds have nothing to do with each other.
    pub fn stored_key(&self) -> String {
        match self {
            Self::Ordered { key, .. } => format!("o:{key}"),
            Self::Limited { key, .. } => format!("c:{key}"),
        }
    }

    /// How many may run at once, where that was named.
    pub fn limit(&self) -> Option<i32> {
        match self {
            Self::Ordered { .. } => None,
            Self::Limited { most, .. } => Some(*most),
        }
    }

    /// Whether its failure keeps the jobs behind it waiting.
    pub fn blocks(&self) -> bool {
        matches!(self, Self::Ordered { blocks: true, .. })
    }

    /// The line of these columns.
    pub fn from_stored(key: &str, limit: Option<i32>, blocks: bool) -> Self {
        // Behind the two characters that tell the kind.
        let name = key.get(2..).unwrap_or_default().to_owned();
        match limit {
            Some(most) => Self::Limited { key: name, most },
            None => Self::Ordered { key: name, blocks },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_what_was_stored_of_it() {
        for line in [
            Line::Ordered {
                key: "konto/ä".into(),
                blocks: false,
            },
            Line::Ordered {
                key: "c:x".into(),
                blocks: true,
            },
            Line::Limited {
                key: "o:x".into(),
                most: 5,
            },
        ] {
            let stored = line.stored_key();
            assert_eq!(
                Line::from_stored(&stored, line.limit(), line.blocks()),
                line
            );
        }
    }

    #[test]
    fn the_two_kinds_never_share_a_line() {
        let ordered = Line::Ordered {
            key: "a".into(),
            blocks: false,
        };
        let limited = Line::Limited {
            key: "a".into(),
            most: 1,
        };
        assert_ne!(ordered.stored_key(), limited.stored_key());
    }
}
