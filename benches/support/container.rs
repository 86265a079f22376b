//! The containers, as containerd describes them to a plugin: about 3 kB each.

use nri::api::{
    Container, LinuxContainer, LinuxDevice, LinuxDeviceCgroup, LinuxResources, Mount, PodSandbox,
};
use nri::protobuf::MessageField;

use super::{node, pods};

/// Nodes in a privileged container.
pub(crate) const PRIVILEGED_NODES: usize = 40;

/// What the container is like.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A CUDA image with one GPU of the kubelet's.
    Gpu,
    /// No GPU, and no sign of one.
    Plain,
    /// One GPU of the kubelet's, and every node of the host.
    Privileged,
}

/// The request of a creation in that pod.
pub(crate) fn creation(pod: usize, id: usize, kind: Kind) -> (PodSandbox, Container) {
    (pods::sandbox(pod), of(pod, id, kind))
}

/// A container of that pod. `id` sets it apart from the others.
pub(crate) fn of(pod: usize, id: usize, kind: Kind) -> Container {
    let privileged = kind == Kind::Privileged;
    let devices = if privileged {
        nodes(PRIVILEGED_NODES).map(device).collect()
    } else {
        Vec::new()
    };
    Container {
        id: format!("{:064x}", 0xc000_0000 + id),
        pod_sandbox_id: pods::sandbox(pod).id,
        name: pods::CONTAINER.into(),
        labels: labels(pod),
        annotations: annotations(pod),
        args: [
            "python3",
            "-m",
            "trainer",
            "--config=/etc/trainer/config.yaml",
        ]
        .map(Into::into)
        .into(),
        env: env(pod, kind),
        mounts: mounts(pod),
        linux: MessageField::some(LinuxContainer {
            devices,
            resources: MessageField::some(LinuxResources {
                devices: rules(privileged),
                ..Default::default()
            }),
            cgroups_path: format!("kubepods-burstable-pod{pod}.slice:cri-containerd:{id:064x}"),
            ..Default::default()
        }),
        ..Default::default()
    }
}

fn labels(pod: usize) -> std::collections::HashMap<String, String> {
    let sandbox = pods::sandbox(pod);
    [
        ("io.cri-containerd.kind", "container"),
        ("io.kubernetes.container.name", pods::CONTAINER),
        ("io.kubernetes.pod.name", &sandbox.name),
        ("io.kubernetes.pod.namespace", &sandbox.namespace),
        ("io.kubernetes.pod.uid", &sandbox.uid),
    ]
    .map(|(k, v)| (k.to_owned(), v.to_owned()))
    .into()
}

fn annotations(pod: usize) -> std::collections::HashMap<String, String> {
    let sandbox = pods::sandbox(pod);
    [
        ("io.kubernetes.cri.container-name", pods::CONTAINER),
        ("io.kubernetes.cri.container-type", "container"),
        (
            "io.kubernetes.cri.image-name",
            "registry.example/research/trainer:1.4.2",
        ),
        ("io.kubernetes.cri.sandbox-id", &sandbox.id),
        ("io.kubernetes.cri.sandbox-name", &sandbox.name),
        ("io.kubernetes.cri.sandbox-namespace", &sandbox.namespace),
        ("io.kubernetes.cri.sandbox-uid", &sandbox.uid),
        ("io.kubernetes.container.hash", "5f0f3a1c"),
        ("io.kubernetes.container.restartCount", "0"),
        ("io.kubernetes.pod.terminationGracePeriod", "30"),
    ]
    .map(|(k, v)| (k.to_owned(), v.to_owned()))
    .into()
}

