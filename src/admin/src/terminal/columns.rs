//! Columns of text.

use comfy_table::{Attribute, Cell as Styled, Color, Table, presets::NOTHING};

/// What the colour of a cell says. A table without colours says the same in words.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Tone {
    /// Nothing.
    #[default]
    Plain,
    /// The title of a column.
    Title,
    /// As declared.
    Good,
    /// On its way, or unknown.
    Unsure,
    /// Not as declared.
    Bad,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Cell {
    text: String,
    tone: Tone,
}

impl Cell {
    /// A cell of a tone.
    pub(crate) fn new(text: impl Into<String>, tone: Tone) -> Self {
        Self { text: text.into(), tone }
    }

    /// A cell without a tone.
    pub(crate) fn plain(text: impl Into<String>) -> Self {
        Self::new(text, Tone::Plain)
    }

    /// The title of a column.
    pub(crate) fn title(text: &str) -> Self {
        Self::new(text, Tone::Title)
    }

    fn styled(self) -> Styled {
        // A tab or a line break would shift the columns.
        let text: String = self.text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
        let cell = Styled::new_owned(text);
        match self.tone {
            Tone::Plain => cell,
            Tone::Title => cell.add_attribute(Attribute::Bold),
            Tone::Good => cell.fg(Color::Green),
            Tone::Unsure => cell.fg(Color::Yellow),
            Tone::Bad => cell.fg(Color::Red),
        }
    }
}

/// The rows as lines. Each column is as wide as its widest cell, with two spaces between columns and none at the end of
/// a line.
pub(crate) fn table(rows: impl IntoIterator<Item = Vec<Cell>>, coloured: bool) -> String {
    let mut table = Table::new();
    table.load_style(NOTHING).force_no_tty();
    if coloured {
        table.enforce_styling().style_text_only();
    }
    for row in rows {
        table.add_row(row.into_iter().map(Cell::styled));
    }
    for column in table.column_iter_mut() {
        column.set_padding((0, 2));
    }
    if table.is_empty() { String::new() } else { table.trim_fmt() + "\n" }
}

/// The rows as lines without colours, as [`table`].
pub(crate) fn aligned<const N: usize>(rows: &[[String; N]]) -> String {
    table(rows.iter().map(|row| row.iter().map(Cell::plain).collect()), false)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_aligned() {
        let rows = [["A", "B"], ["löng", ""], ["", "b"]].map(|row| row.map(str::to_owned));
        assert_eq!(aligned(&rows), "A     B\nlöng\n      b\n");
        assert_eq!(aligned::<2>(&[]), "");
        assert_eq!(table([vec![Cell::plain("a\nb"), Cell::plain("c")]], false), "a b  c\n");
    }

    #[test]
    fn colours_do_not_shift_columns() {
        let rows = |tone| [vec![Cell::new("yes", tone), Cell::plain("x")], vec![Cell::plain("a"), Cell::plain("y")]];
        let coloured = table(rows(Tone::Bad), true);
        assert!(coloured.contains("\u{1b}["), "{coloured:?}");
        let plain = table(rows(Tone::Bad), false);
        assert_eq!(plain, "yes  x\na    y\n");
        let last = |text: &str| text.lines().last().map(str::to_owned);
        assert_eq!(last(&coloured), last(&plain));
    }
}
