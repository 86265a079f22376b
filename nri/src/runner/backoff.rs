//! How long to wait before the next attempt, with jitter.
//!
//! While the plugin is away containers are created without it. So a socket that does not answer is tried ten times a second for
//! ever, which costs next to nothing; a runtime that takes the plugin and drops it again is left alone for 100 ms doubling up to
//! 2 s. The jitter keeps the plugins of a restarted runtime from coming all at once.

use std::hash::{BuildHasher, RandomState};
use std::time::Duration;

const FIRST: Duration = Duration::from_millis(100);
const LONGEST: Duration = Duration::from_secs(2);
const PER_MILLE: u64 = 1000;

#[derive(Debug)]
pub(super) struct Backoff {
    next: Duration,
    random: RandomState,
    draws: u64,
}

impl Backoff {
    pub(super) fn new() -> Self {
        Self {
            next: FIRST,
            random: RandomState::new(),
            draws: 0,
        }
    }

    /// The next attempt comes at once.
    pub(super) fn reset(&mut self) {
        self.next = Duration::ZERO;
    }

    /// The next attempt comes soon: the runtime had taken the plugin.
    pub(super) fn restart(&mut self) {
        self.next = FIRST;
    }

    /// While nobody answers; no part of a series of failures.
    pub(super) fn knock(&mut self) -> Duration {
        FIRST.mul_f64(self.jitter())
    }

    pub(super) fn next(&mut self) -> Duration {
        let delay = self.next;
        self.next = (delay * 2).clamp(FIRST, LONGEST);
        delay.mul_f64(self.jitter())
    }

    /// Between one half and one. Keyed hashing of a counter is random enough to spread reconnections, and needs no dependency.
    fn jitter(&mut self) -> f64 {
        self.draws += 1;
        let per_mille = u32::try_from(self.random.hash_one(self.draws) % PER_MILLE).unwrap_or(0);
        0.5 + f64::from(per_mille) / 2000.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delays_double_up_to_the_cap_with_jitter_below() {
        let mut backoff = Backoff::new();
        for full in [100, 200, 400, 800, 1600, 2000, 2000, 2000] {
            let full = Duration::from_millis(full);
            let delay = backoff.next();
            assert!(delay >= full / 2 && delay <= full, "{delay:?} of {full:?}");
        }
    }

    #[test]
    fn after_a_reset_the_first_attempt_is_immediate() {
        let mut backoff = Backoff::new();
        for _ in 0..9 {
            backoff.next();
        }
        backoff.reset();
        assert_eq!(backoff.next(), Duration::ZERO);
        assert!(backoff.next() >= FIRST / 2);
    }

    #[test]
    fn two_runners_do_not_wait_alike() {
        let delays = || {
            let mut backoff = Backoff::new();
            (0..16).map(|_| backoff.next()).collect::<Vec<_>>()
        };
        assert_ne!(delays(), delays());
    }
}
