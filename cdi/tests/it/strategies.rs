//! Arbitrary specs for property tests: any at all, and any that a writer may write.

use cdi::{ContainerEdits, Device, DeviceNode, Hook, IntelRdt, Mount, NetDevice, Spec};
use proptest::collection::{btree_map, vec};
use proptest::option;
use proptest::prelude::*;

/// Texts that parsers stumble over, and random ones.
fn text() -> impl Strategy<Value = String> {
    prop_oneof![
        4 => "[ -~]{0,12}",
        2 => any::<String>().prop_map(|text| text.replace('\0', "")),
        1 => prop::sample::select(vec![
            "yes", "~", "null", "1:30", "1e3", "0o17", "- a", "a: b", "#", "\u{85}\u{2028}", "\u{feff}",
            "\u{1b}[0m", "\"", "\\", "\r\n", "---", "...", "&a", "*a", "!!int 1", "{}", "[", "😀",
        ])
        .prop_map(str::to_owned),
    ]
}

fn filled() -> impl Strategy<Value = String> {
    text().prop_map(|text| format!("x{text}"))
}

fn path() -> impl Strategy<Value = String> {
    vec(filled(), 1..4).prop_map(|parts| {
        let parts: Vec<_> = parts.iter().map(|part| part.replace('/', "_")).collect();
        format!("/{}", parts.join("/"))
    })
}

fn env() -> impl Strategy<Value = String> {
    ("[A-Z_]{1,6}", text()).prop_map(|(name, value)| format!("{name}={value}"))
}

fn annotations() -> impl Strategy<Value = std::collections::BTreeMap<String, String>> {
    btree_map(
        "([a-z]{1,5}\\.[a-z0-9]{1,5}/)?[A-Za-z0-9]([A-Za-z0-9_.-]{0,5}[A-Za-z0-9])?",
        text(),
        0..3,
    )
}

fn device_node() -> impl Strategy<Value = DeviceNode> {
    (
        path(),
        option::of(path()),
        option::of("[bcup]"),
        option::of(0..=0xfff_i64),
        option::of(0..=0xf_ffff_i64),
        option::of(0..=0o7777_u32),
        option::of("[rwm]{1,3}"),
        option::of(any::<u32>()),
        option::of(any::<u32>()),
    )
        .prop_map(
            |(path, host_path, kind, major, minor, file_mode, permissions, uid, gid)| DeviceNode {
                path,
                host_path,
                kind,
                major,
                minor,
                file_mode,
                permissions,
                uid,
                gid,
            },
        )
}

fn net_devices() -> impl Strategy<Value = Vec<NetDevice>> {
    btree_map(filled(), Just(()), 0..3).prop_map(|hosts| {
        hosts
            .into_keys()
            .map(|host| NetDevice {
                name: format!("in-{host}"),
                host_interface_name: host,
            })
            .collect()
    })
}

fn hook() -> impl Strategy<Value = Hook> {
    let names = [
        "prestart",
        "createRuntime",
        "createContainer",
        "startContainer",
        "poststart",
        "poststop",
    ];
    (
        prop::sample::select(names.to_vec()),
        path(),
        vec(text(), 0..3),
        vec(env(), 0..2),
        option::of(any::<u32>()),
    )
        .prop_map(|(name, path, args, env, timeout)| Hook {
            hook_name: name.to_owned(),
            path,
            args,
            env,
            timeout: timeout.map(i64::from),
        })
}

fn mount() -> impl Strategy<Value = Mount> {
    (path(), path(), vec(filled(), 0..3), option::of(filled())).prop_map(
        |(host_path, container_path, options, kind)| Mount {
            host_path,
            container_path,
            options,
            kind,
        },
    )
}

fn intel_rdt() -> impl Strategy<Value = IntelRdt> {
    (
        option::of("[a-z]{1,8}"),
        option::of(filled()),
        option::of(filled()),
        vec(text(), 0..2),
        option::of(any::<bool>()),
    )
        .prop_map(
            |(clos_id, l3, mem_bw, schemata, enable_monitoring)| IntelRdt {
                clos_id,
                l3_cache_schema: l3,
                mem_bw_schema: mem_bw,
                schemata,
                enable_monitoring,
            },
        )
}

fn edits() -> impl Strategy<Value = ContainerEdits> {
    (
        vec(env(), 0..3),
        vec(device_node(), 0..3),
        net_devices(),
        vec(hook(), 0..2),
        vec(mount(), 0..3),
        option::of(intel_rdt()),
        vec(any::<u32>(), 0..3),
    )
        .prop_map(
            |(env, device_nodes, net_devices, hooks, mounts, intel_rdt, additional_gids)| {
                ContainerEdits {
                    env,
                    device_nodes,
                    net_devices,
                    hooks,
                    mounts,
                    intel_rdt,
                    additional_gids,
                }
            },
        )
}

fn devices() -> impl Strategy<Value = Vec<Device>> {
    let name = "[A-Za-z0-9]([A-Za-z0-9_.:-]{0,8}[A-Za-z0-9])?";
    btree_map(name, (annotations(), edits(), env()), 1..4).prop_map(|devices| {
        devices
            .into_iter()
            .map(|(name, (annotations, mut edits, own))| {
                edits.env.push(own);
                Device {
                    name,
                    annotations,
                    container_edits: edits,
                }
            })
            .collect()
    })
}

/// Keeps every rule, with the lowest version declared.
pub(crate) fn writable() -> impl Strategy<Value = Spec> {
    let part = "[A-Za-z][A-Za-z0-9_.-]{0,6}[A-Za-z0-9]";
    (part, part, annotations(), devices(), edits()).prop_map(
        |(vendor, class, annotations, devices, container_edits)| {
            let mut spec = Spec {
                cdi_version: String::new(),
                kind: format!("{vendor}/{class}"),
                annotations,
                devices,
                container_edits,
            };
            spec.set_lowest_version();
            spec
        },
    )
}

/// A spec whose texts and numbers may be anything: the shape is right, the rules are not kept.
pub(crate) fn shapely() -> impl Strategy<Value = Spec> {
    let texts = vec(any::<String>(), 8);
    let numbers = (any::<i64>(), any::<i64>(), any::<u32>());
    (writable(), texts, numbers).prop_map(|(mut spec, texts, (major, timeout, mode))| {
        let [version, kind, key, value, name, entry, path, id] = &texts[..] else {
            unreachable!("eight texts");
        };
        spec.cdi_version.clone_from(version);
        spec.kind.clone_from(kind);
        spec.annotations.insert(key.clone(), value.clone());
        spec.devices[0].name.clone_from(name);
        let edits = &mut spec.devices[0].container_edits;
        edits.env.push(entry.clone());
        edits.device_nodes.push(DeviceNode {
            path: path.clone(),
            host_path: Some(String::new()),
            kind: Some(path.clone()),
            major: Some(major),
            file_mode: Some(mode),
            permissions: Some(entry.clone()),
            ..DeviceNode::default()
        });
        edits.hooks.push(Hook {
            hook_name: name.clone(),
            timeout: Some(timeout),
            ..Hook::default()
        });
        edits.intel_rdt = Some(IntelRdt {
            clos_id: Some(id.clone()),
            ..IntelRdt::default()
        });
        spec.container_edits.mounts.push(Mount {
            options: vec![String::new(), value.clone()],
            ..Mount::default()
        });
        spec
    })
}
