//! One look at the node: take the inventory, bring the CDI spec in line with it, and see whether
//! runtimes would find our devices by name.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use cdi::{QualifiedName, Registry, Spec};
use tracing::{info, warn};

use super::NodeState;
use crate::gpu::{DeviceId, NvmlLibrary};
use crate::host::{DeviceNumbers, Roots};
