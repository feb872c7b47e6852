//! Histories of registers: one file for each register, with one operation a line, as `tests/linearizable` reads them.

use std::{
    collections::BTreeMap,
    fs::File,
    io::Write as _,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use anyhow::{Context, Result};
use serde::Serialize;

/// Registers that clients use at the same time.
const AT_ONCE: usize = 2;
/// A register ends after this many changes without an answer. The checker has to consider that each takes effect later, or
/// never.
const OPEN: usize = 20;
/// A register ends after this many operations, so that its history is checked in seconds.
const OPERATIONS: usize = 5000;

/// What a client asks of a register.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "kind", rename_all = "lowercase")]
pub enum Request {
    /// The value, and its version.
    Read,
    /// Another value.
    Write {
        /// The value, which no other request has.
        put: u64,
    },
    /// Another value, if the version is the demanded one.
    Cas {
        /// The demanded version.
        from: i32,
        /// The value, which no other request has.
        put: u64,
    },
}

/// What a server answers. The answer to a refused [`Request::Cas`] is empty.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Answer {
    /// The value that a read found. None if it is no number.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub value: Option<u64>,
    /// The version that a read found, or that a change made.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub version: Option<i32>,
    /// True if the server does not know the znode.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub missing: bool,
}

/// A request and its answer, with times in nanoseconds of one clock.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Operation {
    client: usize,
    #[serde(flatten)]
    request: Request,
    call: u64,
    #[serde(flatten)]
    returned: Option<Returned>,
}

#[derive(Clone, Copy, Debug, Serialize)]
struct Returned {
    #[serde(rename = "return")]
    at: u64,
    #[serde(flatten)]
    answer: Answer,
}

impl Operation {
    /// A request, `call` after the beginning of the history, and its answer, with the time when it came. None without an
    /// answer: the request may take effect later.
    #[must_use]
    pub fn new(client: usize, request: Request, call: Duration, answer: Option<(Duration, Answer)>) -> Self {
        let nanoseconds = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        let returned = answer.map(|(at, answer)| Returned { at: nanoseconds(at), answer });
        Self { client, request, call: nanoseconds(call), returned }
    }
}

/// The register of one znode, and the file of its history.
struct Register {
    path: PathBuf,
    file: File,
    operations: usize,
    open: usize,
    /// Requests that have not ended yet. Without them the history would lack what others see of them.
    running: usize,
    is_over: bool,
}

/// All registers that have not ended, by number, and the files of those that have.
pub struct Ledger {
    folder: PathBuf,
    begun: Instant,
    last: usize,
    registers: BTreeMap<usize, Register>,
    ended: Vec<PathBuf>,
}

impl Ledger {
    /// The first registers, with their files in a new folder.
    ///
    /// # Errors
    /// If a file cannot be written.
    pub fn new(folder: &Path) -> Result<Self> {
        std::fs::create_dir_all(folder).with_context(|| format!("cannot create {}", folder.display()))?;
        let registers = BTreeMap::new();
        let mut ledger =
            Self { folder: folder.to_owned(), begun: Instant::now(), last: 0, registers, ended: Vec::new() };
        for _ in 0..AT_ONCE {
            ledger.add()?;
        }
        Ok(ledger)
    }

    fn add(&mut self) -> Result<()> {
        self.last += 1;
        let path = self.folder.join(format!("{}.jsonl", self.last));
        let file = File::create(&path).with_context(|| format!("cannot write {}", path.display()))?;
        let register = Register { path, file, operations: 0, open: 0, running: 0, is_over: false };
        self.registers.insert(self.last, register);
        Ok(())
    }

    /// The time since the beginning of all histories.
    #[must_use]
    pub fn now(&self) -> Duration {
        self.begun.elapsed()
    }

    /// The number of a register that has not ended, for a request that begins now: the nth one, modulo their number. Each
    /// call is followed by one of [`Ledger::end`].
    pub fn begin(&mut self, nth: usize) -> Option<usize> {
        let mut current: Vec<_> = self.registers.iter_mut().filter(|(_, register)| !register.is_over).collect();
        let nth = nth.checked_rem(current.len())?;
        let (number, register) = current.get_mut(nth)?;
        register.running += 1;
        Some(**number)
    }

    /// A request has ended. It has no operation if it shows nothing: a read without an answer. The register ends if it has
    /// enough operations, and another one begins.
    ///
    /// # Errors
    /// If a file cannot be written.
    pub fn end(&mut self, number: usize, operation: Option<&Operation>) -> Result<()> {
        let register = self.registers.get_mut(&number).context("the register has ended")?;
        register.running -= 1;
        if let Some(operation) = operation {
            writeln!(register.file, "{}", serde_json::to_string(operation)?)
                .with_context(|| format!("cannot write {}", register.path.display()))?;
            register.operations += 1;
            register.open += usize::from(operation.returned.is_none());
        }
        let was_over = register.is_over;
        register.is_over |= register.open >= OPEN || register.operations >= OPERATIONS;
        if register.is_over && !was_over {
            self.add()?;
        }
        self.remove_ended();
        Ok(())
    }

