//! `ModifyDeviceFiles: 0`: the driver's user space does not make device nodes by itself.
//!
//! In a container, libraries that find a node absent may make it, with the host's numbers. The
//! driver asks its own parameter file in procfs whether it may; so a copy that says no is mounted
//! over it. What a container can *open* is the device cgroup's business, with or without this.

use std::ffi::OsStr;
use std::path::Path;

use super::cover::cover;
use super::rootfs::Rootfs;
use super::{Container, HookError, Skipped};

const DIRECTORY: &str = "/proc/driver/nvidia";
const NAME: &str = "params";
const PARAMETER: &str = "ModifyDeviceFiles:";

/// The real one has some forty lines.
const MAX_BYTES: usize = 64 << 10;

/// Mounts the changed copy, where the driver has such a file and says yes in it.
pub(super) fn freeze(
    root: &Rootfs,
    container: &Container,
    skipped: &mut Vec<Skipped>,
) -> Result<(), HookError> {
    let path = Path::new(DIRECTORY).join(NAME);
    let mut skip = |reason: &dyn ToString| {
        let step = format!("ModifyDeviceFiles: 0 in {}", path.display());
        skipped.push(Skipped::new(step, &reason.to_string()));
        Ok(())
    };
    let content = match root.read(&path, MAX_BYTES) {
        Ok(content) => content,
        Err(error) => return skip(&error),
    };
    let frozen = match frozen(&content) {
        Change::Needed(frozen) => frozen,
        Change::None => return Ok(()),
        Change::Unknown => return skip(&"the driver has no such parameter"),
    };
    if !container.procfs_masked {
        // The kernel lets nobody mount a second procfs who sees a covered part of the first.
        return skip(
            &"the container's procfs is unmasked, and with a mount in it, containers inside could not mount their own",
        );
    }
    let directory = root.directory(Path::new(DIRECTORY));
    match directory.map(|directory| cover(&directory, OsStr::new(NAME), &frozen)) {
        Ok(Ok(())) => Ok(()),
        Ok(Err(error)) => error.or_skip(|error| skip(error)),
        Err(error) => skip(&error),
    }
}

#[derive(Debug, PartialEq, Eq)]
enum Change {
    Needed(Vec<u8>),
    None,
    Unknown,
}

fn frozen(content: &[u8]) -> Change {
    let mut before = 0;
    for line in content.split_inclusive(|byte| *byte == b'\n') {
        let (head, rest) = content.split_at(before);
        before += line.len();
        match line.strip_prefix(PARAMETER.as_bytes()) {
            Some(value) if value.trim_ascii() == b"0" => return Change::None,
            Some(_) => {
                let tail = rest.get(line.len()..).unwrap_or_default();
                return Change::Needed([head, PARAMETER.as_bytes(), b" 0\n", tail].concat());
            }
            None => {}
        }
    }
    Change::Unknown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_one_parameter_changes() {
        let content = b"ResmanDebugLevel: 4294967295\nModifyDeviceFiles: 1\nDeviceFileUID: 0\n";
        let Change::Needed(changed) = frozen(content) else {
            panic!("a change is needed");
        };
        assert_eq!(
            String::from_utf8(changed).unwrap(),
            "ResmanDebugLevel: 4294967295\nModifyDeviceFiles: 0\nDeviceFileUID: 0\n"
        );
        assert_eq!(frozen(b"ModifyDeviceFiles: 0\nA: 1\n"), Change::None);
        assert_eq!(frozen(b"A: 1\n"), Change::Unknown);
        assert_eq!(frozen(b""), Change::Unknown);
        assert_eq!(
            frozen(b"ModifyDeviceFiles:junk"),
            Change::Needed(b"ModifyDeviceFiles: 0\n".to_vec())
        );
    }
}
