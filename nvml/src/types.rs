//! How a node's GPUs may be called in gres.conf and policy.toml, and how Slurm calls them by itself.
//!
//! NVML knows products, Slurm knows types, and what joins them is the administrator's gres.conf. So these are suggestions.

use crate::profile;
use std::collections::{BTreeMap, BTreeSet};

/// Whose it is, and for whom.
const MAKERS: [&str; 5] = ["nvidia", "tesla", "quadro", "geforce", "grid"];

/// The words after a model's name: how it is built in, which generation it is of.
const FORMS: [&str; 6] = ["pcie", "nvl", "mig", "generation", "blackwell", "edition"];

/// A type for each product: `l40s` for `NVIDIA L40S`, `a100` for `NVIDIA A100-SXM4-40GB`. Products that differ only in
/// what a short name leaves out have long ones: `a100-sxm4-40gb` beside `a100-sxm4-80gb`.
pub fn suggested<'a>(products: impl IntoIterator<Item = &'a str>) -> BTreeMap<&'a str, String> {
    let products: BTreeSet<&str> = products.into_iter().collect();
    let mut uses: BTreeMap<String, usize> = BTreeMap::new();
    for product in &products {
        *uses.entry(short(product)).or_default() += 1;
    }
    let named = products.into_iter().map(|product| {
        let short = short(product);
        let name = match uses.get(&short) {
            Some(1) => short,
            _ => long(product),
        };
        (product, name)
    });
    named.collect()
}

/// A type for an instance of a product whose type is `of_gpu`: `a100_1g.5gb`, or `1g.10gb` if the first is not a part of
/// the name that `AutoDetect=nvml` gives it: Slurm only finds instances by such a part.
pub fn of_instance(of_gpu: &str, product: &str, profile: &str) -> String {
    let size = profile::size(profile);
    let name = format!("{of_gpu}_{size}");
    if autodetected(product, Some(profile)).contains(&name) {
        name
    } else {
        size.to_string()
    }
}

/// The name that `AutoDetect=nvml` gives it: `nvidia_a100-sxm4-40gb`, and `nvidia_a100_3g.20gb` for an instance. A type
/// in slurm.conf has to be a part of that name where AutoDetect is on. (From Slurm 23.02.6 on; before, the gigabytes of
/// an instance are its memory's, rounded.)
pub fn autodetected(product: &str, profile: Option<&str>) -> String {
    let name = product.to_lowercase().replace(' ', "_");
    match profile {
        None => name,
        Some(profile) => {
            let model = name.split('-').next().unwrap_or_default();
            format!("{model}_{}", profile.to_lowercase())
        }
    }
}

fn short(product: &str) -> String {
    let words = words(product);
    let forms = words.iter().skip(1).position(|word| is_form(word));
    let model = match forms {
        Some(at) => words.get(..=at).unwrap_or_default(),
        None => &words,
    };
    safe(model.concat())
}

fn long(product: &str) -> String {
    safe(words(product).join("-"))
}

/// The words of a model's name, in the letters and digits that a type may have.
fn words(product: &str) -> Vec<String> {
    product
        .to_lowercase()
        .split(|letter: char| !letter.is_ascii_alphanumeric())
        .filter(|word| !word.is_empty() && !MAKERS.contains(word))
        .map(str::to_owned)
        .collect()
}

/// Slurm takes a bare number for a count.
fn safe(name: String) -> String {
    if name.bytes().all(|byte| byte.is_ascii_digit()) {
        format!("gpu{name}")
    } else {
        name
    }
}

fn is_form(word: &str) -> bool {
    let has_digits = |rest: &str| rest.bytes().all(|byte| byte.is_ascii_digit());
    FORMS.contains(&word)
        || word.strip_suffix("gb").is_some_and(has_digits)
        || word.strip_prefix("sxm").is_some_and(has_digits)
        || word.starts_with("hbm")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn alone(product: &str) -> String {
        suggested([product])[product].clone()
    }

    #[test]
    fn a_type_is_the_models_name() {
        for (product, name) in [
            ("NVIDIA L40S", "l40s"),
            ("NVIDIA H100 80GB HBM3", "h100"),
            ("NVIDIA H100 PCIe", "h100"),
            ("NVIDIA TITAN RTX", "titanrtx"),
            ("NVIDIA A100-SXM4-40GB", "a100"),
            ("Tesla V100-SXM2-32GB", "v100"),
            ("NVIDIA GeForce GTX 1080 Ti", "gtx1080ti"),
            ("NVIDIA RTX 6000 Ada Generation", "rtx6000ada"),
            ("NVIDIA RTX PRO 6000 Blackwell Server Edition", "rtxpro6000"),
            ("NVIDIA GH200 480GB", "gh200"),
            ("NVIDIA 6000", "gpu6000"),
            ("NVIDIA", "gpu"),
        ] {
            assert_eq!(alone(product), name, "{product}");
        }
    }

    #[test]
    fn products_that_differ_have_types_that_differ() {
        let both = [
            "NVIDIA A100-SXM4-40GB",
            "NVIDIA A100-SXM4-80GB",
            "NVIDIA L4",
        ];
        let names: Vec<_> = suggested(both).into_values().collect();
        assert_eq!(names, ["a100-sxm4-40gb", "a100-sxm4-80gb", "l4"]);
        assert_eq!(suggested(["NVIDIA L4", "NVIDIA L4"]).len(), 1);
    }

    #[test]
    fn every_suggestion_is_a_name_that_the_policy_takes() {
        for product in ["NVIDIA A100-SXM4-40GB", "NVIDIA", "Grafikkarte (\u{fc})"] {
            for name in [alone(product), long(product)] {
                for name in [of_instance(&name, product, "1c.3g.20gb+me"), name] {
                    let taken = softmig_policy::node::limits::TypeName::new(&name);
                    assert!(taken.is_ok(), "{name}");
                }
            }
        }
    }

    #[test]
    fn slurms_own_names_are_known() {
        assert_eq!(
            autodetected("NVIDIA A100-SXM4-40GB", None),
            "nvidia_a100-sxm4-40gb"
        );
        assert_eq!(
            autodetected("NVIDIA A100-SXM4-40GB", Some("3g.20gb")),
            "nvidia_a100_3g.20gb"
        );
        assert_eq!(
            autodetected("NVIDIA H100 80GB HBM3", Some("1g.10gb+me")),
            "nvidia_h100_80gb_hbm3_1g.10gb+me"
        );
    }
}
