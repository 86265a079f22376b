//! Sightings → GPUs and MIG devices: nothing that two claim, nothing without its own nodes.

use std::collections::BTreeMap;

use super::survey::{MigSighting, Sighting};
use super::{Fault, Gpu, MigDevice, Node, PciAddress};
use crate::host::devices::DRM_MAJOR;

/// What sightings come to.
#[derive(Debug, Default)]
pub(super) struct Assembled {
    pub(super) gpus: Vec<Gpu>,
    pub(super) mig: Vec<MigDevice>,
    pub(super) faults: Vec<Fault>,
}

/// A capability node and the mode that it should have.
pub(super) type CapabilityNode = (Node, Option<u32>);

/// Sorts sightings into usable GPUs and MIG devices, by index, and faults.
///
/// A UUID, minor or PCI address that several claim makes faults of all of them: it can't be known
/// who is right, and a wrong guess hands one tenant another's GPU. So it is with the capability of a
/// compute instance. `nodes` looks a GPU's nodes up, `capabilities` those of an instance.
pub(super) fn assemble(
    sightings: Vec<Result<Sighting, Fault>>,
    nodes: impl Fn(u32, Option<PciAddress>) -> Result<Vec<Node>, String>,
    capabilities: impl Fn(u32, u32, u32) -> Result<[CapabilityNode; 2], String>,
) -> Assembled {
    let mut out = Assembled::default();
    let mut claims: BTreeMap<String, usize> = BTreeMap::new();
    for sighting in sightings.iter().flatten() {
        for claim in claims_of(sighting) {
            *claims.entry(claim).or_default() += 1;
        }
    }
    for sighting in sightings {
        let outcome = sighting.and_then(|sighting| {
            let contested = claims_of(&sighting)
                .into_iter()
                .find(|claim| claims.get(claim).is_some_and(|count| *count > 1));
            let found = match contested {
                Some(claim) => Err(format!("another GPU has the same {claim}")),
                None => nodes(sighting.minor, sighting.pci),
            };
            match found {
                Ok(nodes) => Ok((sighting, nodes)),
                Err(reason) => Err(Fault {
                    gpu: label(&sighting),
                    reason,
                }),
            }
        });
        match outcome {
            Ok((mut sighting, nodes)) => match sighting.mig.take() {
                None => out.gpus.push(gpu(sighting, nodes)),
                Some(parts) if parts.is_empty() => out.faults.push(Fault {
                    gpu: label(&sighting),
                    reason: "MIG is enabled on it, and it has no MIG device: create instances \
                             (nvidia-smi mig -cgi … -C) or disable MIG (nvidia-smi -mig 0)"
                        .into(),
                }),
                Some(parts) => {
                    let parent = gpu(sighting, nodes);
                    for part in parts {
                        match part.and_then(|part| mig(&parent, part, &claims, &capabilities)) {
                            Ok(device) => out.mig.push(device),
                            Err(fault) => out.faults.push(fault),
                        }
                    }
                }
            },
            Err(fault) => out.faults.push(fault),
        }
    }
    without_shared_capabilities(&mut out);
    out.gpus.sort_by_key(|gpu| gpu.index);
    out.mig.sort_by_key(|mig| (mig.gpu.index, mig.slot));
    out
}

fn claims_of(sighting: &Sighting) -> Vec<String> {
    let mut claims = vec![
        format!("UUID {}", sighting.id),
        format!("minor {}", sighting.minor),
    ];
    claims.extend(sighting.pci.map(|pci| format!("PCI address {pci}")));
    claims.extend(
        sighting
            .mig
            .iter()
            .flatten()
            .flatten()
            .map(|part| format!("UUID {}", part.id)),
    );
    // A name twice within one GPU contests the part, not the whole.
    claims.sort();
    claims.dedup();
    claims
}

fn label(sighting: &Sighting) -> String {
    match sighting.pci {
        Some(pci) => format!("{} ({pci})", sighting.index),
        None => sighting.index.to_string(),
    }
}

fn gpu(sighting: Sighting, nodes: Vec<Node>) -> Gpu {
    Gpu {
        id: sighting.id,
        index: sighting.index,
        minor: sighting.minor,
        name: sighting.name,
        pci: sighting.pci.map(|pci| pci.to_string()).unwrap_or_default(),
        nodes,
    }
}

