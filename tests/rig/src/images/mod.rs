//! Images without a registry: an OCI image layout in one tar, made from a static busybox.
//!
//! Owns what is in an image; importing it is the containerd instance's job. Built on every use: it
//! takes milliseconds, and there is no cache that could be stale.

mod tar;

use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::json;

use crate::Failure;
use tar::Tar;

/// Runs until it is told to stop, then stops at once, also as the first process of a pid namespace.
pub const IDLE: [&str; 3] = [
    "/bin/sh",
    "-c",
    "trap 'exit 0' TERM INT; while :; do sleep 3600 & wait $!; done",
];

/// One image to be made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Image {
    /// Full reference, such as `rig.invalid/busybox:1`.
    pub reference: String,
    /// What the image's author baked in, `KEY=value` in this order, duplicates allowed.
    pub env: Vec<String>,
    /// Runs where the container names no command.
    pub command: Vec<String>,
}

impl Image {
    /// The sandbox image.
    pub fn pause() -> Self {
        Self::named("pause")
    }

    /// A shell, and a process that idles until it is stopped.
    pub fn busybox() -> Self {
        Self::named("busybox")
    }

    /// Busybox under another name, so that it may carry other environment.
    pub fn named(name: &str) -> Self {
        Self {
            reference: format!("rig.invalid/{name}:1"),
            env: vec!["PATH=/bin".to_owned()],
            command: IDLE.map(str::to_owned).to_vec(),
        }
    }

    /// Adds a variable to the image's own environment, after those it has.
    #[must_use]
    pub fn env(mut self, key: &str, value: &str) -> Self {
        self.env.push(format!("{key}={value}"));
        self
    }

    /// Writes the image as a tar that `ctr images import` takes.
    pub fn write(&self, busybox: &Path, to: &Path) -> Result<(), Failure> {
        let layer = layer(busybox)?;
        let config = serde_json::to_vec(&json!({
            "architecture": architecture(),
            "os": "linux",
            "config": { "Env": self.env, "Cmd": self.command },
            "rootfs": { "type": "layers", "diff_ids": [digest(&layer)?] },
        }))
        .map_err(|e| Failure::unexpected(&self.reference, e))?;
        let manifest = serde_json::to_vec(&json!({
            "schemaVersion": 2,
            "mediaType": "application/vnd.oci.image.manifest.v1+json",
            "config": descriptor("application/vnd.oci.image.config.v1+json", &config)?,
            "layers": [descriptor("application/vnd.oci.image.layer.v1.tar", &layer)?],
        }))
        .map_err(|e| Failure::unexpected(&self.reference, e))?;
        let mut entry = descriptor("application/vnd.oci.image.manifest.v1+json", &manifest)?;
        entry["annotations"] = json!({
            "io.containerd.image.name": self.reference,
            "org.opencontainers.image.ref.name": self.reference,
        });
        entry["platform"] = json!({ "architecture": architecture(), "os": "linux" });
        let index = json!({ "schemaVersion": 2, "manifests": [entry] }).to_string();

        let mut tar = Tar::default();
        tar.file("oci-layout", 0o644, br#"{"imageLayoutVersion":"1.0.0"}"#);
        tar.file("index.json", 0o644, index.as_bytes());
        tar.directory("blobs");
        tar.directory("blobs/sha256");
        for blob in [&layer, &config, &manifest] {
            let digest = digest(blob)?;
            tar.file(
                &digest
                    .replacen(':', "/", 1)
                    .replacen("sha256", "blobs/sha256", 1),
                0o644,
                blob,
            );
        }
        std::fs::write(to, tar.finish()).map_err(Failure::file("write", to))
    }
}

fn descriptor(media_type: &str, blob: &[u8]) -> Result<serde_json::Value, Failure> {
    Ok(json!({ "mediaType": media_type, "digest": digest(blob)?, "size": blob.len() }))
}

/// The root file system: busybox under each of its names, and empty directories.
fn layer(busybox: &Path) -> Result<Vec<u8>, Failure> {
    let binary = std::fs::read(busybox).map_err(Failure::file("read", busybox))?;
    let listed = Command::new(busybox)
        .arg("--list")
        .output()
        .map_err(|source| Failure::Spawn {
            program: busybox.display().to_string(),
            source,
        })?;
    let mut tar = Tar::default();
    for directory in [
        "bin", "dev", "etc", "proc", "root", "run", "sys", "tmp", "var",
    ] {
        tar.directory(directory);
    }
    tar.file("bin/busybox", 0o755, &binary);
    let applets = String::from_utf8_lossy(&listed.stdout);
    for applet in applets.lines().filter(|name| *name != "busybox") {
        tar.symlink(&format!("bin/{applet}"), "busybox");
    }
    tar.file("etc/passwd", 0o644, b"root:x:0:0::/root:/bin/sh\n");
    Ok(tar.finish())
}

/// `sha256:<hex>`, through coreutils: no crate for the sake of one digest.
fn digest(bytes: &[u8]) -> Result<String, Failure> {
    use std::io::Write as _;
    let failed = |source| Failure::Spawn {
        program: "sha256sum".to_owned(),
        source,
    };
    let mut child = Command::new("sha256sum")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .map_err(failed)?;
    if let Some(mut stdin) = child.stdin.take() {
        stdin.write_all(bytes).map_err(failed)?;
    }
    let out = child.wait_with_output().map_err(failed)?;
    let text = String::from_utf8_lossy(&out.stdout);
    match text.split_whitespace().next() {
        Some(hex) if hex.len() == 64 => Ok(format!("sha256:{hex}")),
        _ => Err(Failure::unexpected("sha256sum", &text)),
    }
}

/// The name that images use for this machine's architecture.
fn architecture() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_digest_is_that_of_the_standard() {
        assert_eq!(
            digest(b"abc").unwrap(),
            "sha256:ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
        );
    }

    #[test]
    fn system_tar_lists_an_image_with_its_blobs_and_environment() {
        let dir = tempfile::tempdir().unwrap();
        let busybox = dir.path().join("busybox");
        std::fs::write(&busybox, "#!/bin/sh\necho sh\necho busybox\n").unwrap();
        Command::new("chmod")
            .arg("755")
            .arg(&busybox)
            .status()
            .unwrap();
        let tar = dir.path().join("image.tar");
        let image = Image::named("x").env("NVIDIA_VISIBLE_DEVICES", "all");
        image.write(&busybox, &tar).unwrap();
        let unpacked = Command::new("tar")
            .arg("-xf")
            .arg(&tar)
            .arg("-C")
            .arg(dir.path())
            .status()
            .unwrap();
        assert!(unpacked.success());
        let read = |path: &Path| -> serde_json::Value {
            serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap()
        };
        let blob = |descriptor: &serde_json::Value| {
            let digest = descriptor["digest"].as_str().unwrap();
            dir.path().join("blobs").join(digest.replace(':', "/"))
        };
        let index = read(&dir.path().join("index.json"));
        let manifest = read(&blob(&index["manifests"][0]));
        let config = read(&blob(&manifest["config"]));
        assert_eq!(config["config"]["Env"][1], "NVIDIA_VISIBLE_DEVICES=all");
        let layer = std::fs::read(blob(&manifest["layers"][0])).unwrap();
        assert_eq!(config["rootfs"]["diff_ids"][0], digest(&layer).unwrap());
    }
}
