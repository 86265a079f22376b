//! The recipe and the configuration on real containerd: annotations, mounts of the host, audit mode,
//! reload, readiness.

use std::path::{Path, PathBuf};
use std::time::Duration;

use gpu_warden_rig::containerd::LEGACY_HANDLER;
use gpu_warden_rig::cri::{ContainerSpec, PodSpec};
use gpu_warden_rig::kubelet::Style;
use gpu_warden_rig::process::Launch;
use gpu_warden_rig::{World, artifacts};

use crate::support::{Node, container_with, on_both, programs};

const PATIENCE: Duration = Duration::from_secs(20);

fn is_refused(text: &str, code: &str, parts: &[&str]) {
    assert!(text.contains(&format!("[{code}]")), "{text}");
    for part in parts {
        assert!(text.contains(part), "{part:?} is not in: {text}");
    }
}

/// A node with a configuration, in a directory that is written as the kubelet writes a `ConfigMap`.
struct Configured {
    node: Node,
    dir: tempfile::TempDir,
    version: u32,
}

impl Configured {
    async fn start(files: &gpu_warden_rig::ContainerdFiles, text: &str) -> Self {
        let dir = tempfile::Builder::new()
            .prefix("gw-config-")
            .tempdir_in("/tmp")
            .unwrap();
        write(dir.path(), 0, text);
        std::os::unix::fs::symlink("..data/c.yaml", dir.path().join("c.yaml")).unwrap();
        let flag = format!("--config={}", dir.path().join("c.yaml").display());
        let flags = |launch: Launch| launch.arg(flag).arg("--debounce=50");
        Self {
            node: Node::start_with(files, World::builder(), flags).await,
            dir,
            version: 0,
        }
    }

    async fn change(&mut self, text: &str, until: &str) {
        let seen = self.node.warden.log().unwrap().matches(until).count();
        self.version += 1;
        write(self.dir.path(), self.version, text);
        for _ in 0..400 {
            if self.node.warden.log().unwrap().matches(until).count() > seen {
                return;
            }
            tokio::time::sleep(Duration::from_millis(25)).await;
        }
        panic!("no {until:?} in {}", self.node.warden.log().unwrap());
    }

    /// What `gpu-warden ready` says, and its exit code.
    fn ready(&self) -> (Option<i32>, String) {
        let out = self
            .node
            .world
            .command(&programs(&self.node.world).gpu_warden)
            .arg("ready")
            .as_std_mut()
            .output()
            .unwrap();
        let text = [out.stdout, out.stderr].concat();
        (out.status.code(), String::from_utf8(text).unwrap())
    }
}

