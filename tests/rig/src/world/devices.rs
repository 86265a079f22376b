//! The fake hardware: GPUs, device nodes, and what `/proc/devices` says of their drivers. Pure.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// Major number of `/dev/nvidia*`, fixed by the driver.
pub const GPU_MAJOR: u32 = 195;
/// Minor of `/dev/nvidiactl`.
pub const CONTROL_MINOR: u32 = 255;
/// The dynamic character majors end here; the world's own are taken from this end.
const LAST_DYNAMIC_MAJOR: u32 = 511;
const FIRST_DYNAMIC_MAJOR: u32 = 384;

/// A character device node.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Node {
    /// Absolute, such as `/dev/nvidia0`.
    pub path: String,
    /// Device major number.
    pub major: u32,
    /// Device minor number.
    pub minor: u32,
}

impl Node {
    /// A node at that path with those numbers.
    pub fn new(path: &str, major: u32, minor: u32) -> Self {
        Self {
            path: path.to_owned(),
            major,
            minor,
        }
    }
}

/// One fake GPU.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Gpu {
    /// `GPU-<uuid>`.
    pub uuid: String,
    /// Minor of its node.
    pub minor: u32,
}

impl Gpu {
    /// The GPU of that minor, with a UUID that ends in it.
    pub fn numbered(minor: u32) -> Self {
        Self {
            uuid: format!("GPU-5ef0c0de-4a11-4c0f-9d3e-{minor:012x}"),
            minor,
        }
    }

    /// Its `/dev/nvidia<minor>`.
    pub fn node(&self) -> Node {
        Node::new(&format!("/dev/nvidia{}", self.minor), GPU_MAJOR, self.minor)
    }
}

/// The dynamic majors of the NVIDIA drivers in one world.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Majors {
    /// `nvidia-uvm`.
    pub uvm: u32,
    /// `nvidia-caps`, the capability nodes of MIG.
    pub caps: u32,
}

impl Majors {
    /// Those of the real driver where it is loaded, else numbers that no real driver has.
    pub fn choose(proc_devices: &str) -> Self {
        let taken = characters(proc_devices);
        let named = |name: &str| {
            let found = taken.iter().find(|(_, taken)| taken.as_str() == name);
            found.map(|(major, _)| *major)
        };
        let mut free = (FIRST_DYNAMIC_MAJOR..=LAST_DYNAMIC_MAJOR)
            .rev()
            .filter(|major| !taken.contains_key(major));
        let mut pick = |name: &str| {
            let free = free.next().unwrap_or(LAST_DYNAMIC_MAJOR);
            named(name).unwrap_or(free)
        };
        Self {
            uvm: pick("nvidia-uvm"),
            caps: pick("nvidia-caps"),
        }
    }

    /// The nodes that every GPU container needs besides its GPU.
    pub fn control_nodes(self) -> Vec<Node> {
        vec![
            Node::new("/dev/nvidiactl", GPU_MAJOR, CONTROL_MINOR),
            Node::new("/dev/nvidia-uvm", self.uvm, 0),
            Node::new("/dev/nvidia-uvm-tools", self.uvm, 1),
        ]
    }

    /// The text of `/proc/devices` as it would be with the NVIDIA drivers loaded.
    pub fn proc_devices(self, real: &str) -> String {
        let mut characters = characters(real);
        characters.insert(GPU_MAJOR, "nvidia".to_owned());
        characters.insert(self.uvm, "nvidia-uvm".to_owned());
        characters.insert(self.caps, "nvidia-caps".to_owned());
        let lines: Vec<String> = characters
            .iter()
            .map(|(major, name)| format!("{major:3} {name}"))
            .collect();
        let blocks = real.find("Block devices:").map_or("", |at| &real[at..]);
        format!("Character devices:\n{}\n\n{blocks}", lines.join("\n"))
    }
}

/// Major → last name of the first section; several names may share a major, one is enough here.
fn characters(proc_devices: &str) -> BTreeMap<u32, String> {
    let lines = proc_devices.lines().skip(1);
    lines
        .take_while(|line| !line.trim().is_empty())
        .filter_map(|line| {
            let (major, name) = line.trim().split_once(' ')?;
            Some((major.parse().ok()?, name.to_owned()))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const REAL: &str =
        "Character devices:\n  1 mem\n254 ndctl\n511 busy\n\nBlock devices:\n  7 loop\n";

    #[test]
    fn majors_avoid_those_of_real_drivers() {
        let majors = Majors::choose(REAL);
        assert_eq!(
            majors,
            Majors {
                uvm: 510,
                caps: 509
            }
        );
        let text = majors.proc_devices(REAL);
        for line in [
            "  1 mem",
            "195 nvidia",
            "510 nvidia-uvm",
            "509 nvidia-caps",
            "  7 loop",
        ] {
            assert!(text.lines().any(|l| l == line), "{line} in {text}");
        }
        assert_eq!(text.matches("Block devices:").count(), 1);
    }

    #[test]
    fn a_loaded_driver_keeps_its_numbers() {
        let real = "Character devices:\n195 nvidia\n507 nvidia-uvm\n\nBlock devices:\n";
        let majors = Majors::choose(real);
        assert_eq!(majors.uvm, 507);
        assert_eq!(majors.proc_devices(real).matches("nvidia-uvm").count(), 1);
    }
}
