//! Findings as a table, for every command that has some.

use super::table::Table;
use crate::spec::{Finding, Severity};

/// At most so many lines of evidence per finding; JSON has all.
const SHOWN: usize = 5;

/// One row a finding, its evidence and remedy below, and a count at the end.
pub(super) fn table(findings: &[Finding]) -> String {
    let mut table = Table::new(&["SEVERITY", "ID", "SUBJECT"]);
    for (i, finding) in findings.iter().enumerate() {
        table.row([&finding.severity.to_string(), finding.id, &finding.subject]);
        for evidence in finding.evidence.iter().take(SHOWN) {
            table.note(evidence);
        }
        let hidden = finding.evidence.len().saturating_sub(SHOWN);
        if hidden > 0 {
            table.note(&format!("and {hidden} more (-o json has all)"));
        }
        let next = findings.get(i + 1);
        let is_told_next = next.is_some_and(|next| {
            (&next.subject, &next.remedy) == (&finding.subject, &finding.remedy)
        });
        if !is_told_next {
            table.note(&format!("remedy: {}", finding.remedy));
        }
    }
    let mut text = table.render();
    let count = |severity| findings.iter().filter(|f| f.severity == severity).count();
    let counts: Vec<_> = [
        (count(Severity::Error), "error"),
        (count(Severity::Warning), "warning"),
        (count(Severity::Info), "note"),
    ]
    .into_iter()
    .filter(|(count, _)| *count > 0)
    .map(|(count, word)| counted(count, word))
    .collect();
    if !counts.is_empty() {
        text.push_str(&counts.join(", "));
        text.push('\n');
    }
    text
}

/// `1 file`, `2 files`.
pub(super) fn counted(count: usize, word: &str) -> String {
    format!("{count} {word}{}", if count == 1 { "" } else { "s" })
}
