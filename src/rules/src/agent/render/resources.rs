//! Resources of a server's pod: what its containers get, and what the scheduler reserves for them.

use std::collections::BTreeMap;

use crate::agent::render::amount::thousandths;
use mczk_api::{pod::Resources, quantity::Quantity};

/// Memory that a server requests, and its limit, if the user chose no resources. Without a limit its heap would be a quarter of
/// the node.
const DEFAULT_MEMORY: &str = "1Gi";

/// Resource of the disk of a node.
const LOCAL_STORAGE: &str = "ephemeral-storage";

#[must_use]
pub(crate) fn of_server(chosen: Option<&Resources>) -> Resources {
    let memory = || amounts([("memory", DEFAULT_MEMORY)]);
    chosen.cloned().unwrap_or_else(|| Resources { requests: memory(), limits: memory() })
}

/// Resources of a container that runs this program alone: the init container of a server, and the probe. It has every limit that
/// a quota can demand of all containers: those of CPU and memory, and that of local storage if the server has one. It does not
/// run beside the server, so the pod needs no more local storage than the server alone.
#[must_use]
pub(super) fn of_program(server: &Resources) -> Resources {
    let with_local = |mut own: BTreeMap<String, Quantity>, of_server: &BTreeMap<String, Quantity>| {
        own.extend(of_server.get_key_value(LOCAL_STORAGE).map(|(name, amount)| (name.clone(), amount.clone())));
        own
    };
    Resources {
        requests: with_local(amounts([("cpu", "10m"), ("memory", "32Mi")]), &server.requests),
        limits: with_local(amounts([("cpu", "100m"), ("memory", "64Mi")]), &server.limits),
    }
}

/// What the scheduler reserves for a server's pod: of each resource the larger amount, since the init container ends before
/// the server starts.
#[must_use]
pub(crate) fn of_pod(chosen: Option<&Resources>) -> BTreeMap<String, Quantity> {
    let server = of_server(chosen);
    let program = of_program(&server);
    let mut reserved = effective_requests(server);
    for (name, amount) in effective_requests(program) {
        let own = reserved.entry(name).or_insert_with(|| amount.clone());
        if thousandths(&own.0).zip(thousandths(&amount.0)).is_some_and(|(own, amount)| own < amount) {
            *own = amount;
        }
    }
    reserved
}

/// Kubernetes uses the limit as the request if only a limit is given.
fn effective_requests(Resources { requests, limits }: Resources) -> BTreeMap<String, Quantity> {
    let mut effective = limits;
    effective.extend(requests);
    effective
}

fn amounts<const N: usize>(amounts: [(&str, &str); N]) -> BTreeMap<String, Quantity> {
    amounts.map(|(name, amount)| (name.to_owned(), Quantity(amount.to_owned()))).into()
}
