//! The fence between leaders, as an audit log shows it: no write of a former leader is accepted for an object that a
//! later leader has changed.
//!
//! Each process has its own user agent. The API server accepts writes of the Lease by its holder, or by the next holder.
//! So the accepted writes of the Lease show which process held it when.

use jiff::Timestamp;

use super::Entry;

/// What a log shows of the leaders.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Report {
    /// Number of terms.
    pub terms: usize,
    /// Late writes of former leaders that the API server refused.
    pub refused: usize,
    /// Late writes of former leaders to objects that no later leader had changed. They count as writes before the
    /// change of leaders: the next leader sees and corrects them.
    pub before_the_claim: usize,
    /// Accepted writes that break the promise.
    pub stale: Vec<String>,
}

/// The begin of a term.
#[derive(Clone, Copy, Debug)]
struct Takeover<'e> {
    agent: &'e str,
    received: Timestamp,
    done: Timestamp,
}

/// Checks the requests of all operators, which share a user. The lease is `NAMESPACE/NAME`.
#[must_use]
pub fn check(entries: &[Entry], lease: &str) -> Report {
    let takeovers = takeovers(entries, lease);
    let mut report = Report { terms: takeovers.len(), ..Report::default() };
    for write in entries.iter().filter(|entry| is_fenced(entry)) {
        // A takeover that the API server still handled when the write came may be after it.
        let Some(current) = takeovers.iter().rposition(|takeover| takeover.done < write.received) else { continue };
        let before = takeovers.get(..=current).unwrap_or_default();
        if before.last().is_some_and(|holder| holder.agent == write.agent) {
            continue;
        }
        let own = before.iter().rposition(|takeover| takeover.agent == write.agent);
        let since = own.and_then(|own| before.get(own + 1)).map(|next| next.received);
        match since {
            _ if !write.is_accepted() => report.refused += 1,
            None => report.stale.push(format!("{} never held the lease: {}", write.agent, shown(write))),
            Some(since) if entries.iter().any(|other| has_changed(other, write, since)) => {
                report.stale.push(format!("a later leader had changed the object: {}", shown(write)));
            }
            Some(_) => report.before_the_claim += 1,
        }
    }
    report
}

/// The begins of all terms, in their order.
fn takeovers<'e>(entries: &'e [Entry], lease: &str) -> Vec<Takeover<'e>> {
    let is_lease = |entry: &&Entry| {
        entry.resource == "leases" && format!("{}/{}", entry.namespace, entry.name) == lease && entry.is_write()
    };
    let mut writes: Vec<&Entry> = entries.iter().filter(is_lease).filter(|entry| entry.is_accepted()).collect();
    // The next holder reads the Lease before it writes, so it sends its write after the former holder's.
    writes.sort_by_key(|entry| entry.received);
    let mut all: Vec<Takeover<'e>> = Vec::new();
    for Entry { agent, received, done, .. } in writes {
        if all.last().is_none_or(|last| last.agent != agent) {
            all.push(Takeover { agent, received: *received, done: *done });
        }
    }
    all
}

/// True for writes of ensembles. Events and the Lease itself carry no plan.
fn is_fenced(entry: &Entry) -> bool {
    entry.is_write() && !["leases", "events"].contains(&entry.resource.as_str())
}

/// True if another leader has changed the object of the write since then, and before the write came.
fn has_changed(other: &Entry, write: &Entry, since: Timestamp) -> bool {
    let object = |entry: &Entry| [&entry.group, &entry.resource, &entry.namespace, &entry.name].map(Clone::clone);
    other.agent != write.agent
        && other.is_write()
        && other.is_accepted()
        && other.received >= since
        && other.done < write.received
        && object(other) == object(write)
}

fn shown(entry: &Entry) -> String {
    let Entry { agent, verb, resource, namespace, name, received, .. } = entry;
    format!("{received} {agent}: {verb} {resource} {namespace}/{name}")
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    const LEASE: &str = "karmada-system/mczk-operator";

    /// A request that takes one second.
    fn request(second: i64, agent: &str, resource: &str, code: u64) -> Entry {
        let (namespace, name) = if resource == "leases" { LEASE.split_once('/').unwrap() } else { ("n", "zk") };
        Entry {
            user: "mczk-operator".to_owned(),
            agent: agent.to_owned(),
            verb: "update".to_owned(),
            group: String::new(),
            resource: resource.to_owned(),
            subresource: String::new(),
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            code,
            is_forbidden: false,
            received: Timestamp::from_second(second).unwrap(),
            done: Timestamp::from_second(second + 1).unwrap(),
        }
    }

    /// Terms of a and b, which begin at 0 and 10; b changes the OverridePolicy at 12.
    fn two_terms(more: &[Entry]) -> Report {
        let mut entries = vec![
            request(0, "a", "leases", 201),
            request(3, "a", "overridepolicies", 200),
            request(5, "a", "leases", 200),
            request(10, "b", "leases", 200),
            request(12, "b", "overridepolicies", 200),
        ];
        entries.extend_from_slice(more);
        check(&entries, LEASE)
    }

    #[test]
    fn writes_of_the_holder_are_no_late_ones() {
        let again = [request(20, "a", "leases", 200), request(22, "a", "overridepolicies", 200)];
        assert_eq!(two_terms(&again), Report { terms: 3, ..Report::default() });
    }

    #[test]
    fn an_accepted_write_after_the_claim_of_the_next_leader_is_stale() {
        let report = two_terms(&[request(14, "a", "overridepolicies", 200)]);
        assert_eq!(report.stale.len(), 1, "{report:?}");
        // Its own later term does not excuse it.
        let report = two_terms(&[request(14, "a", "overridepolicies", 200), request(20, "a", "leases", 200)]);
        assert_eq!((report.stale.len(), report.terms), (1, 3), "{report:?}");
    }

    #[test]
    fn a_late_write_is_refused_or_comes_before_the_claim() {
        let late = [
            request(14, "a", "overridepolicies", 409),
            request(14, "a", "zookeepers", 200),
            request(14, "a", "events", 201),
            request(14, "a", "leases", 409),
        ];
        let expected = Report { terms: 2, refused: 1, before_the_claim: 1, ..Report::default() };
        assert_eq!(two_terms(&late), expected);
    }

    #[test]
    fn a_write_that_the_takeover_meets_is_not_late() {
        assert_eq!(two_terms(&[request(10, "a", "overridepolicies", 200)]), Report { terms: 2, ..Report::default() });
    }

    #[test]
    fn a_process_without_a_term_may_write_nothing() {
        assert_eq!(two_terms(&[request(14, "c", "zookeepers", 201)]).stale.len(), 1);
    }

    #[test]
    fn a_refused_takeover_begins_no_term() {
        assert_eq!(two_terms(&[request(15, "c", "leases", 409)]).terms, 2);
    }
}
