//! The indexes of a group's entries, and what appending and compacting make of them.

use crate::Refusal;

/// Indexes `first..next`. Empty where both are the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Span {
    pub(crate) first: u64,
    pub(crate) next: u64,
}

impl Span {
    pub(crate) const fn is_empty(&self) -> bool {
        self.first >= self.next
    }

    pub(crate) const fn count(&self) -> u64 {
        self.next.saturating_sub(self.first)
    }

    /// Refuses what a user may not append: behind a gap, or below what was compacted. An empty group takes any index.
    pub(crate) fn check_append(&self, group: u64, first: u64) -> Result<(), Refusal> {
        if self.is_empty() {
            return Ok(());
        }
        if first < self.first {
            return Err(Refusal::Compacted { group, index: first, first: self.first });
        }
        if first > self.next {
            return Err(Refusal::Gap { group, index: first, next: self.next });
        }
        Ok(())
    }

    /// Appends `count` entries from `first` on. What was there from `first` on is replaced; a gap before it, or a start
    /// below the first, means that all that was there is history (seen only when files are replayed).
    ///
    /// Returns whether anything that was there stays.
    pub(crate) fn append(&mut self, first: u64, count: u64) -> bool {
        let stays = !self.is_empty() && first > self.first && first <= self.next;
        if !stays {
            self.first = first;
        }
        self.next = first.saturating_add(count);
        stays
    }

    /// Removes what is from `index` on.
    pub(crate) fn truncate(&mut self, index: u64) {
        self.next = self.next.min(index.max(self.first));
    }

    /// Removes what is below `index`; returns how many that were.
    pub(crate) fn compact(&mut self, index: u64) -> u64 {
        if self.is_empty() || index <= self.first {
            return 0;
        }
        let removed = self.count().min(index - self.first);
        self.first = index;
        self.next = self.next.max(index);
        removed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn appending_replaces_from_its_start_on() {
        let mut span = Span::default();
        assert!(!span.append(5, 10));
        assert_eq!(span, Span { first: 5, next: 15 });
        assert!(span.append(10, 2));
        assert_eq!(span, Span { first: 5, next: 12 });
        assert!(span.append(12, 1));
        assert!(!span.append(5, 1), "nothing of the old is left");
        assert!(!span.append(20, 1), "a gap: the old is history");
        assert!(!span.append(3, 1), "below the first: the same");
        assert_eq!(span, Span { first: 3, next: 4 });
    }

    #[test]
    fn compacting_removes_from_the_front() {
        let mut span = Span { first: 5, next: 15 };
        assert_eq!(span.compact(5), 0);
        assert_eq!(span.compact(8), 3);
        assert_eq!(span.compact(100), 7);
        assert!(span.is_empty());
        assert_eq!(span.compact(200), 0, "nothing is left to compact");
    }

    #[test]
    fn gaps_and_compacted_indexes_are_refused_unless_the_group_is_empty() {
        let span = Span { first: 5, next: 15 };
        assert_eq!(span.check_append(1, 16), Err(Refusal::Gap { group: 1, index: 16, next: 15 }));
        assert_eq!(span.check_append(1, 4), Err(Refusal::Compacted { group: 1, index: 4, first: 5 }));
        assert_eq!((span.check_append(1, 5), span.check_append(1, 15)), (Ok(()), Ok(())));
        assert_eq!(Span { first: 5, next: 5 }.check_append(1, 99), Ok(()));
    }
}
