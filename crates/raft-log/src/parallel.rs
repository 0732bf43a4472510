//! The same work on many things at once, on threads of [`Env`].

use std::collections::VecDeque;
use std::sync::Arc;

use esker_env::Env;
use parking_lot::Mutex;

use crate::{Error, ErrorKind, Result};

struct Shared<T, R> {
    jobs: Mutex<VecDeque<(usize, T)>>,
    results: Mutex<Vec<(usize, R)>>,
}

/// Does `work` to each of `jobs` on `threads` threads, this one among them; results are in the order of the jobs.
///
/// # Errors
/// If a thread died without an answer.
pub(crate) fn each<T, R>(
    env: &Env,
    threads: usize,
    jobs: Vec<T>,
    work: impl Fn(T) -> R + Send + Sync + 'static,
) -> Result<Vec<R>>
where
    T: Send + 'static,
    R: Send + 'static,
{
    let count = jobs.len();
    if threads <= 1 || count <= 1 {
        return Ok(jobs.into_iter().map(work).collect());
    }
    let jobs = Mutex::new(jobs.into_iter().enumerate().collect());
    let shared = Arc::new(Shared { jobs, results: Mutex::new(Vec::with_capacity(count)) });
    let run: Arc<dyn Fn() + Send + Sync> = Arc::new({
        let shared = Arc::clone(&shared);
        move || {
            loop {
                let next = shared.jobs.lock().pop_front();
                let Some((at, job)) = next else { return };
                let made = work(job);
                shared.results.lock().push((at, made));
            }
        }
    });
    let others: Vec<_> = (1..threads.min(count))
        .filter_map(|_| {
            let run = Arc::clone(&run);
            // Too few threads only take longer.
            env.threads.spawn("esker-recover", Box::new(move || run())).ok()
        })
        .collect();
    run();
    for mut other in others {
        other.join();
    }
    let mut results = std::mem::take(&mut *shared.results.lock());
    if results.len() != count {
        return Err(Error::new(ErrorKind::Io, "a thread of recovery died"));
    }
    results.sort_unstable_by_key(|(at, _)| *at);
    Ok(results.into_iter().map(|(_, made)| made).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_come_in_the_order_of_the_jobs() {
        for threads in [1, 2, 7] {
            let results = each(&Env::os(), threads, (0..100u64).collect(), |job| job * job).unwrap();
            assert_eq!(results, (0..100u64).map(|job| job * job).collect::<Vec<_>>());
        }
    }
}
