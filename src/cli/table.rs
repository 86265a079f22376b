//! Columns for people: as wide as their content, no borders, nothing that a terminal would obey.

use std::fmt::Write;

/// Rows under a header; a row may have notes below it.
#[derive(Debug, Clone, Default)]
pub(super) struct Table {
    header: Vec<&'static str>,
    rows: Vec<Row>,
}

#[derive(Debug, Clone)]
struct Row {
    cells: Vec<String>,
    notes: Vec<String>,
}

impl Table {
    pub(super) fn new(header: &[&'static str]) -> Self {
        Self {
            header: header.to_vec(),
            rows: Vec::new(),
        }
    }

    pub(super) fn row<const N: usize>(&mut self, cells: [&str; N]) -> &mut Self {
        self.rows.push(Row {
            cells: cells.iter().map(|cell| clean(cell)).collect(),
            notes: Vec::new(),
        });
        self
    }

    /// A line of its own, indented, below the last row.
    pub(super) fn note(&mut self, text: &str) -> &mut Self {
        if let Some(row) = self.rows.last_mut() {
            row.notes.extend(text.lines().map(clean));
        }
        self
    }

    pub(super) fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// Header and rows, each with a newline; nothing at all without a row.
    pub(super) fn render(&self) -> String {
        if self.is_empty() {
            return String::new();
        }
        let mut widths: Vec<_> = self.header.iter().map(|cell| cell.len()).collect();
        for row in &self.rows {
            for (width, cell) in widths.iter_mut().zip(&row.cells) {
                *width = (*width).max(cell.chars().count());
            }
        }
        let mut out = String::new();
        let header: Vec<_> = self.header.iter().map(|cell| (*cell).to_owned()).collect();
        line(&mut out, &widths, &header);
        for row in &self.rows {
            line(&mut out, &widths, &row.cells);
            for note in &row.notes {
                // Writing to a String can't fail.
                let _ = writeln!(out, "    {note}");
            }
        }
        out
    }
}

fn line(out: &mut String, widths: &[usize], cells: &[String]) {
    let mut text = String::new();
    for (width, cell) in widths.iter().zip(cells) {
        let _ = write!(text, "{cell:width$}  ");
    }
    out.push_str(text.trim_end());
    out.push('\n');
}

/// Text from files reaches a terminal: control characters are shown, not sent.
pub(super) fn clean(text: &str) -> String {
    text.chars()
        .flat_map(|c| {
            let escaped = c.is_control().then(|| c.escape_default());
            let plain = (!c.is_control()).then_some(c);
            escaped.into_iter().flatten().chain(plain)
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn columns_align_and_lines_have_no_trailing_space() {
        let mut table = Table::new(&["A", "LONGER"]);
        table.row(["wide cell", ""]).note("one\ntwo");
        table.row(["é", "x"]);
        assert_eq!(
            table.render(),
            "A          LONGER\nwide cell\n    one\n    two\né          x\n"
        );
    }

    #[test]
    fn a_table_without_rows_is_no_text() {
        assert_eq!(Table::new(&["A"]).render(), "");
    }

    #[test]
    fn what_a_terminal_would_obey_is_shown_instead() {
        let mut table = Table::new(&["A"]);
        table.row(["\u{1b}[31mred\n\t"]);
        assert_eq!(table.render(), "A\n\\u{1b}[31mred\\n\\t\n");
    }

    proptest! {
        #[test]
        fn no_cell_breaks_its_line(cell in "(?s).*") {
            let mut table = Table::new(&["A"]);
            table.row([&cell]);
            let text = table.render();
            prop_assert_eq!(text.lines().count(), 2);
            prop_assert!(text.chars().all(|c| c == '\n' || !c.is_control()));
        }
    }
}
