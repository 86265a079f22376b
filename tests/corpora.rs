//! The corpora of the fuzz targets, replayed without a fuzzer: what was found once stays found.

#![expect(
    clippy::expect_used,
    clippy::unwrap_used,
    unreachable_pub,
    reason = "bodies of fuzz targets fail by a panic, and are public for the fuzzer's crate"
)]

#[path = "../fuzz/bodies.rs"]
mod bodies;

use std::fs;
use std::path::Path;

fn replay(target: &str, body: fn(&[u8])) {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("fuzz/corpus")
        .join(target);
    let mut count = 0;
    for entry in fs::read_dir(&dir).unwrap() {
        let bytes = fs::read(entry.unwrap().path()).unwrap();
        body(&bytes);
        // The neighbours of a seed, as a fuzzer would try them first.
        for at in (0..bytes.len()).step_by((bytes.len() / 64).max(1)) {
            body(&bytes[..at]);
            for flip in [0x01, 0x20, 0x80, 0xff] {
                let mut changed = bytes.clone();
                changed[at] ^= flip;
                body(&changed);
            }
        }
        count += 1;
    }
    assert!(count >= 3, "{target} has {count} seeds");
}

#[test]
fn cdi_yaml() {
    replay("cdi_yaml", bodies::cdi_yaml);
}

#[test]
fn cdi_json() {
    replay("cdi_json", bodies::cdi_json);
}

#[test]
fn ld_so_cache() {
    replay("ld_so_cache", bodies::ld_so_cache);
}

#[test]
fn capability() {
    replay("capability", bodies::capability);
}

#[test]
fn manifest() {
    replay("manifest", bodies::manifest);
}

#[test]
fn tegra_csv() {
    replay("tegra_csv", bodies::tegra_csv);
}
