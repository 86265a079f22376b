//! Input of an enemy or of an accident: an error or a spec, never a panic, never without bounds.

use std::fs;
use std::time::{Duration, Instant};

use cdi::{LoadError, MAX_BYTES, ParseError, QualifiedName, Spec};
use proptest::collection::vec;
use proptest::prelude::*;

use crate::strategies::writable;

const GOOD: &str = "cdiVersion: 0.3.0\nkind: nvidia.com/gpu\ndevices:\n- name: GPU-0\n  containerEdits:\n    env: [A=1]\n";

/// Whatever parses must also validate without panic, and survive being written.
fn swallow(text: &str) {
    for spec in [Spec::from_yaml(text).ok(), Spec::from_json(text).ok()]
        .into_iter()
        .flatten()
    {
        let _ = spec.validate_for_writing();
        assert_eq!(Spec::from_yaml(&spec.to_yaml()).unwrap(), spec);
    }
}

fn refused(text: &str) -> String {
    Spec::from_yaml(text).unwrap_err().to_string()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn random_text_never_panics(text in any::<String>()) {
        swallow(&text);
        let _ = text.parse::<QualifiedName>();
    }

    #[test]
    fn text_of_yaml_marks_never_panics(text in "[-:{}\\[\\]&*!?|>%@#,'\" \\na0]{0,60}") {
        swallow(&text);
    }

    #[test]
    fn random_bytes_in_a_file_never_panic(bytes in vec(any::<u8>(), 0..200)) {
        let dir = tempfile::tempdir().unwrap();
        for name in ["a.yaml", "a.json"] {
            let path = dir.path().join(name);
            fs::write(&path, &bytes).unwrap();
            if let Err(error) = Spec::load(&path) {
                prop_assert_eq!(error.path(), &path);
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn a_torn_or_scratched_file_never_panics(
        spec in writable(),
        cut in any::<prop::sample::Index>(),
        scratches in vec((any::<prop::sample::Index>(), any::<u8>()), 0..4),
    ) {
        for text in [spec.to_yaml(), spec.to_json()] {
            let mut bytes = text.into_bytes();
            for (at, byte) in &scratches {
                let at = at.index(bytes.len());
                bytes[at] = *byte;
            }
            swallow(&String::from_utf8_lossy(&bytes));
            bytes.truncate(cut.index(bytes.len()));
            swallow(&String::from_utf8_lossy(&bytes));
        }
    }
}

#[test]
fn the_good_one_is_good() {
    assert_eq!(Spec::from_yaml(GOOD).unwrap().validate(), Ok(()));
}

#[test]
fn an_unknown_field_is_refused_at_every_level_with_its_place() {
    for (text, name) in [
        (format!("{GOOD}nonsense: 1\n"), "nonsense"),
        (GOOD.replace("- name", "- extra: 1\n  name"), "extra"),
        (
            GOOD.replace("env:", "additionalGIDs: [1]\n    env:"),
            "additionalGIDs",
        ),
        (
            GOOD.replace("env: [A=1]", "deviceNodes: [{path: /a, Major: 1}]"),
            "Major",
        ),
        (
            GOOD.replace("env: [A=1]", "intelRdt: {enableCMT: true}"),
            "enableCMT",
        ),
    ] {
        let error = refused(&text);
        assert!(error.contains(name) && error.contains("line"), "{error}");
    }
}

#[test]
fn a_missing_field_is_named() {
    assert!(refused("kind: a/b\ndevices: []\n").contains("cdiVersion"));
    assert!(refused("cdiVersion: 0.3.0\nkind: a/b\n").contains("devices"));
    assert!(refused(&GOOD.replace("name: GPU-0", "annotations: {}")).contains("name"));
}

#[test]
fn a_repeated_key_is_refused() {
    assert!(refused(&format!("{GOOD}kind: x.com/y\n")).contains("duplicate"));
    assert!(refused(&format!("{GOOD}annotations: {{a: b, a: c}}\n")).contains("duplicate"));
    let json =
        r#"{"cdiVersion":"0.6.0","kind":"aa/bb","annotations":{"a":"1","a":"2"},"devices":[]}"#;
    let error = Spec::from_json(json).unwrap_err().to_string();
    assert!(
        error.contains("duplicate") && error.contains("line 1"),
        "{error}"
    );
}

#[test]
fn an_empty_document_and_a_second_one_are_refused() {
    for text in ["", "---\n", "# nothing\n", "null", "[]", "text"] {
        assert!(Spec::from_yaml(text).is_err(), "{text:?}");
        assert!(Spec::from_json(text).is_err(), "{text:?}");
    }
    assert!(refused(&format!("{GOOD}---\n{GOOD}")).contains("document"));
}

#[test]
fn a_wrong_type_is_refused() {
    for (good, bad) in [
        (
            "devices:\n- name: GPU-0\n  containerEdits:\n    env: [A=1]",
            "devices: {}",
        ),
        ("env: [A=1]", "env: A=1"),
        ("env: [A=1]", "additionalGids: [-1]"),
        ("env: [A=1]", "additionalGids: [4294967296]"),
        ("env: [A=1]", "deviceNodes: [{path: /a, major: '1'}]"),
        ("env: [A=1]", "deviceNodes: [{path: /a, fileMode: 0666}]"),
        (
            "env: [A=1]",
            "deviceNodes: [{path: /a, major: 9223372036854775808}]",
        ),
        ("env: [A=1]", "deviceNodes: [{path: [/a]}]"),
    ] {
        assert!(Spec::from_yaml(&GOOD.replace(good, bad)).is_err(), "{bad}");
    }
}

#[test]
fn yaml_tags_are_refused() {
    refused(&GOOD.replace("[A=1]", "!secret [A=1]"));
}

#[test]
fn anchors_are_expanded() {
    let text = "cdiVersion: 0.3.0\nkind: nvidia.com/gpu\ndevices:\n- name: a\n  containerEdits: &e {env: [A=1]}\n- {name: b, containerEdits: *e}\n";
    let spec = Spec::from_yaml(text).unwrap();
    assert_eq!(
        spec.devices[0].container_edits,
        spec.devices[1].container_edits
    );
}

#[test]
fn aliases_cannot_expand_without_bounds() {
    use std::fmt::Write;
    let mut text = String::from(
        "cdiVersion: 0.3.0\nkind: nvidia.com/gpu\ndevices:\n- name: a\n  containerEdits: &e\n    env:\n",
    );
    for i in 0..2000 {
        writeln!(text, "    - A{i}={}", "x".repeat(200)).unwrap();
    }
    for i in 0..20_000 {
        writeln!(text, "- name: d{i}\n  containerEdits: *e").unwrap();
    }
    assert!(text.len() < MAX_BYTES);
    let error = refused(&text);
    assert!(
        error.contains("expands") || error.contains("repetition"),
        "{error}"
    );
}

#[test]
fn nesting_without_end_is_refused() {
    for open in [
        "[", "{", "- ", "? ", "{a: ", "[[{", "a:\n ", "&a [", "!a [", "\"a\": [",
    ] {
        let text = open.repeat(6_000 / open.len());
        assert!(Spec::from_yaml(&text).is_err());
        assert!(Spec::from_json(&text).is_err());
        assert!(Spec::from_yaml(&GOOD.replace("[A=1]", &text)).is_err());
    }
}

#[test]
fn nesting_that_would_keep_libyaml_busy_for_hours_is_refused_at_once() {
    let start = Instant::now();
    for open in ["[", "{", "{a: ", "\"a\": ["] {
        let text = open.repeat(MAX_BYTES / open.len());
        let error = Spec::from_yaml(&text).unwrap_err();
        assert!(matches!(error, ParseError::Costly(_)), "{error}");
        assert!(Spec::from_json(&text).is_err());
    }
    assert!(start.elapsed() < Duration::from_secs(20));
}

#[test]
fn a_large_json_document_is_read_under_either_extension() {
    let mut spec = Spec::from_yaml(GOOD).unwrap();
    let mut device = spec.devices[0].clone();
    for i in 0..6_000 {
        device.name = format!("MIG-{i}");
        spec.devices.push(device.clone());
    }
    let json = spec.to_json();
    assert!(json.len() > 512 * 1024);
    assert_eq!(Spec::from_json(&json).unwrap(), spec);
    assert_eq!(Spec::from_yaml(&json).unwrap(), spec);
    assert_eq!(Spec::from_yaml(&spec.to_yaml()).unwrap(), spec);
}

#[test]
fn a_text_or_file_beyond_the_limit_is_refused_unread() {
    let text = " ".repeat(MAX_BYTES + 1);
    assert!(matches!(
        Spec::from_yaml(&text),
        Err(ParseError::TooLarge(_))
    ));
    assert!(matches!(
        Spec::from_json(&text),
        Err(ParseError::TooLarge(_))
    ));
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.yaml");
    fs::File::create(&path).unwrap().set_len(1 << 40).unwrap();
    let error = Spec::from_file(&path).unwrap_err();
    assert!(matches!(
        error,
        LoadError::Parse {
            source: ParseError::TooLarge(_),
            ..
        }
    ));
}

#[test]
fn a_file_error_names_the_file_and_the_line() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.yaml");
    fs::write(&path, GOOD.replace("env", "nev")).unwrap();
    let error = Spec::load(&path).unwrap_err().to_string();
    assert!(
        error.contains("a.yaml") && error.contains("nev") && error.contains("line 6"),
        "{error}"
    );
    let path = dir.path().join("a.json");
    fs::write(&path, "{\n\"kind\": 1\n}").unwrap();
    let error = Spec::load(&path).unwrap_err().to_string();
    assert!(
        error.contains("a.json") && error.contains("line 2"),
        "{error}"
    );
}
