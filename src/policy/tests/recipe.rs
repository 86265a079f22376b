//! One table for each ingredient of the recipe: annotations, mounts, variables, rules, power.

use std::collections::BTreeMap;

use super::*;
use crate::config::{HostDirectories, Rule, Treatment};
use crate::host::{Class, Found, Place, Relation, Source as OnHost};

fn annotated(key: &str, value: &str) -> ContainerView {
    ContainerView {
        annotations: BTreeMap::from([(key.to_owned(), value.to_owned())]),
        ..Default::default()
    }
}

fn pod_annotated(key: &str, value: &str) -> ContainerView {
    ContainerView {
        pod_annotations: BTreeMap::from([(key.to_owned(), value.to_owned())]),
        ..Default::default()
    }
}

fn reason(decision: Decision) -> Reason {
    match decision {
        Decision::Admit(admission) => admission.reason,
        Decision::Refuse(refusal) => refusal.reason,
        Decision::Exempt => Reason::Exempt,
    }
}

/// GPU-1 is granted; its index is 1 and its minor 2.
fn with_gpu_1(view: &ContainerView) -> Reason {
    reason(run(view, &allocated(&[1]), false))
}

#[test]
fn a_cdi_annotation_that_names_the_allocated_gpu_is_taken_away_and_any_other_is_refused() {
    for value in [
        "k8s.device-plugin.nvidia.com/gpu=GPU-1",
        "nvidia.com/gpu=1",
        "nvidia.com/gpu=GPU-1,nvidia.com/gds=all",
    ] {
        for key in ["cdi.k8s.io/nvidia-device-plugin_x", "nvidia.cdi.k8s.io/x"] {
            let admission = admitted(run(&annotated(key, value), &allocated(&[1]), false));
            assert_eq!(
                admission.drop_annotations,
                BTreeSet::from([key.to_owned()]),
                "{value}"
            );
        }
    }
    for value in [
        "nvidia.com/gpu=all",
        "nvidia.com/gpu=GPU-0",
        "nvidia.com/gpu=0",
        "nvidia.com/gpu=2",
        "nvidia.com/gpu=GPU-1,nvidia.com/gpu=GPU-0",
        "runtime.nvidia.com/gpu=all",
        "management.nvidia.com/gpu=all",
        "NVIDIA.com/gpu=all",
        "nvidia.com/mig=GPU-1",
        "nvidia.com/gpu=",
    ] {
        let view = annotated("cdi.k8s.io/x", value);
        assert_eq!(with_gpu_1(&view), Reason::ForeignRequest, "{value}");
    }
    let nothing = reason(run(
        &annotated("cdi.k8s.io/x", "nvidia.com/gpu=GPU-1"),
        &allocated(&[]),
        false,
    ));
    assert_eq!(nothing, Reason::ForeignRequest, "without a GPU of its own");
}

#[test]
fn annotations_of_others_are_left_alone() {
    for view in [
        annotated("cdi.k8s.io/net", "vendor.com/net=eth1"),
        annotated("example.com/note", "nvidia.com/gpu=all"),
        annotated("cdi.k8s.io/x", ""),
        pod_annotated("example.com/note", "nvidia.com/gpu=all"),
        pod_annotated("devices.example.com", "- {major: 195, minor: 0}"),
    ] {
        let admission = admitted(run(&view, &allocated(&[1]), false));
        assert!(admission.drop_annotations.is_empty(), "{view:?}");
    }
}

#[test]
fn a_cdi_request_of_the_kubelet_must_be_the_allocation() {
    let asks = |name: &str| ContainerView {
        cdi_devices: vec![name.to_owned()],
        ..Default::default()
    };
    assert_eq!(with_gpu_1(&asks("nvidia.com/gpu=GPU-1")), Reason::Granted);
    assert_eq!(with_gpu_1(&asks("vendor.com/net=eth1")), Reason::Granted);
    assert_eq!(
        with_gpu_1(&asks("nvidia.com/gpu=GPU-0")),
        Reason::ForeignRequest
    );
}

#[test]
fn nvidias_own_nri_annotation_is_refused_where_it_holds_and_asks_for_more() {
    for (key, value, expected) in [
        (
            "nvidia.cdi.k8s.io",
            "nvidia.com/gpu=all",
            Reason::ForeignRequest,
        ),
        (
            "nvidia.cdi.k8s.io/pod",
            "nvidia.com/gpu=GPU-0",
            Reason::ForeignRequest,
        ),
        (
            "nvidia.cdi.k8s.io/container.main",
            "management.nvidia.com/gpu=all",
            Reason::ForeignRequest,
        ),
        (
            "nvidia.cdi.k8s.io/container.other",
            "nvidia.com/gpu=all",
            Reason::Granted,
        ),
        (
            "nvidia.cdi.k8s.io/container.main",
            "nvidia.com/gpu=GPU-1",
            Reason::Granted,
        ),
    ] {
        assert_eq!(
            with_gpu_1(&pod_annotated(key, value)),
            expected,
            "{key}: {value}"
        );
    }
}