fn mig(
    parent: &Gpu,
    part: MigSighting,
    claims: &BTreeMap<String, usize>,
    capabilities: &impl Fn(u32, u32, u32) -> Result<[CapabilityNode; 2], String>,
) -> Result<MigDevice, Fault> {
    let fault = |reason| Fault {
        gpu: format!("{}:{}", parent.index, part.slot),
        reason,
    };
    if claims
        .get(&format!("UUID {}", part.id))
        .is_some_and(|count| *count > 1)
    {
        return Err(fault(format!("another GPU has the same UUID {}", part.id)));
    }
    let caps = capabilities(parent.minor, part.gi, part.ci).map_err(fault)?;
    let (drm, own): (Vec<_>, Vec<_>) = parent
        .nodes
        .iter()
        .cloned()
        .partition(|node| node.major == DRM_MAJOR);
    let modes = caps
        .iter()
        .filter_map(|(node, mode)| Some((node.path.clone(), (*mode)?)))
        .collect();
    Ok(MigDevice {
        gpu: Gpu {
            id: part.id,
            index: parent.index,
            minor: parent.minor,
            name: part.name,
            pci: parent.pci.clone(),
            nodes: own
                .into_iter()
                .chain(caps.into_iter().map(|(node, _)| node))
                .collect(),
        },
        parent: parent.id.clone(),
        slot: part.slot,
        gpu_instance: part.gi,
        compute_instance: part.ci,
        modes,
        drm,
    })
}

