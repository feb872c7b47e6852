//! Which TLS handshake gets the processor next.
//!
//! A handshake takes as much time of a processor as a dozen requests, and thousands of clients may begin one at once. So
//! few are computed at the same time, and other requests go first. Karmada never waits for the handshakes of all others:
//! those of addresses that have read an answer come first, then those of addresses with few connections, then the newest.

use std::cmp::Reverse;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use parking_lot::Mutex;
use tokio::sync::oneshot;

/// Addresses with fewer connections are equal: Karmada has several, and a hostile client may have many addresses.
pub(crate) const FEW: usize = 32;

/// The clients of one address.
#[derive(Debug, Default)]
pub(crate) struct Address {
    open: AtomicUsize,
    answered: AtomicBool,
}

impl Address {
    /// Number of open connections.
    pub(crate) fn open(&self) -> usize {
        self.open.load(Ordering::Relaxed)
    }

    /// Counts a new connection.
    pub(crate) fn opened(&self) {
        self.open.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts the end of a connection. True if it was the last one.
    pub(crate) fn closed(&self) -> bool {
        self.open.fetch_sub(1, Ordering::Relaxed) == 1
    }

    /// True if its clients read what they ask for.
    pub(crate) fn reads(&self) -> bool {
        self.answered.load(Ordering::Relaxed)
    }

    /// A client of this address has been sent an answer, or does not read it.
    pub(crate) fn answered(&self, read: bool) {
        if self.reads() != read {
            self.answered.store(read, Ordering::Relaxed);
        }
    }
}

/// The permits to use a processor, and what waits for one.
#[derive(Clone, Debug)]
pub(crate) struct Permits(Arc<Mutex<PermitQueue>>);

#[derive(Debug)]
struct PermitQueue {
    free: usize,
    waiting: Vec<Waiting>,
}

/// Permits from the oldest to the newest.
#[derive(Debug)]
struct Waiting {
    address: Arc<Address>,
    permit: oneshot::Sender<Permit>,
}

/// Permission to compute one handshake. It passes to the next one when it is dropped.
#[derive(Debug)]
pub(crate) struct Permit(Permits);

impl Permits {
    /// At most so many are given at the same time, and at least one.
    pub(crate) fn new(at_once: usize) -> Self {
        Self(Arc::new(Mutex::new(PermitQueue { free: at_once.max(1), waiting: Vec::new() })))
    }

    /// Waits for a permit for a client of this address.
    pub(crate) async fn permit(&self, address: &Arc<Address>) -> Permit {
        let granted = {
            let mut queue = self.0.lock();
            if queue.free > 0 {
                queue.free -= 1;
                None
            } else {
                let (permit, granted) = oneshot::channel();
                queue.waiting.push(Waiting { address: address.clone(), permit });
                Some(granted)
            }
        };
        match granted {
            // An error cannot happen: the queue keeps a sender until it uses it.
            Some(granted) => granted.await.unwrap_or_else(|_| Permit(self.clone())),
            None => Permit(self.clone()),
        }
    }

    fn next(&self) -> Option<oneshot::Sender<Permit>> {
        let mut queue = self.0.lock();
        // Connections that have ended wait no more.
        queue.waiting.retain(|waiting| !waiting.permit.is_closed());
        let next = first(queue.waiting.iter().map(|waiting| &*waiting.address));
        if next.is_none() {
            queue.free += 1;
        }
        next.map(|next| queue.waiting.remove(next).permit)
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        if let Some(next) = self.0.next() {
            // If that connection has just ended, this passes the permit on to another one.
            let _ = next.send(Self(self.0.clone()));
        }
    }
}

/// What gets the next permit, of these from the oldest to the newest.
fn first<'a>(waiting: impl Iterator<Item = &'a Address>) -> Option<usize> {
    let rank = |(number, address): &(usize, &Address)| (!address.reads(), address.open() / FEW, Reverse(*number));
    waiting.enumerate().min_by_key(rank).map(|(number, _)| number)
}

#[cfg(test)]
#[allow(clippy::panic)]
mod tests {
    use futures::FutureExt;
    use rstest::rstest;

    use super::*;

    fn address(answered: bool, open: usize) -> Arc<Address> {
        Arc::new(Address { open: open.into(), answered: answered.into() })
    }

    #[rstest]
    #[case::nothing(&[], None)]
    #[case::newest(&[(false, 1), (false, 1), (false, 1)], Some(2))]
    #[case::few_connections(&[(false, 99), (false, 1), (false, 99)], Some(1))]
    #[case::as_few(&[(false, 1), (false, 16), (false, 99)], Some(1))]
    #[case::answered(&[(false, 1), (true, 99), (false, 1)], Some(1))]
    fn an_answered_address_comes_first(#[case] waiting: &[(bool, usize)], #[case] expected: Option<usize>) {
        let waiting: Vec<_> = waiting.iter().map(|(answered, open)| address(*answered, *open)).collect();
        assert_eq!(first(waiting.iter().map(|address| &**address)), expected);
    }

    #[tokio::test]
    async fn a_permit_passes_to_the_first_that_still_waits() {
        let (hostile, karmada) = (address(false, 500), address(true, 2));
        let permits = Permits::new(1);
        let permit = permits.permit(&hostile).await;
        let mut old = Box::pin(permits.permit(&hostile));
        let mut new = Box::pin(permits.permit(&hostile));
        let mut ended = Box::pin(permits.permit(&hostile));
        let mut call = Box::pin(permits.permit(&karmada));
        for waiting in [&mut old, &mut new, &mut ended, &mut call] {
            assert!(waiting.now_or_never().is_none());
        }
        drop(ended);
        drop(permit);
        let [None, None, Some(permit)] = [&mut old, &mut new, &mut call].map(FutureExt::now_or_never) else {
            panic!("another one has it")
        };
        drop(permit);
        assert!((&mut old).now_or_never().is_none());
        // It ends before it notices its permit.
        drop(new);
        let permit = (&mut old).now_or_never();
        assert!(permit.is_some());
        assert!(permits.permit(&karmada).now_or_never().is_none());
        drop(permit);
        assert!(permits.permit(&karmada).now_or_never().is_some());
    }
}
