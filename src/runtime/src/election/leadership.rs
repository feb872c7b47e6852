//! Whether this process acts, for everything that writes.

use std::{future::pending, time::Instant};

use tokio::{sync::watch, time::sleep_until};

/// A term in which this process acts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Term {
    /// Its number: the terms of later holders are higher.
    pub number: i32,
    /// Its end, unless the Lease is renewed. `None`: there is no election, and no end.
    pub end: Option<Instant>,
}

/// Whether this process acts. Clones answer alike.
#[derive(Clone, Debug)]
pub struct Leadership {
    term: watch::Receiver<Option<Term>>,
    above: watch::Sender<i32>,
}

impl Leadership {
    /// The leadership that an election publishes in `term`; requests for a higher term go to `above`.
    #[must_use]
    pub fn new(term: watch::Receiver<Option<Term>>, above: watch::Sender<i32>) -> Self {
        Self { term, above }
    }

    /// The leadership of a process without an election: one term without end.
    #[must_use]
    pub fn without_election() -> Self {
        let (_, term) = watch::channel(Some(Term { number: 0, end: None }));
        Self { term, above: watch::Sender::new(0) }
    }

    /// Number of the current term, if this process may act. A process that was stopped for long may not, even before it has
    /// noticed that another one took over.
    #[must_use]
    pub fn term(&self) -> Option<i32> {
        let term = *self.term.borrow();
        term.filter(|term| term.end.is_none_or(|end| Instant::now() < end)).map(|term| term.number)
    }

    /// True if this process holds the Lease, whether it may act now or not: a renewal that the API server accepts late continues
    /// the same term.
    #[must_use]
    pub(crate) fn may_continue(&self) -> bool {
        self.term.borrow().is_some()
    }

    /// True if there is an election.
    #[must_use]
    pub(crate) fn is_elected(&self) -> bool {
        self.term.borrow().is_none_or(|term| term.end.is_some())
    }

    /// Waits for a term that is not `before`, and returns its number.
    pub async fn begins(&self, before: Option<i32>) -> i32 {
        let mut receiver = self.term.clone();
        loop {
            if let Some(number) = self.term().filter(|number| Some(*number) != before) {
                return number;
            }
            if receiver.changed().await.is_err() {
                pending::<()>().await;
            }
        }
    }

    /// Waits until this process must not act any more in this term.
    pub async fn ended(&self, number: i32) {
        let mut receiver = self.term.clone();
        loop {
            let current = (*receiver.borrow_and_update()).filter(|term| term.number == number);
            let Some(term) = current else { return };
            let changed = async {
                if receiver.changed().await.is_err() {
                    pending::<()>().await;
                }
            };
            match term.end {
                Some(end) if end <= Instant::now() => return,
                Some(end) => tokio::select! { () = changed => {}, () = sleep_until(end.into()) => {} },
                None => changed.await,
            }
        }
    }

    /// Makes the next term higher than `number`, which an object shows. Another client may have deleted the Lease, and with it
    /// the count of terms.
    pub fn rise_above(&self, number: i32) {
        self.above.send_if_modified(|above| {
            let rises = number > *above;
            *above = number.max(*above);
            rises
        });
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::time::timeout;

    use super::*;

    #[tokio::test]
    async fn without_an_election_the_process_always_acts() {
        let leadership = Leadership::without_election();
        assert_eq!((leadership.term(), leadership.begins(None).await), (Some(0), 0));
        let wait = timeout(Duration::from_millis(20), leadership.ended(0));
        assert!(wait.await.is_err());
    }

    #[tokio::test]
    async fn a_term_ends_with_its_time_or_its_lease() {
        let (sender, term) = watch::channel(None);
        let leadership = Leadership { term, above: watch::Sender::new(0) };
        assert_eq!(leadership.term(), None);
        let end = Some(Instant::now() + Duration::from_millis(30));
        sender.send_replace(Some(Term { number: 4, end }));
        assert_eq!((leadership.term(), leadership.begins(Some(3)).await), (Some(4), 4));
        leadership.ended(4).await;
        assert_eq!(leadership.term(), None, "it was not renewed");
        sender.send_replace(Some(Term { number: 5, end: Some(Instant::now() + Duration::from_secs(60)) }));
        leadership.ended(4).await;
        assert_eq!(leadership.begins(Some(4)).await, 5);
        sender.send_replace(None);
        leadership.ended(5).await;
    }
}
