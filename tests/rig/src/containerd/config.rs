//! containerd's configuration file, in the shape of 1.x (version 2) and of 2.x (version 3). Pure.

use std::path::Path;

use super::{LEGACY_HANDLER, Options};

/// What goes into the file.
#[derive(Debug)]
pub(super) struct Config<'a> {
    pub(super) base: &'a Path,
    pub(super) cdi_dir: &'a Path,
    pub(super) runc: &'a Path,
    pub(super) legacy: &'a Path,
    pub(super) pause: &'a str,
    pub(super) restrict_oom: bool,
    pub(super) snapshotter: &'a str,
    pub(super) options: &'a Options,
}

impl Config<'_> {
    /// For a containerd of that major version. What 2.x has on by default is said all the same.
    pub(super) fn render(&self, major: u32) -> String {
        let cri = if major >= 2 {
            self.cri_of_2()
        } else {
            self.cri_of_1()
        };
        let version = if major >= 2 { 3 } else { 2 };
        let base = self.base.display();
        let timeout = self.options.nri_request_timeout.as_ref();
        let timeout = timeout.map_or(String::new(), |t| {
            format!("plugin_request_timeout = '{t}'\n")
        });
        format!(
            "version = {version}\n\
             root = '{base}/root'\n\
             state = '{base}/state'\n\
             [grpc]\n\
             address = '{base}/containerd.sock'\n\
             [debug]\n\
             level = 'debug'\n\
             [plugins.'io.containerd.internal.v1.opt']\n\
             path = '{base}/opt'\n\
             [plugins.'io.containerd.nri.v1.nri']\n\
             disable = false\n\
             socket_path = '{base}/nri.sock'\n\
             plugin_path = '{base}/nri/plugins'\n\
             plugin_config_path = '{base}/nri/conf.d'\n\
             {timeout}{cri}{extra}\n",
            extra = self.options.extra,
        )
    }

    fn cri_of_1(&self) -> String {
        let table = "plugins.'io.containerd.grpc.v1.cri'";
        format!(
            "[{table}]\n\
             sandbox_image = '{pause}'\n\
             {common}\
             [{table}.containerd]\n\
             snapshotter = '{snapshotter}'\n\
             default_runtime_name = 'runc'\n\
             {handlers}",
            pause = self.pause,
            common = self.common(),
            snapshotter = self.snapshotter,
            handlers = self.handlers(table),
        )
    }

    fn cri_of_2(&self) -> String {
        let table = "plugins.'io.containerd.cri.v1.runtime'";
        format!(
            "[plugins.'io.containerd.cri.v1.images']\n\
             snapshotter = '{snapshotter}'\n\
             [plugins.'io.containerd.cri.v1.images'.pinned_images]\n\
             sandbox = '{pause}'\n\
             [{table}]\n\
             {common}\
             [{table}.containerd]\n\
             default_runtime_name = 'runc'\n\
             {handlers}",
            snapshotter = self.snapshotter,
            pause = self.pause,
            common = self.common(),
            handlers = self.handlers(table),
        )
    }

    /// No `AppArmor`: its profile would have to be loaded into the machine's kernel.
    fn common(&self) -> String {
        format!(
            "restrict_oom_score_adj = {}\n\
             disable_apparmor = true\n\
             enable_cdi = true\n\
             cdi_spec_dirs = ['{}']\n",
            self.restrict_oom,
            self.cdi_dir.display(),
        )
    }

    fn handlers(&self, table: &str) -> String {
        [("runc", self.runc), (LEGACY_HANDLER, self.legacy)]
            .map(|(name, binary)| {
                format!(
                    "[{table}.containerd.runtimes.{name}]\n\
                     runtime_type = 'io.containerd.runc.v2'\n\
                     [{table}.containerd.runtimes.{name}.options]\n\
                     BinaryName = '{}'\n",
                    binary.display(),
                )
            })
            .concat()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn render(major: u32) -> String {
        let config = Config {
            base: Path::new("/tmp/gw-x"),
            cdi_dir: Path::new("/tmp/gw-x/cdi"),
            runc: Path::new("/r"),
            legacy: Path::new("/l"),
            pause: "pause:1",
            restrict_oom: true,
            snapshotter: "overlayfs",
            options: &Options {
                nri_request_timeout: Some("5s".to_owned()),
                extra: "[metrics]".to_owned(),
            },
        };
        config.render(major)
    }

    #[test]
    fn each_major_gets_its_own_tables() {
        let (one, two) = (render(1), render(2));
        assert!(one.starts_with("version = 2\n"));
        assert!(one.contains("sandbox_image = 'pause:1'"));
        assert!(
            one.contains(
                "[plugins.'io.containerd.grpc.v1.cri'.containerd.runtimes.nvidia.options]"
            )
        );
        assert!(two.starts_with("version = 3\n"));
        assert!(two.contains("sandbox = 'pause:1'"));
        assert!(two.contains(
            "[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.nvidia.options]"
        ));
        for text in [one, two] {
            assert!(text.contains("disable = false"));
            assert!(text.contains("enable_cdi = true"));
            assert!(text.contains("plugin_request_timeout = '5s'"));
            assert!(text.contains("restrict_oom_score_adj = true"));
        }
    }
}
