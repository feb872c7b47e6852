//! What programs do to a disk, and what they see on it.

use std::collections::BTreeMap;

use crate::{content::Content, tree::Tree};

/// Number of a file or folder.
pub type Inode = u64;
/// The root folder.
pub const ROOT: Inode = 1;

/// A name in a folder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The folder.
    pub folder: Inode,
    /// The name.
    pub name: String,
    /// What the name stands for after the operation. `None` if the name is removed.
    pub inode: Option<Inode>,
}

/// A change, or a sync.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Operation {
    /// Names that change at once: one for a creation or a removal, two for a rename.
    Entries(Vec<Entry>),
    /// A write to a file.
    Write {
        /// The file.
        inode: Inode,
        /// Where the bytes begin.
        offset: u64,
        /// The bytes.
        bytes: Vec<u8>,
    },
    /// A file is cut or extended.
    Resize {
        /// The file.
        inode: Inode,
        /// Its size afterwards.
        size: u64,
    },
    /// A program waits until a file or folder is durable.
    Sync(Inode),
    /// A program informs others of something, such as an acknowledged write. It changes nothing.
    Note(u64),
}

/// Files and folders by their numbers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Nodes {
    pub(crate) folders: BTreeMap<Inode, BTreeMap<String, Inode>>,
    pub(crate) files: BTreeMap<Inode, Content>,
}

impl Nodes {
    pub(crate) fn apply(&mut self, operation: &Operation) {
        match operation {
            Operation::Entries(entries) => entries.iter().for_each(|entry| self.enter(entry)),
            Operation::Write { inode, offset, bytes } => self.file(*inode).write(*offset, bytes),
            Operation::Resize { inode, size } => self.file(*inode).resize(*size),
            Operation::Sync(_) | Operation::Note(_) => {}
        }
    }

    pub(crate) fn file(&mut self, inode: Inode) -> &mut Content {
        self.files.entry(inode).or_default()
    }

    /// Bytes of all files that have a name.
    pub(crate) fn size(&self) -> u64 {
        let named = self.folders.values().flat_map(BTreeMap::values);
        named.filter_map(|inode| self.files.get(inode)).map(Content::size).sum()
    }

    fn enter(&mut self, entry: &Entry) {
        let folder = self.folders.entry(entry.folder).or_default();
        match entry.inode {
            Some(inode) => folder.insert(entry.name.clone(), inode),
            None => folder.remove(&entry.name),
        };
    }
}

/// A disk with its content at the begin and every operation since.
#[derive(Clone, Debug)]
pub struct Recording {
    pub(crate) begin: Nodes,
    pub(crate) operations: Vec<Operation>,
    /// The folders that were created.
    pub(crate) folders: Vec<Inode>,
}

impl Recording {
    /// A recording on a disk with durable content.
    pub(crate) fn new(begin: Nodes) -> Self {
        Self { begin, operations: Vec::new(), folders: Vec::new() }
    }

    /// The operations, in order.
    #[must_use]
    pub fn operations(&self) -> &[Operation] {
        &self.operations
    }

    /// What programs saw after the first `count` operations.
    #[must_use]
    pub fn seen_after(&self, count: usize) -> Tree {
        let mut nodes = self.empty_folders();
        self.operations[..count].iter().for_each(|operation| nodes.apply(operation));
        Tree::of(&nodes)
    }

    /// The content at the begin, and all folders that are created later, without names.
    pub(crate) fn empty_folders(&self) -> Nodes {
        let mut nodes = self.begin.clone();
        nodes.folders.extend(self.folders.iter().map(|folder| (*folder, BTreeMap::new())));
        nodes
    }
}
