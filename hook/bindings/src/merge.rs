//! Makes one set of declarations from those of CUDA 13 and 12.

use std::collections::{HashMap, HashSet};

use anyhow::{Result, bail};

use crate::declaration::Declaration;
use crate::needed::needed;
use crate::wanted::{DIFFERENT, Take};

/// The newer header's declarations, and those that only the older one has. Where both declare a name they must agree,
/// or the list of differences says which one to take; what only the other one needs goes.
pub(crate) fn merged(newer: Vec<Declaration>, older: Vec<Declaration>) -> Result<Vec<Declaration>> {
    merged_but(DIFFERENT, newer, older)
}

/// The same with any list of differences.
fn merged_but(
    different: &[(&str, Take, &str)],
    newer: Vec<Declaration>,
    older: Vec<Declaration>,
) -> Result<Vec<Declaration>> {
    let mut known: HashMap<String, usize> = HashMap::new();
    let mut all = newer;
    for (index, declaration) in all.iter().enumerate() {
        known.insert(declaration.name.clone(), index);
    }
    let mut wrong = Vec::new();
    let mut unneeded: HashSet<&str> = different.iter().map(|(name, ..)| *name).collect();
    for declaration in older {
        let Some(&index) = known.get(&declaration.name) else {
            all.push(declaration);
            continue;
        };
        let newer = &mut all[index];
        if newer.meaning == declaration.meaning {
            continue;
        }
        let reason = different
            .iter()
            .find(|(name, ..)| *name == declaration.name);
        match reason {
            Some((name, take, _)) => {
                unneeded.remove(name);
                if *take == Take::Cuda12 {
                    *newer = declaration;
                }
            }
            None => wrong.push(format!(
                "CUDA 13: {}\nCUDA 12: {}",
                newer.tokens, declaration.tokens
            )),
        }
    }
    wrong.extend(unneeded.iter().map(|name| {
        format!("{name} is the same in CUDA 12 and 13: drop it from DIFFERENT in hook/bindings")
    }));
    if !wrong.is_empty() {
        bail!(
            "The headers of CUDA 12 and 13 differ where no reason in DIFFERENT (hook/bindings/src/wanted.rs) allows \
             it:\n{}",
            wrong.join("\n")
        );
    }
    Ok(needed(all))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::declaration::declarations;

    fn header(text: &str) -> Vec<Declaration> {
        declarations(syn::parse_file(text).unwrap().items).unwrap()
    }

    fn texts(all: &[Declaration]) -> Vec<String> {
        all.iter().map(|one| one.tokens.to_string()).collect()
    }

    const OLD: &str = r#"unsafe extern "C" { pub fn cuF(size: u32) -> i32; pub fn cuOld(); }"#;

    #[test]
    fn what_only_one_header_has_is_kept() {
        let new = r#"unsafe extern "C" { pub fn cuNew(); pub fn cuF(bytes: u32) -> i32; }"#;
        let all = merged_but(&[], header(new), header(OLD)).unwrap();
        assert_eq!(
            texts(&all),
            [
                "pub fn cuNew () ;",
                "pub fn cuF (bytes : u32) -> i32 ;",
                "pub fn cuOld () ;"
            ]
        );
    }

    #[test]
    fn another_signature_needs_a_reason() {
        let new = r#"unsafe extern "C" { pub fn cuF(size: u64) -> i32; }"#;
        let error = merged_but(&[], header(new), header(OLD)).unwrap_err();
        assert!(error.to_string().contains("size : u64"), "{error}");

        for (take, word) in [(Take::Cuda12, "u32"), (Take::Cuda13, "u64")] {
            let reasons = [("cuF", take, "because")];
            let all = merged_but(&reasons, header(new), header(OLD)).unwrap();
            assert!(texts(&all)[0].contains(word));
        }
    }

    #[test]
    fn another_value_needs_a_reason() {
        let constant = |value| header(&format!("pub const CU_A: u32 = {value};"));
        assert!(merged_but(&[], constant(1), constant(1)).is_ok());
        assert!(merged_but(&[], constant(1), constant(2)).is_err());
    }

    #[test]
    fn a_reason_that_is_not_needed_is_an_error() {
        let reasons = [("cuF", Take::Cuda13, "because")];
        let error = merged_but(&reasons, header(OLD), header(OLD)).unwrap_err();
        assert!(error.to_string().contains("drop it"), "{error}");
    }

    #[test]
    fn types_that_nothing_needs_are_left_out() {
        let text = r#"
            pub type a = b; pub type b = u32; pub type c = u32;
            pub const A: a = 1; pub const C: c = 1; pub const A_MAX: a = 2; pub const N: u32 = 3;
            unsafe extern "C" { pub fn cuF(a: *mut a); }
        "#;
        let all = merged_but(&[], header(text), Vec::new()).unwrap();
        let names: Vec<&str> = all.iter().map(|one| one.name.as_str()).collect();
        assert_eq!(names, ["a", "b", "A", "N", "cuF"]);
    }
}
