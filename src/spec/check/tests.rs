use std::collections::{BTreeMap, BTreeSet};

use cdi::{Candidate, Registry, Spec};
use proptest::prelude::*;

use super::*;
use crate::gpu::{DeviceId, Fault, Gpu, Inventory, MigDevice, Node, Source};
use crate::host::DeviceNumbers;
use crate::spec::is_negative;

const SPEC: &str = r#"
cdiVersion: "0.5.0"
kind: nvidia.com/gpu
devices:
  - name: "GPU-aaaa"
    containerEdits:
      deviceNodes:
        - {path: /dev/nvidia1, type: c, major: 195, minor: 1}
        - {path: /dev/dri/renderD128, type: c, major: 226, minor: 128}
  - name: "GPU-bbbb"
    containerEdits:
      deviceNodes: [{path: /dev/nvidia0, type: c, major: 195, minor: 0}]
containerEdits:
  env: ["NVIDIA_VISIBLE_DEVICES=void"]
  deviceNodes: [{path: /dev/nvidia-uvm}]
  mounts: [{hostPath: /l/libcuda.so.570.1, containerPath: /l/libcuda.so.1, options: [ro]}]
  hooks: [{hookName: createContainer, path: /bin/hook}]
"#;

fn node(path: &str, major: u32, minor: u32) -> Node {
    Node {
        path: path.into(),
        major,
        minor,
    }
}

fn gpu(id: &str, index: u32, minor: u32, mut more: Vec<Node>) -> Gpu {
    more.insert(0, node(&format!("/dev/nvidia{minor}"), 195, minor));
    Gpu {
        id: DeviceId::parse(id).unwrap(),
        index,
        minor,
        name: "T".into(),
        pci: format!("0000:0{index}:00.0"),
        nodes: more,
    }
}

fn host(major: u32, minor: u32) -> NodeState {
    NodeState::Device {
        kind: 'c',
        major,
        minor,
    }
}

fn file(path: &str, priority: usize, text: &str) -> Candidate {
    Candidate {
        path: path.into(),
        priority,
        spec: Ok(Spec::from_yaml(text).unwrap()),
    }
}

fn facts(files: Vec<Candidate>) -> Facts {
    Facts {
        dirs: vec!["/etc/cdi".into(), "/run/cdi".into()],
        modes: [("/etc/cdi", 0o755), ("/run/cdi", 0o755)]
            .map(|(path, mode)| (path.into(), mode))
            .into(),
        registry: Registry::from_candidates(files),
        ignored: Vec::new(),
        nodes: [
            ("/dev/nvidia0", host(195, 0)),
            ("/dev/nvidia1", host(195, 1)),
            ("/dev/nvidia-uvm", host(511, 0)),
            ("/dev/dri/renderD128", host(226, 128)),
        ]
        .map(|(path, state)| (path.to_owned(), state))
        .into(),
        paths: BTreeMap::from([
            (
                "/l/libcuda.so.570.1".into(),
                PathState::Present { mode: 0o755 },
            ),
            ("/bin/hook".into(), PathState::Present { mode: 0o755 }),
        ]),
        numbers: Ok(DeviceNumbers::parse(
            "Character devices:\n195 nvidia\n511 nvidia-uvm\n",
            BTreeSet::from([128]),
        )
        .unwrap()),
        driver: Driver::Works {
            inventory: Inventory {
                gpus: vec![
                    gpu(
                        "GPU-aaaa",
                        0,
                        1,
                        vec![node("/dev/dri/renderD128", 226, 128)],
                    ),
                    gpu("GPU-bbbb", 1, 0, Vec::new()),
                ],
                control: vec![node("/dev/nvidia-uvm", 511, 0)],
                ..Inventory::empty(Source::Nvml, "570.1")
            },
            files: None,
        },
        host_dev_root: "/".into(),
        without_char_link: Vec::new(),
    }
}

fn clean() -> Facts {
    facts(vec![file("/run/cdi/n.yaml", 1, SPEC)])
}

