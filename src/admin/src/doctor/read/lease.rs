//! The Lease of the operators, read until it changes.

use std::time::{Duration, Instant};

use k8s_openapi::api::coordination::v1::Lease;
use kube::{Api, Client};
use tokio::time::sleep;

use super::reader::BoundedReader;
use crate::{
    doctor::observed::{LeaseState, Read},
    register::rbac::LEASE,
};

/// Time between two reads.
const INTERVAL: Duration = Duration::from_millis(500);
/// The longest time for which a holder may be silent: four times as long as a Lease of an operator lasts by default. Users may
/// choose a longer one. A holder renews it at least once in half of its duration.
const LONGEST: Duration = Duration::from_secs(60);

/// Reads the Lease until its holder renews it, at most as long as it lasts. Clocks of two machines are never compared.
pub(super) async fn lease(client: &Client, reader: &BoundedReader) -> Read<Option<LeaseState>> {
    let api: Api<Lease> = Api::namespaced(client.clone(), LEASE.0);
    let what = "the Lease of the operators";
    let begin = Instant::now();
    let Some(first) = reader.read(what, api.get_opt(LEASE.1)).await? else { return Ok(None) };
    let lasts = first.spec.as_ref().and_then(|spec| spec.lease_duration_seconds).unwrap_or_default();
    let lasts = Duration::from_secs(u64::try_from(lasts).unwrap_or(0) + 1).min(LONGEST);
    let mut newest = first.clone();
    while holder(&newest).is_some()
        && newest.metadata.resource_version == first.metadata.resource_version
        && begin.elapsed() < lasts
    {
        sleep(INTERVAL).await;
        let Some(lease) = reader.read(what, api.get_opt(LEASE.1)).await? else { return Ok(None) };
        newest = lease;
    }
    let renewed = newest.metadata.resource_version != first.metadata.resource_version;
    Ok(Some(LeaseState { holder: holder(&newest), renewed, waited: begin.elapsed() }))
}

fn holder(lease: &Lease) -> Option<String> {
    lease.spec.as_ref()?.holder_identity.clone().filter(|holder| !holder.is_empty())
}
