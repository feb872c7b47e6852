//! What a disk holds after a power loss.

use std::collections::BTreeSet;
use std::hash::{DefaultHasher, Hash, Hasher};

use crate::{
    content::{PAGE, pages},
    recording::{Inode, Nodes, Operation, Recording},
    tree::Tree,
};

/// Which names a sync makes durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// Those of the synced folder alone. POSIX promises no more.
    PerFolder,
    /// All changes of names up to the last change of the synced file, in their order: the log of xfs. ext4 keeps more.
    Journal,
}

/// What survives of the operations that no sync made durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Survivors {
    /// Nothing.
    None,
    /// Every name. New files are empty.
    Names,
    /// Every name and every size. Bytes are zeros.
    Sizes,
    /// A part that the number determines. In a journal, the first names survive.
    Random(u64),
    /// Everything: only the processes died.
    All,
}

impl Recording {
    /// The disk after a power loss that follows the first `count` operations.
    #[must_use]
    pub fn after_power_loss(&self, count: usize, order: Order, survivors: Survivors) -> Tree {
        let operations = &self.operations[..count];
        let durable = durable(operations, order);
        let loss = Loss { survivors, first_lost: first_lost(count, order, survivors), count };
        let mut nodes = self.empty_folders();
        for (index, operation) in operations.iter().enumerate() {
            if durable.contains(&index) {
                nodes.apply(operation);
            } else {
                loss.apply(&mut nodes, index, operation);
            }
        }
        Tree::of(&nodes)
    }
}

/// The operations that a sync made durable.
fn durable(operations: &[Operation], order: Order) -> BTreeSet<usize> {
    let mut durable = BTreeSet::new();
    for (at, sync) in operations.iter().enumerate() {
        let Operation::Sync(inode) = sync else { continue };
        let before = || operations[..at].iter().enumerate();
        let own = before().filter(|(_, operation)| is_synced(operation, *inode)).map(|(index, _)| index);
        durable.extend(own);
        if order == Order::Journal
            && let Some((last, _)) = before().rfind(|(_, operation)| concerns(operation, *inode))
        {
            let names = before().take(last + 1).filter(|(_, operation)| matches!(operation, Operation::Entries(_)));
            durable.extend(names.map(|(index, _)| index));
        }
    }
    durable
}

/// True if a sync of `inode` itself makes the operation durable: the bytes of a file, the names in a folder.
fn is_synced(operation: &Operation, inode: Inode) -> bool {
    match operation {
        Operation::Entries(entries) => entries.iter().any(|entry| entry.folder == inode),
        Operation::Write { inode: of, .. } | Operation::Resize { inode: of, .. } => *of == inode,
        Operation::Sync(_) | Operation::Note(_) => false,
    }
}

/// True if an operation changes `inode`: what is in it, or its name.
fn concerns(operation: &Operation, inode: Inode) -> bool {
    let named = |entries: &[_]| entries.iter().any(|entry: &crate::Entry| entry.inode == Some(inode));
    is_synced(operation, inode) || matches!(operation, Operation::Entries(entries) if named(entries))
}

/// In a journal: the first operation whose names are lost.
fn first_lost(count: usize, order: Order, survivors: Survivors) -> Option<usize> {
    match (order, survivors) {
        (Order::Journal, Survivors::Random(seed)) => Some(cut(&(seed, "names"), count)),
        _ => None,
    }
}

/// The number of the first of `count` operations that is lost, if those before it survive.
fn cut(of: &impl Hash, count: usize) -> usize {
    usize::try_from(random(of) % (count as u64 + 1)).unwrap_or(count)
}

struct Loss {
    survivors: Survivors,
    first_lost: Option<usize>,
    count: usize,
}

impl Loss {
    /// Applies what survives of an operation.
    fn apply(&self, nodes: &mut Nodes, index: usize, operation: &Operation) {
        let is_name = matches!(operation, Operation::Entries(_));
        match self.survivors {
            Survivors::All => nodes.apply(operation),
            Survivors::Names | Survivors::Sizes if is_name => nodes.apply(operation),
            Survivors::None | Survivors::Names => {}
            Survivors::Sizes => match operation {
                Operation::Write { inode, offset, bytes } => {
                    let file = nodes.file(*inode);
                    file.resize(file.size().max(offset + bytes.len() as u64));
                }
                _ => nodes.apply(operation),
            },
            Survivors::Random(seed) => self.apply_part(nodes, seed, index, operation),
        }
    }

