//! What a thread keeps from one call to the next, because making it costs more than using it.

use std::cell::RefCell;
use std::thread::LocalKey;

/// Calls `run` once, with what the thread keeps. A thread that is ending keeps nothing any more, while destructors of its other locals may
/// still read and write: `run` gets a new one then, as it does within itself.
#[inline]
pub fn with_kept<T: Default, R>(kept: &'static LocalKey<RefCell<T>>, mut run: impl FnMut(&mut T) -> R) -> R {
    let done = kept.try_with(|kept| kept.try_borrow_mut().ok().map(|mut kept| run(&mut kept)));
    match done {
        Ok(Some(done)) => done,
        _ => run(&mut T::default()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    thread_local! {
        static WORDS: RefCell<Vec<u32>> = const { RefCell::new(Vec::new()) };
        static LAST_WORDS: LastWords = const { LastWords };
    }

    struct LastWords;

    impl Drop for LastWords {
        fn drop(&mut self) {
            // Gone before this, which was there first.
            assert!(WORDS.try_with(|_| ()).is_err());
            with_kept(&WORDS, |words| {
                assert!(words.is_empty());
                words.push(3);
            });
        }
    }

    #[test]
    fn what_is_kept_is_there_again_but_within_itself_and_at_the_end_of_the_thread() {
        let thread = std::thread::spawn(|| {
            LAST_WORDS.with(|_| ());
            with_kept(&WORDS, |words| {
                words.push(1);
                with_kept(&WORDS, |inner| assert!(inner.is_empty()));
            });
            with_kept(&WORDS, |words| assert_eq!(*words, [1]));
        });
        thread.join().unwrap();
    }
}
