//! The Rust files that the checks read.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result};
use proc_macro2::{TokenStream, TokenTree};
use quote::ToTokens;
use syn::{Attribute, Item};

/// A path of segments below the crate, such as `rollout::plan`. The root is empty.
pub(crate) type Module = Vec<String>;

/// One file.
pub(crate) struct Source {
    pub(crate) path: PathBuf,
    pub(crate) module: Module,
    pub(crate) parsed: syn::File,
    /// Every identifier of the file.
    pub(crate) names: BTreeSet<String>,
}

impl Source {
    /// A file of the crate whose sources are in `root`.
    pub(crate) fn new(root: &Path, path: PathBuf, text: &str) -> Result<Self> {
        let parsed = syn::parse_file(text).with_context(|| format!("cannot parse {}", path.display()))?;
        let mut names = BTreeSet::new();
        add_names(parsed.to_token_stream(), &mut names);
        let relative = path.strip_prefix(root).unwrap_or(&path).with_extension("");
        let mut module: Module =
            relative.components().map(|part| part.as_os_str().to_string_lossy().into_owned()).collect();
        if module.last().is_some_and(|last| last == "mod") || module == ["lib"] {
            module.pop();
        }
        Ok(Self { path, module, parsed, names })
    }

    /// True for the file of a test module.
    pub(crate) fn is_test(&self) -> bool {
        self.module.iter().any(|segment| segment == "tests")
    }
}

/// Every Rust file below a folder, without the folder `skip`.
pub(crate) fn read(root: &Path, folder: &Path, skip: &Path, found: &mut Vec<Source>) -> Result<()> {
    for entry in fs::read_dir(folder).with_context(|| format!("cannot read {}", folder.display()))? {
        let path = entry?.path();
        if path.is_dir() {
            if path != skip {
                read(root, &path, skip, found)?;
            }
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let text = fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
            found.push(Source::new(root, path, &text)?);
        }
    }
    Ok(())
}

/// Adds every identifier of `tokens`.
pub(crate) fn add_names(tokens: TokenStream, names: &mut BTreeSet<String>) {
    for token in tokens {
        match token {
            TokenTree::Group(group) => add_names(group.stream(), names),
            TokenTree::Ident(name) => {
                names.insert(name.to_string());
            }
            // A path in an attribute, as in `schema_with = "schema::free_list"`.
            TokenTree::Literal(text) => {
                let path = text.to_string();
                if let Ok(path) = syn::parse_str::<syn::Path>(path.trim_matches('"')) {
                    names.extend(path.segments.iter().skip(1).map(|segment| segment.ident.to_string()));
                }
            }
            TokenTree::Punct(_) => {}
        }
    }
}

/// The attributes of an item, as far as a check needs them.
pub(crate) fn attributes(item: &Item) -> &[Attribute] {
    match item {
        Item::Const(item) => &item.attrs,
        Item::Enum(item) => &item.attrs,
        Item::Fn(item) => &item.attrs,
        Item::Impl(item) => &item.attrs,
        Item::Mod(item) => &item.attrs,
        Item::Struct(item) => &item.attrs,
        Item::Use(item) => &item.attrs,
        _ => &[],
    }
}

/// True for `#[cfg(test)]` and `#[test]`.
pub(crate) fn is_test(attributes: &[Attribute]) -> bool {
    attributes.iter().any(|attribute| {
        attribute.path().is_ident("test")
            || attribute.path().is_ident("cfg")
                && attribute.parse_args::<syn::Path>().is_ok_and(|argument| argument.is_ident("test"))
    })
}
