//! Finds items that are more visible than their users need.
//!
//! An item may be `pub` if a file outside its crate names it, and `pub(crate)`, `pub(super)` or `pub(in ...)` if another
//! file of the crate does. The compiler demands more of a type: it is as visible as each signature and field that names it.
//! The check compares names alone, so it misses an item that shares its name with another.

use std::collections::BTreeSet;

use proc_macro2::Ident;
use quote::ToTokens;
use syn::{Fields, ImplItem, Item, UseTree, Visibility};

use crate::{
    Crate,
    source::{Source, add_names, attributes, is_test},
};

/// Fields of the types in this crate are `pub`, except in this module: they are the API.
const API: (&str, &str) = ("api", "contract");

/// Items that need their visibility for a reason that names do not show.
const EXEMPT: &[&str] = &[
    // Tests write `..Options::default()`.
    "Options::instance",
    // `event_reasons!` writes a method that returns it.
    "Severity",
    // `broken!` calls it.
    "Mutation::is_active",
];

/// An item that other files may name.
struct Visible<'a> {
    source: &'a Source,
    line: usize,
    name: String,
    /// The type of a field or method.
    owner: String,
    /// True for `pub` alone.
    everywhere: bool,
    /// The names in its signature, or in its type.
    interface: BTreeSet<String>,
}

impl Visible<'_> {
    fn full_name(&self) -> String {
        let Self { owner, name, .. } = self;
        if owner.is_empty() { name.clone() } else { format!("{owner}::{name}") }
    }
}

/// The visible items of one file, and the names in associated types.
struct Items<'a> {
    source: &'a Source,
    /// True in the crate of the API.
    is_api: bool,
    found: Vec<Visible<'a>>,
    associated: BTreeSet<String>,
}

impl Items<'_> {
    fn add(&mut self, visibility: &Visibility, owner: &str, name: &Ident, interface: impl ToTokens) {
        let mut names = BTreeSet::new();
        add_names(interface.into_token_stream(), &mut names);
        names.remove(&name.to_string());
        if !matches!(visibility, Visibility::Inherited) {
            self.found.push(Visible {
                source: self.source,
                line: name.span().start().line,
                name: name.to_string(),
                owner: owner.to_owned(),
                everywhere: matches!(visibility, Visibility::Public(_)),
                interface: names,
            });
        }
    }

    /// The associated types of a trait's implementation are as visible as the trait and its type.
    fn associated(&mut self, items: &[ImplItem]) {
        for item in items {
            if let ImplItem::Type(item) = item {
                add_names(item.ty.to_token_stream(), &mut self.associated);
            }
        }
    }

    fn items(&mut self, items: &[Item]) {
        for item in items.iter().filter(|item| !is_test(attributes(item))) {
            match item {
                Item::Const(item) => self.add(&item.vis, "", &item.ident, &item.ty),
                Item::Enum(item) => self.add(&item.vis, "", &item.ident, &item.variants),
                Item::Fn(item) => self.add(&item.vis, "", &item.sig.ident, &item.sig),
                Item::Impl(item) if item.trait_.is_none() => {
                    self.methods(&item.self_ty.to_token_stream().to_string(), &item.items);
                }
                Item::Impl(item) => self.associated(&item.items),
                Item::Mod(item) => self.add(&item.vis, "", &item.ident, None::<Ident>),
                Item::Static(item) => self.add(&item.vis, "", &item.ident, &item.ty),
                Item::Struct(item) if self.in_api() => self.add(&item.vis, "", &item.ident, item),
                Item::Struct(item) => {
                    self.add(&item.vis, "", &item.ident, &item.generics);
                    self.fields(&item.ident, &item.fields);
                }
                Item::Trait(item) => self.add(&item.vis, "", &item.ident, item),
                Item::Type(item) => self.add(&item.vis, "", &item.ident, &item.ty),
                Item::Use(item) => self.uses(&item.vis, &item.tree),
                _ => {}
            }
        }
    }

    fn methods(&mut self, owner: &str, items: &[ImplItem]) {
        for item in items {
            match item {
                ImplItem::Const(item) => self.add(&item.vis, owner, &item.ident, &item.ty),
                ImplItem::Fn(item) if !is_test(&item.attrs) => {
                    self.add(&item.vis, owner, &item.sig.ident, &item.sig);
                }
                _ => {}
            }
        }
    }

    fn in_api(&self) -> bool {
        self.is_api && self.source.module.first().is_none_or(|folder| folder != API.1)
    }

    fn fields(&mut self, owner: &Ident, fields: &Fields) {
        for field in fields {
            // A field of a tuple has no name: its type stands for it.
            let name = field.ident.as_ref().unwrap_or(owner);
            self.add(&field.vis, &owner.to_string(), name, &field.ty);
        }
    }

    fn uses(&mut self, visibility: &Visibility, tree: &UseTree) {
        match tree {
            UseTree::Path(path) => self.uses(visibility, &path.tree),
            UseTree::Name(name) => self.add(visibility, "", &name.ident, None::<Ident>),
            UseTree::Rename(name) => self.add(visibility, "", &name.rename, None::<Ident>),
            UseTree::Group(group) => group.items.iter().for_each(|tree| self.uses(visibility, tree)),
            UseTree::Glob(_) => {}
        }
    }
}

