//! Another authority takes the place of one, in three steps.

use std::collections::BTreeSet;

use super::{AUTHORITY_LIFE, Certificate, Known, Make, Used, number};
use crate::{
    api::tls::EnsembleTls,
    contract::{certificate_names::Holds, conditions::Reason},
    mutation::broken,
    rollout::blocker::Blocker,
};

/// Authorities that a list trusts at most, as its schema says.
const MOST_TRUSTED: usize = 4;

/// What a step changes; nothing stays as it is.
#[derive(Default)]
pub(super) struct Step {
    pub(super) make: Option<Make>,
    pub(super) identity: Option<Certificate>,
    pub(super) trust: Option<BTreeSet<u32>>,
    pub(super) replacing: Option<Blocker>,
}

impl Known<'_> {
    /// The step that is due, if any.
    pub(super) fn replace(&self, used: &Used) -> Step {
        let newer = self.of(Holds::Authority).filter(|a| a.number > used.authority && a.not_after > self.now);
        match newer.max_by_key(|a| a.number) {
            Some(next) => self.adopt(used, next),
            None if used.trust.range(..used.authority).next().is_some() => self.forget(used),
            None if self.begins(used) => Step {
                make: Some(self.make_authority()),
                replacing: Some(progress(1, "is being made", "")),
                ..Step::default()
            },
            None => Step::default(),
        }
    }

    /// Whether another authority is to be made: a person asks for it, or the one that is used ends or cannot sign any more.
    fn begins(&self, used: &Used) -> bool {
        let authorities = || self.of(Holds::Authority);
        let answered = |asked: &&str| authorities().any(|a| a.asked.as_deref() == Some(*asked));
        let asked = self.situation.asked.filter(|asked| broken!(AskedForEver) || !answered(asked));
        let ends = match authorities().find(|a| a.number == used.authority) {
            Some(own) => own.not_after.duration_since(self.now) < AUTHORITY_LIFE / 3,
            // Its Secret is gone, unless nothing is seen at all.
            None => self.of(Holds::Identity).any(|c| c.number == used.identity),
        };
        self.situation.formed && used.trust.len() < MOST_TRUSTED && (asked.is_some() || ends)
    }

    /// Steps 1 and 2: the next authority is trusted, and then shown.
    fn adopt(&self, used: &Used, next: &Certificate) -> Step {
        if !used.trust.contains(&next.number) && !broken!(IdentityBeforeTrust) {
            let replacing = Some(progress(1, "is being sent to all clusters", ""));
            if !self.has_trust(next.number) {
                let make = Some(self.make(Holds::Trust, next.number, Some(next)));
                return Step { make, replacing, ..Step::default() };
            }
            let trust = used.trust.iter().copied().chain([next.number]).collect();
            return Step { trust: Some(trust), replacing, ..Step::default() };
        }
        let name = self.name(Holds::Trust, next.number);
        let wait = self.lacking(|tls| tls.trust.contains(&name));
        if let Some(clusters) = wait.filter(|_| !broken!(IdentityBeforeTrust)) {
            let replacing = Some(progress(1, &format!("waits until all servers trust it in {clusters}"), ABSENT));
            return Step { replacing, ..Step::default() };
        }
        let replacing = Some(progress(2, "an identity under it is being sent to all clusters", ""));
        match self.identity(next.number, used) {
            Some(identity) => Step { identity: Some(identity.clone()), replacing, ..Step::default() },
            None => Step {
                make: Some(self.make(Holds::Identity, self.next_identity(), Some(next))),
                replacing,
                ..Step::default()
            },
        }
    }

    /// Step 3: those before the authority that is shown are not trusted any more.
    fn forget(&self, used: &Used) -> Step {
        let under = |tls: &EnsembleTls| {
            number(&tls.identity).is_some_and(|told| {
                let own = self.of(Holds::Identity).any(|c| c.number == told && c.authority == used.authority);
                own || told == used.identity
            })
        };
        match self.lacking(under).filter(|_| !broken!(TrustNewOnlyTooEarly)) {
            Some(clusters) => {
                let what = format!("waits until all servers show an identity under it in {clusters}");
                Step { replacing: Some(progress(2, &what, ABSENT)), ..Step::default() }
            }
            None => Step {
                trust: Some(used.trust.range(used.authority..).copied().collect()),
                replacing: Some(progress(3, "the former one is being forgotten", "")),
                ..Step::default()
            },
        }
    }

    /// The clusters of which some server has not loaded what it should, or that cannot be asked.
    fn lacking(&self, has: impl Fn(&EnsembleTls) -> bool) -> Option<String> {
        let absent = |told: &Option<EnsembleTls>| told.is_none() && broken!(ForgetTheAbsent);
        let lacks = self.situation.loaded.iter().filter(|(_, told)| !told.as_ref().is_some_and(&has) && !absent(told));
        let names: Vec<&str> = lacks.map(|(cluster, _)| cluster.as_str()).collect();
        (!names.is_empty() && !broken!(SkipWait)).then(|| names.join(", "))
    }
}

/// What helps where a cluster does not report.
const ABSENT: &str = ". A cluster that is lost for good is taken out of spec.placement; an agent that does not report it is to be updated";

fn progress(step: u8, what: &str, help: &str) -> Blocker {
    Blocker {
        reason: Reason::ReplacingAuthority,
        message: format!("another authority takes the place of the quorum's, step {step} of 3: {what}{help}"),
    }
}
