use proptest::prelude::*;

use super::*;

const GPU: &str = "GPU-12345678-1234-1234-1234-123456780000";

fn parse(text: &str) -> Checkpoint {
    Checkpoint::parse(text.as_bytes()).unwrap()
}

fn with_entries(entries: &str) -> String {
    format!(r#"{{"Data":{{"PodDeviceEntries":{entries},"RegisteredDevices":{{}}}},"Checksum":1}}"#)
}

fn entry(ids: &str, response: &str) -> String {
    format!(
        r#"{{"PodUID":"u","ContainerName":"c","ResourceName":"nvidia.com/gpu","DeviceIDs":{ids},"AllocResp":{response}}}"#
    )
}

fn ids(checkpoint: &Checkpoint) -> Vec<String> {
    let found = checkpoint.lookup("u", "c");
    found.into_values().flat_map(|a| a.ids).collect()
}

#[test]
fn ids_are_read_in_every_layout() {
    for (layout, expected) in [
        (r#"{"-1":["GPU-a"]}"#, vec!["GPU-a"]),
        (
            r#"{"0":["GPU-b"],"1":["GPU-a","GPU-c"]}"#,
            vec!["GPU-a", "GPU-b", "GPU-c"],
        ),
        (r#"["GPU-b","GPU-a"]"#, vec!["GPU-a", "GPU-b"]),
        (r#"{"0":null}"#, vec![]),
        ("{}", vec![]),
        ("[]", vec![]),
        ("null", vec![]),
    ] {
        let checkpoint = parse(&with_entries(&format!("[{}]", entry(layout, "null"))));
        assert_eq!(ids(&checkpoint), expected, "{layout}");
    }
}

#[test]
fn entries_of_one_resource_are_united_and_other_containers_left_out() {
    let checkpoint = parse(&with_entries(&format!(
        "[{},{},{},{}]",
        entry(r#"{"0":["GPU-a"]}"#, "\"\""),
        entry(r#"{"0":["GPU-b"]}"#, "\"\""),
        entry(r#"{"0":["GPU-x"]}"#, "\"\"").replace("\"u\"", "\"v\""),
        entry(r#"{"0":["GPU-y"]}"#, "\"\"").replace("\"c\"", "\"d\""),
    )));
    assert_eq!(ids(&checkpoint), ["GPU-a", "GPU-b"]);
    assert_eq!(
        checkpoint.lookup("u", "c")["nvidia.com/gpu"]
            .responses
            .as_ref()
            .unwrap()
            .len(),
        2
    );
    assert!(checkpoint.lookup("u", "C").is_empty());
    assert!(checkpoint.lookup("", "").is_empty());
}

#[test]
fn an_undecodable_response_spoils_only_its_own_container() {
    let good = entry(r#"{"0":["GPU-a"]}"#, "\"CgA=\"");
    let bad = entry(r#"{"0":["GPU-b"]}"#, "\"////\"").replace("\"c\"", "\"d\"");
    let checkpoint = parse(&with_entries(&format!("[{good},{bad}]")));
    assert!(
        checkpoint.lookup("u", "c")["nvidia.com/gpu"]
            .responses
            .is_ok()
    );
    assert!(
        checkpoint.lookup("u", "d")["nvidia.com/gpu"]
            .responses
            .is_err()
    );
}

#[test]
fn nothing_allocated_is_a_null_list() {
    let checkpoint = parse(&with_entries("null"));
    assert!(checkpoint.containers().is_empty());
}

#[test]
fn what_no_kubelet_writes_is_malformed() {
    let ok = with_entries(&format!("[{}]", entry(r#"{"-1":["GPU-a"]}"#, "\"\"")));
    assert!(Checkpoint::parse(ok.as_bytes()).is_ok());
    let cases = [
        String::new(),
        "null".to_owned(),
        "[]".to_owned(),
        "{}".to_owned(),
        r#"{"Data":{}}"#.to_owned(),
        r#"{"Data":{"RegisteredDevices":{}}}"#.to_owned(),
        format!("{ok}x"),
        ok[..ok.len() - 5].to_owned(),
        with_entries("[null]"),
        with_entries(&format!("[{}]", entry(r#"{"-1":["GPU-a"]}"#, "\"*\""))),
        with_entries(&format!("[{}]", entry(r#"{"-1":["GPU-a"]}"#, "7"))),
        with_entries(&format!("[{}]", entry(r#"{"-1":"GPU-a"}"#, "\"\""))),
        with_entries(&format!("[{}]", entry(r#"{"east":["GPU-a"]}"#, "\"\""))),
        with_entries(&format!("[{}]", entry(r#"{"0":[],"0":["GPU-a"]}"#, "\"\""))),
        with_entries(&format!("[{}]", entry(r#""GPU-a""#, "\"\""))),
        with_entries(&format!("[{}]", entry("[7]", "\"\""))),
        with_entries(&entry("[]", "\"\"")),
        with_entries(r#"[{"PodUID":"u"}]"#),
    ];
    for text in cases {
        assert!(Checkpoint::parse(text.as_bytes()).is_err(), "{text}");
    }
}

#[test]
fn a_checksum_verifies_only_unchanged_contents() {
    let recorded = include_str!("../../../tests/fixtures/kubelet/checkpoint/05-envvar-c21.json");
    assert!(parse(recorded).verified());
    assert!(!parse(&recorded.replacen(GPU, "GPU-other", 1)).verified());
    assert!(!parse(&recorded.replace(r#""Checksum":"#, r#""Checksum":1"#)).verified());
    assert!(!parse(&recorded.replace(r#""Checksum""#, r#""Other""#)).verified());
}

#[test]
fn the_layout_before_1_20_has_no_checksum_that_could_be_verified() {
    let checkpoint = parse(&with_entries(&format!("[{}]", entry("[]", "null"))));
    assert_eq!(checkpoint.computed_checksum(), None);
    assert!(!checkpoint.verified());
}

#[test]
fn null_and_empty_lists_have_different_checksums() {
    let sums: BTreeSet<_> = [
        "null",
        "[]",
        &format!("[{}]", entry("null", "null")),
        &format!("[{}]", entry("{}", "null")),
        &format!("[{}]", entry(r#"{"0":null}"#, "null")),
        &format!("[{}]", entry(r#"{"0":[]}"#, "null")),
        &format!("[{}]", entry(r#"{"0":[]}"#, "\"\"")),
    ]
    .map(|entries| parse(&with_entries(entries)).computed_checksum().unwrap())
    .into();
    assert_eq!(sums.len(), 7);
}

fn arbitrary_json() -> impl Strategy<Value = String> {
    let leaf = prop_oneof![
        Just("null".to_owned()),
        Just("7".to_owned()),
        Just("\"GPU-a\"".to_owned()),
        Just("\"CgA=\"".to_owned()),
    ];
    leaf.prop_recursive(4, 32, 4, |inner| {
        let key = prop_oneof![
            Just("Data"),
            Just("PodDeviceEntries"),
            Just("RegisteredDevices"),
            Just("Checksum"),
            Just("PodUID"),
            Just("DeviceIDs"),
            Just("AllocResp"),
            Just("-1"),
        ];
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(|v| format!("[{}]", v.join(","))),
            prop::collection::vec((key, inner), 0..4).prop_map(|v| {
                let fields: Vec<_> = v.iter().map(|(k, v)| format!("\"{k}\":{v}")).collect();
                format!("{{{}}}", fields.join(","))
            }),
        ]
    })
}

proptest! {
    #[test]
    fn no_bytes_panic(bytes in prop::collection::vec(any::<u8>(), 0..512)) {
        let _ = Checkpoint::parse(&bytes);
    }

    #[test]
    fn no_json_panics(text in arbitrary_json()) {
        let _ = Checkpoint::parse(text.as_bytes());
    }

    #[test]
    fn no_damaged_byte_goes_unseen(at in 0usize..724, byte in any::<u8>()) {
        let mut bytes = include_bytes!(
            "../../../tests/fixtures/kubelet/checkpoint/05-envvar-c21.json"
        ).to_vec();
        let changed = bytes[at] != byte;
        bytes[at] = byte;
        let verified = Checkpoint::parse(&bytes).is_ok_and(|c| c.verified());
        prop_assert_eq!(verified, !changed);
    }

    #[test]
    fn a_torn_capture_is_malformed(length in 0usize..723) {
        let bytes = include_bytes!(
            "../../../tests/fixtures/kubelet/checkpoint/05-envvar-c21.json"
        );
        prop_assert!(Checkpoint::parse(&bytes[..length]).is_err());
    }
}
