//! Runs a program to its end and turns a bad end into a [`Failure`] that says what it printed.

use std::process::{Output, Stdio};

use tokio::process::Command;

use crate::Failure;

const SHOWN: usize = 2000;

/// Runs it with an empty stdin; the answer is its stdout.
pub(crate) async fn run(command: &mut Command) -> Result<String, Failure> {
    let program = describe(command);
    let output = command
        .stdin(Stdio::null())
        .kill_on_drop(true)
        .output()
        .await
        .map_err(|source| Failure::Spawn {
            program: program.clone(),
            source,
        })?;
    check(program, &output)
}

fn check(program: String, output: &Output) -> Result<String, Failure> {
    let stdout = String::from_utf8_lossy(&output.stdout);
    if output.status.success() {
        return Ok(stdout.into_owned());
    }
    let stderr = String::from_utf8_lossy(&output.stderr);
    Err(Failure::Command {
        program,
        status: output.status.to_string(),
        output: tail(&format!("{stdout}{stderr}"), SHOWN).trim().to_owned(),
    })
}

fn describe(command: &Command) -> String {
    let command = command.as_std();
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    words
        .map(|word| word.to_string_lossy())
        .collect::<Vec<_>>()
        .join(" ")
}

/// The last `bytes` of a text, from the start of a character.
pub(crate) fn tail(text: &str, bytes: usize) -> &str {
    let mut from = text.len().saturating_sub(bytes);
    while !text.is_char_boundary(from) {
        from += 1;
    }
    &text[from..]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tail_never_cuts_a_character() {
        assert_eq!(tail("aé", 1), "");
        assert_eq!(tail("aé", 2), "é");
        assert_eq!(tail("aé", 9), "aé");
    }

    #[tokio::test]
    async fn a_failing_program_is_reported_with_its_words() {
        let failure = run(Command::new("sh").args(["-c", "echo no such luck >&2; exit 3"]))
            .await
            .unwrap_err();
        let text = failure.to_string();
        assert!(text.contains("no such luck"), "{text}");
        assert!(text.contains("exit status: 3"), "{text}");
    }
}
