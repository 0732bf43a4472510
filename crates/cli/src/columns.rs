//! Tables for people: columns as wide as their widest cell, numbers to the right.

/// Rows of cells. The first column is aligned to the left, all others to the right.
#[derive(Debug, Default)]
pub(crate) struct Columns {
    rows: Vec<Vec<String>>,
}

impl Columns {
    /// With these words above the columns.
    pub(crate) fn with_head(head: &[&str]) -> Self {
        Self { rows: vec![head.iter().map(|&cell| cell.to_owned()).collect()] }
    }

    pub(crate) fn row(&mut self, cells: Vec<String>) {
        self.rows.push(cells);
    }

    /// The lines, each behind `indent`.
    pub(crate) fn lines(&self, indent: &str) -> Vec<String> {
        let mut widths: Vec<usize> = Vec::new();
        for row in &self.rows {
            widths.resize(widths.len().max(row.len()), 0);
            for (width, cell) in widths.iter_mut().zip(row) {
                *width = (*width).max(cell.chars().count());
            }
        }
        self.rows.iter().map(|row| line(indent, row, &widths)).collect()
    }
}

fn line(indent: &str, row: &[String], widths: &[usize]) -> String {
    let mut line = indent.to_owned();
    for (index, (cell, &width)) in row.iter().zip(widths).enumerate() {
        if index == 0 {
            line.push_str(&format!("{cell:<width$}"));
        } else {
            line.push_str(&format!("  {cell:>width$}"));
        }
    }
    line.truncate(line.trim_end().len());
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_as_wide_as_their_widest_cell() {
        let mut columns = Columns::with_head(&["level", "files"]);
        columns.row(vec!["0".into(), "1,234,567".into()]);
        assert_eq!(columns.lines("  "), ["  level      files", "  0      1,234,567"]);
    }
}
