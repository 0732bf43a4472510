//! Where in a file its sections are: that of one of thousands of column families is found without a walk over all of them.

use std::collections::HashMap;

use super::{Section, SectionKind};

/// By kind, and by family the first about its tables.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Places {
    by_kind: HashMap<SectionKind, usize>,
    first_tables: HashMap<String, usize>,
}

impl Places {
    /// Cost: a walk over all sections.
    pub(super) fn of(sections: &[Section]) -> Self {
        let mut places = Self::default();
        sections.iter().enumerate().for_each(|(at, section)| places.add(&section.kind, at));
        places
    }

    /// A section that goes behind all others.
    pub(super) fn add(&mut self, kind: &SectionKind, at: usize) {
        if let SectionKind::Table { family, .. } = kind {
            self.first_tables.entry(family.clone()).or_insert(at);
        }
        self.by_kind.insert(kind.clone(), at);
    }

    pub(super) fn get(&self, kind: &SectionKind) -> Option<usize> {
        self.by_kind.get(kind).copied()
    }

    pub(super) fn first_table(&self, family: &str) -> Option<usize> {
        self.first_tables.get(family).copied()
    }
}
