//! Tables in Markdown.

use std::fmt;

/// A table; the first column holds names, the others figures.
#[derive(Clone, Debug, Default)]
pub struct Table {
    title: String,
    head: Vec<String>,
    rows: Vec<Vec<String>>,
}

impl Table {
    /// A table without rows.
    pub fn new<'a>(title: impl Into<String>, head: impl IntoIterator<Item = &'a str>) -> Self {
        Self {
            title: title.into(),
            head: head.into_iter().map(str::to_owned).collect(),
            rows: Vec::new(),
        }
    }

    /// Adds a row; missing cells stay empty.
    pub fn row(&mut self, cells: impl IntoIterator<Item = String>) {
        let mut row: Vec<String> = cells.into_iter().collect();
        row.resize(self.head.len(), String::new());
        self.rows.push(row);
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let width = |column: usize| {
            let cells = self.rows.iter().chain([&self.head]).map(|row| row[column].chars().count());
            cells.max().unwrap_or(0).max(4)
        };
        let widths: Vec<usize> = (0..self.head.len()).map(width).collect();
        let line = |f: &mut fmt::Formatter<'_>, row: &[String]| {
            for (column, (cell, width)) in row.iter().zip(&widths).enumerate() {
                match column {
                    0 => write!(f, "| {cell:<width$} ")?,
                    _ => write!(f, "| {cell:>width$} ")?,
                }
            }
            writeln!(f, "|")
        };
        if !self.title.is_empty() {
            writeln!(f, "### {}\n", self.title)?;
        }
        line(f, &self.head)?;
        for (column, width) in widths.iter().enumerate() {
            match column {
                0 => write!(f, "| {} ", "-".repeat(*width))?,
                _ => write!(f, "| {}: ", "-".repeat(width - 1))?,
            }
        }
        writeln!(f, "|")?;
        for row in &self.rows {
            line(f, row)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_line_up() {
        let mut table = Table::new("Times", ["", "p50"]);
        table.row(["direct".into(), "1.00".into()]);
        table.row(["x".into()]);
        assert_eq!(
            table.to_string(),
            "### Times\n\n|        |  p50 |\n| ------ | ---: |\n| direct | 1.00 |\n| x      |      |\n"
        );
    }
}
