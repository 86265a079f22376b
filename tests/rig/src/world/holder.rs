//! The process that owns a world's namespaces: first process of a pid namespace, in a private mount
//! namespace with its own `/dev`, `/run` and `/proc/devices`.
//!
//! Invariants: when it dies the kernel ends every process of the world; it dies when its stdin
//! closes, so at the latest with the process that made it, however that one ends.

use std::io::{BufRead as _, BufReader, Read as _};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};

use crate::Failure;

/// bash, because it reaps processes that it did not start (shims are re-parented to it).
const SETUP: &str = r#"
set -eu
base=$1 view=$2
mount -t tmpfs -o mode=755 rig-run /run
mkdir -p /run/lock
mount --bind "$base/proc-devices" /proc/devices
dev=$base/dev
mount -t tmpfs -o mode=755 rig-dev "$dev"
while read -r path major minor; do
    mkdir -p "$(dirname "$dev/$path")"
    mknod -m 666 "$dev/$path" c "$major" "$minor"
done <"$base/nodes"
mkdir "$dev/pts" "$dev/shm" "$dev/mqueue"
mount -t devpts -o newinstance,ptmxmode=0666,mode=620 rig-pts "$dev/pts"
mount -t tmpfs -o mode=1777 rig-shm "$dev/shm"
ln -s pts/ptmx "$dev/ptmx"
ln -s /proc/self/fd "$dev/fd"
ln -s /proc/self/fd/0 "$dev/stdin"
ln -s /proc/self/fd/1 "$dev/stdout"
ln -s /proc/self/fd/2 "$dev/stderr"
mount --move "$dev" /dev
if [ "$view" = v2 ]; then mount -t cgroup2 rig-cgroup /sys/fs/cgroup; fi
echo ready
while read -r _; do :; done
"#;

/// The running holder.
#[derive(Debug)]
pub(super) struct Holder {
    child: Child,
    pid: Pid,
}

impl Holder {
    pub(super) fn start(base: &Path, view: &str) -> Result<Self, Failure> {
        let spawned = Command::new("unshare")
            .args(["--mount", "--propagation", "private", "--pid", "--fork"])
            .args([
                "--kill-child",
                "--mount-proc",
                "bash",
                "-c",
                SETUP,
                "rig-holder",
            ])
            .arg(base)
            .arg(view)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group_of_its_own()
            .spawn();
        let mut child = spawned.map_err(|source| Failure::Spawn {
            program: "unshare".to_owned(),
            source,
        })?;
        let mut line = String::new();
        if let Some(stdout) = child.stdout.as_mut() {
            let read = BufReader::new(stdout).read_line(&mut line);
            read.map_err(Failure::file("read the answer of", "unshare"))?;
        }
        let pid = only_child(child.id());
        if let (true, Some(pid)) = (line.trim() == "ready", pid) {
            return Ok(Self { child, pid });
        }
        drop(child.stdin.take());
        let status = child.wait().map_err(Failure::file("wait for", "unshare"))?;
        let mut said = String::new();
        if let Some(mut stderr) = child.stderr.take() {
            // Best effort: the failure is reported either way.
            let _ = stderr.read_to_string(&mut said);
        }
        Err(Failure::Command {
            program: "unshare (needs root with CAP_SYS_ADMIN and CAP_MKNOD)".to_owned(),
            status: status.to_string(),
            output: said.trim().to_owned(),
        })
    }

    /// In the pid namespace of whoever started the world.
    pub(super) fn pid(&self) -> u32 {
        self.pid.as_raw_nonzero().get().unsigned_abs()
    }

    /// Ends the whole world; returns when the kernel has reaped every process of it.
    pub(super) fn end(&mut self) {
        // Both fail only when the world has ended already.
        let _ = kill_process(self.pid, Signal::KILL);
        let _ = self.child.wait();
    }
}

impl Drop for Holder {
    fn drop(&mut self) {
        self.end();
    }
}

/// The one child of a process that forks once (unshare, nsenter).
pub(crate) fn only_child(parent: u32) -> Option<Pid> {
    let children =
        std::fs::read_to_string(format!("/proc/{parent}/task/{parent}/children")).ok()?;
    Pid::from_raw(children.split_whitespace().next()?.parse().ok()?)
}

/// Keeps a terminal's Ctrl-C from the children: the rig ends them itself, in order.
pub(crate) trait OwnGroup {
    fn process_group_of_its_own(&mut self) -> &mut Self;
}

impl OwnGroup for Command {
    fn process_group_of_its_own(&mut self) -> &mut Self {
        std::os::unix::process::CommandExt::process_group(self, 0)
    }
}
