//! NVIDIA's `config.toml`: by which further names the container runtime of this node can be asked for
//! GPUs.
//!
//! Owns the reading of what is found. Refuses to believe what it can't read: where no file is found, or
//! one of them is broken, the worst case holds.
//!
//! Keys: `swarm-resource`, `nvidia-container-runtime.modes.cdi.{annotation-prefixes,default-kind}`.
//! Neither the mode nor the `accept-…` flags are looked at: what they let through is neutralised
//! whether they are set or not, since they may change without a word.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use serde::Deserialize;

/// Where the file usually is: of the distribution's package, and of the GPU Operator's toolkit.
pub const USUAL_PATHS: [&str; 2] = [
    "/etc/nvidia-container-runtime/config.toml",
    "/usr/local/nvidia/toolkit/.config/nvidia-container-runtime/config.toml",
];

/// Docker Swarm announces a generic resource `KIND` to a container as `DOCKER_RESOURCE_KIND`.
const SWARM_PREFIX: &str = "DOCKER_RESOURCE_";
/// Always CDI requests, whatever the file says: containerd's and CRI-O's own, and the GPU Operator's.
const USUAL_PREFIXES: [&str; 2] = ["cdi.k8s.io/", "nvidia.cdi.k8s.io/"];
/// Larger than any real one.
const SIZE_LIMIT: u64 = 1 << 20;

/// The names that the node's NVIDIA runtime listens to, beside its own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Toolkit {
    swarm: Option<BTreeSet<String>>,
    prefixes: BTreeSet<String>,
    kinds: BTreeSet<String>,
}

/// A file that is there and can't be used.
#[derive(Debug, thiserror::Error)]
pub enum ToolkitError {
    /// It can't be read.
    #[error("can't read {}: {source}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The system's answer.
        source: io::Error,
    },
    /// It is no TOML, or a key has another type than NVIDIA's documentation gives it.
    #[error("{} is no configuration of the NVIDIA container runtime: {reason}", path.display())]
    Parse {
        /// The file.
        path: PathBuf,
        /// Place and reason.
        reason: String,
    },
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "kebab-case", default)]
struct Document {
    swarm_resource: Option<Names>,
    nvidia_container_runtime: RuntimeTable,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct RuntimeTable {
    modes: Modes,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Modes {
    cdi: CdiTable,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "kebab-case", default)]
struct CdiTable {
    annotation_prefixes: Vec<String>,
    default_kind: Option<String>,
}

/// A list, or the same as one text with commas.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum Names {
    Text(String),
    List(Vec<String>),
}

impl Toolkit {
    /// What holds while nothing is known: every name that Docker Swarm could have given.
    pub fn unknown() -> Self {
        Self {
            swarm: None,
            prefixes: USUAL_PREFIXES.map(str::to_owned).into(),
            kinds: BTreeSet::new(),
        }
    }

    /// Reads every file of `paths` that is there; their names add up. With none, or with a broken one,
    /// the worst case is part of the answer.
    pub fn read(paths: &[PathBuf]) -> (Self, Vec<ToolkitError>) {
        let mut known = Self {
            swarm: Some(BTreeSet::new()),
            ..Self::unknown()
        };
        let (mut found, mut problems) = (false, Vec::new());
        for path in paths {
            match read(path) {
                Ok(None) => {}
                Ok(Some(document)) => {
                    found = true;
                    known.add(document);
                }
                Err(problem) => problems.push(problem),
            }
        }
        if !found || !problems.is_empty() {
            known.swarm = None;
        }
        (known, problems)
    }

    fn add(&mut self, document: Document) {
        let cdi = document.nvidia_container_runtime.modes.cdi;
        let names = match document.swarm_resource {
            None => Vec::new(),
            Some(Names::Text(text)) => text.split(',').map(str::to_owned).collect(),
            Some(Names::List(list)) => list,
        };
        let names = names
            .iter()
            .map(|name| name.trim())
            .filter(|name| !name.is_empty() && !name.contains(['=', '\0']));
        if let Some(swarm) = &mut self.swarm {
            swarm.extend(names.map(str::to_owned));
        }
        self.prefixes.extend(cdi.annotation_prefixes);
        self.kinds.extend(cdi.default_kind);
    }

    /// Whether an environment variable of that name asks this node's runtime for GPUs, as Docker Swarm
    /// does.
    pub fn is_swarm_variable(&self, name: &str) -> bool {
        match &self.swarm {
            Some(names) => names.contains(name),
            None => name.starts_with(SWARM_PREFIX),
        }
    }

    /// Whether an annotation of that key asks for CDI devices.
    pub fn is_cdi_annotation(&self, key: &str) -> bool {
        self.prefixes.iter().any(|prefix| key.starts_with(prefix))
    }

