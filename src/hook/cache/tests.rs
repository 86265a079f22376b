//! Against the real `ldconfig` where the machine has one, and against anything else.

use std::fs;
use std::path::Path;
use std::process::Command;

use proptest::prelude::*;
use tempfile::TempDir;

use super::*;
use crate::driver::elf_fixture::library;

/// Names that a wrong order would lose: numbers by value, digits against letters, prefixes.
const NAMES: [&str; 14] = [
    "libz.so.1",
    "libz3.so.4",
    "libz10.so.4",
    "libz9.so.4",
    "liba.so.1",
    "liba.so.2",
    "liba.so.10",
    "liba-b.so.1",
    "liba_b.so.1",
    "libA.so.1",
    "liba.b.so.1",
    "liba1b.so.1",
    "libnvrm.so.2",
    "lib0.so.1",
];
const DRIVER: [&str; 6] = [
    "libcuda.so.1",
    "libnvidia-ml.so.1",
    "libnvidia-glcore.so.570.133.20",
    "libnvidia-nvvm70.so.4",
    "libnv.so.1",
    "libz4.so.1",
];

/// Directories with libraries, and caches made by the system's `ldconfig`.
struct System {
    dir: TempDir,
}

impl System {
    /// None, and a line on stderr, where there is no `ldconfig`.
    fn new() -> Option<Self> {
        if !Path::new("/sbin/ldconfig").exists() {
            eprintln!("skipped: this machine has no /sbin/ldconfig");
            return None;
        }
        let dir = tempfile::tempdir().unwrap();
        for (name, sonames) in [("image", &NAMES[..]), ("driver", &DRIVER[..])] {
            let lib = dir.path().join(name);
            fs::create_dir(&lib).unwrap();
            for soname in sonames {
                fs::write(lib.join(soname), library(Some(soname))).unwrap();
            }
        }
        Some(Self { dir })
    }

    fn make(&self, format: &str, dirs: &[&str]) -> Vec<u8> {
        let dirs: Vec<_> = dirs
            .iter()
            .map(|dir| self.dir.path().join(dir).display().to_string())
            .collect();
        let path = |name| self.dir.path().join(name);
        fs::write(path("conf"), dirs.join("\n")).unwrap();
        let status = Command::new("/sbin/ldconfig")
            .args(["-X", "-c", format, "-C"])
            .arg(path("cache"))
            .arg("-f")
            .arg(path("conf"))
            .status()
            .unwrap();
        assert!(status.success());
        fs::read(path("cache")).unwrap()
    }

    /// What `ldconfig -p` reads in a cache: its lines, without the count and the writer's name.
    fn listing(&self, cache: &[u8]) -> Vec<String> {
        let path = self.dir.path().join("listed");
        fs::write(&path, cache).unwrap();
        let output = Command::new("/sbin/ldconfig")
            .args(["-p", "-C"])
            .arg(&path)
            .output()
            .unwrap();
        assert!(output.status.success());
        let text = String::from_utf8(output.stdout).unwrap();
        text.lines()
            .filter(|line| line.contains(" => "))
            .map(str::to_owned)
            .collect()
    }
}

fn ours<'a>(flags: u32, key: &'a str, value: &'a str) -> Entry<'a> {
    Entry {
        flags,
        key: key.as_bytes(),
        value: value.as_bytes(),
        os_version: 0,
        hwcap: 0,
    }
}

#[test]
fn every_format_of_the_real_ldconfig_is_read_and_written_again() {
    let Some(system) = System::new() else { return };
    let new = system.make("new", &["image", "driver"]);
    let expected = system.listing(&new);
    assert!(expected.len() >= NAMES.len() + DRIVER.len(), "{expected:?}");
    for format in ["new", "compat", "old"] {
        let file = system.make(format, &["image", "driver"]);
        let cache = Cache::parse(&file).unwrap();
        assert_eq!(cache.entries().len(), expected.len(), "{format}");
        assert_eq!(system.listing(&cache.emit().unwrap()), expected, "{format}");
    }
}

