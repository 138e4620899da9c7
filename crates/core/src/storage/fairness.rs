//! Whose turn it is, and for how many jobs: weighted shares of users in a dispatch.

use std::collections::HashMap;

use super::dispatch::Dispatched;

/// A user with jobs in the backlog.
#[derive(Clone, PartialEq, Eq, Debug, sqlx::FromRow)]
pub(super) struct User {
    pub(super) user_id: String,
    /// The share beside others.
    pub(super) weight: i32,
}

/// How many jobs each of these users may start, in their order; those who get none are left
/// out. `all`: there are no others, so that several rounds may go at once. Otherwise each
/// gets one turn, since a round that is longer for some than for the others would be unfair.
pub(super) fn turns(users: &[User], room: usize, all: bool) -> Vec<i32> {
    let weight = |user: &User| user.weight.max(1) as usize;
    let total: usize = users.iter().map(weight).sum();
    let rounds = if all { (room / total.max(1)).max(1) } else { 1 };
    let mut left = room;
    users
        .iter()
        .map_while(|user| {
            let turn = weight(user) * rounds;
            let some = left > 0;
            left = left.saturating_sub(turn);
            some.then(|| i32::try_from(turn).unwrap_or(i32::MAX))
        })
        .collect()
}

/// The jobs in the order in which they are to start: users in turn by their weights, each
/// user's oldest first. Sent user by user, a large share would be in everybody's way.
pub(super) fn in_turn(
    mut jobs: Vec<Dispatched>,
    weights: &HashMap<String, i32>,
) -> Vec<Dispatched> {
    const ONE: u64 = 1_000_000;
    jobs.sort_unstable_by_key(Dispatched::job_id);
    let mut served: HashMap<&str, u64> = HashMap::new();
    let keys: Vec<u64> = jobs
        .iter()
        .map(|job| {
            let nth = served.entry(&job.user_id).or_insert(0);
            *nth += 1;
            let weight = weights.get(&job.user_id).copied().unwrap_or(1).max(1);
            *nth * ONE / u64::from(weight.unsigned_abs())
        })
        .collect();
    let mut keyed: Vec<(u64, Dispatched)> = keys.into_iter().zip(jobs).collect();
    // Stable: among equals the older job goes first.
    keyed.sort_by_key(|(key, _)| *key);
    keyed.into_iter().map(|(_, job)| job).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn users(weights: &[i32]) -> Vec<User> {
        weights
            .iter()
            .enumerate()
            .map(|(n, weight)| User {
                user_id: format!("user-{n}"),
                weight: *weight,
            })
            .collect()
    }

    #[test]
    fn a_turn_is_as_long_as_the_weight_says_and_is_not_cut_off() {
        assert_eq!(turns(&users(&[1, 3, 1]), 100, true), [20, 60, 20]);
        assert_eq!(turns(&users(&[1, 3, 1]), 100, false), [1, 3, 1]);
        assert_eq!(turns(&users(&[1, 3, 1]), 2, true), [1, 3]);
        assert_eq!(turns(&users(&[1, 1, 1]), 2, true), [1, 1]);
        assert_eq!(turns(&users(&[100]), 7, true), [100]);
        assert_eq!(turns(&[], 7, true), [0; 0]);
    }

    #[test]
    fn jobs_of_users_alternate_by_weight() {
        let job = Dispatched::for_test;
        let mut jobs: Vec<Dispatched> = (0..6).map(|_| job("big")).collect();
        jobs.extend((0..2).map(|_| job("small")));
        let weights = HashMap::from([("big".to_owned(), 3), ("small".to_owned(), 1)]);
        let order: Vec<String> = in_turn(jobs, &weights)
            .into_iter()
            .map(|job| job.user_id)
            .collect();
        assert_eq!(
            order,
            ["big", "big", "big", "small", "big", "big", "big", "small"]
        );
    }
}
