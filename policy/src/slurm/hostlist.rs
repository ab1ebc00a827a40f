//! Lists of nodes as Slurm writes them: `gpu[01-04,7],login`.

use std::collections::BTreeMap;

/// The most names of a list. No cluster has more nodes, so a longer list is a mistake.
const MOST: usize = 100_000;

/// The most letters of a name. Neither a node's name nor a device's path in gres.conf is longer.
const LONGEST: usize = 255;

/// The reason why a text is not a list.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HostlistError {
    /// A bracket is missing.
    #[error("has a bracket without its other")]
    Bracket,
    /// The brackets have text that is neither a number nor a range.
    #[error("has \"{0}\" in brackets, which is neither a number nor two, such as 01-04")]
    Range(String),
    /// The second number is below the first.
    #[error("has \"{0}\" in brackets, which counts backwards")]
    Backwards(String),
    /// It has too many names.
    #[error("means more than {MOST} names")]
    TooMany,
    /// It has a name that is too long.
    #[error("has a name of more than {LONGEST} letters")]
    TooLong,
}

/// The names in a list that an administrator wrote. A list of too many or too long names is refused before any
/// name is made.
///
/// ```
/// use softmig_policy::slurm::hostlist::{HostlistError, parse};
/// assert_eq!(parse("gpu[01-02],login").unwrap(), ["gpu01", "gpu02", "login"]);
/// assert_eq!(parse("gpu[01-02").unwrap_err(), HostlistError::Bracket);
/// assert_eq!(parse("gpu[1-999999999]").unwrap_err(), HostlistError::TooMany);
/// ```
pub fn parse(list: &str) -> Result<Vec<String>, HostlistError> {
    let mut names = Vec::new();
    for part in parts(list) {
        let pieces = pieces(part)?;
        if count(&pieces)
            .and_then(|more| more.checked_add(names.len()))
            .is_none_or(|all| all > MOST)
        {
            return Err(HostlistError::TooMany);
        }
        names.extend(names_of(&pieces));
    }
    Ok(names)
}

/// The names in a list of Slurm's own, which it has read before. A text that is not a list stays as it is. Of too many
/// names the first ones are returned.
pub fn expand(list: &str) -> Vec<String> {
    let mut names = Vec::new();
    for part in parts(list) {
        let pieces = pieces(part);
        let own = match pieces {
            Ok(pieces) if count(&pieces).is_some_and(|count| count <= MOST) => names_of(&pieces),
            Ok(_) | Err(_) => vec![part.to_string()],
        };
        names.extend(own);
        if names.len() >= MOST {
            names.truncate(MOST);
            break;
        }
    }
    names
}

/// The parts between the commas outside of brackets.
fn parts(list: &str) -> impl Iterator<Item = &str> {
    let mut depth = 0u32;
    let parts = list.split(move |letter: char| {
        match letter {
            '[' => depth += 1,
            ']' => depth = depth.saturating_sub(1),
            _ => {}
        }
        letter == ',' && depth == 0
    });
    parts.map(str::trim).filter(|part| !part.is_empty())
}

/// A part of a name: a fixed text, or a number of a range.
enum Piece<'a> {
    Text(&'a str),
    Numbers(Vec<Range>),
}

/// `01-04`: two digits each.
struct Range {
    from: usize,
    to: usize,
    width: usize,
}

fn pieces(part: &str) -> Result<Vec<Piece<'_>>, HostlistError> {
    let mut pieces = Vec::new();
    let mut rest = part;
    let mut letters = 0;
    while let Some((text, behind)) = rest.split_once('[') {
        let (ranges, behind) = behind.split_once(']').ok_or(HostlistError::Bracket)?;
        let ranges = ranges
            .split(',')
            .map(range)
            .collect::<Result<Vec<_>, _>>()?;
        let longest = ranges.iter().map(|range| range.width.max(digits(range.to)));
        letters += text.len() + longest.max().unwrap_or(0);
        pieces.extend([Piece::Text(text), Piece::Numbers(ranges)]);
        rest = behind;
        if letters > LONGEST {
            return Err(HostlistError::TooLong);
        }
    }
    letters += rest.len();
    pieces.push(Piece::Text(rest));
    let has_bracket = |piece: &Piece<'_>| matches!(piece, Piece::Text(text) if text.contains(']'));
    if pieces.iter().any(has_bracket) {
        return Err(HostlistError::Bracket);
    }
    match letters {
        ..=LONGEST => Ok(pieces),
        _ => Err(HostlistError::TooLong),
    }
}

/// `01-04` or `7`, with the zeros before them.
fn range(text: &str) -> Result<Range, HostlistError> {
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    let number = |word: &str| {
        let plain = word.bytes().all(|byte| byte.is_ascii_digit());
        plain.then(|| word.parse::<usize>().ok())?
    };
    match (number(first), number(last)) {
        (Some(from), Some(to)) if from > to => Err(HostlistError::Backwards(text.to_string())),
        (Some(from), Some(to)) => Ok(Range {
            from,
            to,
            width: first.len(),
        }),
        // A second bracket opens before the first one was closed.
        _ if text.contains('[') => Err(HostlistError::Bracket),
        _ => Err(HostlistError::Range(text.to_string())),
    }
}

