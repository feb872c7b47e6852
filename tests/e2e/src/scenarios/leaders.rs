//! Two operators elect the one that acts. Leaders are killed, ended and stopped while ensembles change.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::{coordination::v1::Lease, events::v1::Event};
use kube::{Api, api::ListParams};

use super::faults::{SECOND, deployed};
use crate::{
    api_proxy::ApiProxy,
    audit::{self, terms},
    federation::{Federation, LEASE, OPERATOR_USER, Ports, lease_seconds},
    metrics,
    programs::Process,
};

pub(super) const THIRD: &str = "zookeeper:3.9.7";

/// Longest time until another operator acts after a crash: the lease expires, and the candidate tries once in its retry period.
pub(super) fn after_crash() -> Duration {
    let [duration, _, retry] = lease_seconds();
    Duration::from_secs(duration + 2 * retry + 3)
}

/// The same after SIGTERM.
const AFTER_SIGTERM: Duration = Duration::from_secs(3);

/// Usual number of leaders that end.
const SMALL: u32 = 6;

/// What happens to a leader.
#[derive(Clone, Copy, Debug)]
enum End {
    Killed,
    Terminated,
    /// Stopped for longer than its lease lasts, and continued.
    Stopped,
}

/// One operator.
pub(super) struct Candidate {
    pub(super) process: Process,
    pub(super) ports: Ports,
    /// The proxy before the API server, if there is one.
    pub(super) proxy: Option<ApiProxy>,
}

impl Candidate {
    async fn start(federation: &Federation, ports: Ports) -> Result<Self> {
        Ok(Self { process: federation.candidate(ports).await?, ports, proxy: None })
    }

    /// True if it holds the lease, by its own metrics. A stopped one does not answer.
    async fn leads(&self) -> bool {
        metrics::get(self.ports.probes, "/metrics")
            .await
            .is_ok_and(|page| page.lines().any(|line| line == "mczk_lease_held 1"))
    }
}