/// Two devices with one UUID, or with one compute instance, are both left out.
fn without_shared_capabilities(out: &mut Assembled) {
    let own = |mig: &MigDevice| mig.gpu.nodes.last().map(|node| node.minor);
    let all = out.mig.clone();
    out.mig.retain(|mig| {
        let twin = all.iter().find(|other| {
            let same = (other.gpu.index, other.slot) == (mig.gpu.index, mig.slot);
            !same && (other.gpu.id == mig.gpu.id || own(other) == own(mig))
        });
        if let Some(twin) = twin {
            out.faults.push(Fault {
                gpu: format!("{}:{}", mig.gpu.index, mig.slot),
                reason: format!(
                    "it has its UUID or its compute instance in common with {}:{}",
                    twin.gpu.index, twin.slot
                ),
            });
        }
        twin.is_none()
    });
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::gpu::DeviceId;

    fn sighting(index: u32, uuid: &str, minor: u32, bus: u8) -> Sighting {
        Sighting {
            index,
            id: DeviceId::parse(uuid).unwrap(),
            minor,
            name: "T".into(),
            pci: PciAddress::parse(&format!("0000:{bus:02x}:00.0")),
            mig: None,
        }
    }

    #[expect(clippy::unnecessary_wraps, reason = "what a source gives")]
    fn part(slot: u32, uuid: &str) -> Result<MigSighting, Fault> {
        Ok(MigSighting {
            slot,
            id: DeviceId::parse(uuid).unwrap(),
            name: "T MIG 1g.5gb".into(),
            gi: 7 + slot,
            ci: 0,
        })
    }

    /// Minor of a capability: the GPU's, ten times, and its instance's.
    #[expect(clippy::unnecessary_wraps, reason = "what the real look-up gives")]
    fn caps(minor: u32, gi: u32, ci: u32) -> Result<[CapabilityNode; 2], String> {
        let node = |minor: u32| {
            let node = Node {
                path: format!("/dev/nvidia-caps/nvidia-cap{minor}").into(),
                major: 238,
                minor,
            };
            (node, Some(0o444))
        };
        let base = 100 * minor + 10 * gi;
        Ok([node(base), node(base + 1 + ci)])
    }

    fn own_node(minor: u32) -> Vec<Node> {
        vec![Node {
            path: format!("/dev/nvidia{minor}").into(),
            major: 195,
            minor,
        }]
    }

    #[test]
    fn all_claimants_of_one_name_are_left_out() {
        for (second, words) in [
            (sighting(1, "GPU-a", 1, 2), "UUID GPU-a"),
            (sighting(1, "GPU-b", 0, 2), "minor 0"),
            (sighting(1, "GPU-b", 1, 1), "PCI address 0000:01:00.0"),
        ] {
            let all = vec![
                Ok(sighting(0, "GPU-a", 0, 1)),
                Ok(second),
                Ok(sighting(2, "GPU-c", 2, 3)),
            ];
            let Assembled { gpus, faults, .. } =
                assemble(all, |minor, _| Ok(own_node(minor)), caps);
            assert_eq!(gpus.len(), 1);
            assert_eq!(gpus[0].id.as_str(), "GPU-c");
            assert_eq!(faults.len(), 2);
            assert!(faults.iter().all(|fault| fault.reason.contains(words)));
        }
    }

    #[test]
    fn a_missing_node_is_the_fault_of_that_gpu_alone() {
        let all = vec![
            Ok(sighting(0, "GPU-a", 7, 1)),
            Ok(sighting(1, "GPU-b", 3, 2)),
        ];
        let look = |minor, _| {
            if minor == 7 {
                Err("its node is missing".into())
            } else {
                Ok(own_node(minor))
            }
        };
        let Assembled { gpus, faults, .. } = assemble(all, look, caps);
        assert_eq!(gpus[0].index, 1);
        assert_eq!(faults[0].gpu, "0 (0000:01:00.0)");
    }

    #[expect(clippy::unnecessary_wraps, reason = "what a source gives")]
    fn with_mig(index: u32, parts: Vec<Result<MigSighting, Fault>>) -> Result<Sighting, Fault> {
        let uuid = format!("GPU-{index}");
        let bus = u8::try_from(index).unwrap();
        Ok(Sighting {
            mig: Some(parts),
            ..sighting(index, &uuid, index, bus)
        })
    }

    #[test]
    fn a_mig_device_has_its_parent_s_node_and_two_capabilities_and_the_whole_gpu_is_gone() {
        let drm = |minor, _: Option<PciAddress>| {
            let mut nodes = own_node(minor);
            nodes.push(Node {
                path: "/dev/dri/renderD128".into(),
                major: DRM_MAJOR,
                minor: 128,
            });
            Ok(nodes)
        };
        let out = assemble(
            vec![with_mig(3, vec![part(0, "MIG-a"), part(2, "MIG-b")])],
            drm,
            caps,
        );
        assert!(out.gpus.is_empty() && out.faults.is_empty());
        let second = &out.mig[1];
        let numbers: Vec<_> = second
            .gpu
            .nodes
            .iter()
            .map(|n| (n.major, n.minor))
            .collect();
        assert_eq!(numbers, [(195, 3), (238, 390), (238, 391)]);
        assert_eq!(
            (second.gpu.id.as_str(), second.gpu.minor, second.slot),
            ("MIG-b", 3, 2)
        );
        assert_eq!(second.parent.as_str(), "GPU-3");
        assert_eq!(second.drm.len(), 1);
        assert_eq!(second.modes.len(), 2);
    }

    #[test]
    fn mig_without_instances_is_a_fault_that_says_what_to_do() {
        let out = assemble(
            vec![with_mig(0, Vec::new())],
            |minor, _| Ok(own_node(minor)),
            caps,
        );
        assert!(out.gpus.is_empty() && out.mig.is_empty());
        assert!(out.faults[0].reason.contains("-cgi"));
    }

    #[test]
    fn mig_devices_that_share_a_uuid_or_a_compute_instance_are_left_out() {
        let look = |minor, _: Option<PciAddress>| Ok(own_node(minor));
        let within = assemble(
            vec![with_mig(
                0,
                vec![part(0, "MIG-a"), part(1, "MIG-a"), part(2, "MIG-c")],
            )],
            look,
            caps,
        );
        assert_eq!((within.mig.len(), within.faults.len()), (1, 2));
        let across = assemble(
            vec![
                with_mig(0, vec![part(0, "MIG-a")]),
                with_mig(1, vec![part(0, "MIG-a")]),
            ],
            look,
            caps,
        );
        assert_eq!((across.mig.len(), across.faults.len()), (0, 2));
        let one_instance = assemble(
            vec![with_mig(
                0,
                vec![part(0, "MIG-a"), part(1, "MIG-b"), part(2, "MIG-c")],
            )],
            look,
            |_, gi, _| caps(0, if gi == 8 { 7 } else { gi }, 0),
        );
        assert_eq!(one_instance.mig.len(), 1);
        assert_eq!(one_instance.mig[0].gpu.id.as_str(), "MIG-c");
    }

    proptest! {
        #[test]
        fn no_two_gpus_ever_share_a_name(
            raw in prop::collection::vec((0_u8..6, 0_u32..6, 0_u8..6), 0..8),
        ) {
            let total = raw.len();
            let all = raw
                .into_iter()
                .zip(0..)
                .map(|((id, minor, bus), index)| Ok(sighting(index, &format!("GPU-{id}"), minor, bus)))
                .collect();
            let Assembled { gpus, faults, .. } = assemble(all, |minor, _| Ok(own_node(minor)), caps);
            prop_assert_eq!(gpus.len() + faults.len(), total);
            for (i, a) in gpus.iter().enumerate() {
                for b in &gpus[i + 1..] {
                    prop_assert!(a.id != b.id && a.minor != b.minor && a.pci != b.pci);
                }
            }
        }
    }
}
