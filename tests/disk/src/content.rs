//! The content of a file, in pages. `ZooKeeper` reserves 64 MiB for a log and writes to few pages of them.

use std::collections::BTreeMap;
use std::sync::Arc;

/// Size of a page. A disk keeps or loses a page as a whole.
pub(crate) const PAGE: u64 = 4096;

/// The content of a file. Absent pages are zeros.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Content {
    size: u64,
    pages: BTreeMap<u64, Arc<Vec<u8>>>,
}

impl Content {
    /// A file with these bytes.
    #[must_use]
    pub fn of(bytes: &[u8]) -> Self {
        let mut content = Self::default();
        content.write(0, bytes);
        content
    }

    /// Size in bytes.
    #[must_use]
    pub fn size(&self) -> u64 {
        self.size
    }

    /// Bytes from `offset` on, up to the end of the file.
    #[must_use]
    pub fn read(&self, offset: u64, length: u64) -> Vec<u8> {
        let end = self.size.min(offset.saturating_add(length));
        let mut bytes = Vec::new();
        let mut at = offset;
        while at < end {
            let (page, from) = (at / PAGE, at % PAGE);
            let to = PAGE.min(from + end - at);
            match self.pages.get(&page) {
                Some(page) => bytes.extend(&page[index(from)..index(to)]),
                None => bytes.resize(bytes.len() + index(to - from), 0),
            }
            at += to - from;
        }
        bytes
    }

    /// Writes bytes within or beyond the file.
    pub(crate) fn write(&mut self, offset: u64, bytes: &[u8]) {
        for (at, part) in pages(offset, bytes) {
            let page = self.pages.entry(at / PAGE).or_insert_with(|| Arc::new(vec![0; index(PAGE)]));
            let from = index(at % PAGE);
            Arc::make_mut(page)[from..from + part.len()].copy_from_slice(part);
        }
        self.size = self.size.max(offset + bytes.len() as u64);
    }

    /// Cuts the file or extends it by zeros.
    pub(crate) fn resize(&mut self, size: u64) {
        if size < self.size {
            self.pages.retain(|page, _| page * PAGE < size);
            if let Some(last) = self.pages.get_mut(&(size / PAGE)) {
                Arc::make_mut(last)[index(size % PAGE)..].fill(0);
            }
        }
        self.size = size;
    }

    /// The pages that a program wrote, with their offsets.
    pub(crate) fn written(&self) -> impl Iterator<Item = (u64, Vec<u8>)> {
        self.pages.keys().map(|page| (page * PAGE, self.read(page * PAGE, PAGE)))
    }
}

/// The parts of a write, each within a page, with their offsets.
pub(crate) fn pages(offset: u64, bytes: &[u8]) -> Vec<(u64, &[u8])> {
    let (mut parts, mut at, mut rest) = (Vec::new(), offset, bytes);
    while !rest.is_empty() {
        let (part, after) = rest.split_at(rest.len().min(index(PAGE - at % PAGE)));
        parts.push((at, part));
        at += part.len() as u64;
        rest = after;
    }
    parts
}

fn index(offset: u64) -> usize {
    usize::try_from(offset).unwrap()
}