/// The one of two candidates that leads, and the other one.
pub(super) async fn leader_first(mut pair: [Candidate; 2]) -> Result<[Candidate; 2]> {
    let end = Instant::now() + after_crash();
    loop {
        let leads = (pair[0].leads().await, pair[1].leads().await);
        match leads {
            (true, false) => return Ok(pair),
            (false, true) => {
                pair.reverse();
                return Ok(pair);
            }
            _ => ensure!(Instant::now() < end, "of two operators, these act: {leads:?}"),
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// The time until a candidate leads.
pub(super) async fn takeover(candidate: &Candidate, limit: Duration) -> Result<Duration> {
    let begin = Instant::now();
    while !candidate.leads().await {
        ensure!(begin.elapsed() < limit, "no operator acts after {limit:?}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    Ok(begin.elapsed())
}

/// Number of leaders that end.
fn number() -> u32 {
    std::env::var("E2E_LEADERS").ok().and_then(|text| text.parse().ok()).unwrap_or(SMALL)
}

/// Time for more leaders than usual.
pub(super) fn time() -> Duration {
    2 * after_crash() * number().saturating_sub(SMALL)
}

pub(super) async fn leaders_change(federation: &Federation) -> Result<()> {
    let changes = number();
    let former = elected(federation).await?.len();
    federation.stop_operator().await?;
    let (log, begin) = (federation.rig.audit_log(), audit::end(&federation.rig.audit_log())?);
    // Karmada calls the webhook at one address.
    let webhook = federation.webhook_alone().await?;
    let mut pair = [
        Candidate::start(federation, federation.free_ports()?).await?,
        Candidate::start(federation, federation.free_ports()?).await?,
    ];
    let scene = deployed(federation, "leaders", 600).await?;
    let mut times: Vec<(End, Duration)> = Vec::new();
    for number in 0..changes {
        scene.image("zoo", if number % 2 == 0 { SECOND } else { THIRD }).await?;
        let ended = match number % 3 {
            0 => End::Killed,
            1 => End::Terminated,
            _ => End::Stopped,
        };
        let [leader, candidate] = leader_first(pair).await?;
        let ports = leader.ports;
        // At another moment of the rollout each time.
        tokio::time::sleep(Duration::from_millis(137 * u64::from(number) % 2000)).await;
        let (time, former) = match ended {
            End::Killed => {
                leader.process.kill().await?;
                (takeover(&candidate, after_crash()).await, None)
            }
            End::Terminated => {
                let (ended, time) = tokio::join!(leader.process.stop(), takeover(&candidate, AFTER_SIGTERM));
                ended?;
                (time, None)
            }
            End::Stopped => {
                leader.process.signal("STOP").await?;
                let time = takeover(&candidate, after_crash()).await;
                leader.process.signal("CONT").await?;
                (time, Some(leader))
            }
        };
        times.push((ended, time.with_context(|| format!("change {number}: {ended:?}"))?));
        let other = match former {
            Some(former) => former,
            None => Candidate::start(federation, ports).await?,
        };
        pair = [candidate, other];
    }
    scene.settled("zoo").await?;
    scene.members_match("zoo").await?;
    scene.one_after_the_other("zoo")?;
    let report = terms::check(&audit::read(&log, begin, OPERATOR_USER)?, LEASE);
    ensure!(report.stale.is_empty(), "stale writes were accepted: {}", report.stale.join("; "));
    for kind in ["Killed", "Terminated", "Stopped"] {
        let of_kind = times.iter().filter(|(ended, _)| format!("{ended:?}") == kind).map(|(_, time)| time);
        let longest = of_kind.clone().max().copied().unwrap_or_default();
        println!("leaders: {} {kind}: another one acts after at most {longest:.1?}", of_kind.count());
    }
    let notes = elected(federation).await?;
    let number = notes.len() - former;
    ensure!(number >= times.len(), "{number} events of {} elections: {notes:?}", times.len());
    let holder = in_lease(federation).await?;
    ensure!(notes.contains(&format!("{holder} became leader")), "no event names {holder}: {notes:?}");
    for candidate in pair {
        candidate.process.stop().await?;
    }
    webhook.stop().await?;
    federation.start_operator().await
}

/// What the events about the Lease say.
async fn elected(federation: &Federation) -> Result<Vec<String>> {
    let (namespace, name) = LEASE.split_once('/').context("the lease has no namespace")?;
    let events: Api<Event> = Api::namespaced(federation.karmada.clone(), namespace);
    let of_lease = |event: &Event| {
        let about = event.regarding.as_ref();
        event.reason.as_deref() == Some("LeaderElection")
            && about.is_some_and(|about| about.kind.as_deref() == Some("Lease") && about.name.as_deref() == Some(name))
    };
    let found = events.list(&ListParams::default()).await?.into_iter().filter(of_lease);
    Ok(found.filter_map(|event| event.note).collect())
}

/// Checks what users see in the Lease: times that came by flags, and a begin of the term that no renewal changes. Returns the
/// holder.
async fn in_lease(federation: &Federation) -> Result<String> {
    let (namespace, name) = LEASE.split_once('/').context("the lease has no namespace")?;
    let leases: Api<Lease> = Api::namespaced(federation.karmada.clone(), namespace);
    let spec = || async { leases.get(name).await?.spec.context("the Lease is empty") };
    let first = spec().await?;
    let [duration, _, retry] = lease_seconds();
    ensure!(first.lease_duration_seconds == Some(i32::try_from(duration)?), "the flags did not arrive: {first:?}");
    tokio::time::sleep(Duration::from_secs(2 * retry + 1)).await;
    let second = spec().await?;
    ensure!(first.renew_time < second.renew_time, "it is not renewed: {first:?}, then {second:?}");
    let acquired = (&first.acquire_time, &first.holder_identity, first.lease_transitions);
    ensure!(first.acquire_time.is_some() && first.acquire_time <= first.renew_time, "acquired: {acquired:?}");
    let now = (&second.acquire_time, &second.holder_identity, second.lease_transitions);
    ensure!(acquired == now, "a renewal changed {acquired:?} to {now:?}");
    second.holder_identity.context("the Lease has no holder")
}