#[test]
fn added_libraries_stand_where_the_real_ldconfig_puts_them() {
    let Some(system) = System::new() else { return };
    let whole = system.make("new", &["image", "driver"]);
    let file = system.make("new", &["image"]);
    let mut cache = Cache::parse(&file).unwrap();
    let paths: Vec<_> = DRIVER
        .iter()
        .map(|name| system.dir.path().join("driver").join(name))
        .collect();
    let flags = cache.entries()[0].flags;
    for (name, path) in DRIVER.iter().zip(&paths) {
        cache.add(flags, name.as_bytes(), path.as_os_str().as_encoded_bytes());
    }
    let emitted = cache.emit().unwrap();
    assert_eq!(system.listing(&emitted), system.listing(&whole));
}

#[test]
fn the_machine_s_own_cache_survives_with_its_extension() {
    let Ok(file) = fs::read("/etc/ld.so.cache") else {
        return;
    };
    let cache = Cache::parse(&file).unwrap();
    let emitted = cache.emit().unwrap();
    assert_eq!(Cache::parse(&emitted).unwrap(), cache);
}

#[test]
fn an_added_library_replaces_all_of_its_name_and_kind_and_no_other() {
    let mut cache = Cache {
        entries: vec![
            Entry {
                hwcap: 1 << 62,
                ..ours(0x303, "libcuda.so.1", "/hw/libcuda.so.1")
            },
            ours(0x303, "libcuda.so.1", "/old/libcuda.so.1"),
            ours(0x003, "libcuda.so.1", "/32/libcuda.so.1"),
            ours(0x303, "liba.so.1", "/liba.so.1"),
        ],
        hwcaps: vec![b"x86-64-v3"],
        generator: Some(b"ldconfig"),
    };
    cache.add(0x303, b"libcuda.so.1", b"/new/libcuda.so.1");
    let values: Vec<_> = cache.entries().iter().map(|entry| entry.value).collect();
    assert_eq!(
        values,
        [
            &b"/new/libcuda.so.1"[..],
            b"/32/libcuda.so.1",
            b"/liba.so.1"
        ]
    );
    let once = cache.clone();
    cache.add(0x303, b"libcuda.so.1", b"/new/libcuda.so.1");
    assert_eq!(cache, once);
    let emitted = cache.emit().unwrap();
    assert_eq!(Cache::parse(&emitted).unwrap(), cache);
}

#[test]
fn files_that_are_no_cache_of_this_machine_are_told_apart() {
    let good = Cache {
        entries: vec![ours(0x303, "liba.so.1", "/lib/liba.so.1")],
        ..Cache::default()
    }
    .emit()
    .unwrap();
    let changed = |at: usize, bytes: &[u8]| {
        let mut file = good.clone();
        file[at..at + bytes.len()].copy_from_slice(bytes);
        Cache::parse(&file).map(|cache| cache.entries().len())
    };
    assert_eq!(changed(0, b"glibc"), Ok(1));
    assert_eq!(changed(0, b"musl!"), Err(CacheError::Magic));
    assert_eq!(changed(28, &[3]), Err(CacheError::BigEndian));
    assert_eq!(changed(20, &[2, 0, 0, 0]), Err(CacheError::Truncated));
    assert_eq!(changed(20, &[0xff; 4]), Err(CacheError::Truncated));
    assert_eq!(changed(32, &[0xff; 4]), Err(CacheError::Truncated));
    assert_eq!(changed(52, &[0xff; 4]), Ok(0));
    assert_eq!(Cache::parse(b""), Err(CacheError::Magic));
    assert_eq!(Cache::parse(OLD_MAGIC), Err(CacheError::Truncated));
    assert_eq!(
        Cache::parse(&vec![0; MAX_BYTES + 1]),
        Err(CacheError::TooLarge)
    );
}

