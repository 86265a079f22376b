//! Which devices go into a spec.

use crate::gpu::Inventory;

/// A choice among the devices of a node.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum DeviceSelection {
    /// Everything.
    #[default]
    All,
    /// No GPU: a device `none` that brings the driver's files alone.
    None,
    /// These: by UUID, by index (`0`), or by parent's index and slot (`0:1`).
    Only(Vec<String>),
}

impl DeviceSelection {
    /// From what a user lists; empty is everything.
    pub fn parse(asked: &[String]) -> Result<Self, String> {
        let only = |word: &str| asked.iter().any(|asked| asked == word);
        match asked {
            [] => Ok(Self::All),
            [one] if one == "all" => Ok(Self::All),
            [one] if one == "none" => Ok(Self::None),
            _ if only("all") || only("none") => {
                Err("`all` and `none` stand alone, without other devices".into())
            }
            some => Ok(Self::Only(some.to_vec())),
        }
    }

    /// Leaves in the inventory what was chosen. An error names the first that is not there.
    pub(super) fn apply(&self, inventory: &mut Inventory) -> Result<(), String> {
        match self {
            Self::All => {}
            Self::None => {
                inventory.gpus.clear();
                inventory.mig.clear();
            }
            Self::Only(asked) => {
                let of_gpu =
                    |id: &str, index: u32| asked.iter().any(|a| a == id || *a == index.to_string());
                let of_mig = |id: &str, index: u32, slot: u32| {
                    asked
                        .iter()
                        .any(|a| a == id || *a == format!("{index}:{slot}"))
                };
                for name in asked {
                    let known = inventory
                        .gpus
                        .iter()
                        .any(|gpu| name == gpu.id.as_str() || *name == gpu.index.to_string())
                        || inventory.mig.iter().any(|mig| {
                            name == mig.gpu.id.as_str()
                                || *name == format!("{}:{}", mig.gpu.index, mig.slot)
                        });
                    if !known {
                        return Err(name.chars().take(80).collect());
                    }
                }
                inventory
                    .gpus
                    .retain(|gpu| of_gpu(gpu.id.as_str(), gpu.index));
                inventory
                    .mig
                    .retain(|mig| of_mig(mig.gpu.id.as_str(), mig.gpu.index, mig.slot));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gpu::{DeviceId, Gpu, Source};

    fn inventory() -> Inventory {
        let gpu = |index: u32| Gpu {
            id: DeviceId::parse(&format!("GPU-{index}")).unwrap(),
            index,
            minor: 9 - index,
            name: String::new(),
            pci: String::new(),
            nodes: Vec::new(),
        };
        Inventory {
            gpus: vec![gpu(0), gpu(1)],
            ..Inventory::empty(Source::Nvml, "570.1")
        }
    }

    fn chosen(asked: &[&str]) -> Result<Vec<u32>, String> {
        let asked: Vec<_> = asked.iter().map(|&a| a.to_owned()).collect();
        let mut inventory = inventory();
        DeviceSelection::parse(&asked)?.apply(&mut inventory)?;
        Ok(inventory.gpus.iter().map(|gpu| gpu.index).collect())
    }

    #[test]
    fn devices_are_chosen_by_any_of_their_names() {
        assert_eq!(chosen(&[]), Ok(vec![0, 1]));
        assert_eq!(chosen(&["all"]), Ok(vec![0, 1]));
        assert_eq!(chosen(&["none"]), Ok(vec![]));
        assert_eq!(chosen(&["1"]), Ok(vec![1]));
        assert_eq!(chosen(&["GPU-0", "0"]), Ok(vec![0]));
    }

    #[test]
    fn what_is_not_there_is_an_error_and_never_less_than_asked() {
        assert_eq!(chosen(&["0", "7"]), Err("7".into()));
        assert_eq!(chosen(&["0:0"]), Err("0:0".into()));
        assert!(chosen(&["all", "0"]).is_err());
    }
}