fn with(from: &str, to: &str) -> Facts {
    let text = SPEC.replace(from, to);
    assert_ne!(text, SPEC, "{from}");
    facts(vec![file("/run/cdi/n.yaml", 1, &text)])
}

fn changed(change: impl FnOnce(&mut Facts)) -> Facts {
    let mut facts = clean();
    change(&mut facts);
    facts
}

fn inventory(facts: &mut Facts) -> &mut Inventory {
    match &mut facts.driver {
        Driver::Works { inventory, .. } => inventory,
        _ => panic!("the driver works"),
    }
}

fn question() -> Question {
    Question {
        kind: "nvidia.com/gpu".parse().unwrap(),
        expect: Vec::new(),
    }
}

fn ids(facts: &Facts) -> Vec<&'static str> {
    check(facts, &question()).iter().map(|f| f.id).collect()
}

#[test]
fn a_true_spec_has_no_finding() {
    assert_eq!(check(&clean(), &question()), []);
}

#[test]
fn each_fault_of_a_node_is_one_finding() {
    for (name, facts, expected) in [
        (
            "uvm by an old number",
            with(
                "{path: /dev/nvidia-uvm}",
                "{path: /dev/nvidia-uvm, major: 510}",
            ),
            vec!["major-drift"],
        ),
        (
            "uvm by an old number, typed, and no node",
            {
                let mut facts = with(
                    "{path: /dev/nvidia-uvm}",
                    "{path: /dev/nvidia-uvm, type: c, major: 510}",
                );
                facts.nodes.remove("/dev/nvidia-uvm");
                facts
            },
            vec!["major-drift"],
        ),
        (
            "an old node on the host",
            changed(|f| {
                f.nodes.insert("/dev/nvidia-uvm".into(), host(510, 0));
            }),
            vec!["host-node-stale"],
        ),
        (
            "the right major and another minor",
            with(
                "{path: /dev/nvidia-uvm}",
                "{path: /dev/nvidia-uvm, major: 511, minor: 1}",
            ),
            vec!["node-drift"],
        ),
        (
            "the module is not loaded",
            changed(|f| {
                f.numbers = Ok(DeviceNumbers::fixed());
            }),
            vec!["module-missing"],
        ),
        (
            "no node",
            changed(|f| {
                f.nodes.insert("/dev/nvidia-uvm".into(), NodeState::Absent);
            }),
            vec!["node-missing"],
        ),
        (
            "a link",
            changed(|f| {
                let link = NodeState::Other("a symbolic link".into());
                f.nodes.insert("/dev/nvidia-uvm".into(), link);
            }),
            vec!["node-not-device"],
        ),
        (
            "a block device",
            with(
                "{path: /dev/nvidia0, type: c",
                "{path: /dev/nvidia0, type: b",
            ),
            vec!["node-type"],
        ),
        (
            "not to be seen",
            changed(|f| {
                let unknown = NodeState::Unknown("outside of the roots".into());
                f.nodes.insert("/dev/nvidia-uvm".into(), unknown);
            }),
            vec!["not-visible"],
        ),
    ] {
        assert_eq!(ids(&facts), expected, "{name}");
    }
}

#[test]
fn a_typed_node_that_the_runtime_makes_itself_need_not_exist() {
    let facts = changed(|f| {
        f.nodes.insert("/dev/nvidia0".into(), NodeState::Absent);
    });
    assert_eq!(ids(&facts), Vec::<&str>::new());
}

