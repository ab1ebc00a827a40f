//! Keeps of a header's declarations those that softmig needs.

use std::collections::{HashMap, HashSet};

use proc_macro2::{TokenStream, TokenTree};

use crate::declaration::{Declaration, Kind};
use crate::wanted::{ENUMS, FULL};

/// Leaves what functions and wanted types need; the last value of each enum, which only counts, goes.
pub(crate) fn needed(all: Vec<Declaration>) -> Vec<Declaration> {
    let types: HashMap<&str, &Declaration> = all
        .iter()
        .filter(|declaration| declaration.kind == Kind::Type)
        .map(|declaration| (declaration.name.as_str(), declaration))
        .collect();
    let mut reached: HashSet<String> = HashSet::new();
    let mut open: Vec<String> = FULL.iter().chain(ENUMS).map(ToString::to_string).collect();
    for declaration in &all {
        if declaration.kind == Kind::Function {
            open.extend(words(&declaration.tokens));
        }
    }
    while let Some(name) = open.pop() {
        if let Some(declaration) = types.get(name.as_str())
            && reached.insert(name)
        {
            open.extend(words(&declaration.tokens));
        }
    }
    let counts = |name: &str| name.ends_with("_MAX") || name.ends_with("_NUM_OPTIONS");
    let is_needed = |declaration: &Declaration| match declaration.kind {
        Kind::Type => reached.contains(&declaration.name),
        Kind::Constant => {
            let mut others = words(&declaration.tokens)
                .into_iter()
                .filter(|word| types.contains_key(word.as_str()));
            !counts(&declaration.name) && others.all(|name| reached.contains(&name))
        }
        Kind::Function => true,
    };
    let keep: Vec<bool> = all.iter().map(is_needed).collect();
    all.into_iter()
        .zip(keep)
        .filter_map(|(declaration, keep)| keep.then_some(declaration))
        .collect()
}

/// All names in a text.
fn words(tokens: &TokenStream) -> Vec<String> {
    tokens
        .clone()
        .into_iter()
        .flat_map(|token| match token {
            TokenTree::Ident(name) => vec![name.to_string()],
            TokenTree::Group(group) => words(&group.stream()),
            _ => Vec::new(),
        })
        .collect()
}