#[test]
fn a_device_injectors_annotation_is_refused_however_it_names_a_foreign_gpu() {
    for (key, value) in [
        (
            "devices.noderesource.dev",
            "- {path: /dev/nvidia1, type: c, major: 195, minor: 1}",
        ),
        (
            "devices.noderesource.dev/pod",
            "[{path: /tmp/x, type: c, major: 195, minor: 0x1}]",
        ),
        (
            "devices.noderesource.dev/container.main",
            "- Major: 195\n  MINOR: 1\n  path: /tmp/x",
        ),
        (
            "devices.nri.io/container.main",
            "[{\"path\": \"/x\", \"major\": 195, \"minor\": 3}]",
        ),
        (
            "devices.noderesource.dev",
            "- {path: /dev/dri/renderD128, type: c, major: 226, minor: 128}",
        ),
        (
            "devices.noderesource.dev",
            "- {path: /x, major: 510, minor: 0}\n- {path: /y, major: 195, minor: 9}",
        ),
        ("cdi-devices.noderesource.dev/pod", "- nvidia.com/gpu=all"),
        (
            "cdi-devices.nri.io",
            "[\"vendor.com/net=eth1\",\"nvidia.com/gpu=GPU-0\"]",
        ),
        ("cdi-devices.noderesource.dev", "[-nvidia.com/gpu=all]"),
        (
            "mounts.noderesource.dev",
            "- {source: /dev/nvidia1, destination: /x, type: bind}",
        ),
        (
            "mounts.nri.io/pod",
            "- {source: /srv/../dev/nvidia7, destination: /x}",
        ),
        (
            "mounts.noderesource.dev",
            "- {source: /dev/dri/renderD128, destination: /x}",
        ),
    ] {
        assert_eq!(
            with_gpu_1(&pod_annotated(key, value)),
            Reason::ForeignRequest,
            "{key}: {value}"
        );
    }
    for (key, value) in [
        (
            "devices.noderesource.dev/container.other",
            "- {path: /dev/nvidia1, major: 195, minor: 1}",
        ),
        (
            "devices.noderesource.dev",
            "- {path: /dev/nvidia2, type: c, major: 195, minor: 2}",
        ),
        (
            "devices.noderesource.dev",
            "- {path: /dev/fuse, type: c, major: 10, minor: 229}",
        ),
        ("devices.noderesource.dev", ""),
        ("cdi-devices.noderesource.dev", "- nvidia.com/gpu=GPU-1"),
        (
            "mounts.noderesource.dev",
            "- {source: /srv, destination: /x, options: [rbind, ro]}",
        ),
        (
            "net-devices.noderesource.dev",
            "- {hostIf: veth0, containerIf: eth1}",
        ),
    ] {
        assert_eq!(
            with_gpu_1(&pod_annotated(key, value)),
            Reason::Granted,
            "{key}: {value}"
        );
    }
}

/// What its reader might understand otherwise than we do can't be let pass.
#[test]
fn a_list_that_can_not_be_judged_is_refused() {
    let long = format!(
        "- {{path: /x, type: c, major: 10, minor: 229}}{}",
        " ".repeat(300_000)
    );
    for value in [
        "- {path: /x, major: 0303, minor: 1}",
        "- {path: /x, major: \"195\", minor: 1}",
        "- {path: /x, major: 195, Major: 1, minor: 1}",
        "- {path: /x, major: -1, minor: 1}",
        "{path: /x, major: 10, minor: 1}",
        "- [195, 1]",
        "- {path: /x",
        &long,
    ] {
        let view = pod_annotated("devices.noderesource.dev", value);
        assert_eq!(with_gpu_1(&view), Reason::ForeignRequest, "{value:.60}");
    }
}

fn mount(source: &str, writable: bool, found: Found, relation: Option<Relation>) -> ContainerView {
    ContainerView {
        mounts: vec![ViewMount {
            destination: "/mnt".into(),
            source: source.into(),
            writable,
            found: OnHost { found, relation },
        }],
        ..Default::default()
    }
}

