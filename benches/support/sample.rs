//! Times → median and percentiles, and whether they keep the target.

use std::time::Duration;

/// What the 99th percentile of CreateContainer is to stay below.
pub(crate) const TARGET: Duration = Duration::from_millis(1);

/// The times of one case, sorted.
#[derive(Debug)]
pub(crate) struct Sample(Vec<Duration>);

impl Sample {
    /// Of at least one time.
    pub(crate) fn new(mut times: Vec<Duration>) -> Self {
        times.sort_unstable();
        Self(times)
    }

    /// The smallest time that at least `percent` of all do not exceed (nearest rank).
    pub(crate) fn percentile(&self, percent: usize) -> Duration {
        let rank = (self.0.len() * percent).div_ceil(100);
        self.0
            .get(rank.saturating_sub(1))
            .copied()
            .unwrap_or_default()
    }

    /// Prints the line of a table that [`header`] began; the answer is whether the target is kept.
    pub(crate) fn print(&self, case: &str) -> bool {
        let kept = self.percentile(99) < TARGET;
        let micros = |percent| self.percentile(percent).as_secs_f64() * 1e6;
        println!(
            "{case:<44}{:>7}{:>11.0}{:>11.0}{:>11.0}   {}",
            self.0.len(),
            micros(50),
            micros(99),
            micros(100),
            if kept { "met" } else { "NOT met" }
        );
        kept
    }
}

/// Begins a table.
pub(crate) fn header(title: &str) {
    println!(
        "\n{title:<44}{:>7}{:>11}{:>11}{:>11}   p99 < {TARGET:?}",
        "calls", "median µs", "p99 µs", "max µs"
    );
}
