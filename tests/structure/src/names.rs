//! Finds type names that stand in more than one module: a reader, or a search, would take one for another.

use std::collections::BTreeMap;

use syn::Item;

use crate::source::{Source, attributes, is_test};

/// Each module has its own, and users write `module::Error`.
const IN_EVERY_MODULE: &[&str] = &["Error", "Metrics"];

/// Names that still stand in several modules. Rename them, and add none.
const NOT_YET_RENAMED: &[&str] =
    &["ClusterStatus", "Decision", "Object", "Plan", "Probe", "Request", "Server", "ServerName", "Source", "Start"];

/// One line for each name that stands twice, and for each exception that is not needed any more.
pub(crate) fn findings<'a>(sources: impl IntoIterator<Item = &'a Source>) -> Vec<String> {
    let mut places: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for source in sources.into_iter().filter(|source| !source.is_test()) {
        add(source, &source.parsed.items, &mut places);
    }
    places.retain(|name, places| places.len() > 1 && !IN_EVERY_MODULE.contains(&name.as_str()));
    let ended = NOT_YET_RENAMED.iter().filter(|name| !places.contains_key(**name));
    let mut findings: Vec<String> =
        ended.map(|name| format!("{name} stands once: remove it from NOT_YET_RENAMED in {}", file!())).collect();
    places.retain(|name, _| !NOT_YET_RENAMED.contains(&name.as_str()));
    findings.extend(places.iter().map(|(name, places)| {
        format!("{name} is the name of {} types, rename all but one: {}", places.len(), places.join(", "))
    }));
    findings
}

fn add(source: &Source, items: &[Item], places: &mut BTreeMap<String, Vec<String>>) {
    for item in items {
        let name = match item {
            Item::Enum(item) => &item.ident,
            Item::Struct(item) => &item.ident,
            Item::Trait(item) => &item.ident,
            Item::Type(item) => &item.ident,
            Item::Mod(module) if !is_test(attributes(item)) => {
                add(source, module.content.as_ref().map_or(&[], |(_, items)| items), places);
                continue;
            }
            _ => continue,
        };
        let place = format!("{}:{}", source.path.display(), name.span().start().line);
        places.entry(name.to_string()).or_default().push(place);
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    fn findings_of(texts: &[&str]) -> Vec<String> {
        let sources = texts.iter().zip(["a", "b"]).map(|(text, file)| {
            Source::new(Path::new("src"), Path::new("src").join(file).with_extension("rs"), text).unwrap()
        });
        findings(&sources.collect::<Vec<_>>())
    }

    #[test]
    fn a_name_stands_once() {
        let twice = |finding: &&String| finding.starts_with("Place is the name of 2 types");
        assert_eq!(findings_of(&["struct Place;", "enum Place {}"]).iter().filter(twice).count(), 1);
        assert_eq!(
            findings_of(&["struct Place;", "#[cfg(test)] mod tests { struct Place; }"]).iter().find(twice),
            None
        );
        assert!(!findings_of(&["enum Error {}", "enum Error {}"]).iter().any(|finding| finding.starts_with("Error")));
    }
}
