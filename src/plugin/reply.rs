//! An admission → the NRI adjustment that carries it out.

use std::path::Path;

use cdi::{ContainerEdits, Hook};
use nri::api;
use nri::protobuf::MessageField;

use crate::fence::PLACEHOLDER;
use crate::policy::{Admission, Injection};

/// Where a volume device list is re-pointed on runtimes that can't remove mounts: NVIDIA's runtime
/// takes entries whose source is `/dev/null`, and no other.
const HARMLESS_SOURCE: &str = "/dev/zero";

/// The adjustment; no path, variable or destination is set twice, which the runtime would refuse.
pub(super) fn adjustment(admission: &Admission, mount_removal: bool) -> api::ContainerAdjustment {
    let mut adjust = api::ContainerAdjustment::new();
    adjust.env = admission
        .env
        .iter()
        .map(|(key, value)| key_value(key, value))
        .collect();
    adjust.mounts = admission
        .drop_mounts
        .iter()
        .map(|destination| dropped(destination, mount_removal))
        .collect();
    adjust.annotations = admission
        .drop_annotations
        .iter()
        .map(|key| (format!("-{key}"), String::new()))
        .collect();
    let mut devices: Vec<_> = admission
        .repoint
        .iter()
        .map(|path| placeholder(path))
        .collect();
    match &admission.inject {
        Injection::Nothing | Injection::Done => {}
        Injection::Names(names) => {
            adjust.CDI_devices = names
                .iter()
                .map(|name| api::CDIDevice {
                    name: name.clone(),
                    ..Default::default()
                })
                .collect();
        }
        Injection::Edits(edits) => {
            devices.extend(edits.device_nodes.iter().map(node));
            adjust.mounts.extend(edits.mounts.iter().map(mount));
            adjust.hooks = hooks(edits);
        }
    }
    let rules: Vec<_> = admission.deny.iter().copied().map(deny).collect();
    if !devices.is_empty() || !rules.is_empty() {
        adjust.linux = MessageField::some(api::LinuxContainerAdjustment {
            devices,
            resources: resources(rules),
            ..Default::default()
        });
    }
    adjust
}

fn resources(devices: Vec<api::LinuxDeviceCgroup>) -> MessageField<api::LinuxResources> {
    if devices.is_empty() {
        return MessageField::none();
    }
    MessageField::some(api::LinuxResources {
        devices,
        ..Default::default()
    })
}

fn deny((major, minor): (u32, u32)) -> api::LinuxDeviceCgroup {
    let number = |value: u32| {
        MessageField::some(api::OptionalInt64 {
            value: value.into(),
            ..Default::default()
        })
    };
    api::LinuxDeviceCgroup {
        allow: false,
        type_: "c".to_owned(),
        major: number(major),
        minor: number(minor),
        access: "rwm".to_owned(),
        ..Default::default()
    }
}

fn key_value(key: &str, value: &str) -> api::KeyValue {
    api::KeyValue {
        key: key.to_owned(),
        value: value.to_owned(),
        ..Default::default()
    }
}

fn dropped(destination: &str, mount_removal: bool) -> api::Mount {
    if mount_removal {
        return api::Mount {
            destination: format!("-{destination}"),
            ..Default::default()
        };
    }
    api::Mount {
        destination: destination.to_owned(),
        source: HARMLESS_SOURCE.to_owned(),
        type_: "bind".to_owned(),
        options: vec!["bind".to_owned(), "ro".to_owned()],
        ..Default::default()
    }
}

fn placeholder(path: &Path) -> api::LinuxDevice {
    device(
        &path.display().to_string(),
        PLACEHOLDER.0.into(),
        PLACEHOLDER.1.into(),
        0o666,
    )
}

fn node(node: &cdi::DeviceNode) -> api::LinuxDevice {
    let number = |n: Option<i64>| n.unwrap_or_default();
    let mut device = device(
        &node.path,
        number(node.major),
        number(node.minor),
        node.file_mode.unwrap_or(0o666),
    );
    let id = |value: u32| {
        MessageField::some(api::OptionalUInt32 {
            value,
            ..Default::default()
        })
    };
    device.uid = node.uid.map_or_else(MessageField::none, id);
    device.gid = node.gid.map_or_else(MessageField::none, id);
    device
}

