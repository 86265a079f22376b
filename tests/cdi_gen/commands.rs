//! What the tests of `list`, `validate`, `check`, `diff` and `explain` share: a node with a spec in
//! each CDI directory, and commands that run in its root, so that outputs hold no path of this
//! machine.

use std::fs;

use serde_json::Value;

use crate::node::{Node, Run};

/// Paths as the commands print them: relative to the node's root.
pub(crate) const DIRS: &str = "etc/cdi,run/cdi";
pub(crate) const RUN_FILE: &str = "run/cdi/nvidia.com-gpu.yaml";

impl Node {
    /// A node whose `/run/cdi` holds what `generate` wrote.
    pub(crate) fn with_spec() -> Self {
        let node = Self::with_driver();
        node.write_spec(&[]);
        node
    }

    pub(crate) fn write_spec(&self, flags: &[&str]) {
        for dir in ["etc/cdi", "run/cdi"] {
            fs::create_dir_all(self.path(dir)).unwrap();
        }
        let output = [&["--output", RUN_FILE][..], flags].concat();
        let run = self.on_host("generate", &output);
        assert_eq!(run.code, 0, "{}", run.stderr);
    }

    /// A command that looks at this node, as if its root were the host's.
    pub(crate) fn on_host(&self, command: &str, flags: &[&str]) -> Run {
        let root = |name| self.path(name).display().to_string();
        let roots = [
            ("--driver-root", root("")),
            ("--sys-root", root("sys")),
            ("--proc-root", root("proc")),
            ("--host-driver-root", "/".into()),
            ("--host-dev-root", "/".into()),
        ];
        let roots = roots.iter().flat_map(|(flag, dir)| [*flag, dir.as_str()]);
        let args: Vec<_> = flags.iter().copied().chain(roots).collect();
        self.command(command, &args)
    }

    /// `check` over both directories.
    pub(crate) fn check(&self, flags: &[&str]) -> Run {
        self.on_host("check", &[&["--cdi-dir", DIRS][..], flags].concat())
    }

    /// Any command, in the node's root.
    pub(crate) fn command(&self, command: &str, flags: &[&str]) -> Run {
        let output = assert_cmd::Command::new(env!("CARGO_BIN_EXE_cdi-gen"))
            .env_clear()
            .env("FAKE_NVML_TOPOLOGY", self.path("topology.json"))
            .current_dir(self.path(""))
            .arg(command)
            .args(flags)
            .output()
            .unwrap();
        let root = self.path("").display().to_string();
        let root = root.trim_end_matches('/');
        let text = |bytes| String::from_utf8(bytes).unwrap().replace(root, "[ROOT]");
        Run {
            code: output.status.code().unwrap(),
            stdout: text(output.stdout),
            stderr: text(output.stderr),
        }
    }

    /// Changes the written spec as another tool or time would have.
    pub(crate) fn edit_spec(&self, from: &str, to: &str) {
        let path = self.path(RUN_FILE);
        let text = fs::read_to_string(&path).unwrap();
        let changed = text.replace(from, to);
        assert_ne!(text, changed, "{from}");
        fs::write(path, changed).unwrap();
    }
}

impl Run {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.stdout)
            .unwrap_or_else(|e| panic!("{e}\n{}\n{}", self.stdout, self.stderr))
    }

    /// The ids of all findings.
    pub(crate) fn ids(&self) -> Vec<String> {
        let json = self.json();
        json["findings"]
            .as_array()
            .unwrap()
            .iter()
            .map(|finding| finding["id"].as_str().unwrap().to_owned())
            .collect()
    }
}
