//! Makes one set of declarations from those of CUDA 13 and 12.

use std::collections::{HashMap, HashSet};

use anyhow::{Result, bail};

use crate::declaration::Declaration;
use crate::needed::needed;
use crate::wanted::{DIFFERENT, Take};

/// The newer header's declarations, and those that only the older one has. Where both declare a name they must agree,
/// or the list of differences says which one to take; what only the other one needs goes.
pub(crate) fn merged(newer: Vec<Declaration>, older: Vec<Declaration>) -> Result<Vec<Declaration>> {
    let mut known: HashMap<String, usize> = HashMap::new();
    let mut all = newer;
    for (index, declaration) in all.iter().enumerate() {
        known.insert(declaration.name.clone(), index);
    }
    let mut wrong = Vec::new();
    let mut unneeded: HashSet<&str> = DIFFERENT.iter().map(|(name, ..)| *name).collect();
    for declaration in older {
        let Some(&index) = known.get(&declaration.name) else {
            all.push(declaration);
            continue;
        };
        let newer = &mut all[index];
        if newer.meaning == declaration.meaning {
            continue;
        }
        let reason = DIFFERENT
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
