//! The size, alignment and offsets that bindgen found for a type, read from its layout tests and written shorter.

use std::collections::HashMap;

use anyhow::{Context, Result, bail};
use proc_macro2::{Ident, Literal, TokenStream};
use quote::quote;
use syn::{Expr, FieldsNamed, Item, Lit, Stmt};

/// How a type lies in memory.
#[derive(Default)]
pub(crate) struct Layout {
    pub(crate) size: Option<Literal>,
    pub(crate) align: Option<Literal>,
    offsets: HashMap<String, Literal>,
}

/// The layouts of all types among the items, by name.
pub(crate) fn layouts(items: &[Item]) -> Result<HashMap<String, Layout>> {
    let mut layouts: HashMap<String, Layout> = HashMap::new();
    for item in items {
        let Item::Const(tests) = item else { continue };
        // Layout tests are the constants without a name.
        if tests.ident != "_" {
            continue;
        }
        let Expr::Block(block) = &*tests.expr else {
            bail!("a layout test without a block");
        };
        for statement in &block.block.stmts {
            let (what, number) = test(statement).context("a layout test of an unknown form")?;
            let (name, field) = match what.split_once("::") {
                Some((name, field)) => (name, Some(field)),
                None => (what.as_str(), None),
            };
            let (kind, name) = name.rsplit_once(' ').context("a layout test of nothing")?;
            let layout = layouts.entry(name.into()).or_default();
            match (kind, field) {
                ("Size of", None) => layout.size = Some(number),
                ("Alignment of", None) => layout.align = Some(number),
                ("Offset of field:", Some(field)) => {
                    layout.offsets.insert(field.into(), number);
                }
                _ => bail!("unknown layout test: {what}"),
            }
        }
    }
    Ok(layouts)
}

/// The subject of a test, and the number it expects: `["WHAT"][EXPRESSION - NUMBER];`.
fn test(statement: &Stmt) -> Option<(String, Literal)> {
    let Stmt::Expr(Expr::Index(test), _) = statement else {
        return None;
    };
    let Expr::Array(array) = &*test.expr else {
        return None;
    };
    let Expr::Binary(difference) = &*test.index else {
        return None;
    };
    let what = match array.elems.first()? {
        Expr::Lit(text) => match &text.lit {
            Lit::Str(text) => text.value(),
            _ => return None,
        },
        _ => return None,
    };
    let Expr::Lit(number) = &*difference.right else {
        return None;
    };
    let Lit::Int(number) = &number.lit else {
        return None;
    };
    let number = number.base10_parse().ok()?;
    Some((what, Literal::usize_unsuffixed(number)))
}

impl Layout {
    /// Proves the layout of a type with these fields while the file is compiled.
    pub(crate) fn proof(&self, name: &Ident, fields: &FieldsNamed) -> TokenStream {
        let (size, align) = (self.size.iter(), self.align.iter());
        let (fields, offsets): (Vec<_>, Vec<_>) = fields
            .named
            .iter()
            .filter_map(|field| field.ident.as_ref())
            .filter_map(|field| Some((field, self.offsets.get(&field.to_string())?)))
            .unzip();
        quote! {
            const _: () = {
                #(assert!(size_of::<#name>() == #size);)*
                #(assert!(align_of::<#name>() == #align);)*
                #(assert!(offset_of!(#name, #fields) == #offsets);)*
            };
        }
    }
}