/// The image's, the cluster's (service links), and for a GPU the value of the image beside that of
/// the device plugin, which is the everyday case.
fn env(pod: usize, kind: Kind) -> Vec<String> {
    let mut env = vec![
        "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin".to_owned(),
        format!("HOSTNAME={}", pods::sandbox(pod).name),
    ];
    for service in ["KUBERNETES", "TRAINER", "PARAMETERS", "METRICS"] {
        for (name, value) in [
            ("SERVICE_HOST", "10.96.0.1"),
            ("SERVICE_PORT", "443"),
            ("SERVICE_PORT_HTTPS", "443"),
            ("PORT", "tcp://10.96.0.1:443"),
            ("PORT_443_TCP", "tcp://10.96.0.1:443"),
            ("PORT_443_TCP_PROTO", "tcp"),
            ("PORT_443_TCP_ADDR", "10.96.0.1"),
        ] {
            env.push(format!("{service}_{name}={value}"));
        }
    }
    if kind != Kind::Plain {
        env.extend([
            "NVIDIA_VISIBLE_DEVICES=all".to_owned(),
            "NVIDIA_DRIVER_CAPABILITIES=compute,utility".to_owned(),
            "CUDA_VERSION=12.8.1".to_owned(),
            format!("NVIDIA_VISIBLE_DEVICES={}", pods::gpu_of(pod)),
        ]);
    }
    env
}

fn mounts(pod: usize) -> Vec<Mount> {
    let uid = pods::sandbox(pod).uid;
    let of_pod = |name: &str| format!("/var/lib/kubelet/pods/{uid}/{name}");
    let made = [
        ("/proc", "proc"),
        ("/dev", "tmpfs"),
        ("/dev/pts", "devpts"),
        ("/dev/mqueue", "mqueue"),
        ("/sys", "sysfs"),
        ("/sys/fs/cgroup", "cgroup"),
    ]
    .map(|(at, kind)| (at, kind, kind.to_owned()));
    let bound = [
        ("/etc/hosts", of_pod("etc-hosts")),
        ("/dev/termination-log", of_pod("containers/main/0a1b2c3d")),
        (
            "/etc/hostname",
            "/var/lib/containerd/io.containerd.grpc.v1.cri/sandboxes/hostname".to_owned(),
        ),
        (
            "/etc/resolv.conf",
            "/var/lib/containerd/io.containerd.grpc.v1.cri/sandboxes/resolv.conf".to_owned(),
        ),
        (
            "/dev/shm",
            "/run/containerd/io.containerd.grpc.v1.cri/sandboxes/shm".to_owned(),
        ),
        (
            "/etc/trainer",
            of_pod("volumes/kubernetes.io~configmap/config"),
        ),
        (
            "/var/run/secrets/kubernetes.io/serviceaccount",
            of_pod("volumes/kubernetes.io~projected/kube-api-access"),
        ),
    ]
    .map(|(at, source)| (at, "bind", source));
    made.into_iter()
        .chain(bound)
        .map(|(destination, kind, source)| Mount {
            destination: destination.into(),
            type_: kind.into(),
            source,
            options: ["rbind", "rprivate", "rw"].map(Into::into).into(),
            ..Default::default()
        })
        .collect()
}

fn rules(privileged: bool) -> Vec<LinuxDeviceCgroup> {
    let rule = |allow| LinuxDeviceCgroup {
        allow,
        access: "rwm".into(),
        ..Default::default()
    };
    let mut rules = vec![rule(false)];
    rules.extend(privileged.then(|| rule(true)));
    rules
}

/// So many nodes of a GPU host's `/dev`, GPU nodes first: three of each GPU, the control nodes, and
/// then others.
pub(crate) fn nodes(count: usize) -> impl Iterator<Item = (String, u32, u32)> {
    let gpus = node::inventory().gpus.into_iter().flat_map(|gpu| gpu.nodes);
    let control = node::inventory().control;
    let nvidia = gpus
        .chain(control)
        .map(|node| (node.path.display().to_string(), node.major, node.minor));
    let others = (0..).map(|n| (format!("/dev/loop-control-{n}"), 10, n));
    nvidia.chain(others).take(count)
}

fn device((path, major, minor): (String, u32, u32)) -> LinuxDevice {
    LinuxDevice {
        path,
        type_: "c".into(),
        major: major.into(),
        minor: minor.into(),
        ..Default::default()
    }
}
