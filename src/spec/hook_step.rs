//! What a hook has to do in a container, as plain values, and the CDI hook that says so.
//!
//! Whatever a mount can do is no step: this is for links in a directory of device nodes, and for
//! loaders that look only where their cache leads.

use std::path::{Path, PathBuf};

use cdi::Hook;

use crate::driver::DriverFiles;

/// One thing that has to be done in the container's root file system.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HookStep {
    /// A symbolic link at `path` with the text `target`.
    Link {
        /// Text of the link.
        target: String,
        /// Absolute, in the container.
        path: PathBuf,
    },
    /// The loader is to find these libraries under their file names; absolute, in the container.
    Libraries(Vec<PathBuf>),
}

impl HookStep {
    /// Every name by which programs and other libraries ask for the driver's libraries.
    pub fn libraries(files: &DriverFiles) -> Self {
        let names = files.libraries.iter().flat_map(|library| {
            let own = std::slice::from_ref(&library.path);
            if library.names.is_empty() {
                own
            } else {
                library.names.as_slice()
            }
        });
        Self::Libraries(names.cloned().collect())
    }

    /// One hook for all steps; none when there is nothing to do. `program` is its path on the host.
    pub fn hook(program: &str, steps: &[Self]) -> Option<Hook> {
        let mut args = Vec::new();
        for step in steps {
            match step {
                Self::Link { target, path } => {
                    args.push(format!("--link={target}::{}", path.display()));
                }
                Self::Libraries(paths) => {
                    args.extend(
                        paths
                            .iter()
                            .map(|path| format!("--library={}", path.display())),
                    );
                }
            }
        }
        if args.is_empty() {
            return None;
        }
        let name = Path::new(program).file_name()?.to_str()?.to_owned();
        Some(Hook {
            hook_name: "createContainer".into(),
            path: program.to_owned(),
            args: [name, "hook".into()].into_iter().chain(args).collect(),
            ..Hook::default()
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::driver::Library;

    #[test]
    fn all_steps_are_one_process() {
        let files = DriverFiles {
            libraries: vec![Library {
                file: "/f".into(),
                path: "/l/nvidia/current/libcuda.so.1.1".into(),
                names: vec!["/l/libcuda.so.1".into(), "/l/libcuda.so".into()],
            }],
            ..DriverFiles::default()
        };
        let steps = [
            HookStep::libraries(&files),
            HookStep::Link {
                target: "../card0".into(),
                path: "/dev/dri/by-path/x".into(),
            },
        ];
        let hook = HookStep::hook("/usr/bin/cdi-gen", &steps).unwrap();
        assert_eq!(
            hook.args,
            [
                "cdi-gen",
                "hook",
                "--library=/l/libcuda.so.1",
                "--library=/l/libcuda.so",
                "--link=../card0::/dev/dri/by-path/x"
            ]
        );
        assert_eq!(HookStep::hook("/x", &[]), None);
    }
}