    fn apply_part(&self, nodes: &mut Nodes, seed: u64, index: usize, operation: &Operation) {
        match operation {
            Operation::Entries(_) if self.first_lost.is_some_and(|lost| index >= lost) => {}
            Operation::Entries(_) if self.first_lost.is_some() => nodes.apply(operation),
            Operation::Write { inode, offset, bytes } => {
                // A page that is on the disk has all that was written to it before.
                for (at, part) in pages(*offset, bytes) {
                    if index < cut(&(seed, inode, at / PAGE), self.count) {
                        nodes.file(*inode).write(at, part);
                    }
                }
            }
            _ if random(&(seed, index)).is_multiple_of(2) => nodes.apply(operation),
            _ => {}
        }
    }
}

/// A number that looks random, and is the same for the same input.
fn random(of: &impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    of.hash(&mut hasher);
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Entry, recording::ROOT};

    fn name(folder: Inode, name: &str, inode: Option<Inode>) -> Entry {
        Entry { folder, name: name.to_owned(), inode }
    }

    fn write(inode: Inode) -> Operation {
        Operation::Write { inode, offset: 0, bytes: b"text".to_vec() }
    }

    /// A file that is written and renamed, in a new folder.
    fn recorded(syncs: &[(usize, Inode)]) -> Recording {
        let mut operations = vec![
            Operation::Entries(vec![name(ROOT, "folder", Some(2))]),
            Operation::Entries(vec![name(2, ".new", Some(3))]),
            write(3),
            Operation::Entries(vec![name(2, ".new", None), name(2, "file", Some(3))]),
        ];
        for (at, inode) in syncs.iter().rev() {
            operations.insert(*at, Operation::Sync(*inode));
        }
        Recording { folders: vec![2], operations, ..Recording::new(Tree::default().nodes()) }
    }

    fn left(recording: &Recording, order: Order, survivors: Survivors) -> Vec<String> {
        let tree = recording.after_power_loss(recording.operations.len(), order, survivors);
        let shown = |(path, _): (&String, _)| match tree.text(path) {
            Some(text) => format!("{path}={}", text.replace('\0', "0")),
            None => path.clone(),
        };
        tree.0.iter().map(shown).collect()
    }

    #[test]
    fn only_what_was_synced_survives() {
        let nothing: [&str; 0] = [];
        assert_eq!(left(&recorded(&[]), Order::Journal, Survivors::None), nothing);
        assert_eq!(left(&recorded(&[]), Order::Journal, Survivors::Names), ["folder", "folder/file="]);
        assert_eq!(left(&recorded(&[]), Order::Journal, Survivors::Sizes), ["folder", "folder/file=0000"]);
        assert_eq!(left(&recorded(&[]), Order::Journal, Survivors::All), ["folder", "folder/file=text"]);
        // The file is synced before its rename, and no folder is.
        assert_eq!(left(&recorded(&[(3, 3)]), Order::Journal, Survivors::None), ["folder", "folder/.new=text"]);
        assert_eq!(left(&recorded(&[(3, 3)]), Order::PerFolder, Survivors::None), nothing);
        // No program syncs the folder that names the new folder.
        assert_eq!(left(&recorded(&[(3, 3), (4, 2)]), Order::PerFolder, Survivors::None), nothing);
        let synced = recorded(&[(3, 3), (4, 2), (4, ROOT)]);
        for survivors in
            [Survivors::None, Survivors::Names, Survivors::Sizes, Survivors::Random(1), Survivors::Random(2)]
        {
            assert_eq!(left(&synced, Order::PerFolder, survivors), ["folder", "folder/file=text"]);
        }
    }

    #[test]
    fn a_number_determines_the_part_that_survives() {
        let recording = recorded(&[]);
        let parts: BTreeSet<Vec<String>> =
            (0..100).map(|seed| left(&recording, Order::PerFolder, Survivors::Random(seed))).collect();
        assert!(parts.len() > 4, "{parts:?}");
        // A rename happens or does not: it leaves no two names.
        assert!(parts.iter().all(|part| part.len() <= 2), "{parts:?}");
    }
}
