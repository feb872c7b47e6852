//! Reads `ZooKeeper`'s snapshots and transaction logs. [`mczk_rules::server::files`] says what they prove.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, BufReader, ErrorKind, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use mczk_rules::server::files::{Files, Log, Snapshot, add_to};
use mczk_runtime::atomic_file::if_found;

/// Length of a log's head: magic number, version, number of the database.
const HEAD: u64 = 16;
/// The part of a transaction's header that ends with its zxid: session, number of the request, zxid.
const TO_ZXID: usize = 20;
/// The end of a complete snapshot, as `ZooKeeper` checks it: a text of length 1, which is a slash.
const SEAL: [u8; 5] = [0, 0, 0, 1, b'/'];
/// Length of the checksum before the seal: Adler-32, as a number of 64 bits.
const CHECKSUM: u64 = 8;
/// The byte after every transaction.
const END: u8 = b'B';

/// Snapshots or logs in a folder, by the zxid in their names, in order.
///
/// # Errors
/// If the folder cannot be read.
pub(super) fn files(folder: &Path, prefix: &str) -> io::Result<Vec<(i64, PathBuf)>> {
    named(folder, prefix, "")
}

/// Copied snapshots that have no final name yet. `ZooKeeper` loads a complete one under both names.
///
/// # Errors
/// If the folder cannot be read.
pub(super) fn unnamed_snapshots(folder: &Path) -> io::Result<Vec<(i64, PathBuf)>> {
    named(folder, "snapshot.", ".tmp")
}

fn named(folder: &Path, prefix: &str, suffix: &str) -> io::Result<Vec<(i64, PathBuf)>> {
    let Some(entries) = if_found(fs::read_dir(folder))? else { return Ok(Vec::new()) };
    let mut files = Vec::new();
    for entry in entries {
        let entry = entry?;
        let name = entry.file_name();
        let zxid = name.to_str().and_then(|name| name.strip_prefix(prefix)?.strip_suffix(suffix));
        if let Some(zxid) = zxid.and_then(|zxid| i64::from_str_radix(zxid, 16).ok()) {
            files.push((zxid, entry.path()));
        }
    }
    files.sort();
    Ok(files)
}

/// The files of a server that does not run. Reads every log and every snapshot to its end.
///
/// # Errors
/// If the folder or a file cannot be read. A snapshot that cannot be read may be complete.
pub(super) fn listing(folder: &Path) -> io::Result<Files> {
    let snapshot = |(zxid, path): (i64, PathBuf)| {
        is_intact(&path).map(|complete| Snapshot { zxid, complete }).map_err(|error| named_error(&path, &error))
    };
    let log = |(begin, path): (i64, PathBuf)| {
        let mut tail = Tail::default();
        let read = tail.read(&path).map(|tail| Log { begin, runs: tail.runs.clone() });
        read.map_err(|error| named_error(&path, &error))
    };
    Ok(Files {
        snapshots: files(folder, "snapshot.")?.into_iter().map(snapshot).collect::<io::Result<_>>()?,
        logs: files(folder, "log.")?.into_iter().map(log).collect::<io::Result<_>>()?,
    })
}

/// The error of a file, with its name.
fn named_error(path: &Path, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{}: {error}", path.display()))
}

/// The files of a server that runs, read from where the last look ended.
#[derive(Debug, Default)]
pub(super) struct Reader {
    logs: BTreeMap<i64, Tail>,
    /// Snapshots that are on the disk.
    synced: BTreeMap<i64, bool>,
}

impl Reader {
    /// The files as they are on the disk now: what they hold outlives a loss of power.
    ///
    /// # Errors
    /// If the folder or a log cannot be read.
    pub(super) fn read(&mut self, folder: &Path) -> io::Result<Files> {
        let snapshots = files(folder, "snapshot.")?;
        self.synced.retain(|zxid, _| snapshots.iter().any(|(other, _)| other == zxid));
        let logs = files(folder, "log.")?;
        self.logs.retain(|begin, _| logs.iter().any(|(other, _)| other == begin));
        let mut seen = Files::default();
        for (zxid, path) in snapshots {
            // ZooKeeper still writes a snapshot without its seal.
            let synced = self.synced.get(&zxid).copied().unwrap_or_default();
            let complete = synced || is_sealed(&path)? && File::open(&path)?.sync_all().is_ok();
            self.synced.insert(zxid, complete);
            seen.snapshots.push(Snapshot { zxid, complete });
        }
        for (begin, path) in logs {
            let tail = self.logs.entry(begin).or_default();
            let runs = tail.read(&path)?.runs.clone();
            File::open(&path)?.sync_data()?;
            seen.logs.push(Log { begin, runs });
        }
        Ok(seen)
    }
}

/// The part of a log that was read.
#[derive(Debug, Default)]
struct Tail {
    runs: Vec<(i64, i64)>,
    /// Place of the last transaction, and its zxid.
    last: Option<(u64, i64)>,
    /// The end of that transaction.
    end: u64,
}

