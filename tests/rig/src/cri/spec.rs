//! Pods and containers as a kubelet would describe them to the runtime, with host network, so that
//! no network plugin is needed. Pure.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU32, Ordering};

use super::api::cri as pb;
use crate::{Image, images};

/// A pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PodSpec {
    /// Pod name.
    pub name: String,
    /// Namespace, `default` if not said.
    pub namespace: String,
    /// Unique for each spec made in this process, unless it is set.
    pub uid: String,
    /// How often the sandbox was recreated.
    pub attempt: u32,
    /// Whether any of its containers may be privileged.
    pub privileged: bool,
    /// `runtimeClassName`'s handler; empty for the default one.
    pub runtime_handler: String,
    /// Of the pod: its author's.
    pub annotations: HashMap<String, String>,
    /// Of the pod.
    pub labels: HashMap<String, String>,
    /// `hostPID`.
    pub host_pid: bool,
}

impl PodSpec {
    /// An ordinary pod of that name.
    pub fn new(name: &str) -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(1);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        Self {
            name: name.to_owned(),
            namespace: "default".to_owned(),
            uid: format!("{:08x}-7a11-4d1e-9e0d-{number:012x}", std::process::id()),
            attempt: 0,
            privileged: false,
            runtime_handler: String::new(),
            annotations: HashMap::new(),
            labels: HashMap::new(),
            host_pid: false,
        }
    }

    /// In that namespace.
    #[must_use]
    pub fn namespace(mut self, namespace: &str) -> Self {
        namespace.clone_into(&mut self.namespace);
        self
    }

    /// May run privileged containers, and its containers are so by default.
    #[must_use]
    pub fn privileged(mut self) -> Self {
        self.privileged = true;
        self
    }

    /// With a runtime class.
    #[must_use]
    pub fn runtime_handler(mut self, handler: &str) -> Self {
        handler.clone_into(&mut self.runtime_handler);
        self
    }

    /// With an annotation.
    #[must_use]
    pub fn annotation(mut self, key: &str, value: &str) -> Self {
        self.annotations.insert(key.to_owned(), value.to_owned());
        self
    }

    pub(super) fn config(&self, cgroup_parent: &str) -> pb::PodSandboxConfig {
        let mut config = pb::PodSandboxConfig::new();
        let metadata = config.metadata.mut_or_insert_default();
        metadata.name.clone_from(&self.name);
        metadata.uid.clone_from(&self.uid);
        metadata.namespace.clone_from(&self.namespace);
        metadata.attempt = self.attempt;
        config.annotations.clone_from(&self.annotations);
        config.labels.clone_from(&self.labels);
        config.labels.extend([
            ("io.kubernetes.pod.name".to_owned(), self.name.clone()),
            (
                "io.kubernetes.pod.namespace".to_owned(),
                self.namespace.clone(),
            ),
            ("io.kubernetes.pod.uid".to_owned(), self.uid.clone()),
        ]);
        let linux = config.linux.mut_or_insert_default();
        // As the kubelet's cgroupfs driver names it.
        linux.cgroup_parent = format!("{cgroup_parent}/kubepods/besteffort/pod{}", self.uid);
        let security = linux.security_context.mut_or_insert_default();
        security.privileged = self.privileged;
        security.namespace_options = Some(self.namespaces()).into();
        config
    }

    fn namespaces(&self) -> pb::NamespaceOption {
        let mut options = pb::NamespaceOption::new();
        options.network = pb::NamespaceMode::NODE.into();
        let pid = if self.host_pid {
            pb::NamespaceMode::NODE
        } else {
            pb::NamespaceMode::CONTAINER
        };
        options.pid = pid.into();
        options
    }
}

/// A device that the kubelet passes on from a device plugin's `DeviceSpec`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeviceSpec {
    /// On the host, in the world's `/dev`.
    pub host_path: String,
    /// In the container.
    pub container_path: String,
    /// Such as `rw` or `rwm`.
    pub permissions: String,
}

/// A bind mount.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MountSpec {
    /// On the host, in the world's mount namespace.
    pub host_path: String,
    /// In the container.
    pub container_path: String,
    /// Read-only.
    pub readonly: bool,
}

/// A container.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ContainerSpec {
    /// Container name.
    pub name: String,
    /// How often it was restarted.
    pub attempt: u32,
    /// Image reference.
    pub image: String,
    /// What runs; idles if empty.
    pub command: Vec<String>,
    /// In this order, duplicates allowed: the runtime takes what it gets.
    pub env: Vec<(String, String)>,
    /// Devices of device plugins.
    pub devices: Vec<DeviceSpec>,
    /// CDI devices by qualified name: the CRI field.
    pub cdi_devices: Vec<String>,
    /// Mounts.
    pub mounts: Vec<MountSpec>,
    /// Of the container; a device plugin may set these.
    pub annotations: HashMap<String, String>,
    /// As the pod's, if not said.
    pub privileged: Option<bool>,
    /// Capabilities on top of the default ones, such as `SYS_ADMIN`.
    pub add_capabilities: Vec<String>,
    /// uid of the process, root if none.
    pub run_as_user: Option<i64>,
}

