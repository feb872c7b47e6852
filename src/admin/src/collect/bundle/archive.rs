//! The archive: files up to a total size, and an index that names what is missing.

use std::fmt::Write as _;
use std::io::{self, Write};

use flate2::{Compression, write::GzEncoder};
use tar::{Builder, Header};

/// Room for the index.
const INDEX_RESERVE: usize = 1 << 20;

/// A tar archive, compressed with gzip.
pub(super) struct Archive<W: Write> {
    tar: Builder<GzEncoder<W>>,
    folder: String,
    seconds: u64,
    left: usize,
    index: Index,
}

/// What the archive holds, and what is missing.
#[derive(Debug, Default)]
struct Index {
    files: Vec<(String, usize)>,
    missing: Vec<(String, String)>,
    not_asked: Vec<(String, String)>,
}

impl<W: Write> Archive<W> {
    /// An archive with one folder for everything. `limit` is the total size of the files before compression, in bytes.
    pub(super) fn new(out: W, folder: &str, seconds: u64, limit: usize) -> Self {
        let tar = Builder::new(GzEncoder::new(out, Compression::default()));
        Self {
            tar,
            folder: folder.to_owned(),
            seconds,
            left: limit.saturating_sub(INDEX_RESERVE),
            index: Index::default(),
        }
    }

    /// Adds a file, unless the total size would be too large. Member clusters choose parts of its path: one that leads out
    /// of the archive's folder counts as missing.
    ///
    /// # Errors
    /// If the archive cannot be written.
    pub(super) fn add(&mut self, path: &str, content: &str) -> io::Result<()> {
        let size = content.len();
        if !is_safe(path) {
            self.missing(&path.escape_debug().to_string(), "its name is no path in this archive");
            return Ok(());
        }
        if size > self.left {
            self.missing(path, &format!("its {size} bytes exceed the total size: raise --max-mebibytes"));
            return Ok(());
        }
        self.left -= size;
        self.append(path, content)?;
        self.index.files.push((path.to_owned(), size));
        Ok(())
    }

    /// Notes that something is not in the archive.
    pub(super) fn missing(&mut self, what: &str, why: &str) {
        self.index.missing.push((what.to_owned(), why.to_owned()));
    }

    /// Notes that something is not in the archive because the user has not asked for it.
    pub(super) fn not_asked(&mut self, what: &str, how: &str) {
        self.index.not_asked.push((what.to_owned(), how.to_owned()));
    }

    /// Number of things that are missing, without those that the user has not asked for.
    pub(super) fn count_missing(&self) -> usize {
        self.index.missing.len()
    }

    /// Writes the index and ends the archive.
    ///
    /// # Errors
    /// If the archive cannot be written.
    pub(super) fn finish(mut self, head: &str) -> io::Result<W> {
        let index = self.index.text(head);
        self.append("INDEX.txt", &index)?;
        self.tar.into_inner()?.finish()
    }

    fn append(&mut self, path: &str, content: &str) -> io::Result<()> {
        let mut header = Header::new_gnu();
        header.set_size(u64::try_from(content.len()).unwrap_or(u64::MAX));
        header.set_mode(0o600);
        header.set_mtime(self.seconds);
        self.tar.append_data(&mut header, format!("{}/{path}", self.folder), content.as_bytes())
    }
}

impl Index {
    fn text(&self, head: &str) -> String {
        let mut text = format!("{head}\n\nMissing:\n");
        if self.missing.is_empty() {
            text.push_str("  nothing\n");
        }
        // Writing to a String cannot fail.
        for (what, why) in &self.missing {
            let _ = writeln!(text, "  {what}: {why}");
        }
        if !self.not_asked.is_empty() {
            text.push_str("\nNot asked for:\n");
        }
        for (what, how) in &self.not_asked {
            let _ = writeln!(text, "  {what}: {how}");
        }
        text.push_str("\nFiles, with their sizes in bytes:\n");
        for (path, size) in &self.files {
            let _ = writeln!(text, "  {size:>9}  {path}");
        }
        text
    }
}

/// True if a path stays within its folder.
fn is_safe(path: &str) -> bool {
    !path.contains(|c: char| c.is_control() || c == '\\')
        && path.split('/').all(|part| !matches!(part, "" | "." | ".."))
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]
mod tests {
    use std::io::Read;

    use flate2::read::GzDecoder;
    use rstest::rstest;

    use super::*;

    fn files(bytes: &[u8]) -> Vec<(String, String)> {
        let mut archive = tar::Archive::new(GzDecoder::new(bytes));
        let mut files = Vec::new();
        for entry in archive.entries().unwrap() {
            let mut entry = entry.unwrap();
            assert_eq!(entry.header().mode().unwrap(), 0o600);
            let mut text = String::new();
            entry.read_to_string(&mut text).unwrap();
            files.push((entry.path().unwrap().to_string_lossy().into_owned(), text));
        }
        files
    }

    #[test]
    fn the_index_names_files_and_what_is_missing() {
        let mut archive = Archive::new(Vec::new(), "bundle", 1, INDEX_RESERVE + 5);
        archive.add("a/b.txt", "four").unwrap();
        archive.add("large.txt", "sixsix").unwrap();
        archive.missing("cluster m2", "no answer");
        archive.not_asked("host", "name it");
        assert_eq!(archive.count_missing(), 2);
        let files = files(&archive.finish("Head").unwrap());
        assert_eq!(files[0], ("bundle/a/b.txt".to_owned(), "four".to_owned()));
        assert_eq!(files.len(), 2);
        insta::assert_snapshot!(files[1].1, @r"
        Head

        Missing:
          large.txt: its 6 bytes exceed the total size: raise --max-mebibytes
          cluster m2: no answer

        Not asked for:
          host: name it

        Files, with their sizes in bytes:
                  4  a/b.txt
        ");
    }

    #[rstest]
    #[case::parent("m1/logs/../../../etc/x.log")]
    #[case::absolute("/etc/x.log")]
    #[case::nothing("m1/logs//x.log")]
    #[case::a_line_of_the_index("m1/logs/x\n  y/z.log")]
    fn a_path_that_leads_out_counts_as_missing(#[case] path: &str) {
        let mut archive = Archive::new(Vec::new(), "bundle", 1, INDEX_RESERVE + 5);
        archive.add(path, "x").unwrap();
        assert_eq!(archive.count_missing(), 1);
        let files = files(&archive.finish("").unwrap());
        assert_eq!(files.len(), 1, "{files:?}");
        assert!(files[0].1.contains("its name is no path in this archive"), "{}", files[0].1);
    }

    #[test]
    fn a_long_path_stays_whole() {
        let path = format!("clusters/{}/logs/{}.log", "m".repeat(48), "p".repeat(200));
        let mut archive = Archive::new(Vec::new(), "bundle", 1, INDEX_RESERVE + 5);
        archive.add(&path, "x").unwrap();
        assert_eq!(files(&archive.finish("").unwrap())[0].0, format!("bundle/{path}"));
    }
}
