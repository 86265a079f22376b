//! Sightings → GPUs: nothing that two GPUs claim, nothing without its own node.

use std::collections::BTreeMap;

use super::survey::Sighting;
use super::{Fault, Gpu, Node, PciAddress};

/// Sorts sightings into usable GPUs, by index, and faults.
///
/// A UUID, minor or PCI address that several claim makes faults of all of them: it can't be known
/// who is right, and a wrong guess hands one tenant another's GPU. `nodes` looks a GPU's nodes up.
pub(super) fn assemble(
    sightings: Vec<Result<Sighting, Fault>>,
    nodes: impl Fn(u32, Option<PciAddress>) -> Result<Vec<Node>, String>,
) -> (Vec<Gpu>, Vec<Fault>) {
    let mut gpus = Vec::new();
    let mut faults = Vec::new();
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
                Ok(nodes) => Ok(gpu(sighting, nodes)),
                Err(reason) => Err(Fault {
                    gpu: label(&sighting),
                    reason,
                }),
            }
        });
        match outcome {
            Ok(gpu) => gpus.push(gpu),
            Err(fault) => faults.push(fault),
        }
    }
    gpus.sort_by_key(|gpu| gpu.index);
    (gpus, faults)
}

fn claims_of(sighting: &Sighting) -> Vec<String> {
    let mut claims = vec![
        format!("UUID {}", sighting.id),
        format!("minor {}", sighting.minor),
    ];
    claims.extend(sighting.pci.map(|pci| format!("PCI address {pci}")));
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
        }
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
            let (gpus, faults) = assemble(all, |minor, _| Ok(own_node(minor)));
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
        let (gpus, faults) = assemble(all, |minor, _| {
            if minor == 7 {
                Err("its node is missing".into())
            } else {
                Ok(own_node(minor))
            }
        });
        assert_eq!(gpus[0].index, 1);
        assert_eq!(faults[0].gpu, "0 (0000:01:00.0)");
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
            let (gpus, faults) = assemble(all, |minor, _| Ok(own_node(minor)));
            prop_assert_eq!(gpus.len() + faults.len(), total);
            for (i, a) in gpus.iter().enumerate() {
                for b in &gpus[i + 1..] {
                    prop_assert!(a.id != b.id && a.minor != b.minor && a.pci != b.pci);
                }
            }
        }
    }
}