impl Tail {
    /// Reads on to the end of the log, or to a partial transaction. A log that another leader shortened is read again.
    fn read(&mut self, log: &Path) -> io::Result<&Self> {
        let mut reader = BufReader::new(File::open(log)?);
        let length = reader.get_ref().metadata()?.len();
        if let Some((at, zxid)) = self.last {
            reader.seek(SeekFrom::Start(at))?;
            if next(&mut reader, at, length)?.is_none_or(|(found, end)| (found, end) != (zxid, self.end)) {
                *self = Self::default();
            }
        }
        let mut at = self.end.max(HEAD);
        reader.seek(SeekFrom::Start(at))?;
        while let Some((zxid, end)) = next(&mut reader, at, length)? {
            add_to(&mut self.runs, zxid);
            (self.last, self.end) = (Some((at, zxid)), end);
            at = end;
        }
        Ok(self)
    }
}

/// The zxid of the transaction at a place, and the place after it. `None` at the end of the log, at its padding, and at a
/// partial transaction.
fn next(reader: &mut BufReader<File>, at: u64, length: u64) -> io::Result<Option<(i64, u64)>> {
    let Some(head) = read::<12>(reader)? else { return Ok(None) };
    // A checksum comes first. Padding has a size of 0.
    let size = u64::from(head.last_chunk().map_or(0, |size| u32::from_be_bytes(*size)));
    let end = at + 12 + size + 1;
    if size < TO_ZXID as u64 || end > length {
        return Ok(None);
    }
    let Some(header) = read::<TO_ZXID>(reader)? else { return Ok(None) };
    reader.seek_relative(i64::try_from(size - TO_ZXID as u64).map_err(io::Error::other)?)?;
    // A partial transaction ends with other bytes.
    let is_whole = read::<1>(reader)? == Some([END]);
    let zxid = header.last_chunk().map(|zxid| i64::from_be_bytes(*zxid));
    Ok(zxid.filter(|_| is_whole).map(|zxid| (zxid, end)))
}

fn read<const LENGTH: usize>(reader: &mut impl Read) -> io::Result<Option<[u8; LENGTH]>> {
    let mut bytes = [0; LENGTH];
    match reader.read_exact(&mut bytes) {
        Ok(()) => Ok(Some(bytes)),
        Err(error) if error.kind() == ErrorKind::UnexpectedEof => Ok(None),
        Err(error) => Err(error),
    }
}

/// True if a snapshot has its seal.
fn is_sealed(snapshot: &Path) -> io::Result<bool> {
    let mut file = File::open(snapshot)?;
    if file.metadata()?.len() < SEAL.len() as u64 {
        return Ok(false);
    }
    file.seek(SeekFrom::End(-5))?;
    Ok(read::<{ SEAL.len() }>(&mut file)? == Some(SEAL))
}

/// True if a snapshot has its seal, and its content is what `ZooKeeper` wrote. `ZooKeeper` loads an older snapshot otherwise.
///
/// # Errors
/// If the snapshot cannot be read.
pub(super) fn is_intact(snapshot: &Path) -> io::Result<bool> {
    let length = fs::metadata(snapshot)?.len();
    let Some(content) = length.checked_sub(CHECKSUM + SEAL.len() as u64) else { return Ok(false) };
    if !is_sealed(snapshot)? {
        return Ok(false);
    }
    let mut reader = BufReader::with_capacity(1 << 16, File::open(snapshot)?);
    let sum = adler2::adler32(&mut io::BufReader::new((&mut reader).take(content)))?;
    Ok(read::<8>(&mut reader)?.map(u64::from_be_bytes) == Some(u64::from(sum)))
}

