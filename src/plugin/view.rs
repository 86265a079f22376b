//! NRI messages → the policy's plain values.

use std::collections::{BTreeMap, HashMap};

use nri::api::{Container, ContainerAdjustment, LinuxDeviceCgroup, Mount, PodSandbox};

use crate::allocation::Subject;
use crate::gpu::Node;
use crate::host::Source;
use crate::policy::{ContainerView, DeviceRule, ViewMount};

/// Who the container is, from the sandbox's metadata and the container's name; labels and
/// annotations, which a pod's author writes, take no part.
pub(super) fn subject(pod: &PodSandbox, container: &Container) -> Subject {
    Subject {
        pod_uid: pod.uid.clone(),
        namespace: pod.namespace.clone(),
        pod: pod.name.clone(),
        container: container.name.clone(),
    }
}

/// What was found on the host, by mount source as written.
pub(super) type Sources = HashMap<String, Source>;

/// What the container asks for.
pub(super) fn view(pod: &PodSandbox, container: &Container, sources: &Sources) -> ContainerView {
    let rules = &container.linux.resources.devices;
    let all_devices_allowed = rules.iter().any(allows_all);
    let mounts = mounts(&container.mounts, sources);
    let writable_sys = mounts
        .iter()
        .any(|mount| mount.destination == "/sys" && mount.source == "sysfs" && mount.writable);
    ContainerView {
        env: container.env.clone(),
        devices: nodes(&container.linux.devices),
        mounts,
        annotations: collect(&container.annotations),
        pod_annotations: collect(&pod.annotations),
        cdi_devices: container
            .CDI_devices
            .iter()
            .map(|device| device.name.clone())
            .collect(),
        all_devices_allowed,
        rules: rules.iter().filter_map(rule).collect(),
        privileged: all_devices_allowed || writable_sys,
        host_pid: false,
    }
}

/// What an adjustment adds to a container. Removals (`-NAME`) add nothing.
pub(super) fn added(adjust: &ContainerAdjustment, sources: &Sources) -> ContainerView {
    let rules = &adjust.linux.resources.devices;
    let env = adjust
        .env
        .iter()
        .filter(|variable| !variable.key.starts_with('-'));
    let mut annotations = collect(&adjust.annotations);
    annotations.retain(|key, _| !key.starts_with('-'));
    let mut mounts = mounts(&adjust.mounts, sources);
    mounts.retain(|mount| !mount.destination.starts_with('-'));
    let mut devices = nodes(&adjust.linux.devices);
    devices.retain(|node| !node.path.as_os_str().as_encoded_bytes().starts_with(b"-"));
    ContainerView {
        env: env
            .map(|variable| format!("{}={}", variable.key, variable.value))
            .collect(),
        devices,
        mounts,
        annotations,
        cdi_devices: adjust
            .CDI_devices
            .iter()
            .map(|device| device.name.clone())
            .collect(),
        all_devices_allowed: rules.iter().any(allows_all),
        rules: rules.iter().filter_map(rule).collect(),
        ..ContainerView::default()
    }
}

fn collect(map: &HashMap<String, String>) -> BTreeMap<String, String> {
    map.iter().map(|(k, v)| (k.clone(), v.clone())).collect()
}

pub(super) fn nodes(devices: &[nri::api::LinuxDevice]) -> Vec<Node> {
    devices
        .iter()
        .filter(|device| matches!(device.type_.as_str(), "c" | "u"))
        .map(node)
        .collect()
}

fn mounts(mounts: &[Mount], sources: &Sources) -> Vec<ViewMount> {
    mounts
        .iter()
        .map(|mount| ViewMount {
            destination: mount.destination.clone(),
            source: mount.source.clone(),
            writable: !mount.options.iter().any(|option| option == "ro"),
            found: sources.get(&mount.source).cloned().unwrap_or_default(),
        })
        .collect()
}

fn allows_all(rule: &LinuxDeviceCgroup) -> bool {
    rule.allow
        && matches!(rule.type_.as_str(), "" | "a")
        && rule.major.is_none()
        && rule.minor.is_none()
}

/// A rule that says something about opening character devices; a number that the kernel could not have
/// is none that a node has.
fn rule(rule: &LinuxDeviceCgroup) -> Option<DeviceRule> {
    let concerns = matches!(rule.type_.as_str(), "" | "a" | "c")
        && (rule.access.is_empty() || rule.access.contains(['r', 'w']));
    // Both -1 and absence mean any.
    let part = |value: Option<i64>| match value {
        None | Some(-1) => None,
        Some(value) => Some(u32::try_from(value).unwrap_or(u32::MAX)),
    };
    concerns.then(|| DeviceRule {
        allow: rule.allow,
        major: part(rule.major.as_ref().map(|major| major.value)),
        minor: part(rule.minor.as_ref().map(|minor| minor.value)),
    })
}

