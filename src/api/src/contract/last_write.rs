//! When an object was last written.

use k8s_openapi::{apimachinery::pkg::apis::meta::v1::ObjectMeta, jiff::Timestamp};

/// The newest write that `managedFields` records, in whole seconds. A write of a subresource, as of a status, is none. `None` if
/// the object records no time.
#[must_use]
pub fn last_write(metadata: &ObjectMeta) -> Option<Timestamp> {
    let writes = metadata.managed_fields.iter().flatten().filter(|fields| fields.subresource.is_none());
    writes.filter_map(|fields| fields.time.as_ref()).map(|time| time.0).max()
}
