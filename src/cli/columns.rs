//! Columns of text.

/// The rows as lines. Each column is as wide as its widest cell, with two spaces between columns and none at the end of
/// a line.
pub(super) fn aligned<const N: usize>(rows: &[[String; N]]) -> String {
    let mut widths = [0; N];
    for row in rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = (*width).max(cell.chars().count());
        }
    }
    let mut text = String::new();
    for row in rows {
        let line: Vec<String> = row.iter().zip(widths).map(|(cell, width)| format!("{cell:width$}")).collect();
        text.push_str(line.join("  ").trim_end());
        text.push('\n');
    }
    text
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_aligned() {
        let rows = [["A", "B"], ["löng", ""], ["", "b"]].map(|row| row.map(str::to_owned));
        assert_eq!(aligned(&rows), "A     B\nlöng\n      b\n");
    }
}
