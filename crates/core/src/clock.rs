//! The clock that leases are watched with.
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// The time since the machine started. It never goes back, and unlike
/// [`std::time::Instant`] it goes on while the machine is suspended: a worker
/// that wakes up after an hour must know that its leases are over.
pub fn boottime() -> Duration {
    let now = clock_gettime(ClockId::Boottime);
    Duration::new(
        u64::try_from(now.tv_sec).unwrap_or(0),
        u32::try_from(now.tv_nsec).unwrap_or(0),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_goes_forward_at_least_as_far_as_the_monotonic_clock() {
        let before = boottime();
        let instant = std::time::Instant::now();
        while instant.elapsed() < Duration::from_millis(2) {
            std::hint::spin_loop();
        }
        let passed = instant.elapsed();
        // The clocks are read one after the other, hence the margin.
        assert!(boottime() + Duration::from_millis(1) >= before + passed);
    }
}
