//! Finds functions that ask for many broken variants of their rule: a reader should see the rule first.

use proc_macro2::{TokenStream, TokenTree};
use quote::ToTokens;
use syn::{
    ImplItemFn, ItemFn, ItemMod, Signature,
    visit::{self, Visit},
};

use crate::source::{Source, is_test};

/// How often a function may ask `broken!`.
const AT_MOST: usize = 2;

/// One line for each function that asks more often.
pub(crate) fn findings<'a>(sources: impl IntoIterator<Item = &'a Source>) -> Vec<String> {
    let mut all = Vec::new();
    for source in sources.into_iter().filter(|source| !source.is_test()) {
        Functions { source, findings: &mut all }.visit_file(&source.parsed);
    }
    all
}

struct Functions<'a> {
    source: &'a Source,
    findings: &'a mut Vec<String>,
}

impl Functions<'_> {
    fn check(&mut self, signature: &Signature, body: TokenStream) {
        let (name, asks) = (&signature.ident, asks(body));
        if asks > AT_MOST {
            let place = format!("{}:{}", self.source.path.display(), name.span().start().line);
            self.findings
                .push(format!("{place}: {name} asks broken! {asks} times: name a part of the rule, and ask there"));
        }
    }
}

impl<'ast> Visit<'ast> for Functions<'_> {
    fn visit_item_mod(&mut self, module: &'ast ItemMod) {
        if !is_test(&module.attrs) {
            visit::visit_item_mod(self, module);
        }
    }

    fn visit_item_fn(&mut self, function: &'ast ItemFn) {
        self.check(&function.sig, function.block.to_token_stream());
    }

    fn visit_impl_item_fn(&mut self, function: &'ast ImplItemFn) {
        self.check(&function.sig, function.block.to_token_stream());
    }
}

/// How often `broken!` stands in a text.
fn asks(tokens: TokenStream) -> usize {
    tokens
        .into_iter()
        .map(|token| match token {
            TokenTree::Group(group) => asks(group.stream()),
            TokenTree::Ident(name) => usize::from(name == "broken"),
            _ => 0,
        })
        .sum()
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    #[test]
    fn a_rule_reads_without_its_faults() {
        let count = |body: &str| {
            let text = format!("fn rule() -> bool {{ {body} }} struct Rule; impl Rule {{ fn part() {{ {body} }} }}");
            findings(&[Source::new(Path::new("src"), "src/a.rs".into(), &text).unwrap()]).len()
        };
        assert_eq!(count("a || broken!(One) || broken!(Two)"), 0);
        assert_eq!(count("a || broken!(One) || [1].iter().any(|_| broken!(Two) && broken!(Three))"), 2);
    }
}
