//! Names: `vendor/class` and `vendor/class=device`, and the grammar of their parts.
//!
//! Everything is ASCII. A value of these types is always legal; the only way in is through the checks.

use std::fmt;
use std::str::FromStr;

use thiserror::Error;

/// Which part of a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part {
    /// Before the `/`.
    Vendor,
    /// Between `/` and `=`.
    Class,
    /// After the `=`.
    Device,
}

impl fmt::Display for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Vendor => "vendor",
            Self::Class => "class",
            Self::Device => "device name",
        })
    }
}

/// How a part breaks the grammar.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum Grammar {
    /// Nothing there.
    #[error("is empty")]
    Empty,
    /// Legal by the text, but readers built on the Go library v1.1.0 crash on it while they scan the directory.
    #[error("has one character only, which crashes readers built on CDI v1.1.0; use two or more")]
    OneCharacter,
    /// A vendor or class starts with a letter, a device with a letter or digit.
    #[error("starts with {0:?}")]
    First(char),
    /// Every part ends with a letter or digit.
    #[error("ends with {0:?}")]
    Last(char),
    /// Letters, digits, `_`, `-`, `.`; in a device name also `:`.
    #[error("contains {0:?}")]
    Character(char),
}

/// Why a text is no name.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum NameError {
    /// A path is never a CDI name.
    #[error("{0:?} is a path, not a CDI name")]
    Path(String),
    /// No `=`.
    #[error("{0:?} is not `vendor/class=device`: it has no `=`")]
    Unqualified(String),
    /// No `/` in the kind.
    #[error("{0:?} is not `vendor/class`: it has no `/`")]
    NoClass(String),
    /// A part breaks the grammar.
    #[error("{part} {text:?} {fault}")]
    Part {
        /// Which.
        part: Part,
        /// The part as written.
        text: String,
        /// What is wrong with it.
        fault: Grammar,
    },
}

/// Checks one part of a name. Code in the field enforces no length limit, so neither does this.
pub(crate) fn check(part: Part, text: &str) -> Result<(), Grammar> {
    let device = part == Part::Device;
    let (Some(first), Some(last)) = (text.chars().next(), text.chars().next_back()) else {
        return Err(Grammar::Empty);
    };
    if !(first.is_ascii_alphabetic() || device && first.is_ascii_digit()) {
        return Err(Grammar::First(first));
    }
    let legal =
        |c: &char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.') || device && *c == ':';
    if let Some(stranger) = text.chars().find(|c| !legal(c)) {
        return Err(Grammar::Character(stranger));
    }
    if !last.is_ascii_alphanumeric() {
        return Err(Grammar::Last(last));
    }
    if !device && text.len() == 1 {
        return Err(Grammar::OneCharacter);
    }
    Ok(())
}

fn checked(part: Part, text: &str) -> Result<String, NameError> {
    match check(part, text) {
        Ok(()) => Ok(text.to_owned()),
        Err(fault) => Err(NameError::Part {
            part,
            text: text.to_owned(),
            fault,
        }),
    }
}

/// `vendor/class`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Kind {
    vendor: String,
    class: String,
}

impl Kind {
    /// Checks both parts.
    pub fn new(vendor: &str, class: &str) -> Result<Self, NameError> {
        Ok(Self {
            vendor: checked(Part::Vendor, vendor)?,
            class: checked(Part::Class, class)?,
        })
    }

    /// Such as `nvidia.com`.
    pub fn vendor(&self) -> &str {
        &self.vendor
    }

    /// Such as `gpu`.
    pub fn class(&self) -> &str {
        &self.class
    }

    /// The qualified name of a device of this kind.
    pub fn device(&self, name: &str) -> Result<QualifiedName, NameError> {
        Ok(QualifiedName {
            kind: self.clone(),
            device: checked(Part::Device, name)?,
        })
    }
}

impl FromStr for Kind {
    type Err = NameError;

    /// Splits at the first `/`.
    fn from_str(text: &str) -> Result<Self, NameError> {
        match text.split_once('/') {
            Some((vendor, class)) => Self::new(vendor, class),
            None => Err(NameError::NoClass(text.to_owned())),
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.vendor, self.class)
    }
}

/// `vendor/class=device`: what a container asks for.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct QualifiedName {
    kind: Kind,
    device: String,
}