/// A line for each item that no file needs to see; `outside` are the files of tests.
pub(crate) fn findings(crates: &[Crate], outside: &[Source]) -> Vec<String> {
    let mut findings = Vec::new();
    for one in crates {
        let others = crates.iter().filter(|other| other.name != one.name).flat_map(|other| &other.sources);
        findings.extend(of_crate(one, &others.chain(outside).collect::<Vec<_>>()));
    }
    findings
}

/// The lines for one crate; `outside` are all other files.
fn of_crate(one: &Crate, outside: &[&Source]) -> Vec<String> {
    let (programs, library): (Vec<&Source>, Vec<&Source>) =
        one.sources.iter().partition(|source| source.module == ["main"]);
    let (mut found, mut associated) = (Vec::new(), BTreeSet::new());
    for source in library.iter().filter(|source| !source.is_test()) {
        let mut items = Items { source, is_api: one.name == API.0, found: Vec::new(), associated: BTreeSet::new() };
        items.items(&source.parsed.items);
        found.extend(items.found);
        associated.extend(items.associated);
    }
    let needed = |item: &Visible| {
        // kube derives the kind `X` from `XSpec`.
        let kind = item.name.strip_suffix("Spec").filter(|_| item.source.names.contains("CustomResource"));
        let by_name = |source: &&Source| {
            source.names.contains(&item.name) || kind.is_some_and(|kind| source.names.contains(kind))
        };
        let named = if item.everywhere {
            outside.iter().chain(&programs).any(by_name)
        } else {
            library.iter().filter(|source| source.module != item.source.module).any(by_name)
        };
        let in_interface = |other: &Visible| {
            (other.everywhere || !item.everywhere) && other.owner != item.name && other.interface.contains(&item.name)
        };
        named || item.owner.is_empty() && (associated.contains(&item.name) || found.iter().any(in_interface))
    };
    let exempt = |item: &Visible| EXEMPT.contains(&item.full_name().as_str());
    found.iter().filter(|item| !needed(item) && !exempt(item)).map(describe).collect()
}

fn describe(item: &Visible) -> String {
    let (path, line, full) = (item.source.path.display(), item.line, item.full_name());
    if item.everywhere {
        format!("{path}:{line}: `{full}` is `pub`, but no file outside its crate names it: make it `pub(crate)`")
    } else {
        format!("{path}:{line}: no other file of the crate names `{full}`: make it private")
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::path::Path;

    use super::*;

    /// The names of the items that are too visible in `a.rs`, if `b.rs` is in the library too, and `c.rs` outside.
    fn findings(a: &str, b: &str, c: &str) -> Vec<String> {
        let [a, b, c] = [("a.rs", a), ("b.rs", b), ("c.rs", c)]
            .map(|(path, text)| Source::new(Path::new(""), path.into(), text).unwrap());
        let found = super::findings(&[Crate { name: "x".to_owned(), sources: vec![a, b] }], &[c]);
        found.iter().map(|line| line.split('`').nth(1).unwrap().to_owned()).collect()
    }

    #[test]
    fn an_item_without_a_user_outside_must_not_be_pub() {
        let items = "pub fn used() {} pub fn unused() {} pub struct S { pub x: u8 } impl S { pub fn m() {} }";
        assert_eq!(findings(items, "use crate::a::unused;", "fn c() { other::a::used(S::m()) }"), ["unused", "S::x"]);
    }

    #[test]
    fn an_item_without_a_user_in_another_file_must_be_private() {
        let items = "pub(crate) fn used() {} pub(super) fn unused() { unused() } pub(crate) mod m;";
        assert_eq!(findings(items, "fn b() { used() }", "fn c() { unused() }"), ["unused", "m"]);
    }

    #[test]
    fn a_type_may_be_as_visible_as_what_names_it() {
        let items = "pub enum E {} pub struct S(u8); pub fn f(_: E, _: &[S]) {} #[cfg(test)] pub fn t() {}";
        assert!(findings(items, "", "fn c() { f() }").is_empty());
        assert_eq!(findings("pub struct S; impl S { pub fn new() -> S { S } }", "", "fn c() { new() }"), ["S"]);
    }
}
