//! What was seen, as values.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use cdi::{DeviceNode, Registry};

use crate::gpu::Inventory;
use crate::host::DeviceNumbers;

/// What lies where a device node is expected. Links are not followed, as runtimes don't.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NodeState {
    /// A device node or FIFO: its type as CDI writes it, and its numbers.
    Device {
        /// `b`, `c` or `p`.
        kind: char,
        /// Major number.
        major: u32,
        /// Minor number.
        minor: u32,
    },
    /// Nothing.
    Absent,
    /// Anything else, in words.
    Other(String),
    /// Could not be looked at, and why.
    Unknown(String),
}

/// What lies where a file or directory is expected; links are followed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PathState {
    /// It exists, with these permission bits.
    Present {
        /// Of `0o777`.
        mode: u32,
    },
    /// Nothing.
    Absent,
    /// Could not be looked at, and why.
    Unknown(String),
}

/// What the driver says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Driver {
    /// It works.
    Works {
        /// Possibly without any usable GPU.
        inventory: Inventory,
        /// Why the driver's files are not usable; none when they are.
        files: Option<String>,
    },
    /// It works without a list of GPUs (WSL2, Tegra); which one, in words.
    Unlisted(String),
    /// There is none, in words.
    Absent(String),
    /// It is there and does not work, in words.
    Broken(String),
}

/// All that the checks know.
#[derive(Debug)]
pub struct Facts {
    /// The directories, lowest priority first.
    pub dirs: Vec<PathBuf>,
    /// Their files.
    pub registry: Registry,
    /// Permission bits of directories and spec files.
    pub modes: BTreeMap<PathBuf, u32>,
    /// Files that look like specs and that readers ignore.
    pub ignored: Vec<PathBuf>,
    /// Of every node that a valid file names, by its path on the host.
    pub nodes: BTreeMap<String, NodeState>,
    /// Of every mount source and hook program that a valid file names, by its path on the host.
    pub paths: BTreeMap<String, PathState>,
    /// Majors of the host, or why they are not known.
    pub numbers: Result<DeviceNumbers, String>,
    /// See [`Driver`].
    pub driver: Driver,
    /// Where the host has the directory that contains `dev`.
    pub host_dev_root: PathBuf,
    /// GPU nodes without a link in `/dev/char`; empty when there is no such directory.
    pub without_char_link: Vec<String>,
}

impl Facts {
    /// The inventory, when the driver works.
    pub fn inventory(&self) -> Option<&Inventory> {
        match &self.driver {
            Driver::Works { inventory, .. } => Some(inventory),
            Driver::Unlisted(_) | Driver::Absent(_) | Driver::Broken(_) => None,
        }
    }

    pub(super) fn node(&self, node: &DeviceNode) -> &NodeState {
        self.nodes
            .get(node.host_path())
            .unwrap_or(&NodeState::Absent)
    }

    /// The numbers that a runtime will use.
    pub(super) fn numbers_of(&self, node: &DeviceNode) -> Option<(u32, u32)> {
        let host = match self.node(node) {
            NodeState::Device { major, minor, .. } => Some((i64::from(*major), i64::from(*minor))),
            _ => None,
        };
        let (major, minor) = node.numbers(host)?;
        Some((u32::try_from(major).ok()?, u32::try_from(minor).ok()?))
    }

    /// The node's path as the inventory names it.
    pub(super) fn inventory_path(&self, node: &DeviceNode) -> PathBuf {
        let path = Path::new(node.host_path());
        match path.strip_prefix(&self.host_dev_root) {
            Ok(rest) => Path::new("/").join(rest),
            Err(_) => path.to_owned(),
        }
    }
}
