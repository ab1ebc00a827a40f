//! The declarations of one header, in the form in which hook/sys holds them.

use std::collections::HashMap;

use anyhow::{Context, Result, bail};
use proc_macro2::{Ident, TokenStream};
use quote::{ToTokens, quote};
use syn::{
    Fields, FieldsNamed, FnArg, ForeignItem, ForeignItemFn, Item, ItemUse, Pat, Type, UseTree,
};

use crate::layout::{Layout, layouts};
use crate::wanted::FULL;

/// In bindgen's names for types that are declared inside of others, after the name of the outer one.
pub(crate) const NESTED: &str = "__bindgen_ty";

/// The kind of a declaration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A struct, a union, or another name for a type.
    Type,
    /// A value of an enum or a macro.
    Constant,
    /// A function of the driver.
    Function,
}

/// One declaration.
#[derive(Debug)]
pub(crate) struct Declaration {
    pub(crate) kind: Kind,
    pub(crate) name: String,
    /// Its Rust text; for a type with a proof of its layout.
    pub(crate) tokens: TokenStream,
    /// The text less what means nothing: a function's is without the names of its arguments.
    pub(crate) meaning: String,
}

impl Declaration {
    fn new(kind: Kind, name: &Ident, tokens: TokenStream) -> Self {
        Declaration {
            kind,
            name: name.to_string(),
            meaning: tokens.to_string(),
            tokens,
        }
    }

    fn function(function: &ForeignItemFn) -> Self {
        let mut nameless = function.clone();
        for argument in &mut nameless.sig.inputs {
            if let FnArg::Typed(argument) = argument {
                *argument.pat = Pat::Verbatim(quote!(_));
            }
        }
        let name = &function.sig.ident;
        Declaration {
            meaning: nameless.to_token_stream().to_string(),
            ..Self::new(Kind::Function, name, function.to_token_stream())
        }
    }
}

/// The declarations among bindgen's items.
pub(crate) fn declarations(items: Vec<Item>) -> Result<Vec<Declaration>> {
    let layouts = layouts(&items)?;
    let mut all = Vec::new();
    for item in items {
        match item {
            // A layout test.
            Item::Const(value) if value.ident == "_" => {}
            // Bindgen's wrapper of opaque bytes, and its conversions.
            Item::Struct(item) if item.ident.to_string().starts_with("__Bindgen") => {}
            Item::Impl(_) => {}
            Item::Const(value) => {
                let tokens = value.to_token_stream();
                all.push(Declaration::new(Kind::Constant, &value.ident, tokens));
            }
            Item::Type(alias) => {
                let tokens = alias.to_token_stream();
                all.push(Declaration::new(Kind::Type, &alias.ident, tokens));
            }
            Item::Use(alias) => all.push(renamed(&alias)?),
            Item::Struct(item) => {
                let Fields::Named(fields) = &item.fields else {
                    bail!("{}: a struct without names for its fields", item.ident);
                };
                all.push(composite(&item.ident, quote!(struct), fields, &layouts)?);
            }
            Item::Union(mut item) => {
                keep_full(&mut item.fields);
                all.push(composite(
                    &item.ident,
                    quote!(union),
                    &item.fields,
                    &layouts,
                )?);
            }
            Item::ForeignMod(block) => {
                for item in &block.items {
                    let ForeignItem::Fn(function) = item else {
                        bail!("bindgen declared a variable: {}", item.to_token_stream());
                    };
                    all.push(Declaration::function(function));
                }
            }
            other => bail!("bindgen wrote something new: {}", other.to_token_stream()),
        }
    }
    Ok(all)
}

/// `pub use self::OLD as NEW`, as bindgen writes the typedef of an enum.
fn renamed(item: &ItemUse) -> Result<Declaration> {
    if let UseTree::Path(path) = &item.tree
        && let UseTree::Rename(names) = &*path.tree
    {
        let (old, new) = (&names.ident, &names.rename);
        return Ok(Declaration::new(
            Kind::Type,
            new,
            quote!(pub type #new = #old;),
        ));
    }
    bail!("an import of an unknown form: {}", item.to_token_stream())
}

/// Leaves out the fields of a union that are not used. The check of the layout fails if the union's size depends on
/// them.
fn keep_full(fields: &mut FieldsNamed) {
    let fields = &mut fields.named;
    let kept = fields.iter().filter(|field| match &field.ty {
        Type::Path(path) => path.path.get_ident().is_none_or(|name| {
            let name = name.to_string();
            !name.starts_with("CU") || name.contains(NESTED) || FULL.contains(&name.as_str())
        }),
        _ => true,
    });
    *fields = kept.cloned().collect();
}

/// A struct or union: with its fields, or as bytes, or, where the header does not define it, as nothing.
fn composite(
    name: &Ident,
    keyword: TokenStream,
    fields: &FieldsNamed,
    layouts: &HashMap<String, Layout>,
) -> Result<Declaration> {
    let Some(layout) = layouts.get(&name.to_string()) else {
        let tokens = quote!(#[repr(C)] pub struct #name { _opaque: [u8; 0] });
        return Ok(Declaration::new(Kind::Type, name, tokens));
    };
    let is_opaque = fields.named.iter().any(|field| {
        field
            .ident
            .as_ref()
            .is_some_and(|name| name == "_bindgen_opaque_blob")
    });
    let tokens = if is_opaque {
        let size = layout.size.as_ref().context("a type without a size")?;
        let align = layout.align.as_ref().context("a type without alignment")?;
        quote! {
            #[repr(C, align(#align))]
            #[derive(Clone, Copy)]
            pub struct #name { _opaque: [u8; #size] }
        }
    } else {
        let proof = layout.proof(name, fields);
        quote! {
            #[repr(C)]
            #[derive(Clone, Copy)]
            pub #keyword #name #fields
            #proof
        }
    };
    Ok(Declaration::new(Kind::Type, name, tokens))
}
