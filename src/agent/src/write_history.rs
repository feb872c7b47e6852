//! The writes of objects that the API server refuses, or that another writer undoes: why, and when the next one is due.
//!
//! Without it the agent would repeat such a write as fast as it can, for ever.

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use mczk_rules::agent::decide::observation::RefusedChange;

/// The shortest and the longest time between two writes of the same content.
const BACKOFF: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(60));
/// How long a refused write waits at most for others that take long. Then it is its turn.
const ITS_TURN: Duration = Duration::from_secs(120);
/// How long the answer to a question counts: longer than questions about all volumes of a cluster take.
const ACCEPTED_FOR: Duration = Duration::from_secs(300);
/// How long a write counts after which nothing happened.
const FORGOTTEN_AFTER: Duration = Duration::from_secs(600);
/// The writes of the same content after which another writer undoes them, and no accident.
const UNDONE_AFTER: u32 = 3;
/// Why a write has not been tried.
const POSTPONED: &str =
    "it is not tried yet, because the writes before it took too long: mostly an admission webhook does not answer";
/// Longest words that are kept, in characters.
const LONGEST: usize = 500;

/// What the agent does to an object. One object can have several of them at the same time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum ObjectVerb {
    /// Creates or changes it.
    Write,
    /// Deletes it.
    Delete,
    /// Asks whether the API server would accept it.
    Ask,
}

