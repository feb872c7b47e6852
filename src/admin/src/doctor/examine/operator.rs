//! The Lease of the operators.

use jiff::Timestamp;

use crate::{
    doctor::{
        finding::DoctorFinding,
        observed::{DoctorObserved, readable},
    },
    register::{host::DEPLOYMENT, rbac::LEASE},
};

pub(super) const CHECKED: &str = "An operator holds the Lease and renews it";

const SUBJECT: &str = "operator";

/// No operator acts.
pub(super) fn examine(observed: &DoctorObserved, _now: Timestamp) -> Vec<DoctorFinding> {
    let mut findings = Vec::new();
    let Some(lease) = readable(&observed.lease, SUBJECT, &mut findings) else { return findings };
    let (namespace, name) = LEASE;
    let log = format!(
        "Start the operator, and see its log in the host: kubectl --namespace mczk-system logs deployment/{DEPLOYMENT}"
    );
    let (message, remedy) = match lease {
        None => {
            let remedy = format!(
                "Run mczk install. An operator without a Lease is not visible here: start it with --lease={namespace}/{name}"
            );
            (format!("No operator runs: the Lease {namespace}/{name} does not exist"), remedy)
        }
        Some(lease) => match &lease.holder {
            None => (format!("No operator runs: the last one released the Lease {namespace}/{name}"), log),
            Some(holder) if !lease.renewed => {
                let waited = lease.waited.as_secs();
                (
                    format!(
                        "The operator {holder} holds the Lease, and did not renew it for {waited} s: it does not run"
                    ),
                    log,
                )
            }
            Some(_) => return findings,
        },
    };
    findings.push(DoctorFinding::fault(SUBJECT, message, remedy));
    findings
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::doctor::{
        healthy::{assert_fault, healthy, now},
        observed::LeaseState,
    };

    #[test]
    fn no_operator_runs() {
        let mut observed = healthy();
        observed.lease = Ok(None);
        assert_fault(&examine(&observed, now()), "karmada-system/mczk-operator does not exist", "mczk install");
        let state = |holder: Option<&str>, renewed| {
            Ok(Some(LeaseState { holder: holder.map(str::to_owned), renewed, waited: Duration::from_secs(16) }))
        };
        observed.lease = state(None, false);
        assert_fault(&examine(&observed, now()), "the last one released", "logs deployment/mczk");
        observed.lease = state(Some("mczk-1"), false);
        assert_fault(&examine(&observed, now()), "mczk-1 holds the Lease, and did not renew it for 16 s", "logs");
    }
}
