//! What is shipped in `deploy/` and `nri-config/` says what its documents promise: rendered by
//! kubectl's kustomize, read by the real containerds.

#![allow(clippy::unwrap_used, reason = "a failed step is a failed test")]

use std::path::{Path, PathBuf};
use std::process::Command;

use gpu_warden_rig::artifacts;
use serde::Deserialize as _;
use serde_yaml::Value;

fn shipped(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

fn output(command: &mut Command) -> String {
    let out = command
        .output()
        .unwrap_or_else(|error| panic!("{command:?}: {error}; run tests/setup/setup.sh"));
    assert!(
        out.status.success(),
        "{command:?}: {}",
        String::from_utf8_lossy(&out.stderr)
    );
    String::from_utf8(out.stdout).unwrap()
}

/// All objects of a rendered directory, by kind.
fn render(directory: &str) -> Vec<Value> {
    let text = output(
        Command::new("kubectl")
            .arg("kustomize")
            .arg(shipped(directory)),
    );
    serde_yaml::Deserializer::from_str(&text)
        .map(|document| Value::deserialize(document).unwrap())
        .collect()
}

fn daemon_set() -> Value {
    let objects = render("deploy/kustomize/base");
    let kinds: Vec<_> = objects
        .iter()
        .map(|object| object["kind"].as_str().unwrap())
        .collect();
    assert_eq!(kinds, ["Namespace", "DaemonSet"]);
    objects.into_iter().nth(1).unwrap()
}

fn strings(list: &Value) -> Vec<&str> {
    list.as_sequence()
        .unwrap()
        .iter()
        .map(|item| item.as_str().unwrap())
        .collect()
}

#[test]
fn the_daemon_set_reaches_the_host_where_it_has_to_and_no_further() {
    let set = daemon_set();
    let pod = &set["spec"]["template"]["spec"];
    assert_eq!(
        pod["hostPID"],
        Value::Bool(true),
        "Container.pid is a pid of the host"
    );
    assert_eq!(pod["automountServiceAccountToken"], Value::Bool(false));
    assert_eq!(pod["priorityClassName"], "system-node-critical");
    for field in ["hostNetwork", "hostIPC"] {
        assert!(pod[field].is_null(), "{field}");
    }
    let container = &pod["containers"][0];
    let security = &container["securityContext"];
    assert_eq!(security["privileged"], Value::Bool(false));
    assert_eq!(security["allowPrivilegeEscalation"], Value::Bool(false));
    assert_eq!(security["readOnlyRootFilesystem"], Value::Bool(true));
    assert_eq!(strings(&security["capabilities"]["drop"]), ["ALL"]);
    assert_eq!(
        strings(&security["capabilities"]["add"]),
        [
            "SYS_PTRACE",
            "DAC_OVERRIDE",
            "DAC_READ_SEARCH",
            "SYS_ADMIN",
            "MKNOD"
        ]
    );
    assert_eq!(
        pod["tolerations"][0]["operator"], "Exists",
        "a GPU node without gpu-warden is a hole"
    );
}

#[test]
fn every_volume_of_the_daemon_set_is_mounted_and_only_three_are_writable() {
    let set = daemon_set();
    let pod = &set["spec"]["template"]["spec"];
    let mounts = pod["containers"][0]["volumeMounts"].as_sequence().unwrap();
    let mut writable = Vec::new();
    for volume in pod["volumes"].as_sequence().unwrap() {
        let mount = mounts
            .iter()
            .find(|mount| mount["name"] == volume["name"])
            .unwrap();
        assert!(volume["hostPath"]["type"].is_string(), "{volume:?}");
        if mount["readOnly"] != Value::Bool(true) {
            writable.push(mount["mountPath"].as_str().unwrap());
        }
    }
    assert_eq!(
        writable,
        ["/var/run/nri", "/var/run/cdi", "/host/sys/fs/cgroup"]
    );
    assert_eq!(mounts.len(), pod["volumes"].as_sequence().unwrap().len());
}

/// The arguments are those of this build, and the paths in them are mounted.
#[test]
fn the_daemon_sets_arguments_are_understood() {
    let set = daemon_set();
    let container = &set["spec"]["template"]["spec"]["containers"][0];
    let args = strings(&container["args"]);
    let help = Command::new(env!("CARGO_BIN_EXE_gpu-warden"))
        .args(&args)
        .arg("--help")
        .output()
        .unwrap();
    assert!(
        help.status.success(),
        "{}",
        String::from_utf8_lossy(&help.stderr)
    );
    let help = String::from_utf8(help.stdout).unwrap();
    for arg in args.iter().filter(|arg| arg.starts_with("--")) {
        assert!(
            help.contains(arg.split('=').next().unwrap()),
            "{arg} is no flag of `run`"
        );
    }
    let mounted = |path: &str| {
        let mounts = container["volumeMounts"].as_sequence().unwrap();
        mounts
            .iter()
            .any(|mount| mount["mountPath"].as_str().unwrap().starts_with(path))
    };
    assert!(mounted("/driver-root") && mounted("/host"));
}

#[test]
fn the_unit_starts_this_programs_command_before_the_kubelet() {
    let unit = std::fs::read_to_string(shipped("deploy/systemd/gpu-warden.service")).unwrap();
    let value = |key: &str| {
        unit.lines()
            .find_map(|line| line.strip_prefix(key)?.strip_prefix('='))
            .unwrap()
            .to_owned()
    };
    assert_eq!(value("ExecStart"), "/usr/bin/gpu-warden run");
    assert_eq!(value("Type"), "notify");
    assert_eq!(value("Before"), "kubelet.service");
    assert_eq!(value("After"), "containerd.service");
    assert_eq!(value("Restart"), "always");
}

/// Each snippet is taken by the containerd that it is for: the effective configuration has NRI on.
#[test]
fn the_containerd_snippets_switch_nri_on() {
    let [old, new] = artifacts::both_containerds().unwrap();
    for (files, snippet) in [
        (old, "nri-config/containerd-1.7.toml"),
        (new, "nri-config/containerd-2.toml"),
    ] {
        let mut command = Command::new(files.bin.join("containerd"));
        let dump = output(
            command
                .arg("--config")
                .arg(shipped(snippet))
                .args(["config", "dump"]),
        );
        let at = dump.find("io.containerd.nri.v1.nri").unwrap();
        let section = dump[at..].split("\n\n").next().unwrap();
        assert!(section.contains("disable = false"), "{section}");
        assert!(
            section.contains("plugin_request_timeout = \"5s\"")
                || section.contains("plugin_request_timeout = '5s'")
        );
        assert!(dump.contains("enable_cdi = true"));
    }
}
