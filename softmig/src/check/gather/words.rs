//! The words of Slurm's configuration files and of what scontrol prints.

/// The `KEY=VALUE` pairs of a line of scontrol's. What a value has behind a blank is lost: no value that is looked at here
/// has one.
pub(crate) fn pairs(line: &str) -> impl Iterator<Item = (&str, &str)> {
    line.split_ascii_whitespace()
        .filter_map(|word| word.split_once('='))
}

/// The value of one key in such a line.
pub(crate) fn value<'a>(line: &'a str, key: &str) -> &'a str {
    let mut pairs = pairs(line);
    pairs
        .find(|(name, _)| *name == key)
        .map_or("", |(_, value)| match value {
            "(null)" | "N/A" => "",
            value => value,
        })
}

/// The lines of a configuration file, without comments, and those that end with a backslash put together.
pub(crate) fn lines(text: &str) -> Vec<String> {
    let lines = numbered_lines(text).into_iter();
    lines.map(|(_, line)| line).collect()
}

/// The same, each with the number of its first line in the file.
pub(crate) fn numbered_lines(text: &str) -> Vec<(usize, String)> {
    let mut all: Vec<(usize, String)> = Vec::new();
    let mut goes_on = false;
    for (number, line) in (1..).zip(text.lines()) {
        let line = line.replace('\r', "");
        let begun = line.strip_suffix('\\');
        let own = begun.unwrap_or(&line);
        match all.last_mut().filter(|_| goes_on) {
            Some((_, whole)) => whole.push_str(own),
            None => all.push((number, own.to_string())),
        }
        goes_on = begun.is_some();
    }
    let lines = all.into_iter();
    let lines = lines.map(|(number, line)| (number, without_comment(&line).trim().to_string()));
    lines.filter(|(_, line)| !line.is_empty()).collect()
}

fn without_comment(line: &str) -> &str {
    let mut escaped = false;
    let comment = line.char_indices().find(|(_, letter)| {
        let is_comment = *letter == '#' && !escaped;
        escaped = *letter == '\\';
        is_comment
    });
    comment.map_or(line, |(at, _)| line.get(..at).unwrap_or(line))
}

/// The `KEY=VALUE` pairs of a line of a configuration file. A value in quotes may have blanks, and there may be some around
/// the equals sign.
pub(crate) fn conf_pairs(line: &str) -> Vec<(String, String)> {
    let mut words: Vec<String> = vec![String::new()];
    let mut quoted = false;
    let mut letters = line.chars().peekable();
    while let Some(letter) = letters.next() {
        let Some(word) = words.last_mut() else { break };
        match letter {
            '"' => quoted = !quoted,
            blank if blank.is_whitespace() && !quoted => {
                while letters.next_if(|next| next.is_whitespace()).is_some() {}
                let joins = word.ends_with('=') || letters.peek() == Some(&'=');
                if !joins {
                    words.push(String::new());
                }
            }
            other => word.push(other),
        }
    }
    let pairs = words.iter().filter_map(|word| word.split_once('='));
    pairs
        .map(|(key, value)| (key.to_string(), value.to_string()))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_scontrol_is_pairs() {
        let line = "NodeName=n1 Gres=gpu:l40s:4 OS=Linux 6.1 #1 Comment=(null) TRES=cpu=1,mem=2M";
        assert_eq!(value(line, "Gres"), "gpu:l40s:4");
        assert_eq!(value(line, "TRES"), "cpu=1,mem=2M");
        assert_eq!(value(line, "Comment"), "");
        assert_eq!(value(line, "Absent"), "");
    }

    #[test]
    fn a_file_is_read_as_slurm_reads_it() {
        let text = "# a comment\nA=1 # another\n\nB=x,\\\ny\nC=\\#1\n";
        assert_eq!(lines(text), ["A=1", "B=x,y", "C=\\#1"]);
        let numbers = numbered_lines(text).into_iter().map(|(number, _)| number);
        assert_eq!(numbers.collect::<Vec<_>>(), [2, 4, 6]);
        assert_eq!(lines("A=1,\\\r\n2\r\nB=\\"), ["A=1,2", "B="]);
        let pairs = conf_pairs("NodeName = n1  Gres=gpu:1 Reason=\"a = b\" X=\"\"");
        let pairs: Vec<(&str, &str)> = pairs
            .iter()
            .map(|(key, value)| (key.as_str(), value.as_str()))
            .collect();
        assert_eq!(
            pairs,
            [
                ("NodeName", "n1"),
                ("Gres", "gpu:1"),
                ("Reason", "a = b"),
                ("X", "")
            ]
        );
    }
}
