//! What a container sees and can open, answered by the kernel from inside that container.
//!
//! Owns one shell script, run by the container's own busybox, and the reading of its answer. It tries
//! reading and writing apart, since a device rule may grant one of them alone.

use std::collections::BTreeMap;
use std::fmt;

use crate::Failure;
use crate::cri::Cri;
use crate::world::{GPU_MAJOR, Node};

/// Prints each character node of `/dev` with its numbers and what opening it for reading and for
/// writing says. `$1`: a pattern of majors of interest, such as `195|510`.
const LOOK: &str = r#"
find /dev -type c | while read -r path; do
    set -- "$1" $(stat -c '%t %T' "$path")
    major=$((0x$2)) minor=$((0x$3))
    eval "case $major in $1) ;; *) continue ;; esac"
    r=$( (: <"$path") 2>&1 ) && r=opened
    w=$( (: >"$path") 2>&1 ) && w=opened
    printf '%s\t%s\t%s\t%s\t%s\n' "$path" "$major" "$minor" "$r" "$w"
done
"#;

/// Makes a node of its own at `$1` and tries it as [`LOOK`] does.
const MAKE: &str = r#"
rm -f "$1"
said=$(mknod "$1" c "$2" "$3" 2>&1) || { printf '%s\n' "$said"; exit 0; }
r=$( (: <"$1") 2>&1 ) && r=opened
printf 'made\t%s\n' "$r"
rm -f "$1"
"#;

/// What the kernel said to opening a device.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Open {
    /// No node.
    Absent,
    /// The device cgroup denies it.
    Eperm,
    /// Allowed by the kernel; no driver behind it.
    Enxio,
    /// Allowed, and a driver answered.
    Opened,
    /// Anything else, in the shell's words.
    Other(String),
}

impl Open {
    /// Whether the kernel would let the container use the device.
    pub fn allowed(&self) -> bool {
        matches!(self, Self::Enxio | Self::Opened)
    }

    fn parse(said: &str) -> Self {
        match said {
            "opened" => Self::Opened,
            _ if said.ends_with("No such device or address") => Self::Enxio,
            _ if said.ends_with("Operation not permitted") => Self::Eperm,
            _ if said.ends_with("No such file or directory") => Self::Absent,
            _ => Self::Other(said.to_owned()),
        }
    }
}

impl fmt::Display for Open {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Absent => "absent",
            Self::Eperm => "denied",
            Self::Enxio => "OPENS",
            Self::Opened => "OPENS (driver)",
            Self::Other(said) => said,
        })
    }
}

/// One node in the container's `/dev`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Seen {
    /// Path and numbers.
    pub node: Node,
    /// Opening for reading.
    pub read: Open,
    /// Opening for writing.
    pub write: Open,
}

impl Seen {
    /// The better of the two answers: a device that opens in either way is open.
    pub fn open(&self) -> &Open {
        if self.write.allowed() && !self.read.allowed() {
            &self.write
        } else {
            &self.read
        }
    }
}

/// The NVIDIA nodes that a container sees.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct View {
    /// By path.
    pub nodes: Vec<Seen>,
}

impl View {
    /// What opening the GPU of that minor says, whatever its node is called; the best answer if
    /// there are several.
    pub fn gpu(&self, minor: u32) -> Open {
        self.number(GPU_MAJOR, minor)
    }

    /// As [`View::gpu`], for any device.
    pub fn number(&self, major: u32, minor: u32) -> Open {
        let of_number = |seen: &&Seen| seen.node.major == major && seen.node.minor == minor;
        let answers = self.nodes.iter().filter(of_number).map(Seen::open);
        answers
            .max_by_key(|open| (open.allowed(), (*open).clone()))
            .cloned()
            .unwrap_or(Open::Absent)
    }

    /// The answer for each of these minors.
    pub fn gpus(&self, minors: impl IntoIterator<Item = u32>) -> BTreeMap<u32, Open> {
        minors
            .into_iter()
            .map(|minor| (minor, self.gpu(minor)))
            .collect()
    }

