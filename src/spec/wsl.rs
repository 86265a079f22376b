//! Windows Subsystem for Linux: one device for all GPUs, since the node `/dev/dxg` is all of them.
//!
//! The driver's files are Windows' own, in a directory of its driver store. That of NVIDIA's has
//! `libcuda.so.1.1`; where several have, nobody but the user can know which is loaded.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use cdi::{ContainerEdits, Device, Spec};

use super::build::{BuildOptions, VOID, device_node, mounts};
use super::mode::ModeSpec;
use super::refresh::SpecError;
use crate::driver::{DriverError, DriverFiles, InRoot, Library, Program};
use crate::gpu::character_devices;
use crate::host::Roots;

const NODE: &str = "/dev/dxg";
const STORES: &str = "/usr/lib/wsl/drivers";
const DXCORE: &str = "/usr/lib/wsl/lib/libdxcore.so";
const CUDA: &str = "libcuda.so.1.1";
const SMI: &str = "nvidia-smi";

/// Without one of these, CUDA does not start.
const REQUIRED: [&str; 8] = [
    CUDA,
    "libcuda_loader.so",
    "libnvidia-ptxjitcompiler.so.1",
    "libnvidia-ml.so.1",
    "libnvidia-ml_loader.so",
    "libnvdxgdmal.so.1",
    "nvcubins.bin",
    SMI,
];

/// Whether this host is one.
pub fn is_wsl(roots: &Roots) -> bool {
    character_devices(roots, &[NODE.to_owned()], &[]).is_ok_and(|found| !found.is_empty())
}

/// Builds the spec: one device, `all`. `search` names the directory of the driver store instead of
/// a search for it.
pub fn generate_wsl(
    roots: &Roots,
    search: &[PathBuf],
    options: &BuildOptions,
) -> Result<ModeSpec, SpecError> {
    let nodes = character_devices(roots, &[NODE.to_owned()], &[]).unwrap_or_default();
    let Some(node) = nodes.first() else {
        return Err(SpecError::Unavailable(format!(
            "{NODE} is missing below {}: this is no WSL2 with GPU support",
            roots.dev.display()
        )));
    };
    let root = InRoot::open(&roots.driver).map_err(|source| DriverError::Root {
        root: roots.driver.clone(),
        source,
    })?;
    let store = store(&root, search)?;
    let files = files(&root, &store, options)?;
    tracing::warn!(
        "WSL2 has one node for all GPUs: a container with this device can use each of them"
    );
    let mut spec = Spec {
        kind: options.kind.to_string(),
        devices: vec![Device {
            name: "all".into(),
            container_edits: ContainerEdits {
                device_nodes: vec![device_node(node, options)],
                ..ContainerEdits::default()
            },
            ..Device::default()
        }],
        container_edits: ContainerEdits {
            env: vec![VOID.into()],
            mounts: mounts(&files, &options.host_driver_root),
            ..ContainerEdits::default()
        },
        ..Spec::default()
    };
    spec.set_lowest_version();
    spec.validate_for_writing()?;
    Ok(ModeSpec { spec, files })
}

fn names(root: &InRoot, dir: &Path) -> Vec<String> {
    let opened = root.dir(dir).and_then(|dir| InRoot::names(&dir));
    opened
        .unwrap_or_default()
        .into_iter()
        .filter_map(|name| name.into_string().ok())
        .collect()
}

fn store(root: &InRoot, search: &[PathBuf]) -> Result<PathBuf, SpecError> {
    let candidates: Vec<PathBuf> = if search.is_empty() {
        let stores = names(root, Path::new(STORES));
        stores
            .iter()
            .map(|name| Path::new(STORES).join(name))
            .collect()
    } else {
        search.to_vec()
    };
    let searched = if search.is_empty() {
        format!("{STORES}/*")
    } else {
        let dirs: Vec<_> = search.iter().map(|dir| dir.display().to_string()).collect();
        dirs.join(", ")
    };
    let mut found: Vec<_> = candidates
        .into_iter()
        .filter(|dir| root.file(&dir.join(CUDA)).is_ok())
        .collect();
    match (found.pop(), found.as_slice()) {
        (Some(store), []) => Ok(store),
        (None, _) => Err(SpecError::Unavailable(format!(
            "no {CUDA} below {} in {searched}: NVIDIA's Windows driver is not installed",
            root.path().display()
        ))),
        (Some(last), more) => {
            let mut all: Vec<_> = more.iter().map(|dir| dir.display().to_string()).collect();
            all.push(last.display().to_string());
            Err(SpecError::Unavailable(format!(
                "several driver stores have {CUDA}: {}; name the one in use with --library-search-path",
                all.join(", ")
            )))
        }
    }
}

/// Libraries stay at their place in the store, where the loader libraries look for them, and appear
/// under the container's library directory as well.
fn files(root: &InRoot, store: &Path, options: &BuildOptions) -> Result<DriverFiles, SpecError> {
    let names = names(root, store);
    let missing: Vec<_> = REQUIRED
        .iter()
        .filter(|name| !names.iter().any(|found| found == *name))
        .map(|name| (*name).to_owned())
        .collect();
    if !missing.is_empty() {
        return Err(DriverError::Missing {
            root: root.path().to_owned(),
            missing: missing
                .iter()
                .map(|name| store.join(name).display().to_string())
                .collect(),
            rejected: Vec::new(),
        }
        .into());
    }
    let mut files = DriverFiles::default();
    let all = names.iter().map(|name| store.join(name));
    for path in all.chain([PathBuf::from(DXCORE)]) {
        let Some(name) = path.file_name().and_then(|name| name.to_str()) else {
            continue;
        };
        let extension = path.extension().and_then(|extension| extension.to_str());
        let is_wanted = name.contains(".so") || matches!(extension, Some("bin" | "dll"));
        let Ok(found) = root.file(&path) else {
            continue;
        };
        if found.path.to_str().is_none() {
            continue;
        }
        if name == SMI {
            files.programs.push(Program {
                file: found.path,
                path: options
                    .targets
                    .bin
                    .as_deref()
                    .unwrap_or(Path::new("/usr/bin"))
                    .join(SMI),
            });
        } else if is_wanted {
            let target = options.targets.lib.iter();
            let further = (name == CUDA).then_some(["libcuda.so.1", "libcuda.so"]);
            let dir = options.targets.lib.as_deref().unwrap_or(store);
            let names = target
                .map(|dir| dir.join(name))
                .chain(further.into_iter().flatten().map(|name| dir.join(name)))
                .filter(|name| *name != path)
                .collect();
            files.libraries.push(Library {
                file: found.path,
                path,
                names,
            });
        }
    }
    if !files
        .libraries
        .iter()
        .any(|library| library.path == Path::new(DXCORE))
    {
        return Err(DriverError::Missing {
            root: root.path().to_owned(),
            missing: vec![DXCORE.into()],
            rejected: Vec::new(),
        }
        .into());
    }
    // Links of the store have further names already, which must not be mounted twice.
    let mut taken: BTreeSet<_> = files
        .libraries
        .iter()
        .map(|library| library.path.clone())
        .collect();
    for library in &mut files.libraries {
        library.names.retain(|name| taken.insert(name.clone()));
    }
    Ok(files)
}