/// A file of `count` entries which all name the same string of `len` bytes.
fn amplifier(count: u32, len: usize, terminated: bool) -> Vec<u8> {
    let mut file = NEW_MAGIC.to_vec();
    file.extend(count.to_le_bytes());
    file.resize(NEW_HEADER, 0);
    let at = u32::try_from(NEW_HEADER).unwrap() + count * 24;
    for _ in 0..count {
        for word in [0x303, at, at, 0, 0, 0] {
            file.extend(word.to_le_bytes());
        }
    }
    file.resize(file.len() + len, b'a');
    if terminated {
        file.push(0);
    }
    file
}

#[test]
fn a_small_file_that_stands_for_a_huge_one_is_refused_at_once() {
    for terminated in [true, false] {
        let file = amplifier(600_000, 4000, terminated);
        let start = std::time::Instant::now();
        assert_eq!(Cache::parse(&file), Err(CacheError::TooLarge));
        assert!(start.elapsed().as_secs() < 2);
    }
}

proptest! {
    #[test]
    fn any_bytes_end_in_a_cache_or_an_error(
        old in any::<bool>(),
        bytes in prop::collection::vec(any::<u8>(), 0..400),
        count in 0_u32..20,
    ) {
        let mut file = if old { OLD_MAGIC.to_vec() } else { NEW_MAGIC.to_vec() };
        if old {
            file.push(0);
        }
        file.extend(count.to_le_bytes());
        file.extend(&bytes);
        for file in [&file[..], &bytes] {
            if let Ok(cache) = Cache::parse(file) {
                let emitted = cache.emit().unwrap();
            prop_assert_eq!(Cache::parse(&emitted).unwrap(), cache);
            }
        }
    }

    #[test]
    fn a_scribbled_cache_ends_in_a_cache_or_an_error(
        scribbles in prop::collection::vec((0_usize..400, any::<u8>()), 0..8),
        cut in 0_usize..400,
    ) {
        let mut file = Cache {
            entries: vec![ours(0x303, "libb.so.1", "/lib/libb.so.1"), ours(3, "liba.so.1", "/a")],
            hwcaps: vec![b"x86-64-v3", b"x86-64-v4"],
            generator: Some(b"ldconfig (test)"),
        }
        .emit()
        .unwrap();
        for (at, byte) in scribbles {
            if let Some(target) = file.get_mut(at) {
                *target = byte;
            }
        }
        file.truncate(cut.max(NEW_HEADER));
        if let Ok(mut cache) = Cache::parse(&file) {
            cache.add(0x303, b"libcuda.so.1", b"/lib/libcuda.so.1");
            let emitted = cache.emit().unwrap();
            prop_assert_eq!(Cache::parse(&emitted).unwrap(), cache);
        }
    }

    #[test]
    fn an_added_library_is_found_by_the_loader_s_search(
        names in prop::collection::btree_set("lib[a-z0-9._-]{0,6}\\.so(\\.[0-9]{1,3})?", 1..30),
    ) {
        let mut cache = Cache::default();
        for name in &names {
            cache.add(0x303, name.as_bytes(), name.as_bytes());
        }
        for name in &names {
            prop_assert!(found(cache.entries(), name.as_bytes()), "{name} in {names:?}");
        }
    }
}

/// The search of glibc's loader: halves downwards, and then looks at all of the same name.
fn found(entries: &[Entry<'_>], name: &[u8]) -> bool {
    let (mut left, mut right) = (0, entries.len());
    while left < right {
        let middle = usize::midpoint(left, right);
        match library_order(name, entries[middle].key) {
            std::cmp::Ordering::Less => left = middle + 1,
            std::cmp::Ordering::Greater => right = middle,
            std::cmp::Ordering::Equal => {
                let same = |entry: &&Entry<'_>| library_order(name, entry.key).is_eq();
                return entries.iter().filter(same).any(|entry| entry.key == name);
            }
        }
    }
    false
}