fn write(dir: &Path, version: u32, text: &str) {
    let name = format!("..{version}");
    std::fs::create_dir(dir.join(&name)).unwrap();
    std::fs::write(dir.join(&name).join("c.yaml"), text).unwrap();
    std::os::unix::fs::symlink(&name, dir.join("..tmp")).unwrap();
    std::fs::rename(dir.join("..tmp"), dir.join("..data")).unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn an_annotation_that_asks_for_more_is_refused_and_an_honest_one_is_not() {
    on_both(World::builder(), async |node: &mut Node| {
        for (key, value) in [
            ("nvidia.cdi.k8s.io/container.main", "nvidia.com/gpu=all"),
            ("cdi-devices.noderesource.dev/pod", "- nvidia.com/gpu=all"),
            (
                "devices.noderesource.dev/container.main",
                "- {path: /dev/x, type: c, major: 195, minor: 1}",
            ),
        ] {
            let pod = PodSpec::new("asker").annotation(key, value);
            node.allocate(&pod, "main", &[0]);
            let refused = node.refused(&pod, &ContainerSpec::new("main")).await;
            is_refused(&refused, "foreign-request", &[key, "pod default/asker"]);
            node.kubelet.release(&pod.uid);
        }
        let pod = PodSpec::new("neighbour")
            .annotation("nvidia.cdi.k8s.io/container.other", "nvidia.com/gpu=all");
        node.allocate(&pod, "main", &[0]);
        let id = node.run(&pod, &ContainerSpec::new("main")).await.unwrap();
        node.has_exactly(&id, &[0]).await;
    })
    .await;
}

/// With `cdi-annotations` the runtime injects by itself, and the annotation that named the device is
/// taken away before NVIDIA's runtime could read it again.
#[tokio::test(flavor = "multi_thread")]
async fn a_device_plugins_cdi_annotation_works_and_does_not_reach_the_oci_spec() {
    on_both(World::builder(), async |node: &mut Node| {
        let uuid = node.uuid(1);
        let key = "cdi.k8s.io/nvidia-device-plugin_1";
        let value = format!("nvidia.com/gpu={uuid}");
        let pod = PodSpec::new("annotated");
        node.allocate_ids(&pod, "main", &[&uuid], Style::CdiAnnotations);
        let id = node
            .run(&pod, &ContainerSpec::new("main").annotation(key, &value))
            .await
            .unwrap();
        node.has_exactly(&id, &[1]).await;
        let spec = oci_spec(node, &id);
        assert!(!spec.contains(key), "{spec}");

        let other = PodSpec::new("forged");
        node.allocate(&other, "main", &[0]);
        let forged = ContainerSpec::new("main").annotation(key, &value);
        let refused = node.refused(&other, &forged).await;
        is_refused(&refused, "foreign-request", &[key, &uuid]);
    })
    .await;
}

/// The bundle's `config.json`, as the OCI runtime got it.
fn oci_spec(node: &Node, id: &str) -> String {
    fn find(dir: &Path, id: &str, depth: usize) -> Option<PathBuf> {
        let entries: Vec<_> = std::fs::read_dir(dir).ok()?.flatten().collect();
        for entry in &entries {
            let path = entry.path();
            if path.ends_with(Path::new(id).join("config.json")) {
                return Some(path);
            }
        }
        let directories = entries
            .iter()
            .filter(|entry| depth > 0 && entry.file_type().is_ok_and(|kind| kind.is_dir()));
        directories
            .filter(|entry| entry.file_name() != "rootfs")
            .find_map(|entry| find(&entry.path(), id, depth - 1))
    }
    let base = node.containerd.nri_socket();
    let path = find(base.parent().unwrap(), id, 6).expect("a bundle");
    std::fs::read_to_string(path).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn mounts_of_what_the_runtime_obeys_are_refused_and_ordinary_volumes_are_not() {
    on_both(World::builder(), async |node: &mut Node| {
        let kubelet = node.world.kubelet_root();
        let cdi = node.world.cdi_dir();
        let nri = node.containerd.nri_socket();
        let path = |path: &Path| path.to_str().unwrap().to_owned();
        for source in [
            path(&cdi),
            path(&kubelet),
            path(&nri),
            path(&kubelet.join("pod-resources")),
        ] {
            let pod = PodSpec::new("meddler");
            node.admit(&pod, "main");
            let container = ContainerSpec::new("main").mount(&source, "/mnt/host");
            let refused = node.refused(&pod, &container).await;
            is_refused(&refused, "control-mount", &[&source, "/mnt/host"]);
        }
        // A link of the host's to such a place is the place.
        let link = node.world.path("shortcut");
        std::os::unix::fs::symlink(&cdi, &link).unwrap();
        let pod = PodSpec::new("sly");
        node.admit(&pod, "main");
        let container = ContainerSpec::new("main").mount(&path(&link), "/mnt/host");
        is_refused(&node.refused(&pod, &container).await, "control-mount", &[]);

        let pod = PodSpec::new("honest");
        node.allocate(&pod, "main", &[0]);
        let volume = kubelet.join("pods").join(&pod.uid).join("volumes/empty");
        std::fs::create_dir_all(&volume).unwrap();
        let mut container = ContainerSpec::new("main")
            .mount(&path(&volume), "/scratch")
            .mount(&path(&kubelet.join("pod-resources")), "/pod-resources");
        container.mounts[1].readonly = true;
        let id = node.run(&pod, &container).await.unwrap();
        node.has_exactly(&id, &[0]).await;
    })
    .await;
}

/// A node of its own GPU may be mounted; another's may not, and is refused before anything runs.
#[tokio::test(flavor = "multi_thread")]
async fn a_mounted_gpu_node_must_be_its_own() {
    on_both(World::builder(), async |node: &mut Node| {
        let own = PodSpec::new("own").privileged();
        node.allocate(&own, "main", &[1]);
        let container = ContainerSpec::new("main").mount("/dev/nvidia1", "/mnt/gpu");
        node.run(&own, &container).await.unwrap();
        let thief = PodSpec::new("thief");
        node.allocate(&thief, "main", &[0]);
        let refused = node.refused(&thief, &container).await;
        is_refused(&refused, "shared-dev", &["/mnt/gpu", "/dev/nvidia1"]);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn audit_changes_nothing_and_says_what_it_would_do_until_the_file_says_enforce() {
    for files in artifacts::both_containerds().unwrap() {
        let mut it = Configured::start(&files, "enforcement: audit").await;
        let (code, said) = it.ready();
        assert_eq!(code, Some(0), "{said}");
        assert!(said.contains("audit"), "{said}");
        let node = &it.node;
        // What enforcement would refuse, and what it would take away.
        let asker = PodSpec::new("asker")
            .privileged()
            .annotation("nvidia.cdi.k8s.io", "nvidia.com/gpu=all");
        node.allocate(&asker, "main", &[0]);
        let id = node.run(&asker, &ContainerSpec::new("main")).await.unwrap();
        node.has_exactly(&id, &[0, 1]).await;
        let legacy = PodSpec::new("legacy").runtime_handler(LEGACY_HANDLER);
        node.admit(&legacy, "main");
        let all = ContainerSpec::new("main").env("NVIDIA_VISIBLE_DEVICES", "all");
        let id = node.run(&legacy, &all).await.unwrap();
        node.has_exactly(&id, &[0, 1]).await;
        assert_eq!(node.variable(&id, "NVIDIA_VISIBLE_DEVICES").await, "all");
        let log = node.warden.log().unwrap();
        for line in [
            "decision=\"refuse\" reason=foreign-request enforcement=\"audit\"",
            "decision=\"admit\" reason=no-gpu enforcement=\"audit\"",
            "starts with GPU nodes outside its allocation",
        ] {
            assert!(log.contains(line), "{line} is not in {log}");
        }

        it.change("enforcement: enforce", "the configuration was read again")
            .await;
        let pod = PodSpec::new("legacy-2").runtime_handler(LEGACY_HANDLER);
        it.node.admit(&pod, "main");
        let id = it.node.run(&pod, &all).await.unwrap();
        it.node.has_exactly(&id, &[]).await;
        it.node.end().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_changed_configuration_holds_and_a_broken_one_does_not_and_shows_in_readiness() {
    for files in artifacts::both_containerds().unwrap() {
        let mut it = Configured::start(&files, "privileged: allow").await;
        assert_eq!(it.ready().0, Some(0));
        let run = async |it: &Configured, name: &str| {
            let pod = PodSpec::new(name).privileged();
            it.node.allocate(&pod, "main", &[0]);
            let result = it.node.run(&pod, &ContainerSpec::new("main")).await;
            it.node.kubelet.release(&pod.uid);
            result
        };
        it.change(
            "privileged: refuse-with-gpu",
            "the configuration was read again",
        )
        .await;
        let failure = run(&it, "strong").await.unwrap_err();
        is_refused(
            failure.refusal().unwrap(),
            "privileged",
            &["default/strong"],
        );

        it.change("privileged: maybe", "holds on").await;
        let (code, said) = it.ready();
        assert_eq!(code, Some(1), "{said}");
        assert!(
            said.contains("maybe") && said.contains("registered"),
            "{said}"
        );
        let failure = run(&it, "strong-2").await.unwrap_err();
        is_refused(failure.refusal().unwrap(), "privileged", &[]);

        it.change(
            "privileged: refuse\nexemptions: [{namespace: default, pods: 'strong-*', from: [privileged]}]",
            "the configuration was read again",
        )
        .await;
        assert_eq!(it.ready().0, Some(0));
        let id = run(&it, "strong-3").await.unwrap();
        it.node.has_exactly(&id, &[0]).await;
        it.node.end().await;
    }
}

/// What the message shows of `hostPID`, of privileged containers and of host directories is enough to
/// tell them, on every runtime.
#[tokio::test(flavor = "multi_thread")]
async fn a_strict_configuration_refuses_power_over_the_node() {
    let strict = "{hostPID: refuse-with-gpu, privileged: refuse, hostDirectories: refuse}";
    for files in artifacts::both_containerds().unwrap() {
        let it = Configured::start(&files, strict).await;
        let node = &it.node;
        let host_pid = |name: &str| PodSpec {
            host_pid: true,
            ..PodSpec::new(name)
        };
        let pod = host_pid("monitor");
        node.admit(&pod, "main");
        let id = node.run(&pod, &ContainerSpec::new("main")).await.unwrap();
        node.has_exactly(&id, &[]).await;
        let pod = host_pid("tracer");
        node.allocate(&pod, "main", &[0]);
        let refused = node.refused(&pod, &ContainerSpec::new("main")).await;
        is_refused(&refused, "host-pid", &["default/tracer"]);
        let pod = PodSpec::new("strong").privileged();
        node.admit(&pod, "main");
        let refused = node.refused(&pod, &ContainerSpec::new("main")).await;
        is_refused(&refused, "privileged", &["default/strong"]);
        for directory in ["/dev", "/"] {
            let pod = PodSpec::new("explorer");
            node.allocate(&pod, "main", &[1]);
            let container = ContainerSpec::new("main").mount(directory, "/host");
            let refused = node.refused(&pod, &container).await;
            is_refused(&refused, "host-directory", &["/host", "/dev/nvidia0"]);
            node.kubelet.release(&pod.uid);
        }
        it.node.end().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_gpu_warden_nobody_is_ready() {
    let [files, _] = artifacts::both_containerds().unwrap();
    let mut it = Configured::start(&files, "").await;
    assert_eq!(it.ready().0, Some(0));
    it.node.warden.kill().await.unwrap();
    let (code, said) = it.ready();
    assert_eq!(code, Some(3), "{said}");
    assert!(said.contains("no gpu-warden answers"), "{said}");
    // The socket of the dead one does not keep the next from telling.
    gpu_warden_rig::under_test::start_again(&mut it.node.warden)
        .await
        .unwrap();
    assert_eq!(it.ready().0, Some(0));
    it.node.end().await;
}

/// The configuration's own pod, by the UID that the kubelet gives it and nobody else has.
#[tokio::test(flavor = "multi_thread")]
async fn gpu_wardens_own_pod_is_exempt_by_its_uid() {
    for files in artifacts::both_containerds().unwrap() {
        let own = PodSpec::new("gpu-warden-x1").privileged();
        let flag = format!("--own-pod-uid={}", own.uid);
        let node = Node::start_with(&files, World::builder(), |launch| launch.arg(flag)).await;
        let impostor = PodSpec::new("gpu-warden-x1").privileged();
        for pod in [&own, &impostor] {
            node.admit(pod, "main");
        }
        let id = node.run(&own, &ContainerSpec::new("main")).await.unwrap();
        node.has_exactly(&id, &[0, 1]).await;
        let id = node
            .run(&impostor, &ContainerSpec::new("main"))
            .await
            .unwrap();
        node.has_exactly(&id, &[]).await;
        node.end().await;
    }
}

/// What runs with more than its own is told by name when gpu-warden comes; what runs with exactly its
/// own is not.
#[tokio::test(flavor = "multi_thread")]
async fn a_container_that_ran_before_with_more_than_its_own_is_reported_and_an_honest_one_is_not() {
    on_both(World::builder(), async |node: &mut Node| {
        let honest = PodSpec::new("honest");
        node.allocate(&honest, "main", &[1]);
        node.run(&honest, &ContainerSpec::new("main"))
            .await
            .unwrap();
        gpu_warden_rig::under_test::stop(&mut node.warden)
            .await
            .unwrap();
        let pod = PodSpec::new("early").privileged();
        node.allocate(&pod, "main", &[0]);
        node.run(&pod, &ContainerSpec::new("main")).await.unwrap();
        gpu_warden_rig::under_test::start_again(&mut node.warden)
            .await
            .unwrap();
        for told in [
            "with GPU nodes outside its allocation",
            "with no GPU node outside its allocation",
        ] {
            node.warden.wait_for_log(told, PATIENCE).await.unwrap();
        }
        let log = node.warden.log().unwrap();
        let told =
            |what: &str| -> Vec<&str> { log.lines().filter(|line| line.contains(what)).collect() };
        let early = told("with GPU nodes outside its allocation");
        assert_eq!(early.len(), 1, "{log}");
        assert!(early[0].contains("default/early/main"), "{log}");
        assert!(early[0].contains("/dev/nvidia1"), "{log}");
        let honest = told("with no GPU node outside its allocation");
        assert!(
            honest
                .iter()
                .all(|line| line.contains("default/honest/main")),
            "{log}"
        );
    })
    .await;
}

/// A device plugin's answers in the way of `volume-mounts` still work with the mount rules on.
#[tokio::test(flavor = "multi_thread")]
async fn volume_device_lists_are_no_mounts_of_the_host() {
    on_both(World::builder(), async |node: &mut Node| {
        let pod = PodSpec::new("lists");
        let uuid = node.uuid(0);
        node.allocate_ids(&pod, "main", &[&uuid], Style::VolumeMounts);
        let id = node
            .run(&pod, &container_with("main", Style::VolumeMounts, &[&uuid]))
            .await
            .unwrap();
        node.has_exactly(&id, &[0]).await;
    })
    .await;
}