#[test]
fn each_fault_of_a_device_is_one_finding() {
    for (name, facts, expected) in [
        (
            "another GPU's node",
            with(
                "path: /dev/nvidia1, type: c, major: 195, minor: 1",
                "path: /dev/nvidia0, type: c, major: 195, minor: 0",
            ),
            vec!["own-node-missing", "wrong-gpu"],
        ),
        (
            "another GPU's node beside its own",
            with(
                "        - {path: /dev/dri",
                "        - {path: /dev/nvidia0}\n        - {path: /dev/dri",
            ),
            vec!["wrong-gpu"],
        ),
        (
            "a GPU's node for all devices",
            with(
                "[{path: /dev/nvidia-uvm}]",
                "[{path: /dev/nvidia-uvm}, {path: /dev/nvidia0}]",
            ),
            vec!["wrong-gpu"],
        ),
        (
            "DRM numbers changed",
            changed(|f| inventory(f).gpus[0].nodes[1].path = "/dev/dri/renderD129".into()),
            vec!["drm-renumbered"],
        ),
        (
            "a GPU that is gone",
            changed(|f| {
                inventory(f).gpus.remove(1);
            }),
            vec!["gpu-gone"],
        ),
        (
            "a GPU without a device",
            changed(|f| inventory(f).gpus.push(gpu("GPU-cccc", 2, 2, Vec::new()))),
            vec!["gpu-unlisted"],
        ),
        (
            "an index where the UUID belongs",
            with("\"GPU-bbbb\"", "\"1\""),
            vec!["uuid-name-missing"],
        ),
        (
            "an index of another GPU",
            with("\"GPU-bbbb\"", "\"gpu0\""),
            vec!["own-node-missing", "wrong-gpu", "uuid-name-missing"],
        ),
        (
            "a lost GPU",
            changed(|f| {
                inventory(f).faults.push(Fault {
                    gpu: "2".into(),
                    reason: "fell off the bus".into(),
                });
            }),
            vec!["gpu-fault"],
        ),
    ] {
        assert_eq!(ids(&facts), expected, "{name}");
    }
}

#[test]
fn each_fault_of_a_file_is_one_finding() {
    let path = |path: &str, state| {
        let path = path.to_owned();
        changed(move |f| {
            f.paths.insert(path, state);
        })
    };
    for (name, facts, expected) in [
        (
            "no library",
            path("/l/libcuda.so.570.1", PathState::Absent),
            vec!["mount-missing"],
        ),
        (
            "a closed library",
            path("/l/libcuda.so.570.1", PathState::Present { mode: 0o700 }),
            vec!["mount-unreadable"],
        ),
        (
            "no hook",
            path("/bin/hook", PathState::Absent),
            vec!["hook-missing"],
        ),
        (
            "a hook that is no program",
            path("/bin/hook", PathState::Present { mode: 0o644 }),
            vec!["hook-missing"],
        ),
        (
            "another driver",
            changed(|f| inventory(f).driver_version = "575.2".into()),
            vec!["driver-version"],
        ),
        (
            "a closed file",
            changed(|f| {
                f.modes.insert("/run/cdi/n.yaml".into(), 0o600);
            }),
            vec!["file-mode"],
        ),
        (
            "a closed directory",
            changed(|f| {
                f.modes.insert("/run/cdi".into(), 0o754);
            }),
            vec!["dir-mode"],
        ),
        (
            "a name that readers ignore",
            changed(|f| f.ignored.push("/etc/cdi/n.yml".into())),
            vec!["file-ignored"],
        ),
        (
            "an open legacy variable",
            with("DEVICES=void", "DEVICES=all"),
            vec!["env-visible-devices"],
        ),
        (
            "a device for everything",
            with(
                "containerEdits:\n  env",
                "  - name: all\n    containerEdits: {deviceNodes: [{path: /dev/nvidia0}, {path: /dev/nvidia1}]}\ncontainerEdits:\n  env",
            ),
            vec!["all-device"],
        ),
        (
            "no link for systemd",
            changed(|f| f.without_char_link.push("/dev/nvidia0 (195:0)".into())),
            vec!["dev-char-link"],
        ),
        (
            "the driver's files of another version",
            changed(|f| {
                if let Driver::Works { files, .. } = &mut f.driver {
                    *files = Some("versions differ".into());
                }
            }),
            vec!["driver-files"],
        ),
        (
            "a broken driver",
            changed(|f| f.driver = Driver::Broken("no answer".into())),
            vec!["driver-broken"],
        ),
        (
            "no driver",
            changed(|f| f.driver = Driver::Absent("none".into())),
            vec!["driver-absent"],
        ),
        ("no spec", facts(Vec::new()), vec!["no-spec"]),
    ] {
        assert_eq!(ids(&facts), expected, "{name}");
    }
}

