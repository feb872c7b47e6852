//! `mczk failover --rehearse`: voters move to a spare and home again, while all is well.

use std::{
    cell::Cell,
    time::{Duration, Instant},
};

use anyhow::{Context, anyhow};
use k8s_openapi::{apimachinery::pkg::apis::meta::v1::Condition, jiff::Timestamp};
use kube::Client;
use tokio::signal::unix::{SignalKind, signal};

use super::{
    decide::{MoveDecision, Wish},
    preview::condition,
    progress::VoterGoal,
    request::check_named,
    text::text,
    tolerance::Tolerated,
    wait::look,
};
use crate::{
    act::wait::until_done,
    see::plan::ServerImage,
    terminal::{
        error::Error,
        output::{Exit, print},
        scope::{existing, status_of},
    },
};
use mczk_api::{
    contract::conditions::{ConditionStatus, ConditionType, Reason},
    multiclusterzookeeper::MultiClusterZooKeeperStatus,
};

/// A rehearsal of one home.
pub(super) struct MoveRehearsal<'a> {
    pub(super) client: &'a Client,
    /// Namespace and name of the ensemble.
    pub(super) of: (&'a str, &'a str),
    pub(super) home: &'a str,
    pub(super) to: Option<&'a str>,
    /// How long each way may take.
    pub(super) limit: Duration,
}

/// How far a rehearsal is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RehearsalPart {
    /// Nothing is requested.
    Check,
    /// The spare is requested.
    Away,
    /// Home is requested.
    Home,
    /// The pair is gone.
    Over,
}

impl MoveRehearsal<'_> {
    /// Rehearses, or with `dry_run` shows the first way alone.
    ///
    /// # Errors
    /// If not all is well, a request is refused, or a signal comes: what is left, and which commands end it.
    pub(super) async fn run(&self, dry_run: bool) -> Result<Exit, Error> {
        let (namespace, name) = self.of;
        let wish = Wish::From { cluster: self.home.to_owned(), to: self.to.map(str::to_owned) };
        let request = check_named(self.client, self.of, &wish).await?;
        let status = status_of(&existing(self.client, namespace, name).await?)?;
        if let Some(why) = obstacle(&status, &request.decision, self.home) {
            return Err(Error::Failed(anyhow!("{namespace}/{name}: nothing is rehearsed: {why}")));
        }
        print(&text(&format!("{namespace}/{name}"), &request.decision))?;
        if dry_run {
            print("Dry run: nothing is changed.\n")?;
            return Ok(Exit::Fine);
        }
        let part = Cell::new(RehearsalPart::Check);
        let ended = tokio::select! {
            ended = self.both_ways(&wish, &part) => ended,
            signal = interrupted() => Err(signal.err().unwrap_or_else(|| Error::Failed(anyhow!("interrupted")))),
        };
        if !matches!(ended, Ok(Exit::Fine)) {
            print(&left(part.get(), self.of, self.home))?;
        }
        ended
    }

    /// Both ways, and the end of the request. The part is set before its request is written.
    async fn both_ways(&self, away: &Wish, part: &Cell<RehearsalPart>) -> Result<Exit, Error> {
        let home = self.home;
        let mut tolerated = Tolerated::default();
        print(&format!("The first way: the voters of {home} leave it.\n"))?;
        part.set(RehearsalPart::Away);
        let Some(first) = self.one_way(away, &mut tolerated).await? else { return Ok(Exit::Waits) };
        print(&format!("The second way: the voters of {home} return.\n"))?;
        part.set(RehearsalPart::Home);
        let back = Wish::Back(home.to_owned());
        let Some(second) = self.one_way(&back, &mut tolerated).await? else { return Ok(Exit::Waits) };
        let release = check_named(self.client, self.of, &Wish::Release(home.to_owned())).await?;
        release.send(self.client, self.of, false).await?;
        part.set(RehearsalPart::Over);
        print(&format!(
            "Rehearsed: the voters of {home} left in {} s, and were home again in {} s.\n{tolerated}",
            first.as_secs(),
            second.as_secs()
        ))?;
        Ok(Exit::Fine)
    }

    /// Requests one way, and waits. `None` if the time is over before.
    async fn one_way(&self, wish: &Wish, tolerated: &mut Tolerated) -> Result<Option<Duration>, Error> {
        let request = check_named(self.client, self.of, wish).await?;
        let goal = VoterGoal::of(&request.decision).context("the request has no place")?;
        let begin = Instant::now();
        request.send(self.client, self.of, false).await?;
        let look = async || {
            self.sample(tolerated).await;
            look(self.client, self.of, &goal).await
        };
        Ok(until_done(look, self.limit).await?.then(|| begin.elapsed()))
    }

    /// Looks at what the ensemble survives. A look that fails counts for nothing.
    async fn sample(&self, tolerated: &mut Tolerated) {
        let (namespace, name) = self.of;
        let Ok(object) = existing(self.client, namespace, name).await else { return };
        if let Ok(observed) = Box::pin(ServerImage::default().observe(self.client, &object)).await {
            tolerated.look(&observed, Timestamp::now());
        }
    }
}

