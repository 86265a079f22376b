//! Temporary files of writers that died: which are clearly ours, and their removal.
//!
//! Ours is a regular file of our own user whose name was made for the same target, that nobody has locked
//! and that is older than any write takes. Everything else stays.

use std::ffi::OsString;
use std::fs::{self, File};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::Duration;

use rustix::fs::{FlockOperation, Mode, OFlags};

/// Neither `.json` nor `.yaml`: no reader looks at it.
pub(super) const SUFFIX: &str = ".cdi-tmp";

/// Covers the moment between creating a temporary file and locking it.
const MIN_AGE: Duration = Duration::from_secs(60);

/// `.<file name>.`; a random part and [`SUFFIX`] follow.
pub(super) fn prefix(path: &Path) -> OsString {
    let mut prefix = vec![b'.'];
    prefix.extend_from_slice(path.file_name().unwrap_or_default().as_bytes());
    prefix.push(b'.');
    OsString::from_vec(prefix)
}

/// Removes what dead writers of this target left. Best effort: a leftover is untidy, not wrong, so no
/// failure here may keep a spec from being written.
pub(super) fn remove(dir: &Path, path: &Path) {
    let Ok(entries) = fs::read_dir(dir) else {
        return;
    };
    let prefix = prefix(path);
    for entry in entries.flatten() {
        if is_made_for(entry.file_name().as_bytes(), prefix.as_bytes()) && is_dead(&entry.path()) {
            let _ = fs::remove_file(entry.path());
        }
    }
}

/// Prefix, a random part without a dot, suffix.
fn is_made_for(name: &[u8], prefix: &[u8]) -> bool {
    name.strip_prefix(prefix)
        .and_then(|rest| rest.strip_suffix(SUFFIX.as_bytes()))
        .is_some_and(|random| !random.is_empty() && random.iter().all(u8::is_ascii_alphanumeric))
}

fn is_dead(path: &Path) -> bool {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::NONBLOCK;
    let Ok(file) = rustix::fs::open(path, flags, Mode::empty()).map(File::from) else {
        return false;
    };
    let Ok(found) = file.metadata() else {
        return false;
    };
    let age = found.modified().ok().and_then(|time| time.elapsed().ok());
    found.is_file()
        && found.uid() == rustix::process::geteuid().as_raw()
        && age.is_some_and(|age| age >= MIN_AGE)
        && rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive).is_ok()
}