    fn remove_ended(&mut self) {
        let all = std::mem::take(&mut self.registers).into_iter();
        let (ended, others): (BTreeMap<_, _>, _) = all.partition(|(_, one)| one.is_over && one.running == 0);
        self.registers = others;
        self.ended.extend(ended.into_values().map(|register| register.path));
    }

    /// The files of the registers that have ended since the last call.
    pub fn ended(&mut self) -> Vec<PathBuf> {
        std::mem::take(&mut self.ended)
    }

    /// Ends all registers, after the last request.
    pub fn end_all(&mut self) {
        for register in self.registers.values_mut() {
            register.is_over = true;
        }
        self.remove_ended();
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by a panic")]
mod tests {
    use super::*;

    const READ: Request = Request::Read;

    fn operation(client: usize, request: Request, call: u64, answer: Option<(u64, Answer)>) -> Operation {
        let answer = answer.map(|(at, answer)| (Duration::from_nanos(at), answer));
        Operation::new(client, request, Duration::from_nanos(call), answer)
    }

    fn version(version: i32) -> Answer {
        Answer { version: Some(version), ..Answer::default() }
    }

    fn ledger() -> (tempfile::TempDir, Ledger) {
        let folder = tempfile::tempdir().unwrap();
        let ledger = Ledger::new(&folder.path().join("registers")).unwrap();
        (folder, ledger)
    }

    /// One request of a register without any others.
    fn request(ledger: &mut Ledger, nth: usize, operation: Option<&Operation>) -> usize {
        let number = ledger.begin(nth).unwrap();
        ledger.end(number, operation).unwrap();
        number
    }

    #[test]
    fn the_checker_reads_what_is_written() {
        let (_folder, mut ledger) = ledger();
        let found = Answer { value: Some(0), ..version(0) };
        for operation in [
            operation(0, READ, 10, Some((20, found))),
            operation(1, Request::Write { put: 1 }, 15, Some((25, version(1)))),
            operation(2, Request::Cas { from: 0, put: 2 }, 30, Some((40, Answer::default()))),
            operation(0, Request::Cas { from: 1, put: 3 }, 30, Some((41, version(2)))),
            operation(1, Request::Write { put: 4 }, 42, None),
        ] {
            request(&mut ledger, 0, Some(&operation));
        }
        request(&mut ledger, 0, None);
        ledger.end_all();
        let written = std::fs::read_to_string(ledger.ended().first().unwrap()).unwrap();
        // The test of the checker reads the same file.
        assert_eq!(written, include_str!("../../../linearizable/recorded.jsonl"));
        let missing = operation(0, READ, 1, Some((2, Answer { missing: true, ..Answer::default() })));
        let line = r#"{"client":0,"kind":"read","call":1,"return":2,"missing":true}"#;
        assert_eq!(serde_json::to_string(&missing).unwrap(), line);
    }

    #[test]
    fn a_register_ends_after_20_changes_without_an_answer() {
        let (_folder, mut ledger) = ledger();
        let open = operation(0, Request::Write { put: 1 }, 1, None);
        let answered = operation(0, READ, 1, Some((2, version(0))));
        for nth in 0..20 {
            assert_eq!(request(&mut ledger, 1, Some(&answered)), 2, "read {nth}");
            assert_eq!(request(&mut ledger, 0, Some(&open)), 1, "change {nth}");
        }
        let ended = ledger.ended();
        assert_eq!(ended.iter().map(|path| path.file_name().unwrap()).collect::<Vec<_>>(), ["1.jsonl"]);
        assert_eq!(std::fs::read_to_string(ended.first().unwrap()).unwrap().lines().count(), 20);
        assert!(ledger.ended().is_empty());
        assert_eq!([0, 1].map(|nth| request(&mut ledger, nth, None)), [2, 3]);
    }

    #[test]
    fn a_register_ends_after_enough_operations() {
        let (_folder, mut ledger) = ledger();
        let answered = operation(0, READ, 1, Some((2, version(0))));
        for _ in 1..OPERATIONS {
            request(&mut ledger, 0, Some(&answered));
        }
        assert!(ledger.ended().is_empty());
        request(&mut ledger, 0, Some(&answered));
        assert_eq!(ledger.ended().len(), 1);
    }

    #[test]
    fn a_history_has_all_requests_that_began_before_its_end() {
        let (_folder, mut ledger) = ledger();
        let late = ledger.begin(0).unwrap();
        let open = operation(0, Request::Write { put: 1 }, 1, None);
        for _ in 0..20 {
            request(&mut ledger, 0, Some(&open));
        }
        assert!(ledger.ended().is_empty(), "a request has not ended");
        assert_eq!(request(&mut ledger, 0, None), 2, "no further request begins");
        ledger.end(late, Some(&open)).unwrap();
        let ended = ledger.ended();
        assert_eq!(std::fs::read_to_string(ended.first().unwrap()).unwrap().lines().count(), 21);
    }

    #[test]
    fn all_registers_end_with_the_clients() {
        let (_folder, mut ledger) = ledger();
        request(&mut ledger, 0, None);
        ledger.end_all();
        assert_eq!(ledger.ended().len(), AT_ONCE);
        assert_eq!(ledger.begin(0), None);
    }
}
