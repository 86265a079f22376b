//! Who the plugin is: its name and its place in the order of plugins.
//!
//! Invariant: an [`Identity`] satisfies the rules of every supported runtime, so registration can't fail on it.

use std::fmt;

/// A plugin's checked name and index.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identity {
    name: String,
    index: String,
}

/// Why a name or index was refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum IdentityError {
    /// The name has no character.
    #[error("NRI plugin name is empty")]
    EmptyName,
    /// The name holds a character that NRI 0.12 refuses.
    #[error(
        "NRI plugin name {name:?} holds {character:?}; only ASCII letters, digits and `-_.+` are accepted"
    )]
    NameCharacter {
        /// The refused name.
        name: String,
        /// Its first offending character.
        character: char,
    },
    /// The index is not two digits.
    #[error("NRI plugin index {0:?} is not exactly two digits, such as \"05\" or \"90\"")]
    Index(String),
}

impl Identity {
    /// Checks name and index. The runtime calls plugins in ascending order of their indices.
    pub fn new(name: impl Into<String>, index: impl Into<String>) -> Result<Self, IdentityError> {
        let (name, index) = (name.into(), index.into());
        if name.is_empty() {
            return Err(IdentityError::EmptyName);
        }
        if let Some(character) = name
            .chars()
            .find(|c| !c.is_ascii_alphanumeric() && !"-_.+".contains(*c))
        {
            return Err(IdentityError::NameCharacter { name, character });
        }
        if index.len() != 2 || !index.bytes().all(|b| b.is_ascii_digit()) {
            return Err(IdentityError::Index(index));
        }
        Ok(Self { name, index })
    }

    /// The name, as `required_plugins` in the runtime's configuration would list it.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The index, two digits.
    pub fn index(&self) -> &str {
        &self.index
    }
}

impl fmt::Display for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.index, self.name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accepts_what_every_runtime_accepts() {
        let identity = Identity::new("gpu-warden_1.0+x", "05").unwrap();
        assert_eq!(identity.to_string(), "05-gpu-warden_1.0+x");
    }

    #[test]
    fn refuses_names_that_a_runtime_would_refuse() {
        assert_eq!(Identity::new("", "05"), Err(IdentityError::EmptyName));
        for (name, character) in [("a b", ' '), ("a/b", '/'), ("gpü", 'ü'), ("a\0", '\0')] {
            assert_eq!(
                Identity::new(name, "05"),
                Err(IdentityError::NameCharacter {
                    name: name.into(),
                    character
                })
            );
        }
    }

    #[test]
    fn refuses_indices_that_are_not_two_digits() {
        for index in ["", "5", "005", "a5", "-5", "٠٥"] {
            assert_eq!(
                Identity::new("x", index),
                Err(IdentityError::Index(index.into()))
            );
        }
    }
}