impl ContainerSpec {
    /// A busybox that idles.
    pub fn new(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            attempt: 0,
            image: Image::busybox().reference,
            command: Vec::new(),
            env: Vec::new(),
            devices: Vec::new(),
            cdi_devices: Vec::new(),
            mounts: Vec::new(),
            annotations: HashMap::new(),
            privileged: None,
            add_capabilities: Vec::new(),
            run_as_user: None,
        }
    }

    /// From another image.
    #[must_use]
    pub fn image(mut self, image: &Image) -> Self {
        self.image.clone_from(&image.reference);
        self
    }

    /// Runs this instead of idling.
    #[must_use]
    pub fn command(mut self, words: &[&str]) -> Self {
        self.command = words.iter().map(|&word| word.to_owned()).collect();
        self
    }

    /// Adds a variable after those it has.
    #[must_use]
    pub fn env(mut self, key: &str, value: &str) -> Self {
        self.env.push((key.to_owned(), value.to_owned()));
        self
    }

    /// With a device of a device plugin, under the same path, `rw`.
    #[must_use]
    pub fn device(mut self, path: &str) -> Self {
        self.devices.push(DeviceSpec {
            host_path: path.to_owned(),
            container_path: path.to_owned(),
            permissions: "rw".to_owned(),
        });
        self
    }

    /// With a CDI device in the CRI field.
    #[must_use]
    pub fn cdi_device(mut self, name: &str) -> Self {
        self.cdi_devices.push(name.to_owned());
        self
    }

    /// With a writable bind mount.
    #[must_use]
    pub fn mount(mut self, host_path: &str, container_path: &str) -> Self {
        self.mounts.push(MountSpec {
            host_path: host_path.to_owned(),
            container_path: container_path.to_owned(),
            readonly: false,
        });
        self
    }

    /// With an annotation.
    #[must_use]
    pub fn annotation(mut self, key: &str, value: &str) -> Self {
        self.annotations.insert(key.to_owned(), value.to_owned());
        self
    }

    /// Privileged or not, whatever the pod is.
    #[must_use]
    pub fn privileged(mut self, privileged: bool) -> Self {
        self.privileged = Some(privileged);
        self
    }

    pub(super) fn config(&self, pod: &PodSpec) -> pb::ContainerConfig {
        let mut config = pb::ContainerConfig::new();
        let metadata = config.metadata.mut_or_insert_default();
        metadata.name.clone_from(&self.name);
        metadata.attempt = self.attempt;
        config
            .image
            .mut_or_insert_default()
            .image
            .clone_from(&self.image);
        config.command = if self.command.is_empty() {
            images::IDLE.map(str::to_owned).to_vec()
        } else {
            self.command.clone()
        };
        config.envs = self.env.iter().map(key_value).collect();
        config.devices = self.devices.iter().map(device).collect();
        config.mounts = self.mounts.iter().map(mount).collect();
        config.CDI_devices = self.cdi_devices.iter().map(|name| cdi(name)).collect();
        config.annotations.clone_from(&self.annotations);
        config.labels.extend([
            ("io.kubernetes.pod.name".to_owned(), pod.name.clone()),
            (
                "io.kubernetes.pod.namespace".to_owned(),
                pod.namespace.clone(),
            ),
            ("io.kubernetes.pod.uid".to_owned(), pod.uid.clone()),
            ("io.kubernetes.container.name".to_owned(), self.name.clone()),
        ]);
        let linux = config.linux.mut_or_insert_default();
        let security = linux.security_context.mut_or_insert_default();
        security.privileged = self.privileged.unwrap_or(pod.privileged);
        security.namespace_options = Some(pod.namespaces()).into();
        let capabilities = security.capabilities.mut_or_insert_default();
        capabilities
            .add_capabilities
            .clone_from(&self.add_capabilities);
        if let Some(uid) = self.run_as_user {
            security.run_as_user.mut_or_insert_default().value = uid;
        }
        config
    }
}

fn key_value((key, value): &(String, String)) -> pb::KeyValue {
    let mut out = pb::KeyValue::new();
    out.key.clone_from(key);
    out.value.clone_from(value);
    out
}

fn device(spec: &DeviceSpec) -> pb::Device {
    let mut out = pb::Device::new();
    out.host_path.clone_from(&spec.host_path);
    out.container_path.clone_from(&spec.container_path);
    out.permissions.clone_from(&spec.permissions);
    out
}

fn mount(spec: &MountSpec) -> pb::Mount {
    let mut out = pb::Mount::new();
    out.host_path.clone_from(&spec.host_path);
    out.container_path.clone_from(&spec.container_path);
    out.readonly = spec.readonly;
    out
}

fn cdi(name: &str) -> pb::CDIDevice {
    let mut out = pb::CDIDevice::new();
    name.clone_into(&mut out.name);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_container_is_privileged_as_its_pod_unless_it_says_otherwise() {
        let pod = PodSpec::new("p").privileged();
        let privileged = |spec: ContainerSpec| spec.config(&pod).linux.security_context.privileged;
        assert!(privileged(ContainerSpec::new("c")));
        assert!(!privileged(ContainerSpec::new("c").privileged(false)));
    }

    #[test]
    fn duplicated_variables_reach_the_runtime_in_order() {
        let spec = ContainerSpec::new("c").env("K", "none").env("K", "all");
        let envs = spec.config(&PodSpec::new("p")).envs;
        let values: Vec<_> = envs.iter().map(|kv| kv.value.as_str()).collect();
        assert_eq!(values, ["none", "all"]);
    }

    #[test]
    fn two_pods_of_one_name_differ_in_uid() {
        assert_ne!(PodSpec::new("p").uid, PodSpec::new("p").uid);
    }
}
