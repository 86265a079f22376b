use super::*;
use crate::model::{ContainerEdits, Device, DeviceNode, Mount};

fn sample() -> Spec {
    Spec {
        cdi_version: "0.6.0".into(),
        kind: "nvidia.com/gpu".into(),
        annotations: [("nvidia.com/driver".into(), "570.10".into())].into(),
        devices: vec![Device {
            name: "1:3".into(),
            container_edits: ContainerEdits {
                env: vec!["A=on".into()],
                device_nodes: vec![DeviceNode {
                    path: "/dev/nvidia0".into(),
                    kind: Some("c".into()),
                    major: Some(195),
                    minor: Some(0),
                    file_mode: Some(438),
                    permissions: Some("rw".into()),
                    ..DeviceNode::default()
                }],
                ..ContainerEdits::default()
            },
            ..Device::default()
        }],
        container_edits: ContainerEdits {
            mounts: vec![Mount {
                host_path: "/usr/lib64/libcuda.so.570.10".into(),
                container_path: "/usr/lib64/libcuda.so.1".into(),
                options: vec!["ro".into(), "mode=0755".into()],
                kind: None,
            }],
            ..ContainerEdits::default()
        },
    }
}

#[test]
fn yaml_has_one_canonical_form() {
    assert_eq!(
        sample().to_yaml(),
        r#"---
cdiVersion: "0.6.0"
kind: nvidia.com/gpu
annotations:
  nvidia.com/driver: "570.10"
devices:
  - name: "1:3"
    containerEdits:
      env:
        - "A=on"
      deviceNodes:
        - path: /dev/nvidia0
          type: c
          major: 195
          minor: 0
          fileMode: 438
          permissions: rw
containerEdits:
  mounts:
    - hostPath: /usr/lib64/libcuda.so.570.10
      containerPath: /usr/lib64/libcuda.so.1
      options:
        - ro
        - "mode=0755"
"#
    );
}

#[test]
fn json_has_one_canonical_form() {
    let mut spec = sample();
    spec.annotations.clear();
    spec.devices[0].container_edits.device_nodes.clear();
    spec.container_edits = ContainerEdits::default();
    assert_eq!(
        spec.to_json(),
        r#"{
  "cdiVersion": "0.6.0",
  "kind": "nvidia.com/gpu",
  "devices": [
    {
      "name": "1:3",
      "containerEdits": {
        "env": [
          "A=on"
        ]
      }
    }
  ]
}
"#
    );
}

#[test]
fn empty_containers_are_written_in_flow_form() {
    let mut spec = sample();
    spec.devices[0].container_edits = ContainerEdits::default();
    assert!(spec.to_yaml().contains("    containerEdits: {}\n"));
    spec.devices.clear();
    assert!(spec.to_yaml().contains("devices: []\n"));
    assert_eq!(Spec::from_yaml(&spec.to_yaml()).unwrap(), spec);
    assert_eq!(Spec::from_json(&spec.to_json()).unwrap(), spec);
}

#[test]
fn words_and_numbers_of_yaml_1_1_are_never_plain() {
    for text in [
        "",
        "y",
        "N",
        "yes",
        "No",
        "ON",
        "off",
        "True",
        "null",
        "~",
        "1",
        "0x1f",
        "1_000",
        "1:30",
        "1e3",
        ".5",
        ".inf",
        "-1",
        "+1",
        "2024-01-01",
        "- a",
        "a: b",
        "a #b",
        "*a",
        "&a",
        "!a",
        "%a",
        "@a",
        "`a",
        "a,b",
        "[a]",
        "{a}",
        "=",
        "<<",
        " a",
        "a ",
        "'a'",
        "\"a\"",
        "é",
        "|",
        ">",
    ] {
        assert!(!is_plain(text), "{text:?}");
    }
    for text in [
        "rw",
        "c",
        "/dev/dri/card0",
        "nvidia.com/gpu",
        "noexec",
        "yes1",
        "/",
    ] {
        assert!(is_plain(text), "{text:?}");
    }
}

#[test]
fn quoted_text_survives_both_parsers() {
    let all_bmp_edges: String = (0..=0xa0u32)
        .chain([
            0x2028, 0x2029, 0xd7ff, 0xe000, 0xfeff, 0xfffd, 0xfffe, 0xffff, 0x1_f600, 0x10_ffff,
        ])
        .filter_map(char::from_u32)
        .collect();
    for text in [
        all_bmp_edges.as_str(),
        "\\u0041",
        "\"",
        "a\nb\tc\r",
        "  x  ",
        "\u{85}",
    ] {
        let mut out = String::new();
        quoted(&mut out, text);
        assert_eq!(serde_yaml::from_str::<String>(&out).unwrap(), text);
        assert_eq!(serde_json::from_str::<String>(&out).unwrap(), text);
        assert!(out.chars().all(|c| !must_escape(c)), "{out:?}");
    }
}

#[test]
fn the_format_follows_the_end_of_the_name() {
    for (name, format) in [
        ("/a/b.yaml", Some(Format::Yaml)),
        ("b.json", Some(Format::Json)),
        (".yaml", Some(Format::Yaml)),
        ("b.yml", None),
        ("b.YAML", None),
        ("b.yaml.tmp", None),
        ("yaml", None),
        ("/", None),
        ("", None),
    ] {
        assert_eq!(Format::from_path(Path::new(name)), format, "{name:?}");
    }
}
