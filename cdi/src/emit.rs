//! Canonical output: the same spec gives the same bytes, in YAML and in JSON.
//!
//! Keys come in a fixed order, absent and empty members are left out. A text is written plain in YAML
//! only when no reader of YAML 1.1 or 1.2 can take it for a number, a word such as `on`, or a base-60
//! integer; device names, env entries and all values of unknown origin are always double-quoted. The
//! quoted form is legal in both formats, because readers in the field parse `.json` files as YAML.

use std::fmt::Write;
use std::path::Path;

use crate::model::Spec;

mod tree;

use tree::Node;

/// The encoding of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Format {
    /// `.yaml`
    #[default]
    Yaml,
    /// `.json`
    Json,
}

impl Format {
    /// Without the dot.
    pub const fn extension(self) -> &'static str {
        match self {
            Self::Yaml => "yaml",
            Self::Json => "json",
        }
    }

    /// By the end of the name, as readers do: `.json` and `.yaml` in this case only, `.yml` not. A file
    /// that is named just `.yaml` counts.
    pub fn from_path(path: &Path) -> Option<Self> {
        let name = path.file_name()?.as_encoded_bytes();
        if name.ends_with(b".yaml") {
            Some(Self::Yaml)
        } else if name.ends_with(b".json") {
            Some(Self::Json)
        } else {
            None
        }
    }
}

impl Spec {
    /// Canonical YAML, with a leading `---` and a final newline.
    pub fn to_yaml(&self) -> String {
        let mut out = String::from("---\n");
        yaml(&mut out, &tree::of(self), 0);
        out
    }

    /// Canonical JSON, indented by two spaces, with a final newline.
    pub fn to_json(&self) -> String {
        let mut out = String::new();
        json(&mut out, &tree::of(self), 0);
        out.push('\n');
        out
    }

    /// In the given format.
    pub fn emit(&self, format: Format) -> String {
        match format {
            Format::Yaml => self.to_yaml(),
            Format::Json => self.to_json(),
        }
    }
}

/// Writes a block at `depth`; the cursor is at the start of its first line, indentation included.
fn yaml(out: &mut String, node: &Node<'_>, depth: usize) {
    match node {
        Node::Map(fields) if !fields.is_empty() => {
            for (i, (key, value)) in fields.iter().enumerate() {
                if i > 0 {
                    indent(out, depth);
                }
                plain_or_quoted(out, key);
                out.push(':');
                yaml_value(out, value, depth);
            }
        }
        Node::List(items) if !items.is_empty() => {
            for (i, item) in items.iter().enumerate() {
                if i > 0 {
                    indent(out, depth);
                }
                out.push_str("- ");
                yaml(out, item, depth + 1);
            }
        }
        scalar => {
            inline(out, scalar);
            out.push('\n');
        }
    }
}

fn yaml_value(out: &mut String, value: &Node<'_>, depth: usize) {
    if value.is_block() {
        out.push('\n');
        indent(out, depth + 1);
        yaml(out, value, depth + 1);
    } else {
        out.push(' ');
        yaml(out, value, depth);
    }
}

fn inline(out: &mut String, node: &Node<'_>) {
    match node {
        Node::Map(_) => out.push_str("{}"),
        Node::List(_) => out.push_str("[]"),
        Node::Word(text) => plain_or_quoted(out, text),
        Node::Text(text) => quoted(out, text),
        Node::Number(number) => {
            let _ = write!(out, "{number}");
        }
        Node::Flag(flag) => out.push_str(if *flag { "true" } else { "false" }),
    }
}

fn json(out: &mut String, node: &Node<'_>, depth: usize) {
    match node {
        Node::Map(fields) if !fields.is_empty() => {
            out.push('{');
            for (i, (key, value)) in fields.iter().enumerate() {
                json_separator(out, i, depth + 1);
                quoted(out, key);
                out.push_str(": ");
                json(out, value, depth + 1);
            }
            out.push('\n');
            indent(out, depth);
            out.push('}');
        }
        Node::List(items) if !items.is_empty() => {
            out.push('[');
            for (i, item) in items.iter().enumerate() {
                json_separator(out, i, depth + 1);
                json(out, item, depth + 1);
            }
            out.push('\n');
            indent(out, depth);
            out.push(']');
        }
        Node::Word(text) => quoted(out, text),
        scalar => inline(out, scalar),
    }
}

fn json_separator(out: &mut String, index: usize, depth: usize) {
    if index > 0 {
        out.push(',');
    }
    out.push('\n');
    indent(out, depth);
}

fn indent(out: &mut String, depth: usize) {
    for _ in 0..depth {
        out.push_str("  ");
    }
}

fn plain_or_quoted(out: &mut String, text: &str) {
    if is_plain(text) {
        out.push_str(text);
    } else {
        quoted(out, text);
    }
}

/// Starts with a letter or `/`, has only characters without a meaning in YAML, and is none of the words
/// that YAML 1.1 reads as a boolean or null.
fn is_plain(text: &str) -> bool {
    const WORDS: [&str; 9] = ["y", "yes", "n", "no", "on", "off", "true", "false", "null"];
    text.starts_with(|c: char| c.is_ascii_alphabetic() || c == '/')
        && text
            .chars()
            .all(|c| c.is_ascii_alphanumeric() || matches!(c, '/' | '.' | '_' | '-'))
        && !WORDS.iter().any(|word| text.eq_ignore_ascii_case(word))
}

/// A double-quoted scalar of YAML that is a JSON string as well.
fn quoted(out: &mut String, text: &str) {
    out.push('"');
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            c if must_escape(c) => {
                let _ = write!(out, "\\u{:04x}", u32::from(c));
            }
            c => out.push(c),
        }
    }
    out.push('"');
}

/// Not printable in YAML 1.1, or a line break there that would be folded. All are below U+10000.
fn must_escape(c: char) -> bool {
    matches!(c, '\0'..='\u{1f}' | '\u{7f}'..='\u{9f}' | '\u{2028}' | '\u{2029}' | '\u{feff}' | '\u{fffe}' | '\u{ffff}')
}

#[cfg(test)]
mod tests;
