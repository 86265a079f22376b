//! What NVIDIA's device plugin answers the kubelet, by injection strategy.

use gpu_warden::allocation::api::deviceplugin::{CDIDevice, ContainerAllocateResponse, Mount};

/// How the device plugin asks for the injection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Style {
    /// `NVIDIA_VISIBLE_DEVICES=<ids>`.
    EnvVar,
    /// A mount of `/dev/null` per id below a directory that the variable names.
    VolumeMounts,
    /// An annotation with the key prefix of the plugin's default.
    CdiAnnotations,
    /// CDI names in the field of the CRI.
    CdiCri,
    /// An answer that is no protobuf message.
    Garbled,
}

const MOUNT_ROOT: &str = "/var/run/nvidia-container-devices";

/// The answer for these ids. A kubelet copies its contents into the CRI request; a test that plays
/// the kubelet does the same.
pub fn response(style: Style, ids: &[&str]) -> ContainerAllocateResponse {
    let plain: Vec<&str> = ids
        .iter()
        .map(|id| id.split_once("::").map_or(*id, |(id, _)| id))
        .collect();
    let cdi = |id: &&str| format!("k8s.device-plugin.nvidia.com/gpu={id}");
    let mut answer = ContainerAllocateResponse::default();
    let visible = "NVIDIA_VISIBLE_DEVICES".to_owned();
    match style {
        Style::EnvVar | Style::Garbled => {
            answer.envs.insert(visible, plain.join(","));
        }
        Style::VolumeMounts => {
            answer.envs.insert(visible, MOUNT_ROOT.to_owned());
            answer.mounts = plain
                .iter()
                .map(|id| Mount {
                    container_path: format!("{MOUNT_ROOT}/{id}"),
                    host_path: "/dev/null".to_owned(),
                    read_only: true,
                    ..Default::default()
                })
                .collect();
        }
        Style::CdiAnnotations => {
            let names: Vec<_> = plain.iter().map(cdi).collect();
            answer.annotations.insert(
                "cdi.k8s.io/nvidia-device-plugin_stand-in".to_owned(),
                names.join(","),
            );
        }
        Style::CdiCri => {
            answer.cdi_devices = plain
                .iter()
                .map(|id| CDIDevice {
                    name: cdi(id),
                    ..Default::default()
                })
                .collect();
        }
    }
    answer
}