fn device(path: &str, major: i64, minor: i64, mode: u32) -> api::LinuxDevice {
    api::LinuxDevice {
        path: path.to_owned(),
        type_: "c".to_owned(),
        major,
        minor,
        file_mode: MessageField::some(api::OptionalFileMode {
            value: mode,
            ..Default::default()
        }),
        ..Default::default()
    }
}

fn mount(mount: &cdi::Mount) -> api::Mount {
    api::Mount {
        destination: mount.container_path.clone(),
        source: mount.host_path.clone(),
        type_: mount.kind.clone().unwrap_or_else(|| "bind".to_owned()),
        options: mount.options.clone(),
        ..Default::default()
    }
}

fn hooks(edits: &ContainerEdits) -> MessageField<api::Hooks> {
    if edits.hooks.is_empty() {
        return MessageField::none();
    }
    let of = |phase: &str| {
        edits
            .hooks
            .iter()
            .filter(|hook| hook.hook_name == phase)
            .map(hook)
            .collect()
    };
    MessageField::some(api::Hooks {
        prestart: of("prestart"),
        create_runtime: of("createRuntime"),
        create_container: of("createContainer"),
        start_container: of("startContainer"),
        poststart: of("poststart"),
        poststop: of("poststop"),
        ..Default::default()
    })
}

fn hook(hook: &Hook) -> api::Hook {
    api::Hook {
        path: hook.path.clone(),
        args: hook.args.clone(),
        env: hook.env.clone(),
        timeout: hook.timeout.map_or_else(MessageField::none, |value| {
            MessageField::some(api::OptionalInt {
                value,
                ..Default::default()
            })
        }),
        ..Default::default()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use super::*;
    use crate::gpu::Grant;
    use crate::policy::Reason;

    fn admission() -> Admission {
        Admission {
            reason: Reason::NoGpu,
            grant: Grant::default(),
            env: BTreeMap::from([("NVIDIA_VISIBLE_DEVICES".into(), "void".into())]),
            repoint: BTreeSet::from(["/dev/nvidia1".into()]),
            drop_mounts: BTreeSet::from(["/run/nvidia-container-devices/x".to_owned()]),
            drop_annotations: BTreeSet::from(["cdi.k8s.io/x".to_owned()]),
            deny: BTreeSet::from([(195, 1), (226, 128)]),
            inject: Injection::Nothing,
        }
    }

    #[test]
    fn everything_of_an_admission_is_in_the_adjustment_once() {
        let adjust = adjustment(&admission(), true);
        assert_eq!(adjust.env.len(), 1);
        assert_eq!(
            adjust.mounts[0].destination,
            "-/run/nvidia-container-devices/x"
        );
        assert_eq!(
            adjust.annotations,
            [("-cdi.k8s.io/x".to_owned(), String::new())].into()
        );
        let device = &adjust.linux.devices[0];
        assert_eq!((device.major, device.minor), (1, 3));
        let rules: Vec<_> = adjust
            .linux
            .resources
            .devices
            .iter()
            .map(|rule| {
                let text = format!("{} {}", rule.type_, rule.access);
                (rule.allow, text, rule.major.value, rule.minor.value)
            })
            .collect();
        assert_eq!(
            rules,
            [
                (false, "c rwm".to_owned(), 195, 1),
                (false, "c rwm".to_owned(), 226, 128)
            ],
            "one rule per node, and no wildcard"
        );
    }

    #[test]
    fn where_mounts_cannot_be_removed_their_source_is_replaced() {
        let adjust = adjustment(&admission(), false);
        let mount = &adjust.mounts[0];
        assert_eq!(
            (mount.destination.as_str(), mount.source.as_str()),
            ("/run/nvidia-container-devices/x", HARMLESS_SOURCE)
        );
    }

    #[test]
    fn with_nothing_to_change_nothing_is_said() {
        let nothing = Admission {
            env: BTreeMap::new(),
            repoint: BTreeSet::new(),
            drop_mounts: BTreeSet::new(),
            drop_annotations: BTreeSet::new(),
            deny: BTreeSet::new(),
            ..admission()
        };
        assert_eq!(
            adjustment(&nothing, true),
            api::ContainerAdjustment::default()
        );
    }
}
