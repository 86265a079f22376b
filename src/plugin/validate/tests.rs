//! Hand-made requests, as containerd ≥ 2.2 sends them: pristine container, merged adjustment.

use std::collections::BTreeSet;
use std::time::Duration;

use nri::api::{
    CDIDevice, Container, LinuxContainerAdjustment, LinuxDeviceCgroup, OptionalInt64, PodSandbox,
};
use nri::protobuf::MessageField;
use nri::{Events, Plugin, Runtime};
use tokio::sync::watch;

use super::*;
use crate::config::Config;
use crate::gpu::{DeviceId, Gpu, Grant, Inventory, Node, Source};
use crate::host::{DeviceNumbers, Roots};
use crate::plugin::Wiring;
use crate::plugin::ledger::{Entry, Handling, Origin};
use crate::watch::{NodeState, Schedule, Watcher};

fn variable(key: &str, value: &str) -> KeyValue {
    KeyValue {
        key: key.into(),
        value: value.into(),
        ..Default::default()
    }
}

fn device(path: &str, major: i64, minor: i64) -> LinuxDevice {
    LinuxDevice {
        path: path.into(),
        type_: "c".into(),
        major,
        minor,
        ..Default::default()
    }
}

fn rule(minor: i64) -> LinuxDeviceCgroup {
    let number = |value| {
        MessageField::some(OptionalInt64 {
            value,
            ..Default::default()
        })
    };
    LinuxDeviceCgroup {
        allow: false,
        type_: "c".into(),
        major: number(195),
        minor: number(minor),
        access: "rwm".into(),
        ..Default::default()
    }
}

fn cdi(name: &str) -> CDIDevice {
    CDIDevice {
        name: name.into(),
        ..Default::default()
    }
}

fn mount(destination: &str, source: &str) -> Mount {
    Mount {
        destination: destination.into(),
        source: source.into(),
        ..Default::default()
    }
}

/// What is replied for a container with GPU-1, whose node is 195:2.
fn ours() -> ContainerAdjustment {
    let mut linux = LinuxContainerAdjustment {
        devices: vec![device("/dev/nvidia1", 1, 3)],
        ..Default::default()
    };
    linux.resources.mut_or_insert_default().devices = vec![rule(1)];
    ContainerAdjustment {
        env: vec![
            variable("NVIDIA_VISIBLE_DEVICES", "void"),
            variable("GPU_WARDEN_UUIDS", "GPU-1"),
        ],
        mounts: vec![
            mount("-/var/run/nvidia-container-devices/GPU-1", ""),
            mount("/lib/x", "/usr/lib/x"),
        ],
        annotations: [("-cdi.k8s.io/x".to_owned(), String::new())].into(),
        linux: MessageField::some(linux),
        CDI_devices: vec![cdi("nvidia.com/gpu=GPU-1")],
        ..Default::default()
    }
}

fn inventory() -> Inventory {
    let gpu = |n: u32| Gpu {
        id: DeviceId::parse(&format!("GPU-{n}")).unwrap(),
        index: n,
        minor: n + 1,
        name: String::new(),
        pci: String::new(),
        nodes: vec![Node {
            path: format!("/dev/nvidia{}", n + 1).into(),
            major: 195,
            minor: n + 1,
        }],
    };
    Inventory {
        gpus: vec![gpu(0), gpu(1)],
        ..Inventory::empty(Source::Nvml, "570.1")
    }
}

/// A warden that has decided about the container `c` of `team/train`.
struct Decided {
    warden: Warden,
    settings: watch::Sender<Arc<Settings>>,
    _watcher: Watcher,
}

impl Decided {
    fn new(configuration: &str, audit: bool) -> Self {
        let config = Config::parse(configuration, "test").unwrap();
        let (settings, settings_seen) = watch::channel(Arc::new(Settings {
            config: Arc::new(config),
            ..Settings::default()
        }));
        let state = || {
            NodeState::known(
                inventory(),
                cdi::Spec {
                    kind: "nvidia.com/gpu".into(),
                    ..Default::default()
                },
                DeviceNumbers::fixed(),
                BTreeSet::new(),
            )
        };
        let publish = watch::Sender::new(Arc::new(state()));
        let node = publish.subscribe();
        let schedule = Schedule {
            directories: Vec::new(),
            poll: Duration::from_secs(3600),
            debounce: Duration::from_millis(1),
            every_event: false,
        };
        let watcher = Watcher::start(schedule, publish, state).unwrap();
        let warden = Warden::new(Wiring {
            roots: Roots::default(),
            settings: settings_seen,
            own_pod_uid: None,
            places: Vec::new(),
            node,
            refresh: watcher.refresh(),
        });
        let gpu = inventory().gpus.remove(1);
        let entry = Entry {
            sandbox: "s".into(),
            subject: Subject {
                pod_uid: "u".into(),
                namespace: "team".into(),
                pod: "train".into(),
                container: "main".into(),
            },
            grant: Grant::new(vec![gpu], BTreeSet::new()),
            placeholders: BTreeSet::new(),
            holds: BTreeSet::new(),
            by_name: false,
            handling: if audit {
                Handling::Audited
            } else {
                Handling::Enforced
            },
            origin: Origin::Decided,
            fenced: false,
            replied: (!audit).then(|| Box::new(ours())),
            pid: None,
        };
        warden.ledger().record("c".into(), entry);
        Self {
            warden,
            settings,
            _watcher: watcher,
        }
    }

