//! The NRI messages and enums of package `nri.pkg.api.v1alpha1`, flat: `api::Container`, `api::Event`, …
//!
//! Generated from `proto/nri.proto`; the comments there say which NRI release introduced a field. Names follow the wire, so
//! a few fields keep their capitals (`CDI_devices`, `NRI_version`). A message can be built with struct update syntax:
//!
//! ```
//! use nri::api;
//! let env = api::KeyValue { key: "GREETING".into(), value: "hello".into(), ..Default::default() };
//! let adjust = api::ContainerAdjustment { env: vec![env], ..Default::default() };
//! assert_eq!(adjust.env[0].key, "GREETING");
//! ```

pub use crate::generated::nri::*;
