//! Checks that the files of one crate import each other without a circle.
//!
//! Each finding names the file, the line and the import. Modules under `#[cfg(test)]` may import anything.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
};

use syn::{
    Item, ItemMod, ItemUse, UseTree,
    spanned::Spanned,
    visit::{self, Visit},
};

use crate::source::{Module, Source, attributes, is_test};

/// One import: the line, and the path as it resolves below the crate.
type Import = (usize, Module);

/// The imports of one file, as they resolve below the crate.
struct Imports {
    module: Module,
    found: Vec<Import>,
}

impl Imports {
    fn add(&mut self, line: usize, path: &[String]) {
        let mut base = self.module.clone();
        let mut rest = path;
        match path.first().map(String::as_str) {
            Some("crate") => {
                base.clear();
                rest = path.get(1..).unwrap_or_default();
            }
            Some("self") => rest = path.get(1..).unwrap_or_default(),
            Some("super") => {
                while rest.first().is_some_and(|segment| segment == "super") {
                    base.pop();
                    rest = rest.get(1..).unwrap_or_default();
                }
            }
            // A child module by its bare name; everything else is another crate's or local, and resolves to nothing.
            _ => {}
        }
        base.extend(rest.iter().cloned());
        self.found.push((line, base));
    }

    fn tree(&mut self, line: usize, prefix: &mut Vec<String>, tree: &UseTree) {
        match tree {
            UseTree::Path(path) => {
                prefix.push(path.ident.to_string());
                self.tree(line, prefix, &path.tree);
                prefix.pop();
            }
            UseTree::Name(name) => self.leaf(line, prefix, &name.ident.to_string()),
            UseTree::Rename(name) => self.leaf(line, prefix, &name.ident.to_string()),
            UseTree::Glob(_) => self.add(line, prefix),
            UseTree::Group(group) => group.items.iter().for_each(|item| self.tree(line, prefix, item)),
        }
    }

    fn leaf(&mut self, line: usize, prefix: &[String], name: &str) {
        let mut path = prefix.to_vec();
        if name != "self" {
            path.push(name.to_owned());
        }
        self.add(line, &path);
    }
}

impl<'ast> Visit<'ast> for Imports {
    fn visit_item(&mut self, item: &'ast Item) {
        if !is_test(attributes(item)) {
            visit::visit_item(self, item);
        }
    }

    fn visit_item_mod(&mut self, module: &'ast ItemMod) {
        // An inline module sees its parent as `super`.
        self.module.push(module.ident.to_string());
        visit::visit_item_mod(self, module);
        self.module.pop();
    }

    fn visit_item_use(&mut self, item: &'ast ItemUse) {
        self.tree(item.span().start().line, &mut Vec::new(), &item.tree);
    }

    // `pub(in crate::agent)` names a module and imports nothing.
    fn visit_visibility(&mut self, _: &'ast syn::Visibility) {}

    fn visit_path(&mut self, path: &'ast syn::Path) {
        let segments: Vec<String> = path.segments.iter().map(|segment| segment.ident.to_string()).collect();
        if segments.len() > 1 {
            self.add(path.span().start().line, &segments);
        }
        visit::visit_path(self, path);
    }
}

/// The longest module that a path names.
fn target<'a>(path: &[String], modules: &'a Modules) -> Option<&'a Module> {
    (0..=path.len()).rev().find_map(|length| modules.get_key_value(path.get(..length)?)).map(|(module, _)| module)
}

/// A line for each import of a circle between the files of one crate.
pub(crate) fn findings(sources: &[Source]) -> Vec<String> {
    let sources: Vec<&Source> =
        sources.iter().filter(|source| source.module != ["main"] && !source.is_test()).collect();
    let modules: Modules = sources.iter().map(|source| (source.module.clone(), source.path.as_path())).collect();
    let mut graph = Graph::new();
    for Source { module, parsed, .. } in sources {
        let mut imports = Imports { module: module.clone(), found: Vec::new() };
        imports.visit_file(parsed);
        let edges = graph.entry(module.clone()).or_default();
        for (line, path) in imports.found {
            if let Some(to) = target(&path, &modules).filter(|to| *to != module) {
                edges.entry(to.clone()).or_insert(line);
            }
        }
    }
    circles(&graph, &modules)
}

/// The file of each module.
type Modules<'a> = BTreeMap<Module, &'a Path>;

type Graph = BTreeMap<Module, BTreeMap<Module, usize>>;

/// Circles between files: each set of files that import each other, with the imports that tie them.
fn circles(graph: &Graph, modules: &Modules) -> Vec<String> {
    let reach: BTreeMap<&Module, BTreeSet<&Module>> = graph.keys().map(|from| (from, reachable(graph, from))).collect();
    let reaches = |from: &Module, to: &Module| reach.get(from).is_some_and(|all| all.contains(to));
    let mut findings = Vec::new();
    for (from, edges) in graph {
        for (to, line) in edges.iter().filter(|(to, _)| reaches(to, from)) {
            let to = if to.is_empty() { "the root".to_owned() } else { to.join("::") };
            findings.push(format!("{}: in a circle of imports: {to}", place(from, *line, modules)));
        }
    }
    findings
}

fn reachable<'a>(graph: &'a Graph, from: &Module) -> BTreeSet<&'a Module> {
    let mut seen = BTreeSet::new();
    let mut open: Vec<&Module> = graph.get(from).into_iter().flat_map(BTreeMap::keys).collect();
    while let Some(module) = open.pop() {
        if seen.insert(module) {
            open.extend(graph.get(module).into_iter().flat_map(BTreeMap::keys));
        }
    }
    seen
}

fn place(module: &Module, line: usize, modules: &Modules) -> String {
    let file = modules.get(module).map(|file| file.display().to_string()).unwrap_or_default();
    format!("{file}:{line}")
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    /// The findings in a tree of these files.
    fn findings(tree: &[(&str, &str)]) -> Vec<String> {
        let root = Path::new("");
        let sources: Vec<Source> =
            tree.iter().map(|(path, text)| Source::new(root, path.into(), text).unwrap()).collect();
        super::findings(&sources)
    }

    #[test]
    fn a_circle_between_files_is_found_also_by_a_path_in_code() {
        let tree = [("api/a.rs", "use super::b::B; pub struct A;"), ("api/b.rs", "\nfn b() { crate::api::a::new() }")];
        let expected = ["api/a.rs:1: in a circle of imports: api::b", "api/b.rs:2: in a circle of imports: api::a"];
        assert_eq!(findings(&tree), expected);
    }

    #[test]
    fn a_circle_with_the_root_is_found() {
        let tree = [("lib.rs", "mod a; pub use a::A; pub fn f() {}"), ("a.rs", "pub struct A; fn a() { crate::f() }")];
        assert_eq!(
            findings(&tree),
            ["lib.rs:1: in a circle of imports: a", "a.rs:1: in a circle of imports: the root"]
        );
    }

    #[test]
    fn other_imports_and_imports_of_tests_are_fine() {
        let tree = [
            ("api/a.rs", "#[cfg(test)]\nmod tests { use crate::cli::Cli; }"),
            ("cli/mod.rs", "use crate::api::a; use mczk_api::cli; use std::fs;"),
        ];
        assert!(findings(&tree).is_empty());
    }
}
