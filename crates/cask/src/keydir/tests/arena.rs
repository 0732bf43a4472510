use std::sync::atomic::Ordering;

use super::super::arena::{Arena, SegmentId};
use crate::sync::SEGMENT_WORDS;

/// Goal: every segment has words of its own, across the ends of chunks, and one that came back is given out again.
#[test]
fn no_word_has_two_segments() {
    let arena = Arena::new(16);
    let count: u32 = if cfg!(miri) { 200 } else { 5000 };
    let ids: Vec<SegmentId> = (0..count).map(|_| arena.take()).collect();
    for &id in &ids {
        assert_eq!(arena.segment(id).len(), SEGMENT_WORDS, "segment {id}");
        arena.segment(id).iter().for_each(|word| word.store(id.into(), Ordering::Relaxed));
    }
    for &id in &ids {
        assert!(arena.segment(id).iter().all(|word| word.load(Ordering::Relaxed) == u64::from(id)), "segment {id}");
    }
    assert_eq!(arena.memory_bytes(), u64::from(count) * 2048 + 128);
    arena.give_back(7);
    assert_eq!(arena.memory_bytes(), u64::from(count - 1) * 2048 + 128);
    assert_eq!(arena.take(), 7);
    for id in [0, 100_000, u32::MAX] {
        assert!(arena.segment(id).is_empty(), "there is no segment {id}");
    }
}