impl QualifiedName {
    /// Checks all three parts.
    pub fn new(vendor: &str, class: &str, device: &str) -> Result<Self, NameError> {
        Kind::new(vendor, class)?.device(device)
    }

    /// `vendor/class`.
    pub fn kind(&self) -> &Kind {
        &self.kind
    }

    /// Such as `nvidia.com`.
    pub fn vendor(&self) -> &str {
        &self.kind.vendor
    }

    /// Such as `gpu`.
    pub fn class(&self) -> &str {
        &self.kind.class
    }

    /// Such as `GPU-…`.
    pub fn device(&self) -> &str {
        &self.device
    }
}

impl FromStr for QualifiedName {
    type Err = NameError;

    /// Splits at the first `=`, then at the first `/` before it. A text that starts with `/` is a path.
    fn from_str(text: &str) -> Result<Self, NameError> {
        if text.starts_with('/') {
            return Err(NameError::Path(text.to_owned()));
        }
        let (kind, device) = text
            .split_once('=')
            .ok_or_else(|| NameError::Unqualified(text.to_owned()))?;
        kind.parse::<Kind>()?.device(device)
    }
}

impl fmt::Display for QualifiedName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}={}", self.kind, self.device)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fault(text: &str) -> NameError {
        text.parse::<QualifiedName>().unwrap_err()
    }

    #[test]
    fn a_qualified_name_splits_into_its_three_parts() {
        let name: QualifiedName = "k8s.gpu.nvidia.com/claim-x=MIG-1:3".parse().unwrap();
        assert_eq!(
            (name.vendor(), name.class(), name.device()),
            ("k8s.gpu.nvidia.com", "claim-x", "MIG-1:3")
        );
        assert_eq!(name.to_string(), "k8s.gpu.nvidia.com/claim-x=MIG-1:3");
    }

    #[test]
    fn the_first_equals_sign_and_the_first_slash_split() {
        assert_eq!(
            fault("vendor.com/gpu=a=b"),
            NameError::Part {
                part: Part::Device,
                text: "a=b".into(),
                fault: Grammar::Character('=')
            }
        );
        assert_eq!(
            fault("vendor.com/gpu/x=a"),
            NameError::Part {
                part: Part::Class,
                text: "gpu/x".into(),
                fault: Grammar::Character('/')
            }
        );
    }

    #[test]
    fn a_path_is_never_a_name() {
        assert_eq!(fault("/dev/x=y"), NameError::Path("/dev/x=y".into()));
    }

    #[test]
    fn a_name_without_its_marks_says_which_is_missing() {
        assert_eq!(
            fault("nvidia.com/gpu"),
            NameError::Unqualified("nvidia.com/gpu".into())
        );
        assert_eq!(fault("gpu=0"), NameError::NoClass("gpu".into()));
        assert_eq!(fault(""), NameError::Unqualified(String::new()));
    }

    #[test]
    fn the_grammar_of_vendor_and_class() {
        for (text, want) in [
            ("ab", Ok(())),
            ("a_b-c.d9", Ok(())),
            ("", Err(Grammar::Empty)),
            ("m", Err(Grammar::OneCharacter)),
            ("9a", Err(Grammar::First('9'))),
            ("-a", Err(Grammar::First('-'))),
            ("a.", Err(Grammar::Last('.'))),
            ("a:b", Err(Grammar::Character(':'))),
            ("aéb", Err(Grammar::Character('é'))),
            ("é", Err(Grammar::First('é'))),
        ] {
            assert_eq!(check(Part::Vendor, text), want, "{text:?}");
            assert_eq!(check(Part::Class, text), want, "{text:?}");
        }
    }

    #[test]
    fn the_grammar_of_device_names() {
        for (text, want) in [
            ("0", Ok(())),
            ("0:1", Ok(())),
            ("GPU-4cf8db2d-06c0-7d70-1a51-e59b25b2c16c", Ok(())),
            ("MIG-GPU-4cf8db2d/1/0", Err(Grammar::Character('/'))),
            (":1", Err(Grammar::First(':'))),
            ("1:", Err(Grammar::Last(':'))),
            ("a b", Err(Grammar::Character(' '))),
            ("", Err(Grammar::Empty)),
        ] {
            assert_eq!(check(Part::Device, text), want, "{text:?}");
        }
    }
}
