use std::collections::HashMap;

use super::*;

fn exempt(config: &Config, namespace: &str, name: &str, labels: &[(&str, &str)]) -> Exempt {
    let labels: HashMap<_, _> = labels
        .iter()
        .map(|&(key, value)| (key.to_owned(), value.to_owned()))
        .collect();
    config.exempt(PodIdentity {
        namespace,
        name,
        labels: &labels,
    })
}

fn parse(text: &str) -> Config {
    Config::parse(text, "test").unwrap()
}

#[test]
fn an_exemption_needs_both_namespace_and_name() {
    let config = parse("exemptions: [{namespace: gpu-operator, pods: 'nvidia-*'}]");
    assert!(exempt(&config, "gpu-operator", "nvidia-dcgm-x", &[]).is_whole());
    assert!(!exempt(&config, "default", "nvidia-dcgm-x", &[]).is_whole());
    assert!(!exempt(&config, "gpu-operator", "mine", &[]).is_whole());
}

#[test]
fn a_label_narrows_an_exemption_and_never_makes_one() {
    let config = parse("exemptions: [{namespace: ns, pods: 'a-*', labels: {app: dcgm, tier: x}}]");
    let all = [("app", "dcgm"), ("tier", "x"), ("other", "y")];
    assert!(exempt(&config, "ns", "a-1", &all).is_whole());
    assert!(!exempt(&config, "ns", "a-1", &all[..1]).is_whole());
    assert!(!exempt(&config, "ns", "a-1", &[("app", "dcgm"), ("tier", "z")]).is_whole());
    assert!(!exempt(&config, "ns", "b-1", &all).is_whole());
    assert!(!exempt(&config, "other", "a-1", &all).is_whole());
    for text in [
        "exemptions: [{labels: {app: dcgm}}]",
        "exemptions: [{namespace: ns, labels: {app: dcgm}}]",
    ] {
        assert!(Config::parse(text, "test").is_err(), "{text}");
    }
}

#[test]
fn an_exemption_from_rules_exempts_from_those_and_from_nothing_else() {
    let config = parse(
        "exemptions: [{namespace: kube-system, pods: 'csi-*', from: [mounts]}, {namespace: kube-system, pods: '*-proxy', from: [privileged, hostPID]}]",
    );
    let csi = exempt(&config, "kube-system", "csi-1", &[]);
    assert!(csi.covers(Rule::Mounts) && !csi.covers(Rule::Privileged) && !csi.is_whole());
    let both = exempt(&config, "kube-system", "csi-proxy", &[]);
    assert!(
        [Rule::Mounts, Rule::Privileged, Rule::HostPid].map(|rule| both.covers(rule)) == [true; 3]
    );
    assert!(!both.is_whole());
    assert!(Exempt::wholly().covers(Rule::Mounts));
}

#[test]
fn an_empty_text_is_the_strict_default() {
    for text in ["", "# only a comment\n", "{}"] {
        let config = parse(text);
        assert_eq!(
            exempt(&config, "kube-system", "nvidia-device-plugin", &[]),
            Exempt::default()
        );
        assert_eq!(config.enforcement, Enforcement::Enforce);
        assert_eq!(config.host_directories, HostDirectories::Gate);
        assert_eq!((config.privileged, config.host_pid), Default::default());
    }
}

#[test]
fn every_key_is_read() {
    let config = parse(
        "{enforcement: audit, privileged: refuse, hostPID: refuse-with-gpu, hostDirectories: refuse, existing: report, managedEnv: [GPUS], injection: expanded}",
    );
    assert_eq!(config.enforcement, Enforcement::Audit);
    assert_eq!(config.privileged, Treatment::Refuse);
    assert_eq!(config.host_pid, Treatment::RefuseWithGpu);
    assert_eq!(config.host_directories, HostDirectories::Refuse);
    assert_eq!(config.managed_env, ["GPUS"]);
    assert_eq!(config.injection, InjectionMode::Expanded);
}

#[test]
fn a_treatment_refuses_what_it_says() {
    let table = [
        (Treatment::Allow, false, false),
        (Treatment::RefuseWithGpu, false, true),
        (Treatment::Refuse, true, true),
    ];
    for (treatment, without, with) in table {
        assert_eq!(
            (treatment.refuses(false), treatment.refuses(true)),
            (without, with)
        );
    }
}

#[test]
fn what_this_version_cannot_do_is_refused_with_a_remedy() {
    let error = Config::parse("existing: stop", "test").unwrap_err();
    let text = error.to_string();
    assert!(
        text.contains("stop") && text.contains("not supported") && text.contains("`report`"),
        "{text}"
    );
}

#[test]
fn the_shipped_default_is_valid_and_exempts_the_device_plugin() {
    let config = Config::shipped().unwrap();
    let name = "nvidia-device-plugin-daemonset-7xk2p";
    assert!(exempt(&config, "kube-system", name, &[]).is_whole());
    assert!(!exempt(&config, "default", name, &[]).is_whole());
}

/// What the schema says of a text, where it is a configuration at all.
fn fits_schema(text: &str) -> bool {
    let schema: serde_json::Value =
        serde_json::from_str(include_str!("../../nri-config/gpu-warden.schema.json")).unwrap();
    let validator = jsonschema::validator_for(&schema).unwrap();
    serde_yaml::from_str::<serde_json::Value>(text).is_ok_and(|value| validator.is_valid(&value))
}

/// The schema that editors and admission checks read, and the program, agree on every case.
#[test]
fn the_committed_schema_and_the_program_accept_and_refuse_the_same() {
    let shipped = include_str!("../../nri-config/gpu-warden.yaml");
    for text in [
        shipped,
        "{}",
        "{enforcement: audit, privileged: refuse, hostPID: refuse-with-gpu, hostDirectories: refuse, existing: report}",
        "exemptions: [{namespace: a, pods: '*', labels: {app: x}, from: [privileged, hostPID, mounts]}]",
        "managedEnv: [GPUS]\ninjection: expanded",
        "existing: fence",
    ] {
        assert!(Config::parse(text, "test").is_ok(), "{text}");
        assert!(fits_schema(text), "the schema refuses {text}");
    }
    for text in [
        "exempt: []",
        "injection: maybe",
        "enforcement: off",
        "enforcement: Enforce",
        "privileged: deny",
        "hostPid: allow",
        "hostPID: gate",
        "hostDirectories: allow",
        "existing: stop",
        "existing: ignore",
        "managedEnv: GPUS",
        "managedEnv: ['']",
        "managedEnv: ['A=B']",
        "exemptions: [{pods: '*'}]",
        "exemptions: [{namespace: a}]",
        "exemptions: [{namespace: '', pods: '*'}]",
        "exemptions: [{namespace: a, pods: '*', labels: [app]}]",
        "exemptions: [{namespace: a, pods: '*', from: everything}]",
        "exemptions: [{namespace: a, pods: '*', from: []}]",
        "exemptions: [{namespace: a, pods: '*', from: [gpu]}]",
        "exemptions: [{namespace: a, pods: '*', uid: x}]",
        "exemptions: {}",
        "[]",
        "]",
    ] {
        assert!(Config::parse(text, "test").is_err(), "{text}");
        assert!(!fits_schema(text), "the schema accepts {text}");
    }
}

/// Beyond what a schema can say.
#[test]
fn a_pattern_that_is_none_is_refused() {
    assert!(Config::parse("exemptions: [{namespace: a, pods: '['}]", "test").is_err());
}