    /// The paths seen, sorted.
    pub fn paths(&self) -> Vec<&str> {
        self.nodes
            .iter()
            .map(|seen| seen.node.path.as_str())
            .collect()
    }
}

/// Looks at all nodes of these majors in a running container, and tries to open each.
pub async fn look(cri: &Cri, container: &str, majors: &[u32]) -> Result<View, Failure> {
    let majors: Vec<_> = majors.iter().map(u32::to_string).collect();
    let words = ["/bin/sh", "-c", LOOK, "look", &majors.join("|")];
    let out = cri.exec(container, &words).await?;
    if out.code != 0 {
        return Err(Failure::unexpected(container, out.stderr));
    }
    let nodes = out.stdout.lines().map(|line| parse(container, line));
    let mut view = View {
        nodes: nodes.collect::<Result<_, _>>()?,
    };
    view.nodes.sort_by(|a, b| a.node.cmp(&b.node));
    Ok(view)
}

fn parse(container: &str, line: &str) -> Result<Seen, Failure> {
    let bad = || Failure::unexpected(container, format!("not an answer of the probe: {line}"));
    let fields: Vec<&str> = line.split('\t').collect();
    let [path, major, minor, read, write] = fields[..] else {
        return Err(bad());
    };
    let number = |text: &str| text.parse().map_err(|_| bad());
    Ok(Seen {
        node: Node::new(path, number(major)?, number(minor)?),
        read: Open::parse(read),
        write: Open::parse(write),
    })
}

/// What a container gets when it makes a node of its own and opens it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Made {
    /// The kernel refused `mknod`, in the shell's words.
    Refused(String),
    /// The node was made; this is what opening it says.
    Node(Open),
}

/// Tries `mknod` of that device in the container's `/dev`, then opens it, then removes it.
pub async fn make(cri: &Cri, container: &str, major: u32, minor: u32) -> Result<Made, Failure> {
    let (major, minor) = (major.to_string(), minor.to_string());
    let words = [
        "/bin/sh",
        "-c",
        MAKE,
        "make",
        "/dev/rig-made",
        &major,
        &minor,
    ];
    let out = cri.exec(container, &words).await?;
    let said = out.stdout.trim();
    match (out.code, said.split_once('\t')) {
        (0, Some(("made", open))) => Ok(Made::Node(Open::parse(open))),
        (0, _) if !said.is_empty() => Ok(Made::Refused(said.to_owned())),
        _ => Err(Failure::unexpected(container, out.stderr)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_errors_of_the_shell_tell_allowed_from_denied() {
        for (said, expected, allowed) in [
            (
                "sh: can't open /dev/nvidia0: No such device or address",
                Open::Enxio,
                true,
            ),
            (
                "sh: can't create /dev/nvidia0: Operation not permitted",
                Open::Eperm,
                false,
            ),
            (
                "sh: can't open /dev/nvidia9: No such file or directory",
                Open::Absent,
                false,
            ),
            ("opened", Open::Opened, true),
            ("sh: odd", Open::Other("sh: odd".to_owned()), false),
        ] {
            let open = Open::parse(said);
            assert_eq!(open, expected);
            assert_eq!(open.allowed(), allowed, "{said}");
        }
    }

    #[test]
    fn a_gpu_counts_by_its_number_and_by_its_most_open_node() {
        let seen = |line| parse("c", line).unwrap();
        let view = View {
            nodes: vec![
                seen(
                    "/dev/nvidia0\t195\t0\tsh: x: Operation not permitted\tsh: x: Operation not permitted",
                ),
                seen(
                    "/dev/other\t195\t0\tsh: x: Operation not permitted\tsh: x: No such device or address",
                ),
            ],
        };
        assert_eq!(view.gpu(0), Open::Enxio);
        assert_eq!(view.gpu(1), Open::Absent);
    }

    #[test]
    fn a_line_that_is_no_answer_is_an_error() {
        assert!(parse("c", "find: something").is_err());
        assert!(parse("c", "/dev/x\t195\tx\topened\topened").is_err());
    }
}
