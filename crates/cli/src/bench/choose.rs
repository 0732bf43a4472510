//! Which key comes next, where a benchmark asks for keys at random.
//!
//! Zipfian numbers are made as YCSB makes them: Gray et al., *Quickly Generating Billion-Record Synthetic Databases*,
//! 1994, with the constant 0.99.

use clap::ValueEnum;

use super::random::{Permutation, Random};

/// How often each key is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Distribution {
    /// Few keys often, most seldom; the popular ones lie anywhere
    Zipfian,
    /// The newest keys most often
    Latest,
    /// All alike
    Uniform,
}

/// Chooses among the keys of a space that may grow.
#[derive(Debug, Clone)]
pub(super) enum Chooser {
    Uniform,
    Zipfian(Zipf, Permutation),
    Latest(Zipf),
}

impl Chooser {
    /// Among `count` keys, of which the popular ones follow from `seed`.
    pub(super) fn new(distribution: Distribution, count: u64, seed: u64) -> Self {
        match distribution {
            Distribution::Uniform => Self::Uniform,
            Distribution::Zipfian => Self::Zipfian(Zipf::new(count), Permutation::new(count, seed)),
            Distribution::Latest => Self::Latest(Zipf::new(count)),
        }
    }

    /// The number of a key below `count`, which is at least what it was in the beginning.
    #[inline]
    pub(super) fn choose(&self, random: &mut Random, count: u64) -> u64 {
        match self {
            Self::Uniform => random.below(count),
            Self::Zipfian(zipf, order) => order.number(zipf.rank(random)),
            Self::Latest(zipf) => count.saturating_sub(1).saturating_sub(zipf.rank(random)),
        }
    }
}

/// Ranks from 0 on, the `i`-th with a probability in proportion to `1 / (i + 1)^0.99`.
#[derive(Debug, Clone)]
pub(super) struct Zipf {
    count: u64,
    zeta: f64,
    eta: f64,
    second: f64,
}

/// How skewed; YCSB's.
const THETA: f64 = 0.99;
/// `1 / (1 - THETA)`, whole so that a power is a few multiplications.
const ALPHA: i32 = 100;
/// Terms that are summed one by one; the rest is an integral, exact to nine digits from here on.
const TERMS_SUMMED: u64 = 1000;

impl Zipf {
    /// Ranks below `count`.
    pub(super) fn new(count: u64) -> Self {
        let count = count.max(1);
        let zeta = zeta(count);
        Self {
            count,
            zeta,
            eta: (1.0 - (2.0 / count as f64).powf(1.0 - THETA)) / (1.0 - zeta_of_two() / zeta),
            second: zeta_of_two(),
        }
    }

    /// One of them.
    #[inline]
    pub(super) fn rank(&self, random: &mut Random) -> u64 {
        let fraction = random.fraction();
        let scaled = fraction * self.zeta;
        if scaled < 1.0 {
            return 0;
        }
        if scaled < self.second {
            return 1.min(self.count - 1);
        }
        let rank = self.count as f64 * (self.eta * fraction - self.eta + 1.0).powi(ALPHA);
        (rank as u64).min(self.count - 1)
    }
}

fn zeta_of_two() -> f64 {
    1.0 + 0.5f64.powf(THETA)
}

/// The sum of `k^-0.99` for `k` from 1 to `count`: the first terms, then Euler and Maclaurin's formula.
fn zeta(count: u64) -> f64 {
    let term = |k: u64| (k as f64).powf(-THETA);
    let summed = (1..=count.min(TERMS_SUMMED)).map(term).sum();
    if count <= TERMS_SUMMED {
        return summed;
    }
    let integral = |x: u64| (x as f64).powf(1.0 - THETA) / (1.0 - THETA);
    let (from, to) = (TERMS_SUMMED, count);
    let slope = |k: u64| -THETA * (k as f64).powf(-THETA - 1.0);
    summed + integral(to) - integral(from) + (term(to) - term(from)) / 2.0 + (slope(to) - slope(from)) / 12.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sum_is_that_of_all_terms() {
        let slow: f64 = (1..=200_000u64).map(|k| (k as f64).powf(-THETA)).sum();
        assert!((zeta(200_000) - slow).abs() < 1e-6, "{} {slow}", zeta(200_000));
    }

    #[test]
    fn popular_ranks_come_as_often_as_they_should() {
        let (count, draws) = (1000, 200_000);
        let (zipf, mut random) = (Zipf::new(count), Random::new(3, 0));
        let mut hits = vec![0u32; count as usize];
        for _ in 0..draws {
            hits[zipf.rank(&mut random) as usize] += 1;
        }
        for rank in [0usize, 1] {
            let share = f64::from(hits[rank]) / f64::from(draws);
            let due = ((rank + 1) as f64).powf(-THETA) / zeta(count);
            assert!((share / due - 1.0).abs() < 0.1, "rank {rank}: {share}, due {due}");
        }
        assert!(hits.iter().filter(|&&hits| hits > 0).count() > 900);
    }

    #[test]
    fn every_choice_is_a_key_that_is_there() {
        for distribution in [Distribution::Zipfian, Distribution::Latest, Distribution::Uniform] {
            for count in [1, 2, 3, 100] {
                let (chooser, mut random) = (Chooser::new(distribution, count, 1), Random::new(1, 1));
                assert!((0..500).all(|_| chooser.choose(&mut random, count) < count), "{distribution:?} {count}");
            }
        }
    }
}