/// Kind and name of an object, and what the agent does to it.
pub(crate) type WrittenObject = (&'static str, String, ObjectVerb);

#[derive(Clone, Debug)]
struct History {
    content: String,
    /// Writes of this content.
    count: u32,
    last: Instant,
    /// True if the API server refuses the content.
    refused: bool,
    /// The words of the API server, or who undoes what.
    why: Option<String>,
    /// True if the agent has looked at the object in this pass.
    seen: bool,
}

/// The newest writes of objects. An object at which the agent no longer looks is forgotten.
#[derive(Clone, Debug, Default)]
pub(crate) struct WriteHistory(BTreeMap<WrittenObject, History>);

impl WriteHistory {
    /// True if an object may be written now with this content. Another content may always.
    pub(crate) fn may_write(&mut self, object: &WrittenObject, content: &str, now: Instant) -> bool {
        let Some(history) = self.0.get_mut(object) else { return true };
        history.seen = true;
        // A first change by another client is corrected at once.
        let Some(doubled) = history.count.checked_sub(if history.refused { 1 } else { 2 }) else { return true };
        let waits = BACKOFF.0.saturating_mul(1 << doubled.min(10)).min(BACKOFF.1);
        history.content != content || now.duration_since(history.last) >= waits
    }

    /// A write succeeded, or the API server refused it with these words. Both are counted apart.
    pub(crate) fn wrote(&mut self, object: WrittenObject, content: &str, refusal: Option<&str>, now: Instant) {
        let refused = refusal.is_some();
        let before = self.0.remove(&object).filter(|before| before.content == content && before.refused == refused);
        let (count, why) = before.map_or((0, None), |before| (before.count, before.why));
        let (content, count, why) = (content.to_owned(), count.saturating_add(1), refusal.map(shorten).or(why));
        self.0.insert(object, History { content, count, last: now, refused, why, seen: true });
    }

    /// The object is as this content wants it, or another writer has changed it: `who` says who and what. Only one who changes it
    /// again and again is reported, and for a while longer.
    pub(crate) fn observed(&mut self, object: &WrittenObject, content: &str, who: Option<String>, now: Instant) {
        let Some(history) = self.0.get_mut(object) else { return };
        history.seen = true;
        match who {
            Some(who) if history.content == content && !history.refused && history.count >= UNDONE_AFTER => {
                history.why = Some(shorten(&who));
            }
            None if history.refused || now.duration_since(history.last) >= FORGOTTEN_AFTER => self.forget(object),
            _ => {}
        }
    }

    /// True if the API server refused this when it was last tried.
    pub(crate) fn refuses(&self, object: &WrittenObject) -> bool {
        self.0.get(object).is_some_and(|history| history.refused && history.why.as_deref() != Some(POSTPONED))
    }

    /// True if the API server has accepted this content when it was asked not long ago.
    pub(crate) fn accepts(&mut self, object: &WrittenObject, content: &str, now: Instant) -> bool {
        let Some(history) = self.0.get_mut(object) else { return false };
        history.seen = true;
        !history.refused && history.content == content && now.duration_since(history.last) < ACCEPTED_FOR
    }

    /// True if this was refused when it was last tried, not long ago.
    pub(crate) fn repeats(&self, object: &WrittenObject, now: Instant) -> bool {
        self.refuses(object) && self.0.get(object).is_some_and(|history| now.duration_since(history.last) < ITS_TURN)
    }

    /// A write waits for the next pass. A known refusal stays as it is. A question that waits has no words: it changes nothing.
    pub(crate) fn postpone(&mut self, object: &WrittenObject, content: &str, now: Instant) {
        match self.0.get_mut(object).filter(|history| history.refused) {
            Some(history) => history.seen = true,
            None if object.2 == ObjectVerb::Ask => {}
            None => self.wrote(object.clone(), content, Some(POSTPONED), now),
        }
    }

    pub(crate) fn forget(&mut self, object: &WrittenObject) {
        self.0.remove(object);
    }

    /// Ends a pass over all objects: those at which the agent did not look are forgotten.
    pub(crate) fn end_pass(&mut self) {
        self.0.retain(|_, history| std::mem::take(&mut history.seen));
    }

    /// What the API server refuses, and what another writer undoes again and again.
    pub(crate) fn refusals(&self) -> Vec<RefusedChange> {
        let refusal = |((kind, name, verb), history): (&WrittenObject, &History)| {
            let why = history.why.clone()?;
            let kind = if *verb == ObjectVerb::Delete { format!("The deletion of {kind}") } else { (*kind).to_owned() };
            Some(RefusedChange { kind, name: name.clone(), why, undone: !history.refused })
        };
        self.0.iter().filter_map(refusal).collect()
    }
}

/// The words that a status can hold.
pub(crate) fn shorten(words: &str) -> String {
    words.chars().take(LONGEST).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn service() -> WrittenObject {
        ("Service", "zk".to_owned(), ObjectVerb::Write)
    }

    fn words(history: &WriteHistory, undone: bool) -> Vec<String> {
        let all = history.refusals().into_iter().filter(|refusal| refusal.undone == undone);
        all.map(|RefusedChange { kind, name, why, .. }| format!("{kind} {name}: {why}")).collect()
    }

    fn seconds(history: &mut WriteHistory, content: &str, from: Instant) -> u64 {
        (0..100_000)
            .find(|after| history.may_write(&service(), content, from + Duration::from_secs(*after)))
            .unwrap_or(0)
    }

    #[test]
    fn a_refused_write_is_repeated_ever_later_and_another_content_at_once() {
        let (mut history, mut now) = (WriteHistory::default(), Instant::now());
        let mut waits = Vec::new();
        for _ in 0..9 {
            history.wrote(service(), "a", Some("exceeded quota"), now);
            waits.push(seconds(&mut history, "a", now));
            assert_eq!(seconds(&mut history, "b", now), 0);
            now += Duration::from_secs(120);
        }
        assert_eq!(waits, [1, 2, 4, 8, 16, 32, 60, 60, 60]);
        assert_eq!(words(&history, false), ["Service zk: exceeded quota"]);
        history.wrote(service(), "a", None, now);
        assert_eq!(words(&history, false), [""; 0]);
        history.observed(&service(), "a", Some("tuner changes spec".to_owned()), now);
        assert_eq!(words(&history, true), [""; 0], "refusals are no changes by another writer");
        assert_eq!(seconds(&mut history, "a", now), 0);
        history.wrote(service(), "a", Some(&"x".repeat(9000)), now);
        assert!(words(&history, false).concat().len() < 600);
        history.observed(&service(), "a", None, now);
        assert_eq!(words(&history, false), [""; 0]);
    }

    /// Others that hang are tried in each pass. Without its turn, it would wait for as long as they hang.
    #[test]
    fn a_refused_write_has_its_turn() {
        let (mut history, now) = (WriteHistory::default(), Instant::now());
        history.wrote(service(), "a", Some("timeout"), now);
        let repeats = [0, 119, 120].map(|after| history.repeats(&service(), now + Duration::from_secs(after)));
        assert_eq!(repeats, [true, true, false]);
    }

    /// The agent wrote twice a second for ever.
    #[test]
    fn what_another_writer_undoes_is_written_ever_later_and_named() {
        let (mut history, start) = (WriteHistory::default(), Instant::now());
        let mut writes = Vec::new();
        for second in 0..3600 {
            let now = start + Duration::from_secs(second);
            history.observed(&service(), "a", Some("tuner changes spec".to_owned()), now);
            if history.may_write(&service(), "a", now) {
                history.wrote(service(), "a", None, now);
                writes.push(second);
            }
            history.end_pass();
        }
        assert_eq!(writes.iter().take(8).copied().collect::<Vec<_>>(), [0, 1, 2, 4, 8, 16, 32, 64]);
        assert!(writes.len() < 70, "{}", writes.len());
        assert_eq!(words(&history, true), ["Service zk: tuner changes spec"]);
        history.observed(&service(), "a", None, start + Duration::from_secs(3600) + FORGOTTEN_AFTER);
        assert_eq!(words(&history, true), [""; 0]);
    }

    #[test]
    fn one_change_by_another_client_is_corrected_at_once_and_not_reported() {
        let (mut history, now) = (WriteHistory::default(), Instant::now());
        history.wrote(service(), "a", None, now);
        history.observed(&service(), "a", Some("tuner changes spec".to_owned()), now);
        assert!(history.may_write(&service(), "a", now));
        assert_eq!(words(&history, true), [""; 0]);
    }

    #[test]
    fn an_object_that_is_no_longer_wanted_is_forgotten() {
        let (mut history, now) = (WriteHistory::default(), Instant::now());
        history.wrote(service(), "a", Some("no"), now);
        history.end_pass();
        assert_eq!(history.refusals().len(), 1);
        history.end_pass();
        assert_eq!(history.refusals().len(), 0);
    }
}
