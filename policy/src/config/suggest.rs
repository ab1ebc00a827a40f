//! The known word that a misspelt one most likely means.

/// The hint for an unknown word: the most likely known word, or all known words.
pub(crate) fn meant<'a>(word: &str, known: impl Iterator<Item = &'a str>) -> String {
    let known: Vec<&str> = known.collect();
    match nearest(word, known.iter().copied()) {
        Some(meant) => format!("did you mean {meant}?"),
        None if known.is_empty() => "none is known here".to_string(),
        None => format!("known here are {}", known.join(", ")),
    }
}

/// The word most like `word`, if any is much like it.
pub(crate) fn nearest<'a>(word: &str, known: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    // Letters in other case are the likeliest mistake in names of types.
    let lower = word.to_lowercase();
    known
        .map(|key| (strsim::jaro_winkler(&lower, &key.to_lowercase()), key))
        .filter(|(likeness, _)| *likeness > 0.8)
        .max_by(|a, b| a.0.total_cmp(&b.0))
        .map(|(_, key)| key)
}
