//! Writes the device-manager checkpoint.

use std::collections::BTreeSet;
use std::io::Write as _;
use std::path::Path;

use anyhow::{Context as _, Result};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use gpu_warden::allocation::checkpoint::Checkpoint;
use protobuf::Message as _;
use serde_json::{Value, json};

use super::{PodRef, Style, response};

/// One recorded allocation.
#[derive(Debug, Clone)]
pub(super) struct Entry {
    pub(super) pod_uid: String,
    container: String,
    resource: String,
    ids: Vec<String>,
    alloc_resp: Vec<u8>,
    /// Its pod has ended; the next write leaves it out.
    pub(super) stale: bool,
}

impl Entry {
    pub(super) fn new(
        pod: &PodRef,
        container: &str,
        resource: &str,
        ids: &[&str],
        style: Style,
    ) -> Result<Self> {
        let mut alloc_resp = response(style, ids)
            .write_to_bytes()
            .context("encode the device plugin's answer")?;
        if style == Style::Garbled {
            alloc_resp.truncate(alloc_resp.len() - 1);
        }
        Ok(Self {
            pod_uid: pod.uid.clone(),
            container: container.to_owned(),
            resource: resource.to_owned(),
            ids: ids.iter().map(|id| (*id).to_owned()).collect(),
            alloc_resp,
            stale: false,
        })
    }
}

/// The file's bytes.
pub(super) fn document(entries: &[Entry], flat: bool, foreign_checksum: bool) -> Result<Vec<u8>> {
    let records: Vec<Value> = entries
        .iter()
        .map(|entry| {
            json!({
                "PodUID": entry.pod_uid,
                "ContainerName": entry.container,
                "ResourceName": entry.resource,
                "DeviceIDs": if flat { json!(entry.ids) } else { json!({ "-1": entry.ids }) },
                "AllocResp": STANDARD.encode(&entry.alloc_resp),
            })
        })
        .collect();
    let mut registered = serde_json::Map::new();
    for entry in entries {
        let ids: BTreeSet<&String> = entries
            .iter()
            .filter(|e| e.resource == entry.resource)
            .flat_map(|e| &e.ids)
            .collect();
        registered.insert(entry.resource.clone(), json!(ids));
    }
    let mut document = json!({
        "Data": {
            "PodDeviceEntries": if records.is_empty() { Value::Null } else { json!(records) },
            "RegisteredDevices": registered,
        },
        "Checksum": 0,
    });
    let checksum = Checkpoint::parse(&serde_json::to_vec(&document)?)?
        .computed_checksum()
        .unwrap_or_default();
    document["Checksum"] = json!(if foreign_checksum {
        !checksum
    } else {
        checksum
    });
    Ok(serde_json::to_vec(&document)?)
}

/// Replaces the file by rename, so that a reader sees the old or the new one.
pub(super) fn replace(path: &Path, bytes: &[u8]) -> Result<()> {
    let dir = path.parent().context("the checkpoint has a directory")?;
    let write = || -> Result<()> {
        let mut file = tempfile::NamedTempFile::new_in(dir)?;
        file.write_all(bytes)?;
        file.persist(path)?;
        Ok(())
    };
    write().with_context(|| format!("write {}", path.display()))
}
