//! Lists of nodes as Slurm writes them: `gpu[01-04,7],login`.

use std::collections::BTreeMap;

/// No cluster has more nodes; a list that promises more is a mistake.
const MOST: usize = 100_000;

/// The names in a list. What is not closed or counts backwards is left as it is written.
pub(crate) fn expand(list: &str) -> Vec<String> {
    let mut names = Vec::new();
    let mut depth = 0u32;
    for part in list.split(|letter: char| {
        match letter {
            '[' => depth += 1,
            ']' => depth = depth.saturating_sub(1),
            _ => {}
        }
        letter == ',' && depth == 0
    }) {
        if !part.trim().is_empty() {
            names.extend(expand_one(part.trim()));
        }
    }
    names.truncate(MOST);
    names
}

fn expand_one(part: &str) -> Vec<String> {
    let parts = part
        .split_once('[')
        .and_then(|(before, rest)| Some((before, rest.split_once(']')?)));
    let Some((before, (ranges, after))) = parts else {
        return vec![part.to_string()];
    };
    let numbers: Option<Vec<Vec<String>>> = ranges.split(',').map(numbers).collect();
    let Some(numbers) = numbers else {
        return vec![part.to_string()];
    };
    let rest = expand_one(after);
    let names = numbers.into_iter().flatten();
    names
        .flat_map(|number| {
            rest.iter()
                .map(move |rest| format!("{before}{number}{rest}"))
        })
        .take(MOST)
        .collect()
}

/// `01-04` or `7`, with the zeros before them.
fn numbers(range: &str) -> Option<Vec<String>> {
    let (first, last) = range.split_once('-').unwrap_or((range, range));
    let (from, to): (usize, usize) = (first.parse().ok()?, last.parse().ok()?);
    let width = first.len();
    (from <= to && to - from < MOST).then(|| {
        (from..=to)
            .map(|number| format!("{number:0width$}"))
            .collect()
    })
}

/// The shortest list for these names: `gpu[01-04,07]`.
pub(crate) fn compress<'a>(names: impl IntoIterator<Item = &'a str>) -> String {
    // By what stands before the number at the end, and its width.
    let mut groups: BTreeMap<(&str, usize), Vec<usize>> = BTreeMap::new();
    let mut lists: Vec<String> = Vec::new();
    for name in names {
        let stem = name.trim_end_matches(|letter: char| letter.is_ascii_digit());
        match name[stem.len()..].parse() {
            Ok(number) => {
                let width = name.len() - stem.len();
                groups.entry((stem, width)).or_default().push(number);
            }
            Err(_) => lists.push(name.to_string()),
        }
    }
    for ((stem, width), mut numbers) in groups {
        numbers.sort_unstable();
        numbers.dedup();
        let mut ranges: Vec<(usize, usize)> = Vec::new();
        for number in numbers {
            match ranges.last_mut() {
                Some((_, last)) if *last + 1 == number => *last = number,
                _ => ranges.push((number, number)),
            }
        }
        let text: Vec<String> = ranges
            .iter()
            .map(|(first, last)| match first == last {
                true => format!("{first:0width$}"),
                false => format!("{first:0width$}-{last:0width$}"),
            })
            .collect();
        lists.push(match text.as_slice() {
            [one] if !one.contains('-') => format!("{stem}{one}"),
            _ => format!("{stem}[{}]", text.join(",")),
        });
    }
    lists.sort();
    lists.join(",")
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_list_is_read_as_slurm_reads_it() {
        for (list, names) in [
            ("", vec![]),
            ("n1", vec!["n1"]),
            (
                "gpu[01-03,7],login",
                vec!["gpu01", "gpu02", "gpu03", "gpu7", "login"],
            ),
            ("a[1-2]b[3-4]", vec!["a1b3", "a1b4", "a2b3", "a2b4"]),
            ("n[1-", vec!["n[1-"]),
            ("n[3-1]", vec!["n[3-1]"]),
        ] {
            assert_eq!(expand(list), names, "{list}");
        }
    }

    #[test]
    fn names_are_put_together() {
        assert_eq!(
            compress(["gpu02", "gpu01", "gpu04", "login", "n9"]),
            "gpu[01-02,04],login,n9"
        );
    }

    proptest! {
        #[test]
        fn what_is_put_together_comes_apart_again(numbers in proptest::collection::btree_set(0u32..200, 0..20)) {
            let mut names: Vec<String> = numbers.iter().map(|number| format!("gpu{number:03}")).collect();
            names.push("login".into());
            let list = compress(names.iter().map(String::as_str));
            let mut back = expand(&list);
            back.sort();
            names.sort();
            prop_assert_eq!(back, names);
        }

        #[test]
        fn any_text_gets_an_answer(list in "[a-z0-9,\\[\\]-]{0,40}") {
            let _ = expand(&list);
        }
    }
}
