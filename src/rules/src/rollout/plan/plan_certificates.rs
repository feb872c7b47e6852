//! The certificates of the quorum: which servers use, and which the operator makes next.

use std::time::Duration;

use kube_core::ResourceExt;

use crate::rollout::{
    certificates::{self, Make},
    known::Known,
};
use mczk_api::{
    contract::{cause::Cause, labels::REPLACE_AUTHORITY},
    tls::EnsembleTls,
    zookeeper::{Dependency, ZooKeeperSpec},
};

/// The operator does not watch Secrets: it observes a new one when it reconciles again.
pub(super) const AFTER_SECRET: Duration = Duration::from_millis(100);

/// The certificates of the quorum.
pub(super) struct PlannedCertificates {
    /// The certificates that the newest known server list names.
    used: Option<EnsembleTls>,
    /// The certificates that servers shall use, if all of them exist.
    next: Option<EnsembleTls>,
    /// The Secret that the operator makes next.
    pub(super) make: Option<Make>,
    /// How far the replacement of the authority is.
    pub(super) replacing: Option<Cause>,
    /// True if the template has to wait for the first certificates: servers would only wait for them.
    pub(super) missing: bool,
}

/// Plans the certificates of the quorum.
pub(super) fn plan_certificates(known: &Known<'_>) -> PlannedCertificates {
    let object = known.object;
    let reported = known.reported_list.as_ref();
    let used = certificates::newest(&known.overrides.ensemble, reported, known.status_ensemble());
    // Its first server list names certificates, which a new authority of the same number would contradict.
    let unknown = known.is_adopting() && used.is_none();
    let decision = if object.spec.tls.quorum && !unknown {
        let lists: Vec<_> = reported.into_iter().chain([&known.overrides.ensemble]).collect();
        let inputs = certificates::CertificateInputs {
            ensemble: &known.name,
            incarnation: &known.incarnation.id,
            used,
            observed: known.certificates,
            adopted: known.former_incarnations.adopted == Some(known.incarnation.id.as_str()),
            requested: object.annotations().get(REPLACE_AUTHORITY).map(String::as_str),
            formed: known.incarnation.formed,
            loaded: &certificates::loaded(&lists, &known.overrides.cluster_specs, &known.reports),
        };
        certificates::decide(&inputs, known.now)
    } else {
        certificates::Decision::default()
    };
    PlannedCertificates {
        missing: object.spec.tls.quorum
            && !unknown
            && used.or(decision.tls.as_ref()).is_none()
            && known.template.is_none(),
        used: used.cloned(),
        next: decision.tls,
        make: decision.make,
        replacing: decision.replacing,
    }
}

impl PlannedCertificates {
    /// The Secrets that travel with the template.
    pub(super) fn dependencies(&self) -> Vec<Dependency> {
        certificates::dependencies(self.used.as_ref(), self.next.as_ref())
    }

    /// The certificates that the server list names: the next ones once they travel with the written template, else the ones
    /// in use. A recovered or outdated list continues with those.
    pub(super) fn for_servers(&self, written: Option<&ZooKeeperSpec>) -> Option<EnsembleTls> {
        let travels = |tls: &&EnsembleTls| written.is_some_and(|t| certificates::travels(tls, &t.dependencies));
        self.next.as_ref().filter(travels).or(self.used.as_ref()).cloned()
    }
}
