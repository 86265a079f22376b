//! Versions of the specification and the lowest one that a document's content needs.
//!
//! Old readers refuse versions and fields that they do not know, so a writer declares the lowest.

use std::fmt;
use std::str::FromStr;

use thiserror::Error;

use crate::model::{ContainerEdits, Spec};

/// The released versions; readers refuse every other one, patch releases such as 0.8.1 included.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[allow(missing_docs, reason = "each variant is the number in its name")]
pub enum Version {
    V0_1_0,
    V0_2_0,
    V0_3_0,
    V0_4_0,
    V0_5_0,
    V0_6_0,
    V0_7_0,
    V0_8_0,
    V1_0_0,
    V1_1_0,
}

/// The text is none of the released versions.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{0:?} is not a released CDI version (0.3.0 to 1.1.0)")]
pub struct UnknownVersion(pub String);

impl Version {
    /// All, ascending.
    pub const ALL: [Self; 10] = [
        Self::V0_1_0,
        Self::V0_2_0,
        Self::V0_3_0,
        Self::V0_4_0,
        Self::V0_5_0,
        Self::V0_6_0,
        Self::V0_7_0,
        Self::V0_8_0,
        Self::V1_0_0,
        Self::V1_1_0,
    ];

    /// Such as `0.5.0`, without a leading `v`.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::V0_1_0 => "0.1.0",
            Self::V0_2_0 => "0.2.0",
            Self::V0_3_0 => "0.3.0",
            Self::V0_4_0 => "0.4.0",
            Self::V0_5_0 => "0.5.0",
            Self::V0_6_0 => "0.6.0",
            Self::V0_7_0 => "0.7.0",
            Self::V0_8_0 => "0.8.0",
            Self::V1_0_0 => "1.0.0",
            Self::V1_1_0 => "1.1.0",
        }
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for Version {
    type Err = UnknownVersion;

    /// One leading `v` is accepted.
    fn from_str(text: &str) -> Result<Self, UnknownVersion> {
        let number = text.strip_prefix('v').unwrap_or(text);
        Self::ALL
            .into_iter()
            .find(|version| version.as_str() == number)
            .ok_or_else(|| UnknownVersion(text.to_owned()))
    }
}

impl Spec {
    /// The lowest version that may be declared for this content; 0.3.0 is the floor.
    ///
    /// `enableMonitoring` counts when it is present at all: the Go library counts only `true`, the Rust
    /// port refuses the bare field below 1.1.0.
    pub fn minimum_version(&self) -> Version {
        let edits = || {
            self.devices
                .iter()
                .map(|device| &device.container_edits)
                .chain([&self.container_edits])
        };
        let any = |test: fn(&ContainerEdits) -> bool| edits().any(test);

        if any(needs_1_1_0) {
            Version::V1_1_0
        } else if any(|e| e.intel_rdt.is_some() || !e.additional_gids.is_empty()) {
            Version::V0_7_0
        } else if self.is_annotated() || self.class_has_a_dot() {
            Version::V0_6_0
        } else if self.has_a_numeric_name() || any(needs_0_5_0) {
            Version::V0_5_0
        } else if any(|e| e.mounts.iter().any(|m| filled(m.kind.as_deref()))) {
            Version::V0_4_0
        } else {
            Version::V0_3_0
        }
    }

    /// Declares [`Spec::minimum_version`], so that the oldest readers can load the file.
    pub fn set_lowest_version(&mut self) {
        self.minimum_version()
            .as_str()
            .clone_into(&mut self.cdi_version);
    }

    fn is_annotated(&self) -> bool {
        !self.annotations.is_empty() || self.devices.iter().any(|d| !d.annotations.is_empty())
    }

    fn class_has_a_dot(&self) -> bool {
        self.kind
            .split_once('/')
            .is_some_and(|(_, class)| class.contains('.'))
    }

    fn has_a_numeric_name(&self) -> bool {
        self.devices
            .iter()
            .any(|d| d.name.starts_with(|c: char| c.is_ascii_digit()))
    }
}

fn filled(text: Option<&str>) -> bool {
    text.is_some_and(|text| !text.is_empty())
}

fn needs_0_5_0(edits: &ContainerEdits) -> bool {
    edits
        .device_nodes
        .iter()
        .any(|node| filled(node.host_path.as_deref()))
}

