//! Page tokens: where the next page begins, and which question it belongs to.
//!
//! A token is opaque to callers: hexadecimal digits of version ‖ cursor ‖ digest of the
//! question (the caller and the filters). It opens nothing: who may see what is decided
//! anew on each page, so a token that somebody else sends is merely refused.

use sha2::{Digest as _, Sha256};
use tenure_core::{Code, Error, Result};
use uuid::Uuid;

const VERSION: u8 = 1;
const DIGEST: usize = 16;

/// The digest of a question.
pub(crate) struct Question([u8; DIGEST]);

impl Question {
    /// Digests what a list asks for. The parts are told apart, so their order and number
    /// are part of the question.
    pub(crate) fn new<'a>(parts: impl IntoIterator<Item = &'a str>) -> Self {
        let mut hash = Sha256::new();
        for part in parts {
            hash.update((part.len() as u64).to_be_bytes());
            hash.update(part);
        }
        let mut digest = [0; DIGEST];
        digest.copy_from_slice(&hash.finalize()[..DIGEST]);
        Self(digest)
    }

    /// The token of the page after this id.
    pub(crate) fn token(&self, after: Uuid) -> String {
        self.seal(after.as_bytes())
    }

    /// Where a token's page begins; an empty one is the first page's.
    ///
    /// # Errors
    /// `PAGE_TOKEN_INVALID`.
    pub(crate) fn after(&self, token: &str) -> Result<Option<Uuid>> {
        Ok(self.open::<16>(token)?.map(Uuid::from_bytes))
    }

    /// The token of the page after a place, which these bytes stand for.
    pub(crate) fn seal(&self, cursor: &[u8]) -> String {
        let mut bytes = Vec::with_capacity(1 + cursor.len() + DIGEST);
        bytes.push(VERSION);
        bytes.extend_from_slice(cursor);
        bytes.extend_from_slice(&self.0);
        hex::encode(bytes)
    }

    /// The bytes of a token's place; an empty token is the first page's.
    ///
    /// # Errors
    /// `PAGE_TOKEN_INVALID`.
    pub(crate) fn open<const CURSOR: usize>(&self, token: &str) -> Result<Option<[u8; CURSOR]>> {
        self.cursor(token)?
            .map(|cursor| cursor.try_into().map_err(|_| foreign()))
            .transpose()
    }

    /// The text that a token's place is; an empty token is the first page's.
    ///
    /// # Errors
    /// `PAGE_TOKEN_INVALID`.
    pub(crate) fn open_text(&self, token: &str) -> Result<Option<String>> {
        self.cursor(token)?
            .map(|cursor| String::from_utf8(cursor).map_err(|_| foreign()))
            .transpose()
    }

    fn cursor(&self, token: &str) -> Result<Option<Vec<u8>>> {
        if token.is_empty() {
            return Ok(None);
        }
        // Upper case would be a second spelling of the same token.
        let mut bytes = hex::decode(token)
            .ok()
            .filter(|bytes| {
                bytes.len() > DIGEST && bytes[0] == VERSION && hex::encode(bytes) == token
            })
            .ok_or_else(foreign)?;
        let digest = bytes.split_off(bytes.len() - DIGEST);
        if digest != self.0 {
            return Err(refused(
                "belongs to other filters or another caller; begin without one",
            ));
        }
        bytes.remove(0);
        Ok(Some(bytes))
    }
}

fn foreign() -> Error {
    refused("is not a token of this list; begin without one")
}

fn refused(why: &str) -> Error {
    Error::new(Code::PageTokenInvalid, format!("page_token: {why}"))
        .with_violation("page_token", why)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_belongs_to_its_question() {
        let question = Question::new(["ada", "failed", ""]);
        let id = Uuid::now_v7();
        let token = question.token(id);
        assert_eq!(question.after(&token).expect("its own"), Some(id));
        assert_eq!(question.after("").expect("the first page"), None);
        for other in [
            ["bob", "failed", ""],
            ["ada", "", "failed"],
            ["adafailed", "", ""],
        ] {
            let error = Question::new(other).after(&token).expect_err("foreign");
            assert_eq!(error.code(), Code::PageTokenInvalid);
        }
    }

    #[test]
    fn what_is_no_token_is_refused() {
        let question = Question::new([""]);
        let token = question.token(Uuid::now_v7());
        let cases = [
            token.to_uppercase(),
            format!("02{}", &token[2..]),
            token[..token.len() - 2].to_owned(),
            format!("{token}00"),
            "é".repeat(33),
            "' or 1=1 --".to_owned(),
        ];
        for case in cases {
            let error = question.after(&case).expect_err(&case);
            assert_eq!(error.code(), Code::PageTokenInvalid);
            assert_eq!(error.violations()[0].field, "page_token");
        }
    }
}
