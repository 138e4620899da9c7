//! Places for uploads: each keeps some megabytes in memory, so there is a bound for all,
//! and one for each user, who could otherwise keep everybody else out.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use tenure_core::domain::ids::UserId;
use tenure_core::{Code, Error, Result};

/// The most uploads at once: each keeps a few megabytes in memory, with a bucket about
/// twelve (docs/FILES.md).
const MAX_UPLOADS: usize = 64;
/// The most of them for one user.
const MAX_UPLOADS_PER_USER: usize = 16;

/// Who uploads here, and how often at once.
#[derive(Clone, Debug, Default)]
pub(crate) struct Places {
    taken: Arc<Mutex<HashMap<UserId, usize>>>,
}

/// A place; given back when it is dropped.
#[derive(Debug)]
pub(crate) struct Place {
    places: Places,
    user: UserId,
}

impl Places {
    /// Takes a place for an upload of this user.
    ///
    /// # Errors
    /// `OVERLOADED`.
    pub(crate) fn take(&self, user: &UserId) -> Result<Place> {
        let mut taken = self.taken.lock();
        if taken.values().sum::<usize>() >= MAX_UPLOADS {
            return Err(full(format!("{MAX_UPLOADS} uploads are under way here")));
        }
        let own = taken.get(user).copied().unwrap_or_default();
        if own >= MAX_UPLOADS_PER_USER {
            return Err(full(format!(
                "{MAX_UPLOADS_PER_USER} uploads of this user are under way here"
            )));
        }
        taken.insert(user.clone(), own + 1);
        Ok(Place {
            places: self.clone(),
            user: user.clone(),
        })
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut taken = self.places.taken.lock();
        match taken.get_mut(&self.user) {
            Some(own) if *own > 1 => *own -= 1,
            _ => drop(taken.remove(&self.user)),
        }
    }
}

fn full(what: String) -> Error {
    Error::new(Code::Overloaded, format!("{what}; try again"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn user(number: usize) -> UserId {
        UserId::from_stored(format!("user-{number}"))
    }

    #[test]
    fn a_user_leaves_places_for_others_and_all_have_a_bound() {
        let places = Places::default();
        let mut held: Vec<Place> = (0..MAX_UPLOADS_PER_USER)
            .map(|_| places.take(&user(0)).expect("a place"))
            .collect();
        let refused = places.take(&user(0)).expect_err("too many of one user");
        assert_eq!(refused.code(), Code::Overloaded);
        for number in 0..MAX_UPLOADS - MAX_UPLOADS_PER_USER {
            held.push(places.take(&user(1 + number % 4)).expect("a place"));
        }
        let refused = places.take(&user(9)).expect_err("too many in all");
        assert!(refused.message().contains("64"), "{refused}");
        held.pop();
        drop(places.take(&user(9)).expect("a place"));
        held.clear();
        assert!(places.taken.lock().is_empty());
    }
}
