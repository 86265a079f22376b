//! The configuration as it is at one moment, and how it is kept current.
//!
//! Invariant: a file that can't be used never takes the place of one that could. What held before
//! holds on, and [`Settings::problem`] says so until the file is mended.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use tracing::{error, info, warn};

use super::{Config, ConfigError};
use crate::host::Toolkit;

/// What holds at one moment.
#[derive(Debug, Clone, Default)]
pub struct Settings {
    /// The last configuration that could be used.
    pub config: Arc<Config>,
    /// What the node's NVIDIA runtime listens to.
    pub toolkit: Arc<Toolkit>,
    /// Why the file as it is now is not what holds; none when it does.
    pub problem: Option<String>,
}

/// The files that settings come from.
#[derive(Debug)]
pub struct SettingsSource {
    file: Option<PathBuf>,
    toolkit_files: Vec<PathBuf>,
    now: Settings,
    toolkit_said: Option<String>,
    text: Option<String>,
}

impl SettingsSource {
    /// Reads everything for the first time. Without `file` the shipped default holds, for good.
    pub fn open(file: Option<PathBuf>, toolkit_files: Vec<PathBuf>) -> Result<Self, ConfigError> {
        let (config, text) = match &file {
            Some(path) => {
                let text = read(path)?;
                let config = Config::parse(&text, &path.display().to_string())?;
                (config, Some(text))
            }
            None => (Config::shipped()?, None),
        };
        let mut source = Self {
            file,
            toolkit_files,
            now: Settings {
                config: Arc::new(config),
                ..Settings::default()
            },
            toolkit_said: None,
            text,
        };
        source.read_toolkit();
        Ok(source)
    }

    /// Directories in which a change calls for [`Self::take`]. A `ConfigMap` volume replaces a link in
    /// the directory, so the file itself is not what to watch.
    pub fn directories(&self) -> Vec<PathBuf> {
        let files = self.file.iter().chain(&self.toolkit_files);
        let mut directories: Vec<_> = files
            .filter_map(|file| file.parent().map(Path::to_owned))
            .collect();
        directories.sort();
        directories.dedup();
        directories
    }

    /// What holds as far as was read.
    pub fn now(&self) -> Settings {
        self.now.clone()
    }

    /// Reads again what has changed, and says what holds now.
    pub fn take(&mut self) -> Settings {
        self.read_toolkit();
        if let Some(path) = self.file.clone() {
            let read = read(&path);
            if read.as_ref().ok() != self.text.as_ref() || self.now.problem.is_some() {
                self.judge(&path, read);
            }
        }
        self.now()
    }

    fn judge(&mut self, path: &Path, read: Result<String, ConfigError>) {
        let parsed = read.and_then(|text| {
            let config = Config::parse(&text, &path.display().to_string())?;
            Ok((text, config))
        });
        match parsed {
            Ok((text, config)) => {
                info!(file = %path.display(), enforcement = ?config.enforcement, "the configuration was read again");
                self.text = Some(text);
                self.now.config = Arc::new(config);
                self.now.problem = None;
            }
            Err(problem) => {
                let problem = problem.to_string();
                if self.now.problem.as_ref() != Some(&problem) {
                    error!("{problem}; the configuration that held before holds on");
                }
                self.now.problem = Some(problem);
            }
        }
    }

    fn read_toolkit(&mut self) {
        let (toolkit, problems) = Toolkit::read(&self.toolkit_files);
        let problems: Vec<_> = problems.iter().map(ToString::to_string).collect();
        let said = (!problems.is_empty()).then(|| problems.join("; "));
        if let Some(problem) = &said
            && self.toolkit_said != said
        {
            warn!("{problem}; every name that Docker Swarm could have given is neutralised");
        }
        self.toolkit_said = said;
        if *self.now.toolkit != toolkit {
            self.now.toolkit = Arc::new(toolkit);
        }
    }
}

fn read(path: &Path) -> Result<String, ConfigError> {
    std::fs::read_to_string(path).map_err(|source| ConfigError::Read {
        path: path.to_owned(),
        source,
    })
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;
    use crate::config::Enforcement;

    fn is_audit(settings: &Settings) -> bool {
        settings.config.enforcement == Enforcement::Audit
    }

    /// As the kubelet's atomic writer does it: the file is a link into `..data`, which is a link that
    /// is replaced.
    fn publish(dir: &Path, version: &str, text: &str) {
        fs::create_dir(dir.join(version)).unwrap();
        fs::write(dir.join(version).join("gpu-warden.yaml"), text).unwrap();
        symlink(version, dir.join("..data_tmp")).unwrap();
        fs::rename(dir.join("..data_tmp"), dir.join("..data")).unwrap();
    }

    #[test]
    fn a_config_map_that_changes_is_read_again_and_a_broken_one_keeps_what_held() {
        let dir = tempfile::tempdir().unwrap();
        publish(dir.path(), "..1", "enforcement: enforce");
        let file = dir.path().join("gpu-warden.yaml");
        symlink("..data/gpu-warden.yaml", &file).unwrap();
        let mut source = SettingsSource::open(Some(file.clone()), Vec::new()).unwrap();
        assert_eq!(source.directories(), [dir.path()]);
        assert!(!is_audit(&source.take()));

        publish(dir.path(), "..2", "enforcement: audit");
        assert!(is_audit(&source.take()));

        publish(dir.path(), "..3", "enforcment: enforce");
        let broken = source.take();
        assert!(is_audit(&broken));
        let problem = broken.problem.unwrap();
        assert!(
            problem.contains("enforcment") && problem.contains(file.to_str().unwrap()),
            "{problem}"
        );

        fs::remove_file(dir.path().join("..data")).unwrap();
        let gone = source.take();
        assert!(is_audit(&gone) && gone.problem.unwrap().contains("cannot read"));

        publish(dir.path(), "..4", "enforcement: audit\nprivileged: refuse");
        let mended = source.take();
        assert!(is_audit(&mended) && mended.problem.is_none());
        publish(dir.path(), "..5", "");
        assert!(!is_audit(&source.take()), "an empty file is the default");
    }

    /// Mended to exactly what it was before it broke.
    #[test]
    fn a_file_that_is_put_back_is_no_problem_any_more() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("c.yaml");
        fs::write(&file, "enforcement: audit").unwrap();
        let mut source = SettingsSource::open(Some(file.clone()), Vec::new()).unwrap();
        fs::write(&file, "]").unwrap();
        assert!(source.take().problem.is_some());
        fs::write(&file, "enforcement: audit").unwrap();
        assert!(source.take().problem.is_none());
    }

    #[test]
    fn a_broken_file_at_the_start_is_an_error() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("c.yaml");
        assert!(SettingsSource::open(Some(file.clone()), Vec::new()).is_err());
        fs::write(&file, "mode: audit").unwrap();
        assert!(SettingsSource::open(Some(file), Vec::new()).is_err());
    }

    #[test]
    fn nvidias_configuration_is_read_again_too() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("config.toml");
        let mut source = SettingsSource::open(None, vec![file.clone()]).unwrap();
        let listens = |settings: &Settings, name| settings.toolkit.is_swarm_variable(name);
        assert!(
            listens(&source.now(), "DOCKER_RESOURCE_X"),
            "the worst case"
        );
        fs::write(&file, "swarm-resource = 'GPUS'").unwrap();
        let now = source.take();
        assert!(listens(&now, "GPUS") && !listens(&now, "DOCKER_RESOURCE_X"));
        fs::write(&file, "swarm-resource = ").unwrap();
        assert!(listens(&source.take(), "DOCKER_RESOURCE_X"));
    }
}
