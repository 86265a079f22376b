use super::*;
use crate::model::*;

/// One device with one node: keeps every rule.
fn good() -> Spec {
    Spec {
        cdi_version: "0.3.0".into(),
        kind: "nvidia.com/gpu".into(),
        devices: vec![Device {
            name: "GPU-0".into(),
            container_edits: ContainerEdits {
                device_nodes: vec![DeviceNode {
                    path: "/dev/nvidia0".into(),
                    ..DeviceNode::default()
                }],
                ..ContainerEdits::default()
            },
            ..Device::default()
        }],
        ..Spec::default()
    }
}

/// `place: rule` of every violation after the change, by the readers' rules.
fn broken(change: impl FnOnce(&mut Spec)) -> Vec<String> {
    let mut spec = good();
    change(&mut spec);
    told(spec.validate())
}

/// The same by the writer's rules; the change must be one that readers accept.
fn unwritable(change: impl FnOnce(&mut Spec)) -> Vec<String> {
    let mut spec = good();
    change(&mut spec);
    spec.set_lowest_version();
    assert_eq!(spec.validate(), Ok(()));
    told(spec.validate_for_writing())
}

fn told(result: Result<(), Violations>) -> Vec<String> {
    let violations = result.err().map(Violations::into_vec).unwrap_or_default();
    violations.iter().map(ToString::to_string).collect()
}

fn node(spec: &mut Spec) -> &mut DeviceNode {
    &mut spec.devices[0].container_edits.device_nodes[0]
}

fn own(spec: &mut Spec) -> &mut ContainerEdits {
    &mut spec.devices[0].container_edits
}

const NODE: &str = r#"devices[0]("GPU-0").containerEdits.deviceNodes[0]"#;

#[test]
fn a_good_spec_has_no_violation() {
    assert_eq!(good().validate(), Ok(()));
    assert_eq!(good().validate_for_writing(), Ok(()));
}

#[test]
fn all_violations_are_told_at_once_in_document_order() {
    assert_eq!(
        broken(|s| {
            s.kind = "nvidia.com".into();
            node(s).path = String::new();
            s.container_edits.env.push("A".into());
        }),
        [
            "kind: \"nvidia.com\" is not `vendor/class`: it has no `/`".to_owned(),
            format!("{NODE}.path: is empty"),
            "containerEdits.env[0]: \"A\" is not `NAME=VALUE`".to_owned(),
        ]
    );
}

#[test]
fn an_unreleased_version_is_refused() {
    assert_eq!(
        broken(|s| s.cdi_version = "0.8.1".into()),
        ["cdiVersion: \"0.8.1\" is not a released CDI version (0.3.0 to 1.1.0)"]
    );
}

#[test]
fn a_version_below_the_content_is_refused() {
    assert_eq!(
        broken(|s| node(s).host_path = Some("/host/dev/nvidia0".into())),
        ["cdiVersion: declares 0.3.0, its content needs 0.5.0 or later"]
    );
    assert_eq!(
        broken(|s| s.cdi_version = "0.2.0".into()),
        ["cdiVersion: declares 0.2.0, its content needs 0.3.0 or later"]
    );
}

#[test]
fn every_released_version_from_the_floor_on_is_accepted() {
    for version in Version::ALL {
        let told = broken(|s| s.cdi_version = format!("v{version}"));
        assert_eq!(told.is_empty(), version >= Version::V0_3_0, "{version}");
    }
}

#[test]
fn a_vendor_or_class_of_one_character_is_refused() {
    for kind in ["vendor.com/m", "v/gpu"] {
        let told = broken(|s| s.kind = kind.into());
        assert_eq!(told.len(), 1);
        assert!(told[0].contains("one character"), "{told:?}");
    }
}

#[test]
fn a_file_without_devices_is_refused() {
    assert_eq!(
        broken(|s| s.devices.clear()),
        ["the document: has no device"]
    );
}