    /// Kinds (`vendor/class`) of CDI devices that stand for GPUs although they are not NVIDIA's by name.
    pub fn has_kind(&self, kind: &str) -> bool {
        self.kinds.contains(kind)
    }
}

impl Default for Toolkit {
    fn default() -> Self {
        Self::unknown()
    }
}

fn read(path: &Path) -> Result<Option<Document>, ToolkitError> {
    let failed = |source| ToolkitError::Read {
        path: path.to_owned(),
        source,
    };
    let file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(failed(error)),
    };
    let mut text = String::new();
    file.take(SIZE_LIMIT)
        .read_to_string(&mut text)
        .map_err(failed)?;
    let document = toml::from_str(&text).map_err(|error| ToolkitError::Parse {
        path: path.to_owned(),
        reason: error.to_string(),
    })?;
    Ok(Some(document))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// In the shape that `nvidia-ctk config` prints.
    const USUAL: &str = r#"
accept-nvidia-visible-devices-as-volume-mounts = true
accept-nvidia-visible-devices-envvar-when-unprivileged = false
disable-require = false
supported-driver-capabilities = "compat32,compute,display,graphics,ngx,utility,video"
swarm-resource = "DOCKER_RESOURCE_GPU, TEAM_GPUS"

[nvidia-container-cli]
environment = []
load-kmods = true

[nvidia-container-runtime]
mode = "auto"
runtimes = ["runc", "crun"]

[nvidia-container-runtime.modes.cdi]
annotation-prefixes = ["cdi.k8s.io/", "gpu.example.com/"]
default-kind = "gpu.example.com/card"
spec-dirs = ["/etc/cdi"]

[nvidia-container-runtime.modes.csv]
mount-spec-path = "/etc/nvidia-container-runtime/host-files-for-container.d"
"#;

    fn files(texts: &[&str]) -> (tempfile::TempDir, Vec<PathBuf>) {
        let dir = tempfile::tempdir().unwrap();
        let write = |(at, text): (usize, &&str)| {
            let path = dir.path().join(at.to_string());
            std::fs::write(&path, text).unwrap();
            path
        };
        let paths = texts.iter().enumerate().map(write).collect();
        (dir, paths)
    }

    #[test]
    fn the_usual_file_names_what_it_names_and_no_more() {
        let (_dir, paths) = files(&[USUAL]);
        let (toolkit, problems) = Toolkit::read(&paths);
        assert!(problems.is_empty(), "{problems:?}");
        assert!(toolkit.is_swarm_variable("DOCKER_RESOURCE_GPU"));
        assert!(toolkit.is_swarm_variable("TEAM_GPUS"));
        assert!(!toolkit.is_swarm_variable("DOCKER_RESOURCE_DISK"));
        for key in ["cdi.k8s.io/x", "nvidia.cdi.k8s.io/x", "gpu.example.com/x"] {
            assert!(toolkit.is_cdi_annotation(key), "{key}");
        }
        assert!(!toolkit.is_cdi_annotation("example.com/cdi.k8s.io"));
        assert!(toolkit.has_kind("gpu.example.com/card"));
    }

    #[test]
    fn two_files_add_up_and_a_list_is_read_as_one() {
        let (_dir, mut paths) = files(&["swarm-resource = 'A'", "swarm-resource = ['B', ' C']"]);
        paths.push("/nonexistent/config.toml".into());
        let (toolkit, problems) = Toolkit::read(&paths);
        assert!(problems.is_empty());
        assert!(["A", "B", "C"].map(|name| toolkit.is_swarm_variable(name)) == [true; 3]);
        assert!(!toolkit.is_swarm_variable(""));
    }

    #[test]
    fn without_a_readable_file_the_worst_case_holds() {
        let (dir, paths) = files(&["swarm-resource = 'A'", "swarm-resource = ["]);
        let (none, problems) = Toolkit::read(&[]);
        assert!(problems.is_empty());
        let (broken, problems) = Toolkit::read(&paths);
        assert!(problems[0].to_string().contains(paths[1].to_str().unwrap()));
        let (directory, unreadable) = Toolkit::read(&[dir.path().to_owned()]);
        assert_eq!(unreadable.len(), 1);
        let (_dir, paths) = files(&["swarm-resource = 7"]);
        let (odd, mistyped) = Toolkit::read(&paths);
        assert_eq!(mistyped.len(), 1);
        for toolkit in [none, broken, directory, odd] {
            assert!(toolkit.is_swarm_variable("DOCKER_RESOURCE_GPU"));
            assert!(toolkit.is_cdi_annotation("cdi.k8s.io/x"));
        }
    }

    proptest! {
        #[test]
        fn any_text_is_survived_and_the_usual_prefixes_stay(text in "\\PC{0,200}") {
            let (_dir, paths) = files(&[&text]);
            let (toolkit, _) = Toolkit::read(&paths);
            prop_assert!(toolkit.is_cdi_annotation("cdi.k8s.io/x"));
        }
    }
}
