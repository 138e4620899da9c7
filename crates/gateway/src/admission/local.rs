//! A bucket of tokens in this process.

use std::time::Duration;

use tenure_core::cache::rates::Rate;
use tokio::time::Instant;

/// A bucket, full at first.
#[derive(Clone, Copy, Debug)]
pub(super) struct LocalBucket {
    tokens: f64,
    at: Instant,
}

impl LocalBucket {
    /// A full one.
    pub(super) fn full(rate: Rate, now: Instant) -> Self {
        Self {
            tokens: rate.burst,
            at: now,
        }
    }

    /// Takes up to `want` tokens; answers how many, and after what time there is another.
    pub(super) fn take(&mut self, rate: Rate, want: usize, now: Instant) -> (usize, Duration) {
        let passed = now.saturating_duration_since(self.at).as_secs_f64();
        self.tokens = (self.tokens + passed * rate.per_second).min(rate.burst);
        self.at = now;
        let granted = want.min(self.tokens.max(0.0) as usize);
        self.tokens -= granted as f64;
        let wait = if granted < want {
            Duration::try_from_secs_f64((1.0 - self.tokens).max(0.0) / rate.per_second)
                .unwrap_or(Duration::MAX)
        } else {
            Duration::ZERO
        };
        (granted, wait)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bucket_gives_its_burst_and_then_what_comes_in() {
        let rate = Rate {
            per_second: 4.0,
            burst: 3.0,
        };
        let start = Instant::now();
        let mut bucket = LocalBucket::full(rate, start);
        assert_eq!(bucket.take(rate, 2, start), (2, Duration::ZERO));
        assert_eq!(bucket.take(rate, 2, start), (1, Duration::from_millis(250)));
        let later = start + Duration::from_millis(500);
        assert_eq!(bucket.take(rate, 9, later).0, 2);
        let much_later = later + Duration::from_mins(1);
        assert_eq!(bucket.take(rate, 9, much_later).0, 3);
    }
}