fn needs_1_1_0(edits: &ContainerEdits) -> bool {
    !edits.net_devices.is_empty()
        || edits
            .intel_rdt
            .as_ref()
            .is_some_and(|rdt| !rdt.schemata.is_empty() || rdt.enable_monitoring.is_some())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{Device, DeviceNode, IntelRdt, Mount, NetDevice};

    fn with(change: impl FnOnce(&mut Spec)) -> Version {
        let mut spec = Spec {
            kind: "nvidia.com/gpu".into(),
            devices: vec![Device {
                name: "GPU-0".into(),
                ..Device::default()
            }],
            ..Spec::default()
        };
        change(&mut spec);
        spec.minimum_version()
    }

    #[test]
    fn one_leading_v_is_accepted() {
        assert_eq!("v0.6.0".parse(), Ok(Version::V0_6_0));
        assert_eq!("1.1.0".parse(), Ok(Version::V1_1_0));
    }

    #[test]
    fn anything_but_a_released_version_is_refused() {
        for text in [
            "", "v", "vv0.6.0", "0.8.1", "1.2.0", "0.6", "0.6.0 ", "V0.6.0", "00.6.0",
        ] {
            assert_eq!(text.parse::<Version>(), Err(UnknownVersion(text.into())));
        }
    }

    #[test]
    fn plain_content_needs_the_floor() {
        assert_eq!(with(|_| {}), Version::V0_3_0);
    }

    #[test]
    fn a_mount_type_needs_0_4_0() {
        let mount = |kind: &str| Mount {
            kind: Some(kind.into()),
            ..Mount::default()
        };
        assert_eq!(
            with(|s| s.container_edits.mounts.push(mount("tmpfs"))),
            Version::V0_4_0
        );
        assert_eq!(
            with(|s| s.container_edits.mounts.push(mount(""))),
            Version::V0_3_0
        );
    }

    #[test]
    fn a_name_that_starts_with_a_digit_needs_0_5_0() {
        assert_eq!(with(|s| s.devices[0].name = "0".into()), Version::V0_5_0);
        assert_eq!(
            with(|s| s.devices[0].name = "MIG-1:3".into()),
            Version::V0_3_0
        );
    }

    #[test]
    fn a_host_path_of_a_node_needs_0_5_0() {
        let node = |host: &str| DeviceNode {
            host_path: Some(host.into()),
            ..DeviceNode::default()
        };
        let device =
            |host: &str| with(|s| s.devices[0].container_edits.device_nodes.push(node(host)));
        assert_eq!(device("/dev/x"), Version::V0_5_0);
        assert_eq!(device(""), Version::V0_3_0);
    }

    #[test]
    fn annotations_and_a_dotted_class_need_0_6_0() {
        let note = ("a".to_owned(), "b".to_owned());
        assert_eq!(
            with(|s| s.annotations.extend([note.clone()])),
            Version::V0_6_0
        );
        assert_eq!(
            with(|s| s.devices[0].annotations.extend([note])),
            Version::V0_6_0
        );
        assert_eq!(
            with(|s| s.kind = "nvidia.com/gpu.coherent".into()),
            Version::V0_6_0
        );
    }

    #[test]
    fn rdt_and_further_groups_need_0_7_0() {
        assert_eq!(
            with(|s| s.container_edits.additional_gids.push(44)),
            Version::V0_7_0
        );
        assert_eq!(
            with(|s| s.devices[0].container_edits.intel_rdt = Some(IntelRdt::default())),
            Version::V0_7_0
        );
    }

    #[test]
    fn net_devices_and_the_new_rdt_fields_need_1_1_0() {
        assert_eq!(
            with(|s| s.container_edits.net_devices.push(NetDevice::default())),
            Version::V1_1_0
        );
        let rdt = |rdt: IntelRdt| with(|s| s.container_edits.intel_rdt = Some(rdt));
        assert_eq!(
            rdt(IntelRdt {
                schemata: vec!["L3:0=f".into()],
                ..IntelRdt::default()
            }),
            Version::V1_1_0
        );
        assert_eq!(
            rdt(IntelRdt {
                enable_monitoring: Some(false),
                ..IntelRdt::default()
            }),
            Version::V1_1_0
        );
    }

    #[test]
    fn the_lowest_version_is_declared_without_a_v() {
        let mut spec = Spec {
            cdi_version: "v1.0.0".into(),
            ..Spec::default()
        };
        spec.set_lowest_version();
        assert_eq!(spec.cdi_version, "0.3.0");
    }
}
