//! How long a failed job waits for its next run. Pure: the random number is given.

use std::time::Duration;

/// The waits before the second, third, … run where a job type names none (F2).
pub const DEFAULT_BACKOFF: [Duration; 5] = [
    Duration::from_secs(10),
    Duration::from_secs(30),
    Duration::from_mins(2),
    Duration::from_mins(5),
    Duration::from_mins(15),
];

/// The longest wait that a downstream's own delay can ask for.
pub const MAX_NAMED_DELAY: Duration = Duration::from_hours(24);

/// How a worker turns an attempt into a wait.
#[derive(Clone, Copy, Debug)]
pub struct RetryPolicy {
    /// What every wait of a schedule is multiplied with; 1 unless shortened for trials.
    pub scale: f64,
    /// The most that is added to a wait, as a part of it: 0.2 means up to 20 %. It only
    /// adds, so that no wait is shorter than it was meant to be.
    pub jitter: f64,
}

impl RetryPolicy {
    /// The wait after a temporary error in `attempt` (1 for the first run).
    /// `random` is uniform in 0..1. A delay that the downstream named wins over the
    /// schedule.
    pub fn delay(
        &self,
        schedule: &[Duration],
        attempt: i32,
        named: Option<Duration>,
        random: f64,
    ) -> Duration {
        if let Some(named) = named {
            return named
                .min(MAX_NAMED_DELAY)
                .mul_f64(1.0 + self.jitter * random);
        }
        let schedule = if schedule.is_empty() {
            &DEFAULT_BACKOFF[..]
        } else {
            schedule
        };
        let index = usize::try_from(attempt - 1)
            .unwrap_or(0)
            .min(schedule.len() - 1);
        let spread = 1.0 + self.jitter * random;
        schedule[index].mul_f64((self.scale * spread).max(0.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const POLICY: RetryPolicy = RetryPolicy {
        scale: 1.0,
        jitter: 0.1,
    };

    #[test]
    fn the_default_schedule_and_its_last_step_for_ever() {
        let waits: Vec<u64> = (1..=7)
            .map(|attempt| POLICY.delay(&[], attempt, None, 0.0).as_secs())
            .collect();
        assert_eq!(waits, [10, 30, 120, 300, 900, 900, 900]);
    }

    #[test]
    fn jitter_stays_in_its_bounds() {
        assert_eq!(POLICY.delay(&[], 1, None, 0.0), Duration::from_secs(10));
        assert_eq!(POLICY.delay(&[], 1, None, 1.0), Duration::from_secs(11));
    }

    #[test]
    fn no_wait_is_shorter_than_its_base() {
        for attempt in 1..=6 {
            let base = POLICY.delay(&[], attempt, None, 0.0);
            for random in [0.01, 0.3, 0.99] {
                assert!(POLICY.delay(&[], attempt, None, random) > base);
            }
        }
    }

    #[test]
    fn a_named_delay_is_never_shortened() {
        let named = Some(Duration::from_secs(7));
        for random in [0.0, 0.3, 1.0] {
            assert!(POLICY.delay(&[], 1, named, random) >= Duration::from_secs(7));
        }
        let year = Some(Duration::from_hours(366 * 24));
        assert!(POLICY.delay(&[], 1, year, 0.0) <= MAX_NAMED_DELAY);
    }
}
