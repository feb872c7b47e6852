//! The content of a disk by paths.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::Path;

use crate::{
    content::Content,
    recording::{Inode, Nodes, ROOT},
};

/// Files and folders by their paths. A folder has no content.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Tree(pub BTreeMap<String, Option<Content>>);

impl Tree {
    /// Everything that has a name.
    pub(crate) fn of(nodes: &Nodes) -> Self {
        let mut tree = Self::default();
        tree.add(nodes, ROOT, "");
        tree
    }

    fn add(&mut self, nodes: &Nodes, folder: Inode, path: &str) {
        for (name, inode) in nodes.folders.get(&folder).into_iter().flatten() {
            let path = if path.is_empty() { name.clone() } else { format!("{path}/{name}") };
            let is_folder = nodes.folders.contains_key(inode);
            self.0.insert(path.clone(), (!is_folder).then(|| nodes.files.get(inode).cloned().unwrap_or_default()));
            if is_folder {
                self.add(nodes, *inode, &path);
            }
        }
    }

    /// The files and folders with new numbers.
    pub(crate) fn nodes(&self) -> Nodes {
        let mut nodes = Nodes { folders: BTreeMap::from([(ROOT, BTreeMap::new())]), files: BTreeMap::new() };
        let mut numbers = BTreeMap::from([(String::new(), ROOT)]);
        // A folder comes before what is in it.
        for (inode, (path, content)) in (ROOT + 1..).zip(&self.0) {
            let (folder, name) = path.rsplit_once('/').unwrap_or(("", path));
            nodes.folders.get_mut(&numbers[folder]).unwrap().insert(name.to_owned(), inode);
            match content {
                Some(content) => drop(nodes.files.insert(inode, content.clone())),
                None => drop(nodes.folders.insert(inode, BTreeMap::new())),
            }
            numbers.insert(path.clone(), inode);
        }
        nodes
    }

    /// The beginning of a file, as text. `None` without the file.
    #[must_use]
    pub fn text(&self, path: &str) -> Option<String> {
        let content = self.0.get(path)?.as_ref()?;
        Some(String::from_utf8_lossy(&content.read(0, 1 << 16)).into_owned())
    }

    /// The part below a folder, with paths relative to it.
    #[must_use]
    pub fn below(&self, folder: &str) -> Self {
        let inner = |path: &String| path.strip_prefix(folder)?.strip_prefix('/').map(str::to_owned);
        Self(self.0.iter().filter_map(|(path, content)| Some((inner(path)?, content.clone()))).collect())
    }

    /// Writes everything to an existing folder of this machine.
    ///
    /// # Panics
    /// If the folder cannot be written.
    pub fn write_to(&self, folder: &Path) {
        for (path, content) in &self.0 {
            let path = folder.join(path);
            let Some(content) = content else {
                fs::create_dir(&path).unwrap();
                continue;
            };
            let file = File::create(&path).unwrap();
            file.set_len(content.size()).unwrap();
            for (offset, bytes) in content.written() {
                file.write_all_at(&bytes, offset).unwrap();
            }
        }
    }
}