#[test]
fn libraries_with_a_version_of_their_own_are_no_other_driver_s() {
    for name in [
        "libnvidia-egl-gbm.so.1.1.2",
        "libfoo.so.245.1",
        "libnvidia-nvvm70.so.4",
    ] {
        let mut facts = with("libcuda.so.570.1", name);
        facts
            .paths
            .insert(format!("/l/{name}"), PathState::Present { mode: 0o755 });
        assert_eq!(ids(&facts), Vec::<&str>::new(), "{name}");
    }
}

#[test]
fn two_definitions_are_a_conflict_or_a_shadow_by_directory() {
    let stale = SPEC.replace("path: /dev/nvidia-uvm", "path: /dev/nvidia-uvm, major: 510");
    let conflict = facts(vec![
        file("/run/cdi/a.yaml", 1, SPEC),
        file("/run/cdi/b.yaml", 1, SPEC),
    ]);
    assert_eq!(ids(&conflict), ["device-conflict", "device-conflict"]);
    let shadow = facts(vec![
        file("/etc/cdi/a.yaml", 0, &stale),
        file("/run/cdi/b.yaml", 1, SPEC),
    ]);
    let found = check(&shadow, &question());
    assert_eq!(found.len(), 1, "{found:?}");
    assert_eq!(
        (found[0].id, found[0].subject.as_str()),
        ("device-shadowed", "/etc/cdi/a.yaml")
    );
    assert!(found[0].evidence[0].contains("stale"), "{found:?}");
    assert_eq!(found[0].evidence.len(), 2);
    let same = facts(vec![
        file("/etc/cdi/a.yaml", 0, SPEC),
        file("/run/cdi/b.yaml", 1, SPEC),
    ]);
    assert!(check(&same, &question())[0].evidence[0].contains("same content"));
}

#[test]
fn a_stale_definition_that_wins_is_judged_like_any_other() {
    let stale = SPEC.replace("path: /dev/nvidia-uvm", "path: /dev/nvidia-uvm, major: 510");
    let facts = facts(vec![
        file("/etc/cdi/a.yaml", 0, SPEC),
        file("/run/cdi/b.yaml", 1, &stale),
    ]);
    assert_eq!(ids(&facts), ["major-drift", "device-shadowed"]);
}

#[test]
fn a_name_that_a_consumer_asks_for_has_to_resolve() {
    let asked = Question {
        expect: vec![
            "nvidia.com/gpu=GPU-aaaa".parse().unwrap(),
            "management.nvidia.com/gpu=GPU-aaaa".parse().unwrap(),
        ],
        ..question()
    };
    let found = check(&clean(), &asked);
    assert_eq!(found.len(), 1);
    assert_eq!(found[0].subject, "management.nvidia.com/gpu=GPU-aaaa");
}

const MIG_SPEC: &str = "\
cdiVersion: 0.5.0
kind: nvidia.com/gpu
containerEdits:
  env: [NVIDIA_VISIBLE_DEVICES=void]
devices:
  - name: MIG-aaaa
    containerEdits:
      deviceNodes:
        - {path: /dev/nvidia0, type: c, major: 195, minor: 0}
        - {path: /dev/nvidia-caps/nvidia-cap12, type: c, major: 236, minor: 12}
        - {path: /dev/nvidia-caps/nvidia-cap13, type: c, major: 236, minor: 13}
";

/// One MIG device, whose capability nodes the host does not have.
fn mig_facts(spec: &str) -> Facts {
    let caps = |minor| node(&format!("/dev/nvidia-caps/nvidia-cap{minor}"), 236, minor);
    let mut facts = facts(vec![file("/run/cdi/n.yaml", 1, spec)]);
    let inventory = inventory(&mut facts);
    inventory.gpus.clear();
    inventory.mig.push(MigDevice {
        gpu: gpu("MIG-aaaa", 0, 0, vec![caps(12), caps(13)]),
        parent: DeviceId::parse("GPU-aaaa").unwrap(),
        slot: 1,
        gpu_instance: 1,
        compute_instance: 0,
        modes: BTreeMap::new(),
        drm: Vec::new(),
    });
    let devices = "Character devices:\n195 nvidia\n236 nvidia-caps\n511 nvidia-uvm\n";
    facts.numbers = Ok(DeviceNumbers::parse(devices, BTreeSet::new()).unwrap());
    facts
}

