//! Properties of output and input together.

use cdi::{ContainerEdits, Spec};
use proptest::prelude::*;

use crate::second_reader::assert_same_reading;
use crate::strategies::{shapely, writable};

/// No character that YAML 1.1 calls unprintable or a line break, but the newline of the layout.
fn is_printable(text: &str) -> bool {
    text.chars().all(|c| {
        c == '\n'
            || !c.is_control()
                && !matches!(
                    c,
                    '\u{2028}' | '\u{2029}' | '\u{feff}' | '\u{fffe}' | '\u{ffff}'
                )
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn what_the_writer_may_write_both_readers_read_alike(spec in writable()) {
        prop_assert_eq!(spec.validate_for_writing(), Ok(()));
        assert_same_reading(&spec);
    }

    #[test]
    fn every_spec_survives_both_formats(spec in shapely()) {
        let (yaml, json) = (spec.to_yaml(), spec.to_json());
        prop_assert!(is_printable(&yaml) && is_printable(&json));
        prop_assert_eq!(&Spec::from_yaml(&yaml).unwrap(), &spec);
        prop_assert_eq!(&Spec::from_json(&json).unwrap(), &spec);
        prop_assert_eq!(&Spec::from_yaml(&json).unwrap(), &spec);
    }

    #[test]
    fn serde_and_the_canonical_writer_say_the_same(spec in shapely()) {
        let canonical: serde_json::Value = serde_json::from_str(&spec.to_json()).unwrap();
        prop_assert_eq!(canonical, serde_json::to_value(&spec).unwrap());
    }

    #[test]
    fn validation_never_panics_and_writing_is_the_stricter_level(spec in shapely()) {
        if spec.validate_for_writing().is_ok() {
            prop_assert_eq!(spec.validate(), Ok(()));
        }
    }

    #[test]
    fn a_version_below_the_minimum_is_refused_and_the_minimum_is_not(mut spec in writable()) {
        let minimum = spec.minimum_version();
        for version in cdi::Version::ALL {
            spec.cdi_version = version.to_string();
            prop_assert_eq!(spec.validate().is_ok(), version >= minimum);
        }
    }

    #[test]
    fn appending_nothing_changes_nothing(spec in writable()) {
        let mut sum = ContainerEdits::default();
        sum.append(&spec.container_edits);
        sum.append(&ContainerEdits::default());
        prop_assert_eq!(sum, spec.container_edits);
    }
}
