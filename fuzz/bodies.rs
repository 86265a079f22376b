//! What each target does with its bytes, and what must hold; shared by the fuzzer and by
//! `tests/corpora.rs`.

use std::str;

use cdi::{Format, Spec};
use gpu_warden::driver::{Manifest, csv, ldcache};
use gpu_warden::gpu::capability::{parse_access, parse_mig_minors};

/// A spec that may be written reads back as itself, in both encodings.
fn reads_back(spec: &Spec) {
    if spec.validate_for_writing().is_err() {
        return;
    }
    let yaml = Spec::from_yaml(&spec.emit(Format::Yaml)).expect("our own YAML");
    let json = Spec::from_json(&spec.emit(Format::Json)).expect("our own JSON");
    assert!(yaml == *spec && json == *spec, "{spec:?}");
}

pub fn cdi_yaml(data: &[u8]) {
    if let Ok(spec) = str::from_utf8(data)
        .map_err(drop)
        .and_then(|text| Spec::from_yaml(text).map_err(drop))
    {
        reads_back(&spec);
    }
}

pub fn cdi_json(data: &[u8]) {
    if let Ok(spec) = str::from_utf8(data)
        .map_err(drop)
        .and_then(|text| Spec::from_json(text).map_err(drop))
    {
        reads_back(&spec);
    }
}

pub fn ld_so_cache(data: &[u8]) {
    if let Ok(entries) = ldcache::parse(data) {
        assert!(entries.iter().all(|entry| entry.path.is_absolute()));
        assert!(entries.len() <= data.len() / 24);
    }
}

pub fn capability(data: &[u8]) {
    let Ok(text) = str::from_utf8(data) else {
        return;
    };
    if let Some(access) = parse_access(text) {
        assert!(access.minor < 1 << 20 && access.mode.is_none_or(|mode| mode <= 0o777));
    }
    assert!(
        parse_mig_minors(text)
            .values()
            .all(|minor| *minor < 1 << 20)
    );
}

pub fn manifest(data: &[u8]) {
    if let Ok(text) = str::from_utf8(data)
        && let Ok(manifest) = Manifest::parse("fuzz", text)
    {
        let dirs = &manifest.directories;
        assert!(
            dirs.lib
                .iter()
                .chain(&dirs.bin)
                .all(|dir| dir.is_absolute())
        );
    }
}

pub fn tegra_csv(data: &[u8]) {
    if let Ok(text) = str::from_utf8(data) {
        assert!(
            csv::parse(text)
                .iter()
                .all(|entry| entry.path.is_absolute())
        );
    }
}
