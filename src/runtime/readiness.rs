//! What must have happened before the process is ready, each as a gate with a name that `/readyz` shows while it is closed.

use std::sync::{
    Arc, Mutex, PoisonError,
    atomic::{AtomicBool, Ordering},
};

/// All gates of the process. Clones share them.
#[derive(Clone, Debug, Default)]
pub struct Gates(Arc<Mutex<Vec<Gate>>>);

impl Gates {
    /// No gate: ready.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a gate. It is closed until it is opened; the name says what is waited for.
    pub fn gate(&self, name: &'static str) -> Gate {
        let gate = Gate { name, open: Arc::default() };
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(gate.clone());
        gate
    }

    /// The names of the gates that are closed, in the order in which they were added. Ready if there is none.
    #[must_use]
    pub fn closed(&self) -> Vec<&'static str> {
        let gates = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        gates.iter().filter(|gate| !gate.is_open()).map(|gate| gate.name).collect()
    }
}

/// One thing that must have happened. Clones are the same gate.
#[derive(Clone, Debug)]
pub struct Gate {
    name: &'static str,
    open: Arc<AtomicBool>,
}

impl Gate {
    /// It has happened.
    pub fn open(&self) {
        self.open.store(true, Ordering::Release);
    }

    /// It has not, or no longer holds.
    pub fn close(&self) {
        self.open.store(false, Ordering::Release);
    }

    /// Whether it has happened.
    #[must_use]
    pub fn is_open(&self) -> bool {
        self.open.load(Ordering::Acquire)
    }
}

#[cfg(test)]
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