#[test]
fn a_mig_device_is_its_parent_s_node_and_exactly_its_two_capabilities() {
    for (what, (from, to), expected) in [
        ("all is right", ("", ""), vec![]),
        (
            "its index",
            ("MIG-aaaa", "\"0:1\""),
            vec!["uuid-name-missing"],
        ),
        (
            "another instance's capability",
            (
                "cap13, type: c, major: 236, minor: 13",
                "cap22, type: c, major: 236, minor: 22",
            ),
            vec!["own-node-missing", "wrong-gpu"],
        ),
        (
            "only the parent's node",
            (
                &MIG_SPEC[MIG_SPEC.find("        - {path: /dev/nvidia-caps").unwrap()..],
                "",
            ),
            vec!["own-node-missing"],
        ),
        (
            "numbers of before the module's reload",
            ("major: 236", "major: 235"),
            vec!["major-drift"],
        ),
    ] {
        let facts = mig_facts(&MIG_SPEC.replace(from, to));
        assert_eq!(ids(&facts), expected, "{what}");
    }
}

#[test]
fn a_mig_device_that_is_gone_is_found() {
    let mut facts = mig_facts(MIG_SPEC);
    inventory(&mut facts).mig.clear();
    assert_eq!(ids(&facts), ["gpu-gone"]);
    // The kernel module does not list MIG devices, so nothing can be said of one.
    inventory(&mut facts).source = Source::Procfs;
    assert_eq!(ids(&facts), Vec::<&str>::new());
}

#[test]
fn a_driver_without_a_list_of_gpus_is_not_taken_for_none() {
    let facts = changed(|facts| facts.driver = Driver::Unlisted("Tegra".into()));
    assert_eq!(ids(&facts), Vec::<&str>::new());
}

#[test]
fn devices_of_other_vendors_are_not_taken_for_gpus_of_ours() {
    let other = "cdiVersion: 0.5.0\nkind: amd.com/gpu\ndevices:\n- name: \"7\"\n  containerEdits: {deviceNodes: [{path: /dev/kfd}]}\n";
    let mut facts = facts(vec![
        file("/run/cdi/n.yaml", 1, SPEC),
        file("/run/cdi/amd.yaml", 1, other),
    ]);
    facts.nodes.insert("/dev/kfd".into(), host(240, 0));
    assert_eq!(ids(&facts), Vec::<&str>::new());
    facts.nodes.insert("/dev/kfd".into(), NodeState::Absent);
    assert_eq!(ids(&facts), ["node-missing"]);
}

#[test]
fn notes_alone_are_no_negative_answer() {
    let facts = changed(|f| f.without_char_link.push("/dev/nvidia0".into()));
    assert!(!is_negative(&check(&facts, &question())));
}

proptest! {
    #[test]
    fn no_numbers_and_no_path_panic(
        path in "/dev/[a-z0-9/-]{0,20}|.{1,8}",
        major: i64,
        minor: i64,
        kind in prop::option::of("[bcup]"),
    ) {
        let mut spec = Spec::from_yaml(SPEC).unwrap();
        let node = &mut spec.devices[0].container_edits.device_nodes[0];
        node.path.clone_from(&path);
        (node.major, node.minor, node.kind) = (Some(major), Some(minor), kind);
        let mut facts = facts(vec![Candidate {
            path: "/run/cdi/n.yaml".into(),
            priority: 1,
            spec: Ok(spec),
        }]);
        facts.nodes.entry(path).or_insert_with(|| host(1, 1));
        let found = check(&facts, &question());
        prop_assert!(found.iter().all(|f| !f.evidence.is_empty()));
    }
}
