//! The container runtime at the other end: what it said in `Configure`, and what its version is known to do.
//!
//! Owns the version table. Refuses to guess: an unknown runtime, an unreadable version or a pre-release of the version that
//! introduced a feature has none of it, unless the runtime states an NRI version that proves it.

use std::time::Duration;

use crate::api::ConfigureRequest;
use crate::version::{Release, Version};

/// The registration timeout where `Configure` carries none (NRI before 0.7): 5 seconds.
pub const DEFAULT_REGISTRATION_TIMEOUT: Duration = Duration::from_secs(5);
/// The request timeout where `Configure` carries none (NRI before 0.7): 2 seconds.
pub const DEFAULT_REQUEST_TIMEOUT: Duration = Duration::from_secs(2);

/// What a runtime says about itself in `Configure`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Runtime {
    /// The runtime's name, such as `containerd`.
    pub name: String,
    /// Its version as sent, such as `1.7.24~ds1` or `2.1.9+unknown`.
    pub version: String,
    /// The NRI version of the runtime; sent from NRI 0.12 on.
    pub nri_version: Option<String>,
    /// How long registration may take.
    pub registration_timeout: Duration,
    /// How long any one request may take before the runtime drops the plugin.
    pub request_timeout: Duration,
}

/// Something that not every supported runtime does with a plugin's answer. Older ones drop the field without complaint.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Feature {
    /// `ContainerAdjustment.CDI_devices` is injected.
    CdiDevices,
    /// A mount whose destination is marked `-` is removed.
    MountRemoval,
    /// `LinuxResources.devices` of an adjustment become device cgroup rules.
    DeviceRules,
    /// The event `VALIDATE_CONTAINER_ADJUSTMENT` exists (and with it those of pod sandbox updates).
    Validation,
}

#[derive(Clone, Copy)]
enum Family {
    Containerd,
    CriO,
}

impl Runtime {
    /// Whether this runtime is known to have `feature`.
    pub fn has(&self, feature: Feature) -> bool {
        self.table_has(feature) || self.nri_version_has(feature)
    }

    fn family(&self) -> Option<Family> {
        match self.name.to_ascii_lowercase().as_str() {
            "containerd" => Some(Family::Containerd),
            "cri-o" | "crio" => Some(Family::CriO),
            _ => None,
        }
    }

    fn table_has(&self, feature: Feature) -> bool {
        let (Some(family), Some(version)) = (self.family(), Version::parse(&self.version)) else {
            return false;
        };
        let since = |major, minor, patch| {
            version.is_at_least(Release {
                major,
                minor,
                patch,
            })
        };
        match (family, feature) {
            // A backport to 1.7, then the whole 2.0 line without it.
            (Family::Containerd, Feature::CdiDevices) => {
                since(2, 1, 0) || (since(1, 7, 30) && !since(2, 0, 0) && version.release.major == 1)
            }
            (Family::Containerd, Feature::MountRemoval) => since(1, 7, 26),
            (Family::Containerd, Feature::DeviceRules | Feature::Validation) => since(2, 2, 0),
            (Family::CriO, Feature::MountRemoval) => since(1, 32, 0),
            (Family::CriO, Feature::CdiDevices | Feature::DeviceRules | Feature::Validation) => {
                since(1, 34, 0)
            }
        }
    }

    /// What the NRI library inside the runtime does by itself. Injecting CDI devices is not among it: that needs the runtime.
    fn nri_version_has(&self, feature: Feature) -> bool {
        let Some(version) = self.nri_version.as_deref().and_then(Version::parse) else {
            return false;
        };
        let since = |minor| {
            version.is_at_least(Release {
                major: 0,
                minor,
                patch: 0,
            })
        };
        match feature {
            Feature::CdiDevices => false,
            Feature::MountRemoval => since(7),
            Feature::DeviceRules | Feature::Validation => since(10),
        }
    }
}

