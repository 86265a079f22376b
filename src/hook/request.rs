//! The hook's arguments, each one `--name=value`, so that a later version's can be told and passed
//! over: the spec in a file and the program on the host are updated at different times.

use std::path::{Component, Path, PathBuf};

use super::HookError;

const LINK: &str = "--link";
const LIBRARY: &str = "--library";
const FREEZE: &str = "--freeze-device-files";

/// A symbolic link to make.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Link {
    /// Text of the link.
    pub target: String,
    /// Where it is, absolute in the container.
    pub path: PathBuf,
}

/// What one run is to do.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Request {
    /// Links whose targets, where they exist in the container, get a further name.
    pub links: Vec<Link>,
    /// Libraries to make known to the loader under their file names, absolute in the container.
    pub libraries: Vec<PathBuf>,
    /// Whether the driver's user space is kept from making device nodes in the container.
    pub freeze_device_files: bool,
    /// Arguments of a later version.
    pub unknown: Vec<String>,
}

impl Request {
    /// Reads arguments, without the program's and the subcommand's name.
    pub fn parse(arguments: &[String]) -> Result<Self, HookError> {
        let mut request = Self::default();
        for argument in arguments {
            let wrong = |reason| HookError::Argument {
                argument: argument.clone(),
                reason,
            };
            match argument.split_once('=').unwrap_or((argument, "")) {
                (LINK, value) => {
                    let (target, path) = value
                        .split_once("::")
                        .filter(|(target, _)| !target.is_empty())
                        .ok_or_else(|| wrong("it must be TARGET::PATH"))?;
                    request.links.push(Link {
                        target: target.to_owned(),
                        path: file(path).ok_or_else(|| wrong("its path is not absolute"))?,
                    });
                }
                (LIBRARY, value) => request
                    .libraries
                    .push(file(value).ok_or_else(|| wrong("its path is not absolute"))?),
                (FREEZE, "") => request.freeze_device_files = true,
                _ => request.unknown.push(argument.clone()),
            }
        }
        Ok(request)
    }

    /// The arguments which [`parse`](Self::parse) reads as this request.
    pub fn arguments(&self) -> Vec<String> {
        let links = self
            .links
            .iter()
            .map(|link| format!("{LINK}={}::{}", link.target, link.path.display()));
        let libraries = self
            .libraries
            .iter()
            .map(|path| format!("{LIBRARY}={}", path.display()));
        links
            .chain(libraries)
            .chain(self.freeze_device_files.then(|| FREEZE.to_owned()))
            .chain(self.unknown.iter().cloned())
            .collect()
    }
}

/// An absolute path that ends in a name.
fn file(text: &str) -> Option<PathBuf> {
    let path = Path::new(text);
    let named = matches!(path.components().next_back(), Some(Component::Normal(_)));
    (path.is_absolute() && named && !text.contains('\0')).then(|| path.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(arguments: &[&str]) -> Result<Request, HookError> {
        let arguments: Vec<_> = arguments.iter().map(|&text| text.to_owned()).collect();
        Request::parse(&arguments)
    }

    #[test]
    fn what_is_written_is_read_again() {
        let request = parse(&[
            "--link=../card0::/dev/dri/by-path/pci-0000:3b:00.0-card",
            "--library=/usr/lib64/libcuda.so.1",
            "--freeze-device-files",
        ])
        .unwrap();
        assert_eq!(request.links[0].target, "../card0");
        assert_eq!(
            request.links[0].path,
            Path::new("/dev/dri/by-path/pci-0000:3b:00.0-card")
        );
        assert!(request.freeze_device_files);
        assert_eq!(Request::parse(&request.arguments()).unwrap(), request);
    }

    #[test]
    fn arguments_of_a_later_version_are_kept_apart() {
        let request = parse(&["--later=x", "word", "--freeze-device-files=no"]).unwrap();
        assert_eq!(
            request.unknown,
            ["--later=x", "word", "--freeze-device-files=no"]
        );
        assert!(!request.freeze_device_files);
    }

    #[test]
    fn known_arguments_without_sense_are_errors() {
        for bad in [
            "--link",
            "--link=a",
            "--link=::/a",
            "--link=a::b",
            "--link=a::/",
            "--link=a::/b/..",
            "--library=",
            "--library=lib.so",
            "--library=/a\0b",
        ] {
            let error = parse(&[bad]).unwrap_err().to_string();
            assert!(error.contains(bad), "{error}");
        }
    }
}
