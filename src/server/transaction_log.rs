//! Snapshots and transaction logs of `ZooKeeper`, by the zxids that they hold.

use std::fs::{self, File};
use std::io::{self, BufReader, ErrorKind, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use crate::server::atomic_file::if_found;

/// Length of a log's head: magic number, version, number of the database.
const HEAD: u64 = 16;
/// The part of a transaction's header that ends with its zxid: session, number of the request, zxid.
const TO_ZXID: usize = 20;
/// The end of a complete snapshot, as `ZooKeeper` checks it: a text of length 1, which is a slash.
const SEAL: [u8; 5] = [0, 0, 0, 1, b'/'];
/// The byte after every transaction.
const END: u8 = b'B';
/// The first transaction of the first epoch.
const FIRST_ZXID: i64 = 0x1_0000_0001;
/// A zxid is the number of an epoch, and below this bit a counter. It begins with 1 in each epoch, and with 0 if the first
/// request of an epoch cannot be read.
const EPOCH: u32 = 32;
const COUNTER: i64 = 0xffff_ffff;

/// Snapshots or logs in a folder, by the zxid in their names, in order.
///
/// # Errors
/// If the folder cannot be read.
pub(super) fn files(folder: &Path, prefix: &str) -> io::Result<Vec<(i64, PathBuf)>> {
    let Some(entries) = if_found(fs::read_dir(folder))? else { return Ok(Vec::new()) };
    let mut files = Vec::new();
    for entry in entries {
        let entry = entry?;
        let name = entry.file_name();
        let zxid = name.to_str().and_then(|name| name.strip_prefix(prefix));
        if let Some(zxid) = zxid.and_then(|zxid| i64::from_str_radix(zxid, 16).ok()) {
            files.push((zxid, entry.path()));
        }
    }
    files.sort();
    Ok(files)
}

/// Snapshots that `ZooKeeper` can start with. An incomplete one must not replace an older one.
pub(super) fn complete_snapshots(folder: &Path) -> io::Result<Vec<(i64, PathBuf)>> {
    let mut snapshots = files(folder, "snapshot.")?;
    snapshots.retain(|(_, path)| is_complete(path).unwrap_or(false));
    Ok(snapshots)
}

fn is_complete(snapshot: &Path) -> io::Result<bool> {
    let mut file = File::open(snapshot)?;
    let mut end = [0; SEAL.len()];
    file.seek(SeekFrom::End(-5))?;
    file.read_exact(&mut end)?;
    Ok(end == SEAL)
}

/// Zxid of the last transaction in the newest log, or of the newest snapshot if it is later. `None` without any.
///
/// # Errors
/// If a file cannot be read.
pub(super) fn end(folder: &Path) -> io::Result<Option<i64>> {
    let mut end = files(folder, "snapshot.")?.last().map(|(zxid, _)| *zxid);
    for (_, log) in files(folder, "log.")?.into_iter().rev() {
        // A log without a transaction was just created.
        if let Some(last) = zxids(&log)?.into_iter().max() {
            end = end.max(Some(last));
            break;
        }
    }
    Ok(end)
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

/// True if the logs hold every transaction of the ensemble, from the first one on.
///
/// # Errors
/// If a file cannot be read.
pub(super) fn is_whole_history(folder: &Path) -> io::Result<bool> {
    match files(folder, "log.")?.first() {
        Some((FIRST_ZXID, log)) => Ok(!zxids(log)?.is_empty()),
        _ => Ok(false),
    }
}

/// Transactions that the logs skip after a snapshot: the last one before, and the first one after. A quorum numbers the
/// transactions of an epoch without gaps, and `ZooKeeper` replays logs without a look at the numbers.
///
/// # Errors
/// If a file cannot be read.
pub(super) fn gap(folder: &Path, snapshot: i64) -> io::Result<Option<(i64, i64)>> {
    let logs = files(folder, "log.")?;
    // A log may hold transactions up to the begin of the next log.
    let first = logs.iter().rposition(|(begin, _)| *begin <= snapshot).unwrap_or_default();
    let mut before = snapshot;
    for (_, log) in logs.iter().skip(first) {
        for zxid in zxids(log)? {
            let begins_epoch = zxid >> EPOCH > before >> EPOCH && zxid & COUNTER <= 1;
            if zxid > before && zxid != before + 1 && !begins_epoch {
                return Ok(Some((before, zxid)));
            }
            before = before.max(zxid);
        }
    }
    Ok(None)
}

/// The complete transactions of a log, up to its end or to a partial one.
fn zxids(log: &Path) -> io::Result<Vec<i64>> {
    let file = File::open(log)?;
    let length = file.metadata()?.len();
    let mut reader = BufReader::new(file);
    let (mut at, mut zxids) = (HEAD, Vec::new());
    reader.seek_relative(i64::try_from(HEAD).unwrap_or_default())?;
    loop {
        let Some(size) = read::<12>(&mut reader)? else { return Ok(zxids) };
        // A checksum comes first. Padding has a size of 0.
        let [.., a, b, c, d] = size;
        let size = u64::from(u32::from_be_bytes([a, b, c, d]));
        at += 12 + size + 1;
        if size < TO_ZXID as u64 || at > length {
            return Ok(zxids);
        }
        let Some(header) = read::<TO_ZXID>(&mut reader)? else { return Ok(zxids) };
        reader.seek_relative(i64::try_from(size - TO_ZXID as u64).map_err(io::Error::other)?)?;
        if read::<1>(&mut reader)? != Some([END]) {
            return Ok(zxids);
        }
        zxids.extend(header.last_chunk::<8>().map(|zxid| i64::from_be_bytes(*zxid)));
    }
}

/// The next bytes. `None` at the end of the file.
fn read<const LENGTH: usize>(reader: &mut impl Read) -> io::Result<Option<[u8; LENGTH]>> {
    let mut bytes = [0; LENGTH];
    match reader.read_exact(&mut bytes) {
        Ok(()) => Ok(Some(bytes)),
        Err(error) if error.kind() == ErrorKind::UnexpectedEof => Ok(None),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::indexing_slicing)]
mod tests {
    use rstest::rstest;

    use super::*;

    fn transaction(zxid: i64) -> Vec<u8> {
        let mut content = vec![7; TO_ZXID - 8];
        content.extend(zxid.to_be_bytes());
        content.extend(b"content");
        [&[0; 8], &u32::try_from(content.len()).unwrap().to_be_bytes()[..], &content, &[END]].concat()
    }

    #[test]
    fn a_log_ends_at_padding_or_at_a_partial_transaction() {
        let folder = std::env::temp_dir().join(format!("mczk-log-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let mut seen = vec![end(&folder).unwrap()];
        let write = |name: &str, parts: &[&[u8]]| fs::write(folder.join(name), parts.concat()).unwrap();
        write("snapshot.5", &[b"any"]);
        seen.push(end(&folder).unwrap());
        write("log.6", &[&[0; 16], &transaction(6), &transaction(0x1b), &[0; 64]]);
        seen.push(end(&folder).unwrap());
        // Names are hexadecimal: a is after 6.
        write("log.1c", &[&[0; 16], &transaction(0x1c), &transaction(0x1d)[..20]]);
        seen.push(end(&folder).unwrap());
        write("log.1d", &[]);
        write("log.other", &[b"not a log"]);
        seen.push(end(&folder).unwrap());
        fs::remove_dir_all(&folder).unwrap();
        assert_eq!(seen, [None, Some(5), Some(0x1b), Some(0x1c), Some(0x1c)]);
    }

    /// A zxid from its epoch and its counter: `2.1`.
    fn zxid(text: &str) -> i64 {
        let (epoch, counter) = text.split_once('.').unwrap();
        epoch.parse::<i64>().unwrap() << EPOCH | counter.parse::<i64>().unwrap()
    }

    #[rstest]
    #[case::whole("1.0", "1.1 1.2 | 1.3", None)]
    #[case::another_epoch("1.0", "1.1 | 3.1", None)]
    #[case::an_unreadable_first_request("1.0", "1.1 | 3.0 3.1", None)]
    #[case::nothing_after_the_snapshot("1.9", "1.1 1.4", None)]
    #[case::before_the_snapshot("1.4", "1.1 1.4 | 1.5", None)]
    #[case::written_twice("1.0", "1.1 1.2 1.2 | 1.3", None)]
    #[case::in_a_log("1.0", "1.1 1.4", Some(["1.1", "1.4"]))]
    #[case::between_logs("1.0", "1.1 | 1.3", Some(["1.1", "1.3"]))]
    #[case::after_the_snapshot("1.2", "1.4", Some(["1.2", "1.4"]))]
    #[case::at_the_begin_of_an_epoch("1.0", "1.1 2.2", Some(["1.1", "2.2"]))]
    fn transactions_that_logs_skip_are_found(
        #[case] snapshot: &str,
        #[case] logs: &str,
        #[case] expected: Option<[&str; 2]>,
    ) {
        let folder = std::env::temp_dir().join(format!("mczk-gap-{}-{}", std::process::id(), logs.replace(" | ", "-")));
        fs::create_dir_all(&folder).unwrap();
        for log in logs.split(" | ") {
            let zxids: Vec<i64> = log.split(' ').map(zxid).collect();
            let transactions: Vec<u8> = zxids.iter().flat_map(|zxid| transaction(*zxid)).collect();
            fs::write(folder.join(format!("log.{:x}", zxids[0])), [&[0; 16], &transactions[..]].concat()).unwrap();
        }
        let found = gap(&folder, zxid(snapshot)).unwrap();
        fs::remove_dir_all(&folder).unwrap();
        assert_eq!(found, expected.map(|[before, after]| (zxid(before), zxid(after))));
    }

    #[test]
    fn an_incomplete_snapshot_does_not_count() {
        let folder = std::env::temp_dir().join(format!("mczk-snapshots-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join("snapshot.a"), [&b"content"[..], &SEAL].concat()).unwrap();
        fs::write(folder.join("snapshot.b"), b"content").unwrap();
        fs::write(folder.join("snapshot.c"), b"").unwrap();
        let complete = complete_snapshots(&folder);
        fs::remove_dir_all(&folder).unwrap();
        assert_eq!(complete.unwrap(), [(10, folder.join("snapshot.a"))]);
    }

    #[test]
    fn a_log_without_transactions_is_empty() {
        let folder = std::env::temp_dir().join(format!("mczk-empty-log-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let newest = folder.join("log.100000002");
        fs::write(folder.join("log.100000001"), [&[0; 16], &transaction(0x1_0000_0001)[..]].concat()).unwrap();
        let mut seen = vec![empty(&folder).unwrap()];
        for content in [vec![], [vec![7; 16], vec![0; 1 << 17]].concat(), [vec![0; 1 << 17], vec![1]].concat()] {
            fs::write(&newest, content).unwrap();
            seen.push(empty(&folder).unwrap());
        }
        let whole = is_whole_history(&folder).unwrap();
        fs::remove_file(folder.join("log.100000001")).unwrap();
        let partial = is_whole_history(&folder).unwrap();
        fs::remove_dir_all(&folder).unwrap();
        assert_eq!(seen, [None, Some(newest.clone()), Some(newest), None]);
        assert!(whole && !partial);
    }
}
