//! A root file system in a temporary directory beside a place that must stay as it is, and the hook
//! run on it directly.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::json;
use tempfile::TempDir;

use crate::elf_fixture::library;

pub(crate) const LIBRARY: &str = "/usr/lib64/libcuda.so.570.1";

/// What a spec asks for, for one library and one GPU's DRM node.
pub(crate) const ARGUMENTS: [&str; 4] = [
    "--link=libcuda.so.570.1::/usr/lib64/libcuda.so.1",
    "--link=../card1::/dev/dri/by-path/pci-0000:3b:00.0-card",
    "--library=/usr/lib64/libcuda.so.1",
    "--freeze-device-files",
];

pub(crate) struct Bundle {
    dir: TempDir,
}

pub(crate) struct Run {
    pub(crate) code: Option<i32>,
    pub(crate) stderr: String,
}

impl Bundle {
    /// A glibc image without a cache, with the driver's library in place.
    pub(crate) fn new() -> Self {
        let bundle = Self {
            dir: tempfile::tempdir().unwrap(),
        };
        fs::create_dir(bundle.outside()).unwrap();
        fs::write(bundle.outside().join("shadow"), "secret").unwrap();
        bundle.configure(&bundle.path("rootfs"));
        for dir in ["etc", "dev/dri", "lib", "lib64", "proc"] {
            fs::create_dir_all(bundle.root(dir)).unwrap();
        }
        bundle.put(LIBRARY, &library(Some("libcuda.so.1")));
        for loader in ["/lib64/ld-linux-x86-64.so.2", "/lib/ld-linux-aarch64.so.1"] {
            bundle.put(loader, b"");
        }
        bundle.put("/dev/dri/card1", b"");
        bundle
    }

    pub(crate) fn configure(&self, root: &Path) {
        let config = json!({"root": {"path": root}, "linux": {"maskedPaths": ["/proc/kcore"]}});
        fs::write(self.path("config.json"), config.to_string()).unwrap();
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    pub(crate) fn outside(&self) -> PathBuf {
        self.path("outside")
    }

    pub(crate) fn root(&self, path: &str) -> PathBuf {
        self.path("rootfs").join(path.trim_start_matches('/'))
    }

    pub(crate) fn put(&self, path: &str, bytes: &[u8]) {
        let path = self.root(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, bytes).unwrap();
    }

    /// Puts a link where a file or directory was.
    pub(crate) fn replace_by_link(&self, path: &str, target: impl AsRef<Path>) {
        let path = self.root(path);
        let _ = fs::remove_file(&path);
        let _ = fs::remove_dir_all(&path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        symlink(target, path).unwrap();
    }

    pub(crate) fn state(&self) -> String {
        json!({"ociVersion": "1.0.2", "id": "t", "status": "creating", "pid": 1, "bundle": self.dir.path()})
            .to_string()
    }

    /// Runs the hook, by `prefix` where that is not empty.
    pub(crate) fn hook_by(&self, prefix: &[&str], arguments: &[&str]) -> Run {
        let own = [env!("CARGO_BIN_EXE_cdi-gen"), "hook"];
        let line: Vec<_> = prefix.iter().chain(&own).chain(arguments).collect();
        let output = assert_cmd::Command::new(line[0])
            .args(&line[1..])
            .write_stdin(self.state())
            .timeout(Duration::from_secs(20))
            .output()
            .unwrap();
        Run {
            code: output.status.code(),
            stderr: String::from_utf8(output.stderr).unwrap(),
        }
    }

    pub(crate) fn hook(&self) -> Run {
        self.hook_by(&[], &ARGUMENTS)
    }

    pub(crate) fn assert_outside_untouched(&self) {
        let names: Vec<_> = fs::read_dir(self.outside())
            .unwrap()
            .map(|entry| entry.unwrap().file_name())
            .collect();
        assert_eq!(names, ["shadow"]);
        let content = fs::read(self.outside().join("shadow")).unwrap();
        assert_eq!(content, b"secret");
    }
}