#[test]
fn a_mounted_node_of_a_foreign_gpu_is_refused_by_number_and_unseen_by_name() {
    let device = |major, minor| mount("/srv/printer", false, Found::Device { major, minor }, None);
    assert_eq!(with_gpu_1(&device(195, 1)), Reason::SharedDev);
    assert_eq!(with_gpu_1(&device(195, 63)), Reason::SharedDev);
    assert_eq!(with_gpu_1(&device(226, 128)), Reason::SharedDev);
    assert_eq!(with_gpu_1(&device(195, 2)), Reason::Granted, "its own");
    assert_eq!(with_gpu_1(&device(195, 255)), Reason::Granted, "control");
    assert_eq!(with_gpu_1(&device(10, 229)), Reason::Granted);
    let bare = reason(run(&device(195, 255), &allocated(&[]), false));
    assert_eq!(bare, Reason::SharedDev, "control nodes come with a GPU");
    let unseen = |source| with_gpu_1(&mount(source, false, Found::Unknown, None));
    assert_eq!(unseen("/dev/nvidia1"), Reason::SharedDev);
    assert_eq!(unseen("/dev/./x/../nvidia9"), Reason::SharedDev);
    assert_eq!(unseen("/dev/dri/renderD128"), Reason::SharedDev);
    assert_eq!(unseen("/dev/nvidia2"), Reason::Granted);
    assert_eq!(unseen("/dev/fuse"), Reason::Granted);
}

fn place(sockets: bool) -> Place {
    Place {
        path: "/var/lib/kubelet".into(),
        sockets,
    }
}

#[test]
fn what_the_runtime_obeys_is_refused_writable_and_its_sockets_in_any_case() {
    let within = |sockets, writable| {
        let relation = Some(Relation::Within(place(sockets)));
        with_gpu_1(&mount("/x", writable, Found::Other, relation))
    };
    assert_eq!(within(false, true), Reason::ControlMount);
    assert_eq!(within(false, false), Reason::Granted);
    assert_eq!(within(true, true), Reason::ControlMount);
    assert_eq!(within(true, false), Reason::ControlMount);
}

#[test]
fn directories_are_left_to_the_gate_unless_the_configuration_refuses_them() {
    let refuse = Config {
        host_directories: HostDirectories::Refuse,
        ..Config::default()
    };
    let nodes = |class| Found::Directory(vec![("/dev/x".into(), class)]);
    let above = || Some(Relation::Contains(place(false)));
    for (view, strict) in [
        (
            mount("/dev", false, nodes(Class::Gpu(1)), None),
            Reason::HostDirectory,
        ),
        (
            mount("/dev", false, nodes(Class::Gpu(2)), None),
            Reason::Granted,
        ),
        (
            mount("/", true, nodes(Class::Control), above()),
            Reason::HostDirectory,
        ),
        (
            mount("/", false, nodes(Class::Control), above()),
            Reason::Granted,
        ),
        (
            mount(
                "/run",
                false,
                Found::Directory(Vec::new()),
                Some(Relation::Contains(place(true))),
            ),
            Reason::HostDirectory,
        ),
        (
            mount("/srv", true, Found::Directory(Vec::new()), None),
            Reason::Granted,
        ),
    ] {
        assert_eq!(with_gpu_1(&view), Reason::Granted, "{view:?}");
        let terms = Terms {
            config: &refuse,
            ..terms(false)
        };
        let decision = run_under(&view, &allocated(&[1]), terms);
        assert_eq!(reason(decision), strict, "{view:?}");
    }
}

#[test]
fn an_exemption_from_mounts_exempts_from_places_and_never_from_gpus() {
    let config = Config::parse(
        "{hostDirectories: refuse, exemptions: [{namespace: team-a, pods: '*', from: [mounts]}]}",
        "test",
    )
    .unwrap();
    let labels = std::collections::HashMap::new();
    let exempt = config.exempt(crate::config::PodIdentity {
        namespace: "team-a",
        name: "train-0",
        labels: &labels,
    });
    assert!(exempt.covers(Rule::Mounts));
    let terms = Terms {
        config: &config,
        exempt: &exempt,
        ..terms(false)
    };
    let run = |view: &ContainerView| reason(run_under(view, &allocated(&[]), terms));
    let csi = mount(
        "/x",
        true,
        Found::Other,
        Some(Relation::Within(place(true))),
    );
    assert_eq!(run(&csi), Reason::NoGpu);
    let node = Found::Device {
        major: 195,
        minor: 1,
    };
    assert_eq!(run(&mount("/x", true, node, None)), Reason::SharedDev);
    assert_eq!(
        admitted(run_under(&privileged(), &allocated(&[]), terms))
            .repoint
            .len(),
        3
    );
}

