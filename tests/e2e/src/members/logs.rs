//! The transaction logs on the volumes of all servers: no two transactions of an incarnation may have the same number. If two
//! majorities ever acknowledged writes, the logs show it.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
    time::{Duration, SystemTime},
};

use anyhow::{Context, Result, ensure};
use serde_json::Value;

/// The head of a file: `ZKLG`, and the version of the format.
const HEAD: &[u8] = b"ZKLG\0\0\0\x02";
/// Length of the head with the number of the database.
const HEAD_LENGTH: usize = 16;
/// The byte after every transaction.
const END: u8 = b'B';
/// Position of the number in a transaction: after the id of the session and the number of its request.
const ZXID: std::ops::Range<usize> = 12..20;
/// A transaction: its number and its content.
type Transaction<'a> = (u64, &'a [u8]);

/// The transactions of one incarnation by number: the content, and the file from which it was read first.
type Transactions = BTreeMap<u64, (Vec<u8>, PathBuf)>;

/// All logs that were read. Each incarnation has one order of transactions.
#[derive(Debug, Default)]
pub struct Logs {
    incarnations: BTreeMap<String, Transactions>,
    files: BTreeMap<PathBuf, Read>,
}

/// A file that was read.
#[derive(Debug)]
struct Read {
    /// Number of its transactions.
    transactions: usize,
    /// Its time then, if it was not changing. The length is no help: ZooKeeper reserves space.
    modified: Option<SystemTime>,
}

impl Logs {
    /// Reads all logs below a folder. Transactions of deleted volumes that were read before are kept.
    ///
    /// # Errors
    /// If a file cannot be read, or has another transaction with a known number.
    pub fn gather(&mut self, folder: &Path) -> Result<()> {
        for entry in fs::read_dir(folder).with_context(|| format!("cannot read {}", folder.display()))? {
            let entry = entry?;
            let (path, kind) = (entry.path(), entry.file_type()?);
            if kind.is_dir() {
                self.gather(&path)?;
            } else if kind.is_file() && entry.file_name().to_string_lossy().starts_with("log.") {
                self.read(&path)?;
            }
        }
        Ok(())
    }

    fn read(&mut self, file: &Path) -> Result<()> {
        let modified = fs::metadata(file).and_then(|about| about.modified());
        let modified = modified.with_context(|| format!("cannot read {}", file.display()))?;
        // A file may change within a moment and keep its time.
        let modified = modified.elapsed().is_ok_and(|age| age > Duration::from_secs(1)).then_some(modified);
        if modified.is_some() && self.files.get(file).is_some_and(|read| read.modified == modified) {
            return Ok(());
        }
        let incarnation = incarnation(file).with_context(|| format!("no owner of {}", file.display()))?;
        let bytes = fs::read(file).with_context(|| format!("cannot read {}", file.display()))?;
        let known = self.incarnations.entry(incarnation).or_default();
        let transactions = transactions(&bytes).with_context(|| file.display().to_string())?;
        self.files.insert(file.to_owned(), Read { transactions: transactions.len(), modified });
        for (zxid, content) in transactions {
            let (first, at) = known.entry(zxid).or_insert_with(|| (content.to_owned(), file.to_owned()));
            ensure!(
                first == content,
                "FORKED: transaction 0x{zxid:x} differs between {} and {}",
                at.display(),
                file.display()
            );
        }
        Ok(())
    }

    /// The result, for the report.
    #[must_use]
    pub fn summary(&self) -> String {
        // Each folder belongs to one server of one incarnation.
        let servers: BTreeSet<_> = self.files.keys().map(|file| file.parent()).collect();
        format!(
            "{} transactions in the logs of {} servers, {} different ones: FORKED: 0",
            self.files.values().map(|read| read.transactions).sum::<usize>(),
            servers.len(),
            self.transactions()
        )
    }

    /// Number of different transactions.
    #[must_use]
    pub fn transactions(&self) -> usize {
        self.incarnations.values().map(BTreeMap::len).sum()
    }
}

/// The incarnation of a file on a volume, also of data that the server set aside.
fn incarnation(file: &Path) -> Result<String> {
    let owner = file.ancestors().skip(1).map(|folder| folder.join("owner.json")).find(|path| path.exists());
    let owner = owner.context("no folder above it has an owner.json")?;
    let owner: Value = serde_json::from_slice(&fs::read(owner)?)?;
    Ok(owner.get("incarnation").and_then(Value::as_str).context("owner.json names no incarnation")?.to_owned())
}

