//! `cdi-gen list`: every device that the CDI directories define.

use std::path::PathBuf;

use cdi::{ContainerEdits, Registry, ResolveError};
use clap::Args;
use serde::Serialize;

use super::exit::Exit;
use super::output::{CdiDirArgs, VERSION, ViewArgs};
use super::table::Table;

/// Arguments of `cdi-gen list`.
#[derive(Debug, Clone, Args)]
pub struct ListArgs {
    /// Only devices of this kind, such as nvidia.com/gpu
    #[arg(long, value_name = "KIND")]
    pub kind: Option<String>,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub dirs: CdiDirArgs,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub view: ViewArgs,
}

#[derive(Serialize)]
struct Answer {
    version: u32,
    devices: Vec<Entry>,
    /// Files that runtimes skip.
    broken: Vec<Broken>,
}

#[derive(Serialize)]
struct Entry {
    kind: String,
    name: String,
    file: PathBuf,
    /// The device's own, by path in the container.
    nodes: Vec<String>,
    /// What every device of the file brings.
    file_nodes: Vec<String>,
    state: State,
    #[serde(skip_serializing_if = "Option::is_none")]
    shadowed_by: Option<PathBuf>,
}

#[derive(Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum State {
    /// A container that asks for it gets it.
    Live,
    /// A later directory has the same device.
    Shadowed,
    /// Two files of one directory have it, so nobody gets it.
    Conflict,
}

#[derive(Serialize)]
struct Broken {
    file: PathBuf,
    reason: String,
}

impl ListArgs {
    /// Runs the command.
    pub fn exec(&self) -> anyhow::Result<Exit> {
        let registry = Registry::load(&self.dirs.cdi_dirs);
        let answer = Answer {
            version: VERSION,
            devices: self.entries(&registry),
            broken: registry
                .broken()
                .iter()
                .map(|file| Broken {
                    file: file.path.clone(),
                    reason: file.error.to_string(),
                })
                .collect(),
        };
        for error in registry.dir_errors() {
            tracing::warn!("{error}");
        }
        for broken in &answer.broken {
            tracing::warn!("runtimes skip a file: {}", broken.reason);
        }
        self.view.print(&answer, table)?;
        Ok(Exit::Done)
    }

    fn entries(&self, registry: &Registry) -> Vec<Entry> {
        let mut entries = Vec::new();
        for file in registry.files() {
            if self
                .kind
                .as_ref()
                .is_some_and(|kind| *kind != file.spec.kind)
            {
                continue;
            }
            let Ok(kind) = file.spec.kind.parse::<cdi::Kind>() else {
                continue;
            };
            let paths = |edits: &ContainerEdits| {
                let nodes = edits.device_nodes.iter();
                nodes.map(|node| node.path.clone()).collect::<Vec<_>>()
            };
            for device in &file.spec.devices {
                let Ok(name) = kind.device(&device.name) else {
                    continue;
                };
                let (state, shadowed_by) = match registry.resolve(&name) {
                    Ok(winner) if winner.path == file.path => (State::Live, None),
                    Ok(winner) => (State::Shadowed, Some(winner.path.to_owned())),
                    Err(ResolveError::Conflict { .. }) => (State::Conflict, None),
                    // A file in the registry is valid, so each of its names is defined.
                    Err(_) => continue,
                };
                entries.push(Entry {
                    kind: file.spec.kind.clone(),
                    name: device.name.clone(),
                    file: file.path.clone(),
                    nodes: paths(&device.container_edits),
                    file_nodes: paths(&file.spec.container_edits),
                    state,
                    shadowed_by,
                });
            }
        }
        entries.sort_by(|a, b| (&a.kind, &a.name, &a.file).cmp(&(&b.kind, &b.name, &b.file)));
        entries
    }
}

fn table(answer: &Answer) -> String {
    let mut table = Table::new(&["NAME", "STATE", "FILE", "NODES"]);
    for entry in &answer.devices {
        let state = match (entry.state, &entry.shadowed_by) {
            (State::Live, _) => "live".to_owned(),
            (State::Conflict, _) => "conflict".to_owned(),
            (State::Shadowed, by) => {
                let by = by.as_ref().map(|by| by.display().to_string());
                format!("shadowed by {}", by.unwrap_or_default())
            }
        };
        table.row([
            &format!("{}={}", entry.kind, entry.name),
            &state,
            &entry.file.display().to_string(),
            &entry.nodes.join(","),
        ]);
    }
    table.render()
}