impl From<&ConfigureRequest> for Runtime {
    fn from(request: &ConfigureRequest) -> Self {
        let timeout = |millis: i64, default| match u64::try_from(millis) {
            Ok(millis) if millis > 0 => Duration::from_millis(millis),
            _ => default,
        };
        Self {
            name: request.runtime_name.clone(),
            version: request.runtime_version.clone(),
            nri_version: (!request.NRI_version.is_empty()).then(|| request.NRI_version.clone()),
            registration_timeout: timeout(
                request.registration_timeout,
                DEFAULT_REGISTRATION_TIMEOUT,
            ),
            request_timeout: timeout(request.request_timeout, DEFAULT_REQUEST_TIMEOUT),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Feature::{CdiDevices, DeviceRules, MountRemoval, Validation};
    use super::*;

    fn runtime(name: &str, version: &str, nri_version: Option<&str>) -> Runtime {
        Runtime {
            name: name.into(),
            version: version.into(),
            nri_version: nri_version.map(Into::into),
            registration_timeout: DEFAULT_REGISTRATION_TIMEOUT,
            request_timeout: DEFAULT_REQUEST_TIMEOUT,
        }
    }

    const ALL: [Feature; 4] = [CdiDevices, MountRemoval, DeviceRules, Validation];

    #[test]
    fn features_follow_the_version_table() {
        let rows: &[(&str, &str, &[Feature])] = &[
            ("containerd", "1.7.0", &[]),
            ("containerd", "1.7.24~ds1", &[]),
            ("containerd", "1.7.25", &[]),
            ("containerd", "1.7.26", &[MountRemoval]),
            ("containerd", "v1.7.29", &[MountRemoval]),
            ("containerd", "1.7.30", &[CdiDevices, MountRemoval]),
            ("containerd", "1.7.30-rc.1", &[MountRemoval]),
            ("containerd", "v2.0.1", &[MountRemoval]),
            ("containerd", "2.0.11", &[MountRemoval]),
            ("containerd", "2.1.9+unknown", &[CdiDevices, MountRemoval]),
            ("containerd", "2.1.0-rc.0", &[MountRemoval]),
            ("containerd", "2.2.0", &ALL),
            ("containerd", "2.2.0-beta.1", &[CdiDevices, MountRemoval]),
            ("containerd", "2.4.0-beta+unknown", &ALL),
            ("containerd", "3.0.0", &ALL),
            ("CRI-O", "1.31.5", &[]),
            ("CRI-O", "1.32.0", &[MountRemoval]),
            (
                "cri-o",
                "1.33.5-3.rhaos4.20.gitd0ea985.el9",
                &[MountRemoval],
            ),
            ("cri-o", "1.34.0", &ALL),
            ("containerd", "", &[]),
            ("containerd", "unknown", &[]),
            ("podman", "9.9.9", &[]),
        ];
        for (name, version, expected) in rows {
            for feature in ALL {
                assert_eq!(
                    runtime(name, version, None).has(feature),
                    expected.contains(&feature),
                    "{name} {version} {feature:?}"
                );
            }
        }
    }

    #[test]
    fn a_stated_nri_version_proves_what_the_nri_library_does_itself() {
        let unknown = runtime("other", "1", Some("v0.12.2"));
        assert!(unknown.has(Validation) && unknown.has(DeviceRules) && unknown.has(MountRemoval));
        assert!(!unknown.has(CdiDevices));
        assert!(!runtime("other", "1", Some("0.9.1")).has(Validation));
        assert!(!runtime("other", "1", Some("(devel)")).has(Validation));
    }

    #[test]
    fn missing_or_senseless_timeouts_become_the_defaults() {
        let mut request = ConfigureRequest {
            registration_timeout: -1,
            ..Default::default()
        };
        assert_eq!(
            Runtime::from(&request).registration_timeout,
            DEFAULT_REGISTRATION_TIMEOUT
        );
        assert_eq!(
            Runtime::from(&request).request_timeout,
            DEFAULT_REQUEST_TIMEOUT
        );
        request.request_timeout = 15_000;
        assert_eq!(
            Runtime::from(&request).request_timeout,
            Duration::from_secs(15)
        );
    }
}
