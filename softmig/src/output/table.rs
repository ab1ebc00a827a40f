//! Tables in plain text.

/// Lines of which all cells of a column begin at the same place, behind `indent` blanks.
pub(crate) fn columns<R: AsRef<[String]>>(rows: &[R], indent: usize) -> Vec<String> {
    let lines = lines(rows, usize::MAX).into_iter();
    lines
        .map(|line| format!("{:indent$}{line}", "").trim_end().to_string())
        .collect()
}

/// A text with columns below each other: the first ones to the left, from `numbers` on to the right.
pub(crate) fn text<R: AsRef<[String]>>(rows: &[R], numbers: usize) -> String {
    let lines = lines(rows, numbers).into_iter();
    lines.map(|line| line + "\n").collect()
}

fn lines<R: AsRef<[String]>>(rows: &[R], numbers: usize) -> Vec<String> {
    let mut widths: Vec<usize> = Vec::new();
    for row in rows {
        for (at, cell) in row.as_ref().iter().enumerate() {
            let width = cell.chars().count();
            match widths.get_mut(at) {
                Some(widest) => *widest = width.max(*widest),
                None => widths.push(width),
            }
        }
    }
    let line = |row: &R| {
        let cells = row
            .as_ref()
            .iter()
            .zip(&widths)
            .enumerate()
            .map(|(at, (cell, &width))| {
                if at < numbers {
                    format!("{cell:<width$}")
                } else {
                    format!("{cell:>width$}")
                }
            });
        let line = cells.collect::<Vec<_>>().join("  ");
        line.trim_end().to_string()
    };
    rows.iter().map(line).collect()
}

/// A whole number with its thousands apart: `12,345`.
pub(crate) fn whole(number: f64) -> String {
    let digits = format!("{:.0}", number.abs());
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    if number <= -0.5 {
        format!("-{text}")
    } else {
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_line_up() {
        let row = |cells: [&str; 3]| cells.map(str::to_string).to_vec();
        let rows = [
            row(["A", "B", "C"]),
            row(["long", "x", "1"]),
            row(["", "", "200"]),
        ];
        assert_eq!(text(&rows, 2), "A     B    C\nlong  x    1\n         200\n");
        assert_eq!(
            columns(&rows, 2),
            ["  A     B  C", "  long  x  1", "           200"]
        );
        assert_eq!(columns(&[[String::new()]], 2), [""]);
    }

    #[test]
    fn thousands_are_apart() {
        for (number, text) in [
            (0.4, "0"),
            (999.0, "999"),
            (1000.0, "1,000"),
            (1_234_567.2, "1,234,567"),
            (-1234.0, "-1,234"),
            (-0.2, "0"),
        ] {
            assert_eq!(whole(number), text);
        }
    }
}