/// The transactions of a log file, up to its end or to a partial record.
fn transactions(bytes: &[u8]) -> Result<Vec<Transaction<'_>>> {
    if bytes.len() < HEAD_LENGTH {
        return Ok(Vec::new());
    }
    ensure!(bytes.starts_with(HEAD), "the file is no transaction log");
    let mut rest = bytes.get(HEAD_LENGTH..).unwrap_or_default();
    let mut all = Vec::new();
    while let Some((transaction, after)) = next(rest) {
        all.push(transaction);
        rest = after;
    }
    Ok(all)
}

/// The first transaction and the rest; none if the rest is padding, or a partial record.
fn next(bytes: &[u8]) -> Option<(Transaction<'_>, &[u8])> {
    let (sum, rest) = bytes.split_first_chunk::<8>()?;
    let (length, rest) = rest.split_first_chunk::<4>()?;
    let length = usize::try_from(u32::from_be_bytes(*length)).ok()?;
    let (content, rest) = rest.split_at_checked(length)?;
    let (end, rest) = rest.split_first()?;
    let zxid = content.get(ZXID)?.try_into().ok().map(u64::from_be_bytes)?;
    let is_complete = *end == END && u64::from_be_bytes(*sum) == u64::from(adler32(content));
    is_complete.then_some(((zxid, content), rest))
}

fn adler32(bytes: &[u8]) -> u32 {
    const MODULUS: u32 = 65521;
    let (a, b) = bytes.iter().fold((1, 0), |(a, b), byte| {
        let a = (a + u32::from(*byte)) % MODULUS;
        (a, (b + a) % MODULUS)
    });
    b << 16 | a
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by a panic")]
mod tests {
    use super::*;

    fn record(zxid: u64, text: &str) -> Vec<u8> {
        let mut content = vec![7; ZXID.start];
        content.extend(zxid.to_be_bytes());
        content.extend(text.bytes());
        let mut record = u64::from(adler32(&content)).to_be_bytes().to_vec();
        record.extend(u32::try_from(content.len()).unwrap().to_be_bytes());
        record.extend(content);
        record.push(END);
        record
    }

    fn log(records: &[Vec<u8>]) -> Vec<u8> {
        let mut log = HEAD.to_vec();
        log.extend([0; 8]);
        log.extend(records.concat());
        log
    }

    fn zxids(log: &[u8]) -> Vec<u64> {
        transactions(log).unwrap().into_iter().map(|(zxid, _)| zxid).collect()
    }

    #[test]
    fn a_log_ends_at_padding_or_at_a_partial_record() {
        assert_eq!(adler32(b"Wikipedia"), 0x11e6_0398);
        let mut whole = log(&[record(0x1_0000_0001, "a"), record(0x1_0000_0002, "b")]);
        let short = whole.get(..whole.len() - 1).unwrap();
        assert_eq!(zxids(short), [0x1_0000_0001]);
        whole.extend([0; 64]);
        assert_eq!(zxids(&whole), [0x1_0000_0001, 0x1_0000_0002]);
        assert!(zxids(&[]).is_empty());
        transactions(b"something else that is long enough").unwrap_err();
    }

    #[test]
    fn two_transactions_with_one_number_are_a_fork() {
        let temporary = tempfile::tempdir().unwrap();
        let folder = temporary.path();
        let write = |volume: &str, incarnation: &str, records: &[Vec<u8>]| {
            let data = folder.join(volume).join("data/version-2");
            fs::create_dir_all(&data).unwrap();
            fs::write(folder.join(volume).join("owner.json"), format!(r#"{{"incarnation":"{incarnation}"}}"#)).unwrap();
            fs::write(data.join("log.100000001"), log(records)).unwrap();
        };
        let gathered = || {
            let mut logs = Logs::default();
            logs.gather(folder).and_then(|()| logs.gather(folder)).map(|()| logs.summary())
        };
        write("a/life", "one", &[record(1, "x"), record(2, "y")]);
        write("b/life", "one", &[record(2, "y"), record(3, "z")]);
        write("b/aside-two-1", "two", &[record(1, "of another incarnation")]);
        assert_eq!(gathered().unwrap(), "5 transactions in the logs of 3 servers, 4 different ones: FORKED: 0");
        write("c/aside-one-3", "one", &[record(3, "not z")]);
        let forked = gathered().unwrap_err().to_string();
        assert!(forked.starts_with("FORKED: transaction 0x3 "), "{forked}");
    }
}