/// The newest log, if it holds nothing but its head. The power went off before its first transaction was durable, so the
/// server has acknowledged none of it. `ZooKeeper` may not start with such a file.
///
/// # Errors
/// If a file cannot be read.
pub(super) fn empty(folder: &Path) -> io::Result<Option<PathBuf>> {
    let Some((_, newest)) = files(folder, "log.")?.pop() else { return Ok(None) };
    let mut file = File::open(&newest)?;
    file.seek(SeekFrom::Start(HEAD))?;
    let mut bytes = vec![0; 1 << 16];
    loop {
        match file.read(&mut bytes)? {
            0 => return Ok(Some(newest)),
            length if bytes.iter().take(length).any(|byte| *byte != 0) => return Ok(None),
            _ => {}
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::indexing_slicing)]
mod tests {
    use super::*;

    const ZXID: i64 = 0x1_0000_0001;

    fn transaction(zxid: i64) -> Vec<u8> {
        let mut content = vec![7; TO_ZXID - 8];
        content.extend(zxid.to_be_bytes());
        content.extend(b"content");
        [&[0; 8], &u32::try_from(content.len()).unwrap().to_be_bytes()[..], &content, &[END]].concat()
    }

    fn log(zxids: &[i64], rest: &[u8]) -> Vec<u8> {
        [vec![0; 16], zxids.iter().flat_map(|zxid| transaction(*zxid)).collect(), rest.to_vec()].concat()
    }

    fn snapshot() -> Vec<u8> {
        let content = b"content";
        [&content[..], &u64::from(adler2::adler32_slice(content)).to_be_bytes(), &SEAL].concat()
    }

    fn folder(name: &str) -> PathBuf {
        let folder = std::env::temp_dir().join(format!("mczk-{name}-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        folder
    }

    #[test]
    fn a_log_ends_at_padding_or_at_a_partial_transaction() {
        let folder = folder("log");
        let write = |name: &str, content: Vec<u8>| fs::write(folder.join(name), content).unwrap();
        assert_eq!(listing(&folder.join("none")).unwrap(), Files::default());
        write("log.6", log(&[6, 7, 0x1b], &[0; 64]));
        // Names are hexadecimal: a is after 6.
        write("log.1c", log(&[0x1c], &transaction(0x1d)[..20]));
        write("log.1d", Vec::new());
        write("log.other", b"not a log".to_vec());
        let logs = listing(&folder).unwrap().logs;
        fs::remove_dir_all(&folder).unwrap();
        let of = |begin, runs: &[(i64, i64)]| Log { begin, runs: runs.to_vec() };
        assert_eq!(logs, [of(6, &[(6, 7), (0x1b, 0x1b)]), of(0x1c, &[(0x1c, 0x1c)]), of(0x1d, &[])]);
    }

    /// A folder can be opened, and not read.
    #[test]
    fn a_file_that_cannot_be_read_is_an_error_with_its_name() {
        for name in ["snapshot.9", "log.9"] {
            let folder = folder("unreadable");
            fs::write(folder.join("snapshot.1"), snapshot()).unwrap();
            fs::create_dir_all(folder.join(name)).unwrap();
            let listed = listing(&folder);
            fs::remove_dir_all(&folder).unwrap();
            assert!(listed.unwrap_err().to_string().contains(name));
        }
    }

    /// `ZooKeeper` starts with an older snapshot instead.
    #[test]
    fn a_partial_or_damaged_snapshot_is_not_complete() {
        let folder = folder("snapshots");
        let whole = snapshot();
        let damaged = [&[whole[0] ^ 1], &whole[1..]].concat();
        let contents = [&whole[..], &whole[..whole.len() - 1], b"", b"/", &damaged];
        for (number, content) in contents.into_iter().enumerate() {
            fs::write(folder.join(format!("snapshot.{number}")), content).unwrap();
        }
        let complete: Vec<bool> =
            listing(&folder).unwrap().snapshots.iter().map(|snapshot| snapshot.complete).collect();
        fs::remove_dir_all(&folder).unwrap();
        assert_eq!(complete, [true, false, false, false, false]);
    }

    #[test]
    fn a_reader_reads_on_and_sees_a_log_that_another_leader_shortened() {
        let folder = folder("tail");
        let path = folder.join("log.1");
        let mut reader = Reader::default();
        let mut runs = |zxids: &[i64]| {
            fs::write(&path, log(zxids, &[0; 64])).unwrap();
            reader.read(&folder).unwrap().logs[0].runs.clone()
        };
        let next = 0x2_0000_0001;
        let seen =
            [runs(&[]), runs(&[1, 2]), runs(&[1, 2, 3]), runs(&[1, next]), runs(&[1, next, next + 1]), runs(&[1])];
        fs::remove_file(&path).unwrap();
        let gone = reader.read(&folder).unwrap();
        fs::remove_dir_all(&folder).unwrap();
        assert_eq!(
            seen.map(|runs| runs.last().copied()),
            [None, Some((1, 2)), Some((1, 3)), Some((next, next)), Some((next, next + 1)), Some((1, 1))]
        );
        assert_eq!(gone, Files::default());
    }

    #[test]
    fn a_log_without_transactions_is_empty() {
        let folder = folder("empty-log");
        let newest = folder.join("log.100000002");
        fs::write(folder.join("log.100000001"), log(&[ZXID], &[])).unwrap();
        let mut seen = vec![empty(&folder).unwrap()];
        for content in [vec![], [vec![7; 16], vec![0; 1 << 17]].concat(), [vec![0; 1 << 17], vec![1]].concat()] {
            fs::write(&newest, content).unwrap();
            seen.push(empty(&folder).unwrap());
        }
        let whole = listing(&folder).unwrap().is_whole_history();
        fs::remove_file(folder.join("log.100000001")).unwrap();
        let partial = listing(&folder).unwrap().is_whole_history();
        fs::remove_dir_all(&folder).unwrap();
        assert_eq!(seen, [None, Some(newest.clone()), Some(newest), None]);
        assert!(whole && !partial);
    }
}
