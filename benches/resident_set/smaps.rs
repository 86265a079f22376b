//! `/proc/PID/smaps` → how much of the resident set is what.

use std::fs;

use anyhow::{Context as _, Result};

/// In KiB.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Memory {
    /// Text and data of the program's own file, shared with the page cache as far as unchanged.
    program: u64,
    /// libc, the loader, and other libraries but NVML.
    libraries: u64,
    nvml: u64,
    /// Heap, stacks, and what has no file.
    anonymous: u64,
    rss: u64,
    pss: u64,
    threads: u64,
}

impl Memory {
    /// Of a running process.
    pub(crate) fn of(pid: u32) -> Result<Self> {
        let read = |name: &str| {
            let path = format!("/proc/{pid}/{name}");
            fs::read_to_string(&path).with_context(|| format!("read {path}"))
        };
        let mut memory = Self::parse(&read("smaps")?);
        memory.threads = field(&read("status")?, "Threads:").unwrap_or_default();
        Ok(memory)
    }

    fn parse(smaps: &str) -> Self {
        let mut memory = Self::default();
        let mut path = String::new();
        for line in smaps.lines() {
            let mut words = line.split_whitespace();
            let Some(first) = words.next() else { continue };
            // A mapping's own line begins with its address range.
            if !first.ends_with(':') {
                path = words.skip(4).collect::<Vec<_>>().join(" ");
                continue;
            }
            let Some(kib) = words.next().and_then(|kib| kib.parse::<u64>().ok()) else {
                continue;
            };
            match first {
                "Pss:" => memory.pss += kib,
                "Rss:" => {
                    memory.rss += kib;
                    *memory.kind(&path) += kib;
                }
                _ => {}
            }
        }
        memory
    }

    fn kind(&mut self, path: &str) -> &mut u64 {
        if path.ends_with("/nvml.so") || path.contains("libnvidia") {
            &mut self.nvml
        } else if path.contains("/gpu-warden") {
            &mut self.program
        } else if path.starts_with('/') {
            &mut self.libraries
        } else {
            &mut self.anonymous
        }
    }

    /// The resident set without the NVML library.
    pub(crate) fn own(&self) -> u64 {
        self.rss - self.nvml
    }

    /// A line of the table.
    pub(crate) fn print(&self, when: &str) {
        let Self {
            program,
            libraries,
            nvml,
            anonymous,
            rss,
            pss,
            threads,
        } = self;
        println!(
            "{when:<42}{rss:>8}{pss:>8}{anonymous:>11}{program:>9}{libraries:>11}{nvml:>6}{threads:>9}"
        );
    }
}

/// Begins the table. `anonymous` is heap and stacks, `program` and `libraries` are files.
pub(crate) fn header() {
    println!(
        "{:<42}{:>8}{:>8}{:>11}{:>9}{:>11}{:>6}{:>9}",
        "", "RSS", "PSS", "anonymous", "program", "libraries", "NVML", "threads"
    );
}

fn field(status: &str, name: &str) -> Option<u64> {
    let line = status.lines().find(|line| line.starts_with(name))?;
    line.split_whitespace().nth(1)?.parse().ok()
}
