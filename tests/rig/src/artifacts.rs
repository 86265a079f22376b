//! Where the files are that the rig runs: the two containerds, runc, busybox, and what cargo built.
//!
//! Invariant: a missing file is an error with the command that provides it, never a skipped test.

use std::path::{Path, PathBuf};

use crate::Failure;

/// Overrides where the programs that cargo built are looked for.
pub const BIN_DIR_VARIABLE: &str = "GPU_WARDEN_RIG_BIN_DIR";

/// One unpacked containerd.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ContainerdFiles {
    /// Directory of `containerd`, `ctr` and `containerd-shim-runc-v2`.
    pub bin: PathBuf,
    /// First number of the version: it decides the shape of the configuration.
    pub major: u32,
    /// As the program says it, such as `1.7.24~ds1`.
    pub version: String,
}

impl ContainerdFiles {
    /// The containerd of that directory; runs it to learn its version.
    pub fn at(bin: &Path) -> Result<Self, Failure> {
        let bin = real_path(bin)?;
        let program = bin.join("containerd");
        let out = std::process::Command::new(&program)
            .arg("--version")
            .output()
            .map_err(|source| Failure::Spawn {
                program: program.display().to_string(),
                source,
            })?;
        let text = String::from_utf8_lossy(&out.stdout).into_owned();
        let version = version_of(&text)
            .ok_or_else(|| Failure::unexpected(program.display().to_string(), &text))?;
        let major = version.split('.').next().and_then(|n| n.parse().ok());
        Ok(Self {
            major: major
                .ok_or_else(|| Failure::unexpected(program.display().to_string(), &text))?,
            bin,
            version,
        })
    }
}

/// `containerd NAME VERSION COMMIT`, where VERSION may have a `v` in front.
fn version_of(text: &str) -> Option<String> {
    let word = text.split_whitespace().nth(2)?;
    let version = word.trim_start_matches('v');
    version
        .starts_with(|c: char| c.is_ascii_digit())
        .then(|| version.to_owned())
}

/// Everything that a world needs from outside.
#[derive(Debug, Clone)]
pub struct Artifacts {
    /// Real runc.
    pub runc: PathBuf,
    /// Statically linked busybox.
    pub busybox: PathBuf,
    /// Directory of what cargo built: the OCI runtime wrappers, gpu-warden, cdi-gen, the fake NVML.
    pub built: PathBuf,
}

impl Artifacts {
    /// Finds them on this machine.
    pub fn locate() -> Result<Self, Failure> {
        Ok(Self {
            runc: in_path("runc")?,
            busybox: in_path("busybox")?,
            built: built_dir()?,
        })
    }

    /// One program or library that cargo built.
    pub fn built(&self, name: &str) -> Result<PathBuf, Failure> {
        let path = self.built.join(name);
        present(path, "cargo build --workspace --bins --lib")
    }
}

/// The containerd 1.7 and 2.x which `tests/setup/containerd.sh` unpacked below `.build`.
///
/// Both or an error: a test that needs one must not pass without it.
pub fn both_containerds() -> Result<[ContainerdFiles; 2], Failure> {
    let base = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../.build/containerd");
    let at = |suite: &str| {
        let bin = base.join(suite).join("usr/bin");
        present(bin.join("containerd"), "run tests/setup/setup.sh as root")?;
        ContainerdFiles::at(&bin)
    };
    Ok([at("trixie")?, at("sid")?])
}

/// Absolute and without links: a program in a world starts in another directory.
pub fn real_path(path: &Path) -> Result<PathBuf, Failure> {
    path.canonicalize().map_err(Failure::file("find", path))
}

fn present(path: PathBuf, remedy: &str) -> Result<PathBuf, Failure> {
    if path.is_file() {
        return Ok(path);
    }
    Err(Failure::Missing {
        what: path.display().to_string(),
        remedy: remedy.to_owned(),
    })
}

fn in_path(name: &str) -> Result<PathBuf, Failure> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .chain(["/usr/sbin".into(), "/sbin".into()])
        .map(|dir| dir.join(name))
        .find(|file| file.is_file())
        .ok_or_else(|| Failure::Missing {
            what: format!("`{name}` in PATH"),
            remedy: "run tests/setup/setup.sh as root".to_owned(),
        })
}

/// Test executables lie in `deps/` below the directory of the programs, programs in it.
fn built_dir() -> Result<PathBuf, Failure> {
    if let Some(dir) = std::env::var_os(BIN_DIR_VARIABLE) {
        return Ok(dir.into());
    }
    let exe = std::env::current_exe().map_err(Failure::file("find", "the running program"))?;
    let dir = exe.parent().unwrap_or(Path::new("/"));
    let dir = if dir.ends_with("deps") {
        dir.parent().unwrap_or(dir)
    } else {
        dir
    };
    Ok(dir.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_version_is_read_in_every_spelling_that_distributions_use() {
        for (text, expected) in [
            (
                "containerd github.com/containerd/containerd 1.7.24~ds1 1.7.24~ds1-6+b4\n",
                Some("1.7.24~ds1"),
            ),
            (
                "containerd github.com/containerd/containerd/v2 v2.1.9 \n",
                Some("2.1.9"),
            ),
            ("containerd containerd.io\n", None),
            ("", None),
        ] {
            assert_eq!(version_of(text).as_deref(), expected, "{text}");
        }
    }

    #[test]
    fn a_missing_program_names_the_script_that_installs_it() {
        let text = in_path("no-such-program-here").unwrap_err().to_string();
        assert!(text.contains("tests/setup/setup.sh"), "{text}");
    }
}