    async fn judge(&self, id: &str, merged: ContainerAdjustment) -> Result<(), String> {
        let request = ValidateContainerAdjustmentRequest {
            pod: MessageField::some(PodSandbox {
                id: "s".into(),
                namespace: "team".into(),
                name: "train".into(),
                ..Default::default()
            }),
            container: MessageField::some(Container {
                id: id.into(),
                name: "main".into(),
                ..Default::default()
            }),
            adjust: MessageField::some(merged),
            ..Default::default()
        };
        let judged = self.warden.validate_container_adjustment(request).await;
        judged.map_err(|refusal| refusal.to_string())
    }
}

type Change = fn(&mut ContainerAdjustment);

#[test]
fn what_is_lost_is_named_and_what_is_there_is_not() {
    assert_eq!(lost(&ours(), &ours()), None);
    let mut more = ours();
    more.env.push(variable("A", "b"));
    more.mounts.remove(0);
    more.annotations.clear();
    assert_eq!(
        lost(&ours(), &more),
        None,
        "a removal leaves no trace that we rely on"
    );
    let changes: [(&str, Change); 9] = [
        ("NVIDIA_VISIBLE_DEVICES=void", |merged| {
            merged.env[0].value = "all".into();
        }),
        ("NVIDIA_VISIBLE_DEVICES=void", |merged| {
            merged.env.push(variable("NVIDIA_VISIBLE_DEVICES", "all"));
        }),
        ("GPU_WARDEN_UUIDS", |merged| {
            merged.env.pop();
        }),
        ("mount -/var/run", |merged| {
            let list = "/var/run/nvidia-container-devices/GPU-1";
            merged.mounts.push(mount(list, "/dev/null"));
        }),
        ("mount /lib/x", |merged| {
            merged.mounts[1].source = "/other".into();
        }),
        ("annotation cdi.k8s.io/x", |merged| {
            let back = ("cdi.k8s.io/x".to_owned(), "a/b=c".to_owned());
            merged.annotations.extend([back]);
        }),
        ("device /dev/nvidia1", |merged| {
            let linux = merged.linux.mut_or_insert_default();
            linux.devices[0] = device("/dev/nvidia1", 195, 1);
        }),
        ("denies 195:1", |merged| {
            let linux = merged.linux.mut_or_insert_default();
            linux.resources.mut_or_insert_default().devices.clear();
        }),
        ("CDI device nvidia.com/gpu=GPU-1", |merged| {
            merged.CDI_devices.clear();
        }),
    ];
    for (named, change) in changes {
        let mut merged = ours();
        change(&mut merged);
        let found = lost(&ours(), &merged).unwrap_or_default();
        assert!(found.contains(named), "{named}: {found}");
    }
    let found = lost(&ours(), &ContainerAdjustment::default());
    assert!(found.is_some(), "everything is lost");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_merged_adjustment_must_be_ours_and_may_not_bring_another_gpu() {
    let decided = Decided::new("", false);
    assert_eq!(decided.judge("c", ours()).await, Ok(()));

    let mut other = ours();
    other.CDI_devices.push(cdi("vendor.com/net=eth1"));
    other.mounts.push(mount("/data", "/srv"));
    assert_eq!(decided.judge("c", other).await, Ok(()));

    let undone = decided
        .judge("c", ContainerAdjustment::default())
        .await
        .unwrap_err();
    assert!(
        undone.contains("[adjustment-lost]") && undone.contains("team/train"),
        "{undone}"
    );

    let mut foreign = ours();
    foreign.CDI_devices.push(cdi("nvidia.com/gpu=all"));
    let refused = decided.judge("c", foreign).await.unwrap_err();
    assert!(
        refused.contains("nvidia.com/gpu=all") && refused.contains("[merged-foreign]"),
        "{refused}"
    );

    let mut node = ours();
    node.linux
        .mut_or_insert_default()
        .devices
        .push(device("/dev/x", 195, 1));
    let refused = decided.judge("c", node).await.unwrap_err();
    assert!(
        refused.contains("195:1") && refused.contains("[merged-foreign]"),
        "{refused}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_container_that_nobody_decided_about_is_rejected_unless_it_is_exempt() {
    let decided = Decided::new("", false);
    let unseen = decided
        .judge("unknown", ContainerAdjustment::default())
        .await
        .unwrap_err();
    assert!(unseen.contains("without a decision"), "{unseen}");

    decided.settings.send_replace(Arc::new(Settings {
        config: Arc::new(
            Config::parse("exemptions: [{namespace: team, pods: 'train*'}]", "test").unwrap(),
        ),
        ..Settings::default()
    }));
    let mut all = ContainerAdjustment::default();
    all.CDI_devices.push(cdi("nvidia.com/gpu=all"));
    assert_eq!(decided.judge("unknown", all).await, Ok(()));
}

#[tokio::test(flavor = "multi_thread")]
async fn audit_rejects_nothing() {
    let decided = Decided::new("enforcement: audit", true);
    let mut foreign = ContainerAdjustment::default();
    foreign.CDI_devices.push(cdi("nvidia.com/gpu=all"));
    assert_eq!(decided.judge("c", foreign).await, Ok(()));
    assert_eq!(
        decided
            .judge("unknown", ContainerAdjustment::default())
            .await,
        Ok(())
    );
}

#[tokio::test]
async fn validation_is_subscribed_where_the_runtime_knows_it() {
    let decided = Decided::new("", false);
    let runtime = |version: &str| Runtime {
        name: "containerd".into(),
        version: version.into(),
        nri_version: None,
        registration_timeout: Duration::from_secs(5),
        request_timeout: Duration::from_secs(2),
    };
    let bits = |version| decided.warden.events(&runtime(version)).bits();
    assert_eq!(bits("1.7.24~ds1"), 0x628);
    assert_eq!(bits("2.1.9+unknown"), 0x628);
    assert_eq!(bits("2.2.0"), 0x2628);
    assert!(Events::from_bits(bits("2.2.0")).contains(Events::VALIDATE_CONTAINER_ADJUSTMENT));
}
