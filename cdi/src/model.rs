//! The document: what a CDI file says, field for field.
//!
//! Unknown fields are refused, as the readers in containerd and CRI-O refuse them; a spec that only
//! passes the published JSON schema may still not load there.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::de::{annotations, null_as_default};

/// One CDI file. Names follow the CDI specification, section "Specification".
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Spec {
    /// Declared version, such as `0.5.0`; at least what [`Spec::minimum_version`] computes.
    pub cdi_version: String,
    /// `vendor/class`.
    pub kind: String,
    /// Free annotations of the whole file (0.6.0).
    #[serde(
        default,
        deserialize_with = "annotations",
        skip_serializing_if = "BTreeMap::is_empty"
    )]
    pub annotations: BTreeMap<String, String>,
    /// At least one device.
    pub devices: Vec<Device>,
    /// Applied once per file to every container that gets any of its devices.
    #[serde(
        default,
        deserialize_with = "null_as_default",
        skip_serializing_if = "ContainerEdits::is_empty"
    )]
    pub container_edits: ContainerEdits,
}

/// A device that a container can ask for by `kind=name`.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Device {
    /// Unique in its file.
    pub name: String,
    /// Free annotations of the device (0.6.0).
    #[serde(
        default,
        deserialize_with = "annotations",
        skip_serializing_if = "BTreeMap::is_empty"
    )]
    pub annotations: BTreeMap<String, String>,
    /// Never empty.
    pub container_edits: ContainerEdits,
}

/// What is done to a container's OCI spec.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ContainerEdits {
    /// `NAME=VALUE` entries.
    #[serde(
        default,
        deserialize_with = "null_as_default",
        skip_serializing_if = "Vec::is_empty"
    )]
    pub env: Vec<String>,
    /// Device nodes, each with a cgroup rule.
    #[serde(
        default,
        deserialize_with = "null_as_default",
        skip_serializing_if = "Vec::is_empty"
    )]
    pub device_nodes: Vec<DeviceNode>,
    /// Network devices to move into the container (1.1.0).
    #[serde(
        default,
        deserialize_with = "null_as_default",
        skip_serializing_if = "Vec::is_empty"
    )]
    pub net_devices: Vec<NetDevice>,
    /// OCI hooks.
    #[serde(
        default,
        deserialize_with = "null_as_default",
        skip_serializing_if = "Vec::is_empty"
    )]
    pub hooks: Vec<Hook>,
    /// Mounts; one with the same destination is replaced.
    #[serde(
        default,
        deserialize_with = "null_as_default",
        skip_serializing_if = "Vec::is_empty"
    )]
    pub mounts: Vec<Mount>,
    /// Cache and bandwidth class (0.7.0).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub intel_rdt: Option<IntelRdt>,
    /// Further group ids of the process (0.7.0); 0 is skipped by runtimes.
    #[serde(
        default,
        deserialize_with = "null_as_default",
        skip_serializing_if = "Vec::is_empty"
    )]
    pub additional_gids: Vec<u32>,
}

/// A device node to create in the container.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct DeviceNode {
    /// Path in the container.
    pub path: String,
    /// Path on the host, when it differs (0.5.0).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host_path: Option<String>,
    /// `b`, `c`, `u` or `p`; readers take it from the host node when absent.
    #[serde(default, rename = "type", skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
    /// Taken from the host node by readers when absent or 0.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub major: Option<i64>,
    /// See `major`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub minor: Option<i64>,
    /// Permission bits, in decimal in the file (438 is 0666).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub file_mode: Option<u32>,
    /// Cgroup access: letters of `rwm`, or `none`; readers default to `rwm`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub permissions: Option<String>,
    /// Owner of the node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uid: Option<u32>,
    /// Group of the node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gid: Option<u32>,
}

/// A network device to move into the container.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct NetDevice {
    /// Name on the host.
    pub host_interface_name: String,
    /// Name in the container.
    pub name: String,
}

/// A mount.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Mount {
    /// Source on the host.
    pub host_path: String,
    /// Destination in the container.
    pub container_path: String,
    /// Mount options.
    #[serde(
        default,
        deserialize_with = "null_as_default",
        skip_serializing_if = "Vec::is_empty"
    )]
    pub options: Vec<String>,
    /// File system type (0.4.0).
    #[serde(default, rename = "type", skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
}

/// An OCI hook.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Hook {
    /// `prestart`, `createRuntime`, `createContainer`, `startContainer`, `poststart`, `poststop`.
    pub hook_name: String,
    /// Program on the host.
    pub path: String,
    /// Arguments, argv\[0\] included.
    #[serde(
        default,
        deserialize_with = "null_as_default",
        skip_serializing_if = "Vec::is_empty"
    )]
    pub args: Vec<String>,
    /// `NAME=VALUE` entries.
    #[serde(
        default,
        deserialize_with = "null_as_default",
        skip_serializing_if = "Vec::is_empty"
    )]
    pub env: Vec<String>,
    /// Seconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout: Option<i64>,
}

/// Intel RDT settings.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct IntelRdt {
    /// Class of service.
    #[serde(default, rename = "closID", skip_serializing_if = "Option::is_none")]
    pub clos_id: Option<String>,
    /// L3 cache schema.
    #[serde(
        default,
        rename = "l3CacheSchema",
        skip_serializing_if = "Option::is_none"
    )]
    pub l3_cache_schema: Option<String>,
    /// Memory bandwidth schema.
    #[serde(
        default,
        rename = "memBwSchema",
        skip_serializing_if = "Option::is_none"
    )]
    pub mem_bw_schema: Option<String>,
    /// Schemata lines (1.1.0).
    #[serde(
        default,
        deserialize_with = "null_as_default",
        skip_serializing_if = "Vec::is_empty"
    )]
    pub schemata: Vec<String>,
    /// Monitoring group (1.1.0).
    #[serde(
        default,
        rename = "enableMonitoring",
        skip_serializing_if = "Option::is_none"
    )]
    pub enable_monitoring: Option<bool>,
}
