//! `/proc/PID/mountinfo`, as far as the gate needs it (proc(5)).

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;

/// One line of mountinfo.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MountEntry {
    /// Mount id, as statx reports it (`stx_mnt_id`).
    pub id: u64,
    /// Device number of the superblock: major, minor.
    pub device: (u32, u32),
    /// Which directory of the file system is mounted; `/` unless it is a bind mount of a part.
    pub root: PathBuf,
    /// Mount point, as the process sees it.
    pub point: PathBuf,
    /// Per-mount options contain `nodev`: no device node on it can be opened.
    pub nodev: bool,
    /// File system type, such as `tmpfs`.
    pub fs_type: String,
}

/// Reads all lines; a line that can't be read is an error, since what it hides is unknown.
pub(super) fn parse(text: &[u8]) -> Result<Vec<MountEntry>, MalformedMountinfo> {
    text.split(|&b| b == b'\n')
        .filter(|line| !line.is_empty())
        .map(parse_line)
        .collect()
}

/// A line of mountinfo has another form than proc(5) gives.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("unreadable mountinfo line `{0}`")]
pub struct MalformedMountinfo(pub String);

fn parse_line(line: &[u8]) -> Result<MountEntry, MalformedMountinfo> {
    let malformed =
        || MalformedMountinfo(String::from_utf8_lossy(line).chars().take(200).collect());
    let mut fields = line.split(|&b| b == b' ');
    let mut next = || fields.next().ok_or_else(malformed);
    let id = number(next()?).ok_or_else(malformed)?;
    let _parent = next()?;
    let device = next()?;
    let root = unescape(next()?);
    let point = unescape(next()?);
    let options = next()?;
    // A varying number of optional fields ends with a single dash.
    let fs_type = loop {
        if next()? == b"-" {
            break next()?;
        }
    };
    let colon = device
        .iter()
        .position(|&b| b == b':')
        .ok_or_else(malformed)?;
    let major = number(&device[..colon])
        .and_then(|n| u32::try_from(n).ok())
        .ok_or_else(malformed)?;
    let minor = number(&device[colon + 1..])
        .and_then(|n| u32::try_from(n).ok())
        .ok_or_else(malformed)?;
    Ok(MountEntry {
        id,
        device: (major, minor),
        root,
        point,
        nodev: options
            .split(|&b| b == b',')
            .any(|option| option == b"nodev"),
        fs_type: String::from_utf8_lossy(fs_type).into_owned(),
    })
}

fn number(text: &[u8]) -> Option<u64> {
    std::str::from_utf8(text).ok()?.parse().ok()
}

/// The kernel writes space, tab, newline and backslash as three octal digits.
fn unescape(field: &[u8]) -> PathBuf {
    let mut out = Vec::with_capacity(field.len());
    let mut rest = field;
    while let Some((&byte, tail)) = rest.split_first() {
        let digits = tail.get(..3).filter(|_| byte == b'\\');
        let escaped =
            digits.and_then(|digits| u8::from_str_radix(std::str::from_utf8(digits).ok()?, 8).ok());
        out.push(escaped.unwrap_or(byte));
        rest = if escaped.is_some() { &tail[3..] } else { tail };
    }
    PathBuf::from(OsString::from_vec(out))
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn optional_fields_and_escapes_are_understood() {
        let text = b"36 35 98:0 /mnt1 /mnt\\0402 rw,noatime master:1 propagate_from:2 - ext3 /dev/root rw\n\
                     37 36 0:25 / /dev rw,nosuid - tmpfs tmpfs rw,size=64k\n\
                     38 37 0:26 / /dev/shm rw,nosuid,nodev,noexec shared:4 - tmpfs shm rw\n";
        let mounts = parse(text).unwrap();
        assert_eq!(mounts[0].point, Path::new("/mnt 2"));
        assert_eq!(mounts[0].fs_type, "ext3");
        assert_eq!(
            (mounts[1].id, mounts[1].device, mounts[1].nodev),
            (37, (0, 25), false)
        );
        assert!(mounts[2].nodev);
    }

    #[test]
    fn an_option_that_merely_contains_nodev_is_not_nodev() {
        let mounts = parse(b"1 0 0:1 / / rw,xnodev - tmpfs t rw").unwrap();
        assert!(!mounts[0].nodev);
    }

    #[test]
    fn a_torn_line_is_an_error() {
        for text in [
            "1 0 0:1 / / rw",
            "x 0 0:1 / / rw - tmpfs t rw",
            "1 0 01 / / rw - tmpfs t rw",
            "1",
        ] {
            assert!(parse(text.as_bytes()).is_err(), "{text}");
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_survived(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
            let _ = parse(&bytes);
        }
    }
}
