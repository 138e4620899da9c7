//! Who signs in, as far as the token tells.

use serde::Deserialize;

use super::Client;
use crate::errors::{Exit, Failure};
use crate::shell::Line;

/// What a token says of who signs in. Nothing of it is verified: it is only good for a
/// refusal before there is any work.
#[derive(Clone, Deserialize)]
pub(super) struct SignedIn {
    sub: String,
    roles: Vec<String>,
}

impl SignedIn {
    /// What this token says; `None` where it cannot be read.
    pub(super) fn of(token: &str) -> Option<Self> {
        jsonwebtoken::dangerous::insecure_decode_claims(token).ok()
    }

    fn check_acts_for(&self, user: &str) -> Result<(), Failure> {
        if self.sub == user || self.roles.iter().any(|role| role == "service") {
            return Ok(());
        }
        let line = Line::new(["token"])
            .option("--user", Some(&self.sub))
            .option("--role", Some("service"));
        Err(Failure::new(
            Exit::NotAllowed,
            "`--for-user` needs a token with the role `service`; nothing was sent",
        )
        .hint(format!(
            "`{}` makes one; put it into TENURE_TOKEN",
            line.text()
        )))
    }
}

impl Client {
    /// Refuses to act for another user with a token that does not allow it, before anything
    /// is read or sent. The service decides in the end.
    pub(crate) fn check_acts_for(&self, user: Option<&str>) -> Result<(), Failure> {
        match (user, &self.signed_in) {
            (Some(user), Some(signed_in)) => signed_in.check_acts_for(user),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_may_not_act_for_others_is_told_what_token_does() {
        let check = |roles: &[&str], user: &str| {
            let signed_in = SignedIn {
                sub: "olga".to_owned(),
                roles: roles.iter().map(|&role| role.to_owned()).collect(),
            };
            signed_in.check_acts_for(user)
        };
        assert!(check(&["submitter"], "olga").is_ok());
        assert!(check(&["submitter", "service"], "ann").is_ok());
        let failure = check(&["operator", "submitter"], "ann").expect_err("refused");
        assert_eq!(failure.exit, Exit::NotAllowed);
        let text = failure.to_text();
        assert!(
            text.contains("`tenure token --user olga --role service`"),
            "{text}"
        );
        assert!(SignedIn::of("t").is_none());
        // {"sub":"olga","roles":["operator"]}
        let token = "e30.eyJzdWIiOiJvbGdhIiwicm9sZXMiOlsib3BlcmF0b3IiXX0.e30";
        assert!(SignedIn::of(token).is_some_and(|it| it.sub == "olga"));
    }
}
