//! The rules against a model of the kernel's list, in both behaviours.

use proptest::prelude::*;

use super::super::filter::tests::{granted, numbers, vfio};
use super::*;

/// The kernel's list, as its documentation describes it: exact removal, no reading back.
#[derive(Clone, Default)]
struct Model {
    allow_all: bool,
    /// Exceptions of an allow-all list, entries of a whitelist.
    rules: Vec<Rule>,
}

impl Model {
    fn write(&mut self, write: Write) {
        let (adds, rule) = match write {
            Write::Allow(rule) => (!self.allow_all, rule),
            Write::Deny(rule) => (self.allow_all, rule),
        };
        if adds {
            self.rules.push(rule);
            return;
        }
        for known in &mut self.rules {
            if (known.kind, known.major, known.minor) == (rule.kind, rule.major, rule.minor) {
                known.access.read &= !rule.access.read;
                known.access.write &= !rule.access.write;
                known.access.mknod &= !rule.access.mknod;
            }
        }
        self.rules
            .retain(|r| r.access.read || r.access.write || r.access.mknod);
    }

    fn opens(&self, major: u32, minor: u32) -> bool {
        let matched = self.rules.iter().any(|rule| {
            rule.kind != Kind::Block
                && rule.major.is_none_or(|m| m == major)
                && rule.minor.is_none_or(|m| m == minor)
                && (rule.access.read || rule.access.write)
        });
        matched != self.allow_all
    }
}

fn list(text: &str) -> Vec<Rule> {
    parse(text).unwrap()
}

const ORDINARY: &str = "c *:* m\nb *:* m\nc 1:3 rwm\nc 5:0 rwm\nc 136:* rwm\nc 5:2 rwm\n";

fn filter(gpus: &[u32]) -> Filter {
    Filter::of(&granted(gpus.iter().copied()), &numbers(), &vfio())
}

#[test]
fn rules_read_and_print_as_the_kernel_writes_them() {
    for text in ["a *:* rwm", "c 195:* rw", "b 8:0 m", "c 10:200 rwm"] {
        assert_eq!(text.parse::<Rule>().unwrap().to_string(), text);
    }
    for text in [
        "",
        "c 1:3",
        "x 1:3 r",
        "c 1 r",
        "c 1:x r",
        "c 1:3 rx",
        "c 1:3 r w",
    ] {
        assert!(text.parse::<Rule>().is_err(), "{text}");
    }
    assert!(allows_all(&list("a *:* rwm\n")));
    assert!(!allows_all(&list(ORDINARY)));
}

#[test]
fn mknod_is_never_denied_on_an_allow_all_list() {
    for rule in exceptions(&filter(&[]))
        .into_iter()
        .chain(exceptions(&filter(&[1])))
    {
        assert!(!rule.access.mknod, "{rule}");
    }
}

#[test]
fn without_a_gpu_one_exception_covers_a_major() {
    let texts: Vec<_> = exceptions(&filter(&[]))
        .iter()
        .map(Rule::to_string)
        .collect();
    assert!(texts.contains(&"c 195:* rw".to_owned()));
    assert!(texts.contains(&"c 237:* rw".to_owned()));
    assert!(texts.contains(&"c 511:3 rw".to_owned()));
    assert!(!texts.contains(&"c 195:0 rw".to_owned()));
}

#[test]
fn an_ordinary_list_needs_no_write_and_a_wildcard_is_split_into_what_is_granted() {
    assert_eq!(narrowed(&list(ORDINARY), &filter(&[1])), (Vec::new(), None));
    let (writes, wide) = narrowed(&list("c 195:* rw\nc 237:* rwm\nc 195:7 r\n"), &filter(&[1]));
    let texts: Vec<_> = writes
        .iter()
        .map(|write| match write {
            Write::Allow(rule) => format!("+{rule}"),
            Write::Deny(rule) => format!("-{rule}"),
        })
        .collect();
    assert_eq!(
        texts,
        [
            "+c 195:1 rw",
            "+c 195:254 rw",
            "+c 195:255 rw",
            "-c 195:* rw",
            "-c 195:7 r"
        ]
    );
    assert_eq!(wide, None);
}

#[test]
fn an_entry_without_a_major_is_reported_and_left() {
    let (writes, wide) = narrowed(&list("c *:* rw\n"), &filter(&[1]));
    assert_eq!(
        (writes, wide.unwrap().to_string().as_str()),
        (Vec::new(), "c *:* rw")
    );
}

fn gpus() -> impl Strategy<Value = Vec<u32>> {
    proptest::collection::btree_set(0u32..6, 0..4).prop_map(|set| set.into_iter().collect())
}

fn entry() -> impl Strategy<Value = String> {
    let major = prop_oneof![
        Just("195".to_owned()),
        Just("226".into()),
        Just("237".into()),
        Just("511".into()),
        (1u32..9).prop_map(|n| n.to_string())
    ];
    let minor = prop_oneof![Just("*".to_owned()), (0u32..8).prop_map(|n| n.to_string())];
    (
        major,
        minor,
        prop_oneof![Just("rwm"), Just("rw"), Just("r"), Just("m")],
    )
        .prop_map(|(major, minor, access)| format!("c {major}:{minor} {access}"))
}

/// Every number that matters here.
fn probes() -> impl Iterator<Item = (u32, u32)> {
    [1, 3, 195, 226, 234, 237, 239, 511]
        .into_iter()
        .flat_map(|major| (0..256).map(move |minor| (major, minor)))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// However a pod's fence grew and shrank before, it ends exact, and is never wider on the way
    /// than the wider of both ends.
    #[test]
    fn an_allow_all_list_follows_the_union(history in proptest::collection::vec(gpus(), 1..4)) {
        let nothing = filter(&[]);
        let mut model = Model { allow_all: true, rules: Vec::new() };
        let mut before: Option<Filter> = None;
        for gpus in &history {
            let now = filter(gpus);
            let writes = exceptions(&now).into_iter().map(Write::Deny)
                .chain(lifted(&now, &nothing).into_iter().map(Write::Allow));
            for write in writes {
                model.write(write);
                if let Some(before) = &before {
                    for (major, minor) in [(195, 0), (195, 1), (195, 2), (195, 9), (195, 255), (237, 0), (226, 1)] {
                        prop_assert!(
                            !model.opens(major, minor) || !before.denies(major, minor) || !now.denies(major, minor)
                        );
                    }
                }
            }
            for (major, minor) in probes() {
                prop_assert_eq!(model.opens(major, minor), !now.denies(major, minor), "{}:{}", major, minor);
            }
            before = Some(now);
        }
    }

    #[test]
    fn a_whitelist_loses_exactly_what_is_denied(entries in proptest::collection::vec(entry(), 0..8), gpus in gpus()) {
        let before = Model { allow_all: false, rules: list(&entries.join("\n")) };
        let filter = filter(&gpus);
        let (writes, wide) = narrowed(&before.rules, &filter);
        prop_assert!(wide.is_none());
        let mut after = before.clone();
        for write in writes {
            after.write(write);
            for (major, minor) in probes() {
                prop_assert!(before.opens(major, minor) || !after.opens(major, minor), "widened {}:{}", major, minor);
            }
        }
        for (major, minor) in probes() {
            let expected = before.opens(major, minor) && !filter.denies(major, minor);
            prop_assert_eq!(after.opens(major, minor), expected, "{}:{}", major, minor);
        }
        prop_assert!(narrowed(&after.rules, &filter).0.is_empty(), "applying it again changes nothing");
    }

    #[test]
    fn any_text_is_survived(text in ".*") {
        let _ = parse(&text);
    }
}