/// A signal that ends the command.
async fn interrupted() -> Result<(), Error> {
    let mut terminate = signal(SignalKind::terminate()).context("cannot listen to signals")?;
    let mut interrupt = signal(SignalKind::interrupt()).context("cannot listen to signals")?;
    tokio::select! {
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
    }
    Ok(())
}

/// Why nothing is rehearsed.
fn obstacle(status: &MultiClusterZooKeeperStatus, decision: &MoveDecision, home: &str) -> Option<String> {
    for type_ in [ConditionType::Ready, ConditionType::QuorumSafe] {
        let found = condition(status, type_);
        // The placement itself may give one cluster a majority.
        let is_fine = |found: &Condition| {
            found.status == ConditionStatus::True.as_str() || found.reason == Reason::ClusterHoldsMajority.as_str()
        };
        if !found.is_some_and(is_fine) {
            let message = found.map_or("the operator has not reported it", |found| found.message.as_str());
            return Some(format!("the condition {} is not True: {message}", type_.as_str()));
        }
    }
    if let Some(moved) = status.clusters.iter().find(|cluster| cluster.moved_to.is_some()) {
        return Some(format!("the voters of {} are not at home. Bring them back first", moved.name));
    }
    let demoted = status.ensemble.as_ref().map(|ensemble| ensemble.demoted.as_slice()).unwrap_or_default();
    if !demoted.is_empty() {
        return Some("voters have lost their votes: see mczk why".to_owned());
    }
    if decision.values.0.as_deref().is_some_and(|value| !value.is_empty()) {
        return Some(format!(
            "the annotation has requests, which a rehearsal would change: {}. Remove them first, with --release",
            decision.values.0.as_deref().unwrap_or_default()
        ));
    }
    if decision.place.as_deref() == Some(home) {
        return Some(format!("{home} is the home of the voters: name a spare with --to"));
    }
    let preview = match &decision.preview {
        Ok(preview) => preview,
        Err(why) => return Some(format!("what the operator observes cannot be read: {why}")),
    };
    let waits = decision.waits().then(|| preview.against()).flatten();
    waits.map(|condition| format!("the move would wait. {}", condition.message))
}

/// What is left of a rehearsal that did not end, and the commands that end it.
fn left(part: RehearsalPart, (namespace, name): (&str, &str), home: &str) -> String {
    let command = format!("mczk failover {name} -n {namespace}");
    let release = format!("  {command} --release {home}\n");
    match part {
        RehearsalPart::Check | RehearsalPart::Over => "Nothing is left of the rehearsal.\n".to_owned(),
        RehearsalPart::Away => format!(
            "The annotation may request a spare for the voters of {home}, which then move there and stay. Bring them home:\n  \
             {command} --back {home} --wait\n{release}"
        ),
        RehearsalPart::Home => format!(
            "The annotation requests the voters of {home} at home, where the operator moves them. End the request then:\n  \
             {command} --back {home} --wait\n{release}"
        ),
    }
}

#[cfg(test)]
mod tests;