fn digits(number: usize) -> usize {
    number.checked_ilog10().map_or(1, |tens| tens as usize + 1)
}

/// How many names these pieces make; `None` for more than can be counted.
fn count(pieces: &[Piece<'_>]) -> Option<usize> {
    pieces.iter().try_fold(1usize, |names, piece| match piece {
        Piece::Text(_) => Some(names),
        Piece::Numbers(ranges) => {
            let each = ranges.iter().try_fold(0usize, |sum, range| {
                sum.checked_add((range.to - range.from).checked_add(1)?)
            });
            names.checked_mul(each?)
        }
    })
}

/// All names of these pieces. [`count`] has found that they are not too many.
fn names_of(pieces: &[Piece<'_>]) -> Vec<String> {
    let mut names = vec![String::new()];
    for piece in pieces {
        match piece {
            Piece::Text(text) => names.iter_mut().for_each(|name| name.push_str(text)),
            Piece::Numbers(ranges) => {
                let with_numbers = names.iter().flat_map(|name| {
                    let numbers = ranges.iter().flat_map(|range| {
                        let width = range.width;
                        (range.from..=range.to).map(move |number| format!("{number:0width$}"))
                    });
                    numbers.map(move |number| format!("{name}{number}"))
                });
                names = with_numbers.collect();
            }
        }
    }
    names
}

/// The shortest list for these names: `gpu[01-04,07]`.
pub fn compress<'a>(names: impl IntoIterator<Item = &'a str>) -> String {
    // The key is the text before the number at the end, and the number's width.
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
                Some((_, last)) if last.checked_add(1) == Some(number) => *last = number,
                _ => ranges.push((number, number)),
            }
        }
        let text: Vec<String> = ranges
            .iter()
            .map(|(first, last)| {
                if first == last {
                    format!("{first:0width$}")
                } else {
                    format!("{first:0width$}-{last:0width$}")
                }
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
            ("n[1-999999999],m", vec!["n[1-999999999]", "m"]),
            ("n[08-10]", vec!["n08", "n09", "n10"]),
        ] {
            assert_eq!(expand(list), names, "{list}");
            match parse(list) {
                Ok(own) => assert_eq!(own, names, "{list}"),
                Err(_) => assert!(names[0].contains('['), "{list}"),
            }
        }
    }

    #[test]
    fn a_text_that_is_not_a_list_gets_its_reason() {
        let range = |text: &str| HostlistError::Range(text.into());
        for (list, error) in [
            ("n[1-2", HostlistError::Bracket),
            ("n1-2]", HostlistError::Bracket),
            ("n[1-2]]", HostlistError::Bracket),
            ("n[[1-2]]", HostlistError::Bracket),
            ("n[1,m[2]", HostlistError::Bracket),
            ("n[]", range("")),
            ("n[a-b]", range("a-b")),
            ("n[1-]", range("1-")),
            ("n[1--2]", range("1--2")),
            ("n[+1]", range("+1")),
            ("n[3-1]", HostlistError::Backwards("3-1".into())),
        ] {
            assert_eq!(parse(list), Err(error), "{list}");
        }
    }

    #[test]
    fn a_list_of_too_many_takes_neither_time_nor_memory() {
        let many = |text: &str, times: usize| text.repeat(times);
        for (list, error) in [
            ("n[1-999999999]".into(), HostlistError::TooMany),
            (format!("n[0-{}]", usize::MAX), HostlistError::TooMany),
            ("n[1-1000]m[1-1000]".into(), HostlistError::TooMany),
            (many("n[1-60000],", 2000), HostlistError::TooMany),
            (format!("n{}", many("[0-1]", 60)), HostlistError::TooMany),
            // Neither many pieces nor a long name need a deep stack.
            (format!("n{}", many("[1]", 300_000)), HostlistError::TooLong),
            (
                format!("{}[1-9999]", many("n", 1000)),
                HostlistError::TooLong,
            ),
            (format!("n[{}1]", many("0", 1000)), HostlistError::TooLong),
        ] {
            let short = list.get(..40).unwrap_or(&list);
            assert_eq!(parse(&list), Err(error), "{short}");
            assert!(expand(&list).len() <= MOST, "{short}");
        }
        assert_eq!(parse("n[1-100000]").unwrap().len(), MOST);
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
            prop_assert_eq!(parse(&list).unwrap(), back.clone());
            back.sort();
            names.sort();
            prop_assert_eq!(back, names);
        }

        #[test]
        fn any_text_gets_an_answer(list in "[a-z0-9,\\[\\]-]{0,40}") {
            let names = expand(&list);
            if let Ok(own) = parse(&list) {
                prop_assert_eq!(own, names);
            }
        }
    }
}
