//! The ids, how bad each is and what to do about it.

use crate::spec::finding::Severity;

macro_rules! ids {
    ($($(#[$doc:meta])* $name:ident $text:literal $severity:ident $remedy:literal;)*) => {
        /// What can be found. The order has no meaning; the text of an id never changes.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum CheckId {
            $($(#[$doc])* $name,)*
        }

        impl CheckId {
            /// Every id.
            pub const ALL: &'static [Self] = &[$(Self::$name,)*];

            /// As scripts see it.
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$name => $text,)* }
            }

            /// Always the same for one id.
            pub const fn severity(self) -> Severity {
                match self { $(Self::$name => Severity::$severity,)* }
            }

            /// What to do, in one sentence.
            pub const fn remedy(self) -> &'static str {
                match self { $(Self::$name => $remedy,)* }
            }
        }
    };
}

ids! {
    /// A directory exists and can't be listed.
    DirUnreadable "dir-unreadable" Error "give this user access to the directory, or take it out of --cdi-dir and of the runtime's list";
    /// A directory is closed to ordinary users.
    DirMode "dir-mode" Warning "chmod 0755 the directory: rootless runtimes read it as an ordinary user";
    /// A file can't be read by this user, or is no regular file.
    FileUnreadable "file-unreadable" Error "mend the file's mode or remove it: runtimes skip it";
    /// A file is no CDI document.
    FileMalformed "file-malformed" Error "write the file again with cdi-gen generate, or remove it: runtimes skip it whole";
    /// A CDI document breaks the rules that readers enforce.
    FileInvalid "file-invalid" Error "write the file again with cdi-gen generate, or see cdi-gen validate: runtimes skip it whole";
    /// A file is closed to ordinary users.
    FileMode "file-mode" Warning "chmod 0644 the file: rootless runtimes read it as an ordinary user, and find no device";
    /// A file looks like a spec and has a name that readers ignore.
    FileIgnored "file-ignored" Warning "rename it to end in .yaml or .json, or remove it: readers look at no other name";
    /// Two files of one directory define one device.
    DeviceConflict "device-conflict" Error "remove all but one of the files: runtimes drop the device altogether";
    /// A later directory has the same device.
    DeviceShadowed "device-shadowed" Warning "remove the file without effect: its device comes back as soon as the other file loses it";
    /// A name that consumers ask for gives no device.
    NameUnresolvable "name-unresolvable" Error "see cdi-gen explain NAME; generate a spec of that vendor and class, or mend the consumer's name";
    /// There is no file of the kind.
    NoSpec "no-spec" Warning "run cdi-gen generate";
    /// A node that the runtime takes from the host is not there.
    NodeMissing "node-missing" Error "create the node (nvidia-modprobe), or write the file again with cdi-gen generate: no container gets the device until then";
    /// A link or file lies where a node is expected.
    NodeNotDevice "node-not-device" Error "remove it and create the node: runtimes refuse it";
    /// The file and the host disagree on block or character.
    NodeType "node-type" Error "write the file again with cdi-gen generate: runtimes refuse the container";
    /// The written numbers are not those of the host's node.
    NodeDrift "node-drift" Error "write the file again with cdi-gen generate: runtimes use the written numbers, so containers open another device";
    /// The written major belongs to a driver that has another now.
    MajorDrift "major-drift" Error "write the file again with cdi-gen generate, which writes no number for a major that changes";
    /// The host's own node is older than the module's last load.
    HostNodeStale "host-node-stale" Error "remove the node and run nvidia-modprobe -u (nvidia-modprobe -f for capabilities), then cdi-gen generate";
    /// A node of a kernel module that is not loaded.
    ModuleMissing "module-missing" Warning "load the module (nvidia-modprobe -u loads nvidia-uvm), or generate the file without it";
    /// A DRM node that is not this GPU's, or not any more.
    DrmRenumbered "drm-renumbered" Error "write the file again with cdi-gen generate: DRM numbers change when cards or drivers come in another order";
    /// A mounted file is not there.
    MountMissing "mount-missing" Error "write the file again with cdi-gen generate: no container gets the device while a mount has no source";
    /// A mounted file is closed to ordinary users.
    MountUnreadable "mount-unreadable" Warning "make the file readable for all: processes in a container are seldom root of the host";
    /// Files of another driver version than the running one.
    DriverVersion "driver-version" Error "finish the upgrade (reload the modules or reboot), then run cdi-gen generate";
    /// A hook's program is not there or can't be executed.
    HookMissing "hook-missing" Error "install the program, or write the file without hooks: container creation fails at it";
    /// A device gives another GPU than its name says.
    WrongGpu "wrong-gpu" Error "write the file again with cdi-gen generate: a container gets a GPU that is not its own";
    /// A device for one GPU lacks that GPU's node.
    OwnNodeMissing "own-node-missing" Error "write the file again with cdi-gen generate, which writes no device without its node";
    /// A device for a GPU that the driver doesn't have.
    GpuGone "gpu-gone" Error "remove the device: cdi-gen generate writes the file without it";
    /// A usable GPU that no file of the kind gives.
    GpuUnlisted "gpu-unlisted" Warning "run cdi-gen generate";
    /// A GPU has a device, but none with its UUID as the name.
    UuidNameMissing "uuid-name-missing" Warning "run cdi-gen generate --device-name-strategy uuid: the kubelet's device plugin, the DRA driver and gpu-warden ask by UUID";
    /// The driver is present and does not work.
    DriverBroken "driver-broken" Error "mend the driver first; devices could not be compared with it";
    /// Files name NVIDIA devices on a host without a driver.
    DriverAbsent "driver-absent" Error "load the driver, or remove the files";
    /// The driver's files are not those of the running module.
    DriverFiles "driver-files" Error "finish the upgrade, or name the driver root";
    /// A GPU that can't be used.
    GpuFault "gpu-fault" Warning "follow the reason; the GPU is in no spec until then";
    /// A file sets the variable that makes legacy runtimes expose GPUs.
    EnvVisibleDevices "env-visible-devices" Warning "set NVIDIA_VISIBLE_DEVICES=void in the file, as cdi-gen generate does: a legacy runtime or hook obeys the value beside CDI";
    /// A device gives every GPU.
    AllDevice "all-device" Info "leave it out (cdi-gen generate does) where containers must not reach each other's GPUs";
    /// systemd can't name the device in a cgroup rule.
    DevCharLink "dev-char-link" Info "create the links under /dev/char: with the systemd cgroup driver, containers lose the GPU at a daemon-reload without them";
    /// A path could not be looked at from here.
    NotVisible "not-visible" Info "run cdi-gen check on the host, or give the matching --host-driver-root and --host-dev-root";
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn ids_are_unique_words_and_documented() {
        let doc = include_str!("../../../docs/cdi-gen.md");
        let mut seen = BTreeSet::new();
        for id in CheckId::ALL {
            let text = id.as_str();
            assert!(seen.insert(text), "{text} twice");
            assert!(text.bytes().all(|b| b.is_ascii_lowercase() || b == b'-'));
            let row = format!("| `{text}` | {} |", id.severity());
            assert!(doc.contains(&row), "docs/cdi-gen.md lacks {row}");
            assert!(!id.remedy().is_empty());
        }
    }
}
