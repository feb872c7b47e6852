//! Leaders that are stopped between their last check and the arrival of a write, beyond their lease. The audit log then
//! shows that no stale write was accepted.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use super::{
    faults::{SECOND, deployed},
    leaders::{Candidate, THIRD, after_crash, leader_first, takeover},
};
use crate::{
    api_proxy::ApiProxy,
    audit::{self, terms},
    federation::{Federation, LEASE, OPERATOR_USER},
};

/// Number of elections, or `E2E_ELECTIONS`.
const ELECTIONS: u32 = 4;
/// The longest time until a leader writes while a rollout runs.
const WRITE: Duration = Duration::from_secs(10);
/// Number of writes after which the next leader has changed what the former one was about to write.
const CLAIM_AND_PLAN: usize = 2;
/// The longest time until the next leader has made them.
const CLAIM: Duration = Duration::from_secs(5);
/// The longest time of one election, with the wait for its write.
const ELECTION: Duration = Duration::from_secs(40);

fn number() -> u32 {
    std::env::var("E2E_ELECTIONS").ok().and_then(|text| text.parse().ok()).unwrap_or(ELECTIONS)
}

/// The time of the elections that come on top of the usual number.
pub(super) fn time() -> Duration {
    ELECTION * number().saturating_sub(ELECTIONS)
}

async fn candidate(federation: &Federation) -> Result<Candidate> {
    let ports = federation.free_ports()?;
    let proxy = ApiProxy::start(&federation.rig.kubeconfig(OPERATOR_USER), &federation.folder).await?;
    let process = federation.candidate_through(ports, &proxy.kubeconfig).await?;
    Ok(Candidate { process, ports, proxy: Some(proxy) })
}

fn proxy(candidate: &Candidate) -> Result<&ApiProxy> {
    candidate.proxy.as_ref().context("the candidate has no proxy")
}

/// Ends the term of the first candidate while one of its writes is on its way. True if there was a write.
async fn election(pair: &[Candidate; 2], waits_for_claim: bool) -> Result<bool> {
    let [leader, next] = pair;
    let is_held = proxy(leader)?.hold(WRITE).await;
    leader.process.signal("STOP").await?;
    let before = proxy(next)?.answered();
    takeover(next, after_crash()).await?;
    // The write arrives before the next leader has written its claim and its plan, or after it.
    let end = Instant::now() + CLAIM;
    while waits_for_claim && proxy(next)?.answered() < before + CLAIM_AND_PLAN && Instant::now() < end {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    proxy(leader)?.release().await?;
    leader.process.signal("CONT").await?;
    Ok(is_held)
}

pub(super) async fn stale_writes(federation: &Federation) -> Result<()> {
    let (number, log) = (number(), federation.rig.audit_log());
    federation.stop_operator().await?;
    let begin = audit::end(&log)?;
    // Karmada calls the webhook at one address.
    let webhook = federation.webhook_alone().await?;
    let mut pair = [candidate(federation).await?, candidate(federation).await?];
    let scene = deployed(federation, "elections", 600).await?;
    let mut held = 0;
    for election_number in 0..number {
        scene.image("zoo", if election_number % 2 == 0 { SECOND } else { THIRD }).await?;
        pair = leader_first(pair).await.with_context(|| format!("election {election_number}"))?;
        let is_held = election(&pair, election_number % 4 != 3).await;
        held += u32::from(is_held.with_context(|| format!("election {election_number}"))?);
        pair.reverse();
    }
    scene.settled("zoo").await?;
    scene.members_match("zoo").await?;
    scene.one_after_the_other("zoo")?;
    let report = terms::check(&audit::read(&log, begin, OPERATOR_USER)?, LEASE);
    let late = report.refused + report.before_the_claim;
    println!(
        "elections: {number}, {held} with a write on its way: {} terms, {late} late writes, {} of them refused, {} \
         stale ones accepted",
        report.terms,
        report.refused,
        report.stale.len()
    );
    ensure!(report.stale.is_empty(), "stale writes were accepted: {}", report.stale.join("; "));
    ensure!(report.terms > usize::try_from(number)?, "the audit log shows only {} terms", report.terms);
    ensure!(report.refused > 0, "no late write was refused after a claim, so the log proves nothing");
    for candidate in pair {
        candidate.process.stop().await?;
    }
    webhook.stop().await?;
    federation.start_operator().await
}
