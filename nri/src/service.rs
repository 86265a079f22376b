//! The generated ttrpc clients and service traits, for those who build the *runtime's* side: a test harness, a simulator.
//!
//! A plugin needs nothing of this: it implements [`crate::Plugin`]. The traits carry the same names as their services
//! (`service::Plugin`, `service::Runtime`). Note that a service method which is not overridden answers `NOT_FOUND`.

pub use crate::generated::nri_ttrpc::*;
