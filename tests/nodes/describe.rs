//! The form of a node's description. What it means is [`crate::build`]'s.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use serde::Deserialize;

/// A node.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(crate) struct Description {
    /// For readers of the file.
    #[serde(rename = "about")]
    pub(crate) _about: String,
    /// Version of the running driver; libraries carry it unless they say otherwise.
    #[serde(default)]
    pub(crate) driver: Option<String>,
    /// The driver root below the node's root.
    #[serde(default)]
    pub(crate) root: String,
    /// The directory that contains `dev`, likewise.
    #[serde(default)]
    pub(crate) dev_root: String,
    /// What is there.
    #[serde(flatten)]
    pub(crate) content: Content,
    /// Arguments of each spec, by the name of its golden file's suffix.
    pub(crate) specs: BTreeMap<String, Spec>,
    /// What goes wrong, and what comes of it.
    #[serde(default)]
    pub(crate) variants: Vec<Variant>,
}

/// One run over a node.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Spec {
    #[serde(default)]
    pub(crate) arguments: Vec<String>,
    #[serde(default)]
    pub(crate) exit: i32,
    /// What stderr says.
    #[serde(default)]
    pub(crate) says: Vec<String>,
}

/// Things that lie in a node. Paths are below the driver root, but for `nodes` and `drm`.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, rename_all = "kebab-case")]
pub(crate) struct Content {
    /// By directory: SONAMEs, or `SONAME=file name` where the file carries another version.
    pub(crate) libraries: BTreeMap<String, Vec<String>>,
    /// The same in 32 bits.
    #[serde(rename = "libraries-32")]
    pub(crate) libraries_32: BTreeMap<String, Vec<String>>,
    /// Files with their text.
    pub(crate) files: BTreeMap<String, String>,
    pub(crate) programs: Vec<String>,
    /// Links with theirs.
    pub(crate) links: BTreeMap<String, String>,
    pub(crate) sockets: Vec<String>,
    pub(crate) directories: Vec<String>,
    /// Directories that the loader's cache leads to, by library.
    pub(crate) loader_cache: BTreeMap<String, String>,
    /// Below `/dev`: `major:minor`, and `:group` with the mode 0660.
    pub(crate) nodes: BTreeMap<String, String>,
    /// Lines of `/proc/devices`.
    pub(crate) majors: BTreeMap<String, u32>,
    /// Files below `/proc` and `/sys`.
    pub(crate) proc: BTreeMap<String, String>,
    pub(crate) sys: BTreeMap<String, String>,
    pub(crate) gpus: Vec<Gpu>,
    /// Errors of NVML as a whole.
    pub(crate) errors: BTreeMap<String, serde_json::Value>,
}

/// A GPU, with all of its traces.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(crate) struct Gpu {
    pub(crate) uuid: serde_json::Value,
    pub(crate) minor: u32,
    /// PCI bus, two hexadecimal digits.
    pub(crate) bus: String,
    #[serde(default)]
    pub(crate) name: Option<serde_json::Value>,
    /// Number of its card and of its render node, less 128.
    #[serde(default)]
    pub(crate) drm: Option<u32>,
    #[serde(default)]
    pub(crate) mig: u32,
    #[serde(default)]
    pub(crate) mig_devices: Vec<Option<serde_json::Value>>,
    #[serde(default)]
    pub(crate) errors: BTreeMap<String, serde_json::Value>,
}

/// A node in which something is wrong.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(crate) struct Variant {
    pub(crate) name: String,
    /// Paths below the node's root to remove, first.
    #[serde(default)]
    pub(crate) remove: Vec<String>,
    /// What to put there, then; `gpus` take the place of the node's.
    #[serde(default)]
    pub(crate) put: Content,
    #[serde(default)]
    pub(crate) driver: Option<String>,
    #[serde(default)]
    pub(crate) arguments: Vec<String>,
    pub(crate) exit: i32,
    /// The devices of the spec; none when nothing is written.
    #[serde(default)]
    pub(crate) devices: Vec<String>,
    /// What stderr says.
    #[serde(default)]
    pub(crate) says: Vec<String>,
    /// What the spec must not mention.
    #[serde(default)]
    pub(crate) without: Vec<String>,
}

/// All descriptions, by name.
pub(crate) fn all() -> BTreeMap<String, Description> {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/nodes");
    let mut found = BTreeMap::new();
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        let text = fs::read_to_string(&path).unwrap();
        let description = serde_yaml::from_str(&text)
            .unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        let name = path.file_stem().unwrap().to_str().unwrap().to_owned();
        found.insert(name, description);
    }
    assert!(found.len() >= 12, "a dozen kinds of nodes");
    found
}
