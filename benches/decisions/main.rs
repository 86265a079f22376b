//! Instructions per decision, counted by callgrind: the same on a busy machine as on an idle one, so
//! two builds can be compared, and cases with each other.
//!
//! Runs itself under valgrind, each case twice with different repetitions; the difference is free of
//! start-up. Without valgrind it says so, and counts nothing.

#![allow(clippy::print_stdout, reason = "a benchmark prints what it measured")]

mod cases;
#[path = "../support/mod.rs"]
mod support;

use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, ensure};
use cases::CASES;

/// The word by which the benchmark tells itself to run one case.
const CHILD: &str = "repeat";
const FEW: u64 = 10;
const MANY: u64 = 110;

fn main() -> Result<()> {
    let args: Vec<_> = std::env::args().collect();
    if let Some(at) = args.iter().position(|arg| arg == CHILD) {
        let word = |n: usize| args.get(at + n).context("`repeat CASE TIMES`");
        return cases::repeat(word(1)?.parse()?, word(2)?.parse()?);
    }
    let valgrind = Command::new("valgrind")
        .arg("--version")
        .stdout(Stdio::null())
        .status();
    if !valgrind.is_ok_and(|status| status.success()) {
        println!("left out: instructions are counted by valgrind, which is not in PATH");
        return Ok(());
    }
    println!(
        "{:<52}{:>14}{:>9}",
        "instructions (callgrind)", "per decision", "ratio"
    );
    let mut base = None;
    for (n, case) in CASES.iter().enumerate() {
        let each = (count(n, MANY)? - count(n, FEW)?) / (MANY - FEW);
        let base = *base.get_or_insert(each);
        println!("{:<52}{each:>14}{:>9}", case.name, ratio(each, base));
    }
    Ok(())
}

fn ratio(count: u64, base: u64) -> String {
    let hundredths = count * 100 / base.max(1);
    format!("{}.{:02}", hundredths / 100, hundredths % 100)
}

/// Instructions of a whole run.
fn count(case: usize, times: u64) -> Result<u64> {
    let output = Command::new("valgrind")
        .args(["--tool=callgrind", "--callgrind-out-file=/dev/null"])
        .arg(std::env::current_exe()?)
        .args([CHILD, &case.to_string(), &times.to_string()])
        .output()?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{said}");
    let collected = said.lines().find_map(|line| line.split_once("Collected :"));
    let (_, number) = collected.with_context(|| format!("no count in:\n{said}"))?;
    Ok(number.trim().parse()?)
}
