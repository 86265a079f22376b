//! File names that the specification suggests.
//!
//! Only the last component is made here; the directory is the caller's choice.

use crate::emit::Format;
use crate::name::Kind;

/// `<vendor>-<class>.<ext>`: the file of a generator that owns the whole kind.
pub fn default_name(kind: &Kind, format: Format) -> String {
    format!("{}-{}.{}", kind.vendor(), kind.class(), format.extension())
}

/// `<vendor>-<class>_<id>.<ext>`: a file that lives as long as the thing with that id. A `/` in the id
/// becomes `_`, and so does a NUL, which no file name can hold.
pub fn transient_name(kind: &Kind, id: &str, format: Format) -> String {
    format!(
        "{}-{}_{}.{}",
        kind.vendor(),
        kind.class(),
        id.replace(['/', '\0'], "_"),
        format.extension()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_default_name_joins_vendor_and_class() {
        let kind = Kind::new("nvidia.com", "gpu").unwrap();
        assert_eq!(default_name(&kind, Format::Yaml), "nvidia.com-gpu.yaml");
        assert_eq!(default_name(&kind, Format::Json), "nvidia.com-gpu.json");
    }

    #[test]
    fn a_slash_in_a_transient_id_cannot_leave_the_directory() {
        let kind = Kind::new("k8s.gpu.nvidia.com", "claim").unwrap();
        assert_eq!(
            transient_name(&kind, "../ns/pod", Format::Yaml),
            "k8s.gpu.nvidia.com-claim_.._ns_pod.yaml"
        );
    }
}
