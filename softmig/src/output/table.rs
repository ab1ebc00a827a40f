//! Tables in plain text.

/// Lines with columns below each other: the first ones to the left, from `numbers` on to the right.
pub(crate) fn columns(rows: &[Vec<String>], numbers: usize) -> String {
    let count = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width = |column: usize| {
        let cells = rows.iter().filter_map(|row| row.get(column));
        cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..count).map(width).collect();
    let mut text = String::new();
    for row in rows {
        let cells = row.iter().zip(&widths).enumerate();
        let cells = cells.map(|(column, (cell, &width))| match column < numbers {
            true => format!("{cell:<width$}"),
            false => format!("{cell:>width$}"),
        });
        let line = cells.collect::<Vec<_>>().join("  ");
        text += line.trim_end();
        text.push('\n');
    }
    text
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
    match number <= -0.5 {
        true => format!("-{text}"),
        false => text,
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
        assert_eq!(
            columns(&rows, 2),
            "A     B    C\nlong  x    1\n         200\n"
        );
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