#[test]
fn power_over_the_node_is_refused_where_the_configuration_says_so() {
    let privileged = ContainerView {
        privileged: true,
        ..Default::default()
    };
    let host_pid = ContainerView {
        host_pid: true,
        ..Default::default()
    };
    for (treatment, without, with) in [
        (Treatment::Allow, false, false),
        (Treatment::RefuseWithGpu, false, true),
        (Treatment::Refuse, true, true),
    ] {
        for (view, config, code) in [
            (
                &privileged,
                Config {
                    privileged: treatment,
                    ..Config::default()
                },
                Reason::Privileged,
            ),
            (
                &host_pid,
                Config {
                    host_pid: treatment,
                    ..Config::default()
                },
                Reason::HostPid,
            ),
        ] {
            let terms = Terms {
                config: &config,
                ..terms(false)
            };
            let of = |ids: &[u32]| reason(run_under(view, &allocated(ids), terms)) == code;
            assert_eq!((of(&[]), of(&[1])), (without, with), "{treatment:?} {code}");
            let plain = ContainerView::default();
            assert_eq!(
                reason(run_under(&plain, &allocated(&[1]), terms)),
                Reason::Granted
            );
        }
    }
}

#[test]
fn every_variable_that_the_nodes_runtime_listens_to_is_neutralised() {
    let view = with_env(&[
        "DOCKER_RESOURCE_GPU=GPU-0",
        "TEAM_GPUS=all",
        "NVIDIA_IMEX_CHANNELS=0",
        "NVIDIA_MIG_CONFIG_DEVICES=all",
        "NVIDIA_MIG_MONITOR_DEVICES=all",
        "MY_GPUS=3",
        "PATH=/bin",
    ]);
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("config.toml");
    std::fs::write(&file, "swarm-resource = 'TEAM_GPUS'").unwrap();
    let (known, _) = Toolkit::read(&[file]);
    let config = Config {
        managed_env: vec!["MY_GPUS".into()],
        ..Config::default()
    };
    for (toolkit, swarm) in [(&*TOOLKIT, "DOCKER_RESOURCE_GPU"), (&known, "TEAM_GPUS")] {
        let terms = Terms {
            config: &config,
            toolkit,
            ..terms(false)
        };
        let env = admitted(run_under(&view, &allocated(&[]), terms)).env;
        let mut expected = BTreeSet::from([
            "NVIDIA_VISIBLE_DEVICES",
            "NVIDIA_IMEX_CHANNELS",
            "NVIDIA_MIG_CONFIG_DEVICES",
            "NVIDIA_MIG_MONITOR_DEVICES",
            "MY_GPUS",
        ]);
        expected.insert(swarm);
        assert_eq!(
            env.keys().map(String::as_str).collect::<BTreeSet<_>>(),
            expected
        );
        assert!(env.values().all(|value| value == "void"));
        let twice = with_env(&[&format!("{swarm}=void"), &format!("{swarm}=GPU-0")]);
        assert_eq!(
            reason(run_under(&twice, &allocated(&[]), terms)),
            Reason::DuplicateEnv
        );
    }
}

fn rule(allow: bool, major: Option<u32>, minor: Option<u32>) -> DeviceRule {
    DeviceRule {
        allow,
        major,
        minor,
    }
}

#[test]
fn foreign_minors_are_denied_one_by_one_where_the_cgroup_would_let_them_through() {
    let with_rules = Terms {
        device_rules: true,
        ..terms(true)
    };
    let deny = |view: &ContainerView, ids: &[u32]| {
        admitted(run_under(view, &allocated(ids), with_rules)).deny
    };
    let all = deny(&privileged(), &[1]);
    assert!(all.contains(&(195, 1)) && all.contains(&(226, 128)) && all.contains(&(195, 63)));
    for own in [(195, 2), (195, 255), (510, 0), (226, 129), (1, 3)] {
        assert!(!all.contains(&own), "{own:?}");
    }
    let none = deny(&privileged(), &[]);
    assert!(none.contains(&(195, 255)) && none.contains(&(510, 0)) && none.contains(&(195, 2)));
    // As an ordinary container has it: all denied, some allowed, here by a stray DeviceSpec.
    let stray = ContainerView {
        rules: vec![
            rule(false, None, None),
            rule(true, Some(195), Some(1)),
            rule(true, Some(1), Some(3)),
        ],
        ..Default::default()
    };
    assert_eq!(deny(&stray, &[1]), BTreeSet::from([(195, 1)]));
    let ordinary = ContainerView {
        rules: vec![rule(false, None, None)],
        ..Default::default()
    };
    assert!(deny(&ordinary, &[1]).is_empty());
    let wildcard = ContainerView {
        rules: vec![rule(false, None, None), rule(true, Some(195), None)],
        ..Default::default()
    };
    assert_eq!(deny(&wildcard, &[0, 1]).len(), 62, "0 to 63 without two");
    let unable = admitted(run_under(&privileged(), &allocated(&[1]), terms(true)));
    assert!(
        unable.deny.is_empty(),
        "the runtime would drop them silently"
    );
}
