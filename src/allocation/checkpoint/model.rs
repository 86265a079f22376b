//! The checkpoint's JSON, as the kubelet writes it (V2) and wrote it before 1.20 (V1).

use std::collections::BTreeMap;
use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::de::{self, Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};

#[derive(serde::Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct Document {
    pub(super) data: Data,
    pub(super) checksum: Option<u64>,
}

#[derive(serde::Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct Data {
    /// `null` when nothing was ever allocated; the key itself is always there.
    #[serde(deserialize_with = "Option::deserialize")]
    pub(super) pod_device_entries: Option<Vec<Entry>>,
    pub(super) registered_devices: Option<BTreeMap<String, Option<Vec<String>>>>,
}

#[derive(serde::Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct Entry {
    #[serde(rename = "PodUID")]
    pub(super) pod_uid: String,
    pub(super) container_name: String,
    pub(super) resource_name: String,
    #[serde(rename = "DeviceIDs")]
    pub(super) device_ids: DeviceIds,
    pub(super) alloc_resp: Option<Base64>,
}

/// The ids of one entry.
pub(super) enum DeviceIds {
    Null,
    /// V1.
    Flat(Vec<String>),
    /// V2, by NUMA node; `-1` on a node without NUMA information.
    PerNuma(BTreeMap<i64, Option<Vec<String>>>),
}

impl DeviceIds {
    pub(super) fn iter(&self) -> Box<dyn Iterator<Item = &str> + '_> {
        match self {
            Self::Null => Box::new(std::iter::empty()),
            Self::Flat(ids) => Box::new(ids.iter().map(String::as_str)),
            Self::PerNuma(map) => Box::new(map.values().flatten().flatten().map(String::as_str)),
        }
    }
}

impl<'de> Deserialize<'de> for DeviceIds {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(DeviceIdsVisitor)
    }
}

struct DeviceIdsVisitor;

impl<'de> Visitor<'de> for DeviceIdsVisitor {
    type Value = DeviceIds;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("device ids by NUMA node, or a list of them")
    }

    fn visit_unit<E>(self) -> Result<DeviceIds, E> {
        Ok(DeviceIds::Null)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<DeviceIds, A::Error> {
        let mut ids = Vec::new();
        while let Some(id) = seq.next_element()? {
            ids.push(id);
        }
        Ok(DeviceIds::Flat(ids))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<DeviceIds, A::Error> {
        let mut nodes = BTreeMap::new();
        while let Some((node, ids)) = map.next_entry::<i64, _>()? {
            if nodes.insert(node, ids).is_some() {
                return Err(de::Error::custom(format_args!("NUMA node {node} twice")));
            }
        }
        Ok(DeviceIds::PerNuma(nodes))
    }
}

/// Bytes that the JSON holds as padded standard base64.
pub(super) struct Base64(pub(super) Vec<u8>);

impl<'de> Deserialize<'de> for Base64 {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        STANDARD
            .decode(text)
            .map(Self)
            .map_err(|e| de::Error::custom(format_args!("AllocResp is no base64: {e}")))
    }
}
