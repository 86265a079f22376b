use cdi::ContainerEdits;

use super::*;

fn spec(mounts: &[(&str, &str)]) -> Spec {
    let mounts = mounts.iter().map(|(host, container)| Mount {
        host_path: (*host).into(),
        container_path: (*container).into(),
        options: vec!["ro".into()],
        ..Mount::default()
    });
    Spec {
        container_edits: ContainerEdits {
            mounts: mounts.collect(),
            ..ContainerEdits::default()
        },
        ..Spec::default()
    }
}

fn links() -> [NodeLink; 2] {
    [("card1", "card"), ("renderD128", "render")].map(|(node, kind)| NodeLink {
        node: format!("/dev/dri/{node}").into(),
        path: format!("/dev/dri/by-path/pci-0000:3b:00.0-{kind}").into(),
        target: format!("../{node}"),
    })
}

fn applied(mounts: &[(&str, &str)], mode: &HookMode) -> Spec {
    let mut spec = spec(mounts);
    apply(&mut spec, links().iter(), mode);
    spec
}

fn paths(spec: &Spec) -> Vec<(&str, &str)> {
    spec.container_edits
        .mounts
        .iter()
        .map(|mount| (mount.host_path.as_str(), mount.container_path.as_str()))
        .collect()
}

const CUDA: [(&str, &str); 5] = [
    ("/h/libcuda.so.570", "/usr/lib64/libcuda.so.570"),
    ("/h/libcuda.so.570", "/usr/lib64/libcuda.so.1"),
    ("/h/libcuda.so.570", "/usr/lib64/libcuda.so"),
    (
        "/h/libnvidia-glcore.so.570",
        "/usr/lib64/libnvidia-glcore.so.570",
    ),
    ("/h/nvidia-smi", "/usr/bin/nvidia-smi"),
];

#[test]
fn one_hook_does_the_work_of_all_further_mounts() {
    let mode = HookMode::One {
        program: "/opt/bin/cdi-gen".into(),
    };
    let spec = applied(&CUDA, &mode);
    assert_eq!(paths(&spec), [CUDA[0], CUDA[3], CUDA[4]]);
    let [hook] = spec.container_edits.hooks.as_slice() else {
        panic!("one hook");
    };
    assert_eq!(
        (hook.hook_name.as_str(), hook.path.as_str()),
        ("createContainer", "/opt/bin/cdi-gen")
    );
    assert_eq!(
        hook.args,
        [
            "cdi-gen",
            "hook",
            "--link=libcuda.so.570::/usr/lib64/libcuda.so.1",
            "--link=libcuda.so.570::/usr/lib64/libcuda.so",
            "--link=../card1::/dev/dri/by-path/pci-0000:3b:00.0-card",
            "--link=../renderD128::/dev/dri/by-path/pci-0000:3b:00.0-render",
            "--library=/usr/lib64/libcuda.so.1",
            "--library=/usr/lib64/libcuda.so",
            "--library=/usr/lib64/libnvidia-glcore.so.570",
            "--freeze-device-files",
        ]
    );
    let request = Request::parse(&hook.args[2..]).unwrap();
    assert!(request.unknown.is_empty());
}

#[test]
fn a_name_in_another_directory_links_by_its_whole_path() {
    let mode = HookMode::One {
        program: "/cdi-gen".into(),
    };
    let spec = applied(
        &[
            ("/h/libcuda.so.5", "/usr/lib/t/nvidia/current/libcuda.so.5"),
            ("/h/libcuda.so.5", "/usr/lib/t/libcuda.so.1"),
        ],
        &mode,
    );
    assert_eq!(
        spec.container_edits.hooks[0].args[2],
        "--link=/usr/lib/t/nvidia/current/libcuda.so.5::/usr/lib/t/libcuda.so.1"
    );
}

#[test]
fn without_a_hook_the_asked_names_are_in_each_loader_directory_once() {
    let mode = HookMode::None {
        loader_dirs: vec!["/usr/lib64".into(), "/usr/lib/t/".into()],
    };
    let spec = applied(&CUDA, &mode);
    assert!(spec.container_edits.hooks.is_empty());
    assert_eq!(paths(&spec)[..5], CUDA);
    assert_eq!(
        paths(&spec)[5..],
        [
            ("/h/libcuda.so.570", "/usr/lib/t/libcuda.so.1"),
            ("/h/libcuda.so.570", "/usr/lib/t/libcuda.so"),
            (
                "/h/libnvidia-glcore.so.570",
                "/usr/lib/t/libnvidia-glcore.so.570"
            ),
        ]
    );
    let added = spec.container_edits.mounts.last().unwrap();
    assert_eq!(added.options, ["ro"]);
}

#[test]
fn plug_ins_and_32_bit_libraries_stay_where_they_are() {
    let mode = HookMode::None {
        loader_dirs: vec!["/l".into()],
    };
    let spec = applied(
        &[
            ("/h/v.so", "/usr/lib64/vdpau/libvdpau_nvidia.so.570"),
            ("/h/i.so", "/usr/lib/i386-linux-gnu/libcuda.so.1"),
            ("/h/32.so", "/usr/lib/libcuda.so.1"),
            ("/h/64.so", "/usr/lib64/libcuda.so.1"),
        ],
        &mode,
    );
    assert_eq!(paths(&spec)[4..], [("/h/64.so", "/l/libcuda.so.1")]);
}
