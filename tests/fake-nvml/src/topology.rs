//! The topology file. Its format is documented at the crate.

use std::collections::BTreeMap;

use serde::Deserialize;

/// `nvmlReturn_t`, the codes that this library itself returns.
pub(crate) mod code {
    pub(crate) const UNINITIALIZED: u32 = 1;
    pub(crate) const INVALID_ARGUMENT: u32 = 2;
    pub(crate) const NOT_SUPPORTED: u32 = 3;
    pub(crate) const NOT_FOUND: u32 = 6;
    pub(crate) const INSUFFICIENT_SIZE: u32 = 7;
    pub(crate) const DRIVER_NOT_LOADED: u32 = 9;
    pub(crate) const UNKNOWN: u32 = 999;
}

/// Every name that a topology may use, with its number in `nvml.h`.
const NAMES: [(&str, u32); 20] = [
    ("UNINITIALIZED", code::UNINITIALIZED),
    ("INVALID_ARGUMENT", code::INVALID_ARGUMENT),
    ("NOT_SUPPORTED", code::NOT_SUPPORTED),
    ("NO_PERMISSION", 4),
    ("NOT_FOUND", code::NOT_FOUND),
    ("INSUFFICIENT_SIZE", code::INSUFFICIENT_SIZE),
    ("INSUFFICIENT_POWER", 8),
    ("DRIVER_NOT_LOADED", code::DRIVER_NOT_LOADED),
    ("TIMEOUT", 10),
    ("IRQ_ISSUE", 11),
    ("LIBRARY_NOT_FOUND", 12),
    ("FUNCTION_NOT_FOUND", 13),
    ("CORRUPTED_INFOROM", 14),
    ("GPU_IS_LOST", 15),
    ("RESET_REQUIRED", 16),
    ("OPERATING_SYSTEM", 17),
    ("LIB_RM_VERSION_MISMATCH", 18),
    ("IN_USE", 19),
    ("MEMORY", 20),
    ("UNKNOWN", code::UNKNOWN),
];

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Topology {
    pub(crate) driver_version: Text,
    pub(crate) nvml_version: Option<Text>,
    #[serde(default)]
    pub(crate) init_delay_ms: u64,
    pub(crate) count: Option<u32>,
    #[serde(default)]
    pub(crate) errors: BTreeMap<String, Failure>,
    #[serde(default)]
    pub(crate) gpus: Vec<Gpu>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Gpu {
    pub(crate) uuid: Series<Text>,
    pub(crate) name: Series<Text>,
    pub(crate) minor: Series<u32>,
    pub(crate) pci: Series<Text>,
    pub(crate) mig: Option<Series<u32>>,
    /// What is in each slot; null is an empty one.
    #[serde(default)]
    pub(crate) mig_devices: Vec<Option<MigDevice>>,
    #[serde(default)]
    pub(crate) errors: BTreeMap<String, Failure>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct MigDevice {
    pub(crate) uuid: Text,
    pub(crate) name: Option<Text>,
    pub(crate) gi: u32,
    pub(crate) ci: u32,
    #[serde(default)]
    pub(crate) errors: BTreeMap<String, Failure>,
}

/// Which value of a GPU a function tells.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum GpuField {
    /// None: only whether there is such a GPU.
    Exists,
    Uuid,
    Name,
    Minor,
    Pci,
    Mig,
    /// Number of slots.
    MigSlots,
}

/// One value for all calls, or one for each.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
pub(crate) enum Series<T> {
    Always(T),
    Each(Vec<T>),
}

impl<T> Series<T> {
    pub(crate) fn at(&self, call: usize) -> Option<&T> {
        match self {
            Self::Always(value) => Some(value),
            Self::Each(values) => values.get(call).or(values.last()),
        }
    }
}

#[derive(Debug, Deserialize)]
#[serde(untagged)]
pub(crate) enum Text {
    Plain(String),
    Bytes { hex: Hex },
}

impl Text {
    pub(crate) fn bytes(&self) -> Vec<u8> {
        match self {
            Self::Plain(text) => text.clone().into_bytes(),
            Self::Bytes { hex } => hex.0.clone(),
        }
    }
}

#[derive(Debug, Deserialize)]
#[serde(try_from = "String")]
pub(crate) struct Hex(Vec<u8>);

impl TryFrom<String> for Hex {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.as_bytes()
            .chunks(2)
            .map(|pair| {
                std::str::from_utf8(pair)
                    .ok()
                    .filter(|pair| pair.len() == 2)
                    .and_then(|pair| u8::from_str_radix(pair, 16).ok())
                    .ok_or_else(|| format!("`{text}` is no hexadecimal text"))
            })
            .collect::<Result<_, _>>()
            .map(Self)
    }
}

/// An `nvmlReturn_t` other than success.
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(try_from = "serde_json::Value")]
pub(crate) struct Failure(pub(crate) u32);

impl TryFrom<serde_json::Value> for Failure {
    type Error = String;

    fn try_from(value: serde_json::Value) -> Result<Self, String> {
        let number = match &value {
            serde_json::Value::String(name) => NAMES
                .iter()
                .find(|(known, _)| known == name)
                .map(|(_, number)| *number),
            other => other.as_u64().and_then(|number| u32::try_from(number).ok()),
        };
        number
            .filter(|number| *number != 0)
            .map(Self)
            .ok_or_else(|| format!("{value} is no NVML error"))
    }
}
