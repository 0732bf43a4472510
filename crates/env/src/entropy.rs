//! Randomness.

use std::fmt::Debug;

/// Bytes nobody can guess from earlier ones; a simulated source repeats its seed's.
pub trait Entropy: Debug + Send + Sync {
    /// Fills `out`.
    fn fill(&self, out: &mut [u8]);
}
