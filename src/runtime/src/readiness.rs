//! Readiness of the process: it is ready while all its gates are open. `/readyz` shows the closed ones.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use parking_lot::Mutex;

/// All gates of the process. Clones share them.
#[derive(Clone, Debug, Default)]
pub struct Gates(Arc<Mutex<Vec<Gate>>>);

impl Gates {
    /// No gate, so ready.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a gate, which is closed at first. The text describes the state of the process while the gate is closed.
    #[must_use]
    pub fn gate(&self, state: &'static str) -> Gate {
        let gate = Gate { state, open: Arc::default() };
        self.0.lock().push(gate.clone());
        gate
    }

    /// States of the closed gates, in the order in which the gates were added. The process is ready if there is none.
    #[must_use]
    pub fn closed(&self) -> Vec<&'static str> {
        let gates = self.0.lock();
        gates.iter().filter(|gate| !gate.is_open()).map(|gate| gate.state).collect()
    }
}

/// One condition of readiness. Clones are the same gate.
#[derive(Clone, Debug)]
pub struct Gate {
    state: &'static str,
    open: Arc<AtomicBool>,
}

impl Gate {
    /// The condition holds.
    pub fn open(&self) {
        self.open.store(true, Ordering::Release);
    }

    /// The condition does not hold any more.
    pub fn close(&self) {
        self.open.store(false, Ordering::Release);
    }

    /// True if the condition holds.
    #[must_use]
    fn is_open(&self) -> bool {
        self.open.load(Ordering::Acquire)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]
mod tests {
    use super::*;

    #[test]
    fn closed_gates_are_named() {
        let gates = Gates::new();
        assert!(gates.closed().is_empty());
        let (one, two) = (gates.gate("one"), gates.clone().gate("two"));
        assert_eq!(gates.closed(), ["one", "two"]);
        one.open();
        assert_eq!(gates.closed(), ["two"]);
        two.open();
        assert!(gates.closed().is_empty());
        one.clone().close();
        assert_eq!(gates.closed(), ["one"]);
    }
}