#[test]
fn a_repeated_device_name_is_refused() {
    assert_eq!(
        broken(|s| {
            let again = s.devices[0].clone();
            s.devices.push(again);
        }),
        [r#"devices[1]("GPU-0"): repeats the name "GPU-0" of devices[0]"#]
    );
}

#[test]
fn a_device_needs_an_edit_of_its_own() {
    assert_eq!(
        broken(|s| s.container_edits = std::mem::take(own(s))),
        [r#"devices[0]("GPU-0"): has no edit of its own"#]
    );
}

#[test]
fn a_legacy_mig_name_is_refused() {
    assert_eq!(
        broken(|s| s.devices[0].name = "MIG-GPU-1/2/3".into()),
        [r#"devices[0]("MIG-GPU-1/2/3"): device name "MIG-GPU-1/2/3" contains '/'"#]
    );
}

#[test]
fn an_env_entry_needs_a_name_and_an_equals_sign() {
    for entry in ["", "A", "=x"] {
        assert_eq!(
            broken(|s| own(s).env.push(entry.into())).len(),
            1,
            "{entry:?}"
        );
    }
    for entry in ["A=", "A==", "A b=c\nd"] {
        assert!(
            broken(|s| own(s).env.push(entry.into())).is_empty(),
            "{entry:?}"
        );
    }
}

#[test]
fn a_node_type_is_one_of_four_or_empty() {
    for kind in ["", "b", "c", "u", "p"] {
        assert!(
            broken(|s| node(s).kind = Some(kind.into())).is_empty(),
            "{kind:?}"
        );
    }
    for kind in ["char", "C", "d", "bc"] {
        assert_eq!(
            broken(|s| node(s).kind = Some(kind.into())),
            [format!("{NODE}.type: {kind:?} is not one of b, c, u, p")]
        );
    }
}

#[test]
fn permissions_are_letters_or_none() {
    for permissions in ["", "r", "rwm", "mwr", "rr", "none"] {
        let told = broken(|s| node(s).permissions = Some(permissions.into()));
        assert!(told.is_empty(), "{permissions:?}");
    }
    for permissions in ["x", "None", "rw ", "none "] {
        let told = broken(|s| node(s).permissions = Some(permissions.into()));
        assert_eq!(told.len(), 1, "{permissions:?}");
    }
}

#[test]
fn hooks_are_the_six_of_oci_and_have_a_path_and_well_formed_env() {
    let hook = |name: &str, path: &str, env: &[&str]| Hook {
        hook_name: name.into(),
        path: path.into(),
        env: env.iter().map(|&e| e.into()).collect(),
        ..Hook::default()
    };
    for name in [
        "prestart",
        "createRuntime",
        "createContainer",
        "startContainer",
        "poststart",
        "poststop",
    ] {
        assert!(broken(|s| own(s).hooks.push(hook(name, "/bin/x", &["A=1"]))).is_empty());
    }
    assert_eq!(
        broken(|s| s.container_edits.hooks.push(hook("preStart", "", &["A"]))),
        [
            "containerEdits.hooks[0].hookName: \"preStart\" is no OCI hook",
            "containerEdits.hooks[0].path: is empty",
            "containerEdits.hooks[0].env[0]: \"A\" is not `NAME=VALUE`",
        ]
    );
}

#[test]
fn both_paths_of_a_mount_are_needed() {
    assert_eq!(
        broken(|s| s.container_edits.mounts.push(Mount::default())),
        [
            "containerEdits.mounts[0].hostPath: is empty",
            "containerEdits.mounts[0].containerPath: is empty",
        ]
    );
}

#[test]
fn a_clos_id_must_be_a_directory_name_or_the_root() {
    let told = |id: &str| {
        broken(|s| {
            s.cdi_version = "0.7.0".into();
            own(s).intel_rdt = Some(IntelRdt {
                clos_id: Some(id.into()),
                ..IntelRdt::default()
            });
        })
    };
    for id in ["", "gold", "/", "...", &"x".repeat(4095)] {
        assert!(told(id).is_empty(), "{id:?}");
    }
    for id in [".", "..", "a/b", "a\n", "//", &"x".repeat(4096)] {
        assert_eq!(told(id).len(), 1, "{id:?}");
    }
}

#[test]
fn net_devices_are_named_and_unique_on_both_sides() {
    let told = |pairs: &[(&str, &str)]| {
        broken(|s| {
            s.cdi_version = "1.1.0".into();
            own(s).net_devices = pairs
                .iter()
                .map(|(host, name)| NetDevice {
                    host_interface_name: (*host).into(),
                    name: (*name).into(),
                })
                .collect();
        })
    };
    assert!(told(&[("eth0", "net0"), ("eth1", "net1")]).is_empty());
    assert!(told(&[("eth0", "eth1"), ("eth1", "eth0")]).is_empty());
    assert_eq!(
        told(&[("eth0", "net0"), ("eth0", "net0"), ("eth1", "")]),
        [
            r#"devices[0]("GPU-0").containerEdits.netDevices[1].hostInterfaceName: repeats "eth0""#,
            r#"devices[0]("GPU-0").containerEdits.netDevices[1].name: repeats "net0""#,
            r#"devices[0]("GPU-0").containerEdits.netDevices[2].name: is empty"#,
        ]
    );
}

#[test]
fn a_writer_keeps_paths_absolute_and_short() {
    for path in [
        "dev/x",
        "/dev/../x",
        "/dev/./x",
        "/dev//x",
        "/dev/x/",
        "//x",
    ] {
        let told = unwritable(|s| node(s).path = path.into());
        assert_eq!(told.len(), 1, "{path:?}");
        assert!(told[0].starts_with(&format!("{NODE}.path: ")), "{told:?}");
    }
    for path in ["/", "/dev/..x", "/dev/x..", "/dev/a b"] {
        assert!(
            unwritable(|s| node(s).path = path.into()).is_empty(),
            "{path:?}"
        );
    }
    let told = unwritable(|s| {
        node(s).host_path = Some("../x".into());
        own(s).mounts.push(Mount {
            host_path: "a".into(),
            container_path: "b".into(),
            ..Mount::default()
        });
        own(s).hooks.push(Hook {
            hook_name: "prestart".into(),
            path: "c".into(),
            ..Hook::default()
        });
    });
    assert_eq!(told.len(), 4, "{told:?}");
}

#[test]
fn a_writer_keeps_annotation_keys_legal() {
    let told = |key: &str| unwritable(|s| drop(s.annotations.insert(key.into(), String::new())));
    for key in ["a", "nvidia.com/uuid", "x.y-z/A_b.c-9", &"k".repeat(63)] {
        assert!(told(key).is_empty(), "{key:?}");
    }
    for key in [
        "",
        "/a",
        "a/",
        "a/b/c",
        "A.com/b",
        "-a",
        "a-",
        "a b",
        "a..b/c",
        "é",
        &"k".repeat(64),
    ] {
        assert_eq!(told(key).len(), 1, "{key:?}");
    }
    let on_device = unwritable(|s| {
        s.devices[0].annotations.insert("a b".into(), String::new());
    });
    assert!(on_device[0].starts_with(r#"devices[0]("GPU-0").annotations: "#));
}

#[test]
fn a_writer_limits_annotations_to_256_kib() {
    let told =
        |bytes: usize| unwritable(|s| drop(s.annotations.insert("a".into(), "x".repeat(bytes))));
    assert!(told(262_143).is_empty());
    assert_eq!(told(262_144).len(), 1);
}

#[test]
fn a_writer_keeps_numbers_within_what_kernel_and_readers_take() {
    assert!(
        unwritable(|s| {
            node(s).major = Some(0xfff);
            node(s).minor = Some(0xf_ffff);
            node(s).file_mode = Some(0o7777);
        })
        .is_empty()
    );
    let told = unwritable(|s| {
        node(s).major = Some(0x1000);
        node(s).minor = Some(-1);
        node(s).file_mode = Some(0o10000);
        own(s).hooks.push(Hook {
            hook_name: "prestart".into(),
            path: "/x".into(),
            timeout: Some(-1),
            ..Hook::default()
        });
    });
    assert_eq!(
        told,
        [
            format!("{NODE}.major: 4096 is not within 0..=4095"),
            format!("{NODE}.minor: -1 is not within 0..=1048575"),
            format!("{NODE}.fileMode: 4096 is not within 0..=4095"),
            r#"devices[0]("GPU-0").containerEdits.hooks[0].timeout: -1 is not within 0..=4294967295"#
                .to_owned(),
        ]
    );
}

#[test]
fn a_writer_leaves_empty_members_out_and_uses_no_new_words() {
    let told = unwritable(|s| {
        node(s).kind = Some(String::new());
        node(s).host_path = Some(String::new());
        node(s).permissions = Some("none".into());
        own(s).intel_rdt = Some(IntelRdt {
            clos_id: Some("/".into()),
            ..IntelRdt::default()
        });
    });
    assert_eq!(told.len(), 4, "{told:?}");
}

#[test]
fn a_writer_refuses_nul_anywhere() {
    let told = unwritable(|s| {
        node(s).path = "/dev/\0".into();
        own(s).env.push("A=\0".into());
        own(s).mounts.push(Mount {
            host_path: "/\0".into(),
            container_path: "/a".into(),
            options: vec!["r\0".into()],
            kind: Some("\0".into()),
        });
    });
    assert_eq!(told.len(), 5, "{told:?}");
}