/// A number that the kernel could not have either is kept out of every known range.
fn node(device: &nri::api::LinuxDevice) -> Node {
    let number = |n: i64| u32::try_from(n).unwrap_or(u32::MAX);
    Node {
        path: device.path.clone().into(),
        major: number(device.major),
        minor: number(device.minor),
    }
}

#[cfg(test)]
mod tests {
    use nri::api::{KeyValue, LinuxDevice, LinuxNamespace, OptionalInt64};
    use nri::protobuf::MessageField;

    use super::*;

    fn rule_of(
        allow: bool,
        kind: &str,
        major: Option<i64>,
        minor: Option<i64>,
        access: &str,
    ) -> LinuxDeviceCgroup {
        let number = |value: Option<i64>| {
            value.map_or_else(MessageField::none, |value| {
                MessageField::some(OptionalInt64 {
                    value,
                    ..Default::default()
                })
            })
        };
        LinuxDeviceCgroup {
            allow,
            type_: kind.into(),
            major: number(major),
            minor: number(minor),
            access: access.into(),
            ..Default::default()
        }
    }

    fn container(
        rules: Vec<LinuxDeviceCgroup>,
        mounts: Vec<Mount>,
        namespaces: &[&str],
    ) -> Container {
        let mut container = Container {
            mounts,
            ..Default::default()
        };
        let linux = container.linux.mut_or_insert_default();
        linux.resources.mut_or_insert_default().devices = rules;
        linux.namespaces = namespaces
            .iter()
            .map(|&kind| LinuxNamespace {
                type_: kind.into(),
                ..Default::default()
            })
            .collect();
        container
    }

    fn sys(options: &[&str]) -> Mount {
        Mount {
            destination: "/sys".into(),
            type_: "sysfs".into(),
            source: "sysfs".into(),
            options: options.iter().map(|&option| option.to_owned()).collect(),
            ..Default::default()
        }
    }

    fn seen(container: &Container) -> ContainerView {
        view(&PodSandbox::default(), container, &Sources::new())
    }

    #[test]
    fn privileged_shows_in_the_device_rules_or_in_a_writable_sys() {
        let all = rule_of(true, "a", None, None, "rwm");
        let none = rule_of(false, "a", None, None, "rwm");
        for (rules, options, privileged) in [
            (vec![none.clone(), all.clone()], &["ro"][..], true),
            (vec![none.clone()], &["nosuid"], true),
            (vec![none.clone()], &["nosuid", "ro"], false),
            (
                vec![none, rule_of(true, "c", Some(1), Some(3), "rwm")],
                &["ro"],
                false,
            ),
        ] {
            let container = container(rules, vec![sys(options)], &["pid"]);
            assert_eq!(seen(&container).privileged, privileged, "{container:?}");
        }
    }

    /// As containerd writes them: all denied, mknod of all allowed, some allowed to be opened.
    #[test]
    fn rules_about_opening_are_kept_and_the_last_that_matches_counts() {
        let rules = vec![
            rule_of(false, "a", None, None, "rwm"),
            rule_of(true, "c", None, None, "m"),
            rule_of(true, "b", None, None, "rwm"),
            rule_of(true, "c", Some(195), Some(-1), "rw"),
            rule_of(false, "c", Some(195), Some(1), "rwm"),
            rule_of(true, "c", Some(1 << 40), None, "rw"),
        ];
        let view = seen(&container(rules, Vec::new(), &["pid"]));
        assert!(view.opens(195, 0) && !view.opens(195, 1) && !view.opens(226, 128));
        assert!(!view.all_devices_allowed);
        let bare = seen(&container(Vec::new(), Vec::new(), &["pid"]));
        assert!(!bare.opens(195, 0));
    }

    #[test]
    fn what_an_adjustment_removes_it_does_not_add() {
        let variable = |key: &str| KeyValue {
            key: key.into(),
            value: "v".into(),
            ..Default::default()
        };
        let device = |path: &str| LinuxDevice {
            path: path.into(),
            type_: "c".into(),
            major: 195,
            ..Default::default()
        };
        let mut adjust = ContainerAdjustment {
            env: vec![variable("-A"), variable("B")],
            mounts: vec![
                Mount {
                    destination: "-/a".into(),
                    ..Default::default()
                },
                Mount {
                    destination: "/b".into(),
                    source: "/s".into(),
                    options: vec!["ro".into()],
                    ..Default::default()
                },
            ],
            annotations: [
                ("-x".to_owned(), String::new()),
                ("y".to_owned(), "z".to_owned()),
            ]
            .into(),
            ..Default::default()
        };
        adjust.linux.mut_or_insert_default().devices = vec![device("-/dev/a"), device("/dev/b")];
        let view = added(&adjust, &Sources::new());
        assert_eq!(view.env, ["B=v"]);
        assert_eq!(view.mounts.len(), 1);
        assert!(!view.mounts[0].writable);
        assert_eq!(view.annotations.keys().collect::<Vec<_>>(), ["y"]);
        assert_eq!(view.devices.len(), 1);
    }
}
