//! Waiting until an engine's threads have nothing to do, told by the processor time of its process.

use std::time::{Duration, Instant};

use super::process::cpu_seconds_now;
use crate::Result;

/// An engine is quiet once its process has used no more than [`QUIET_CPU_SECONDS`] in this time.
const QUIET_PERIOD: Duration = Duration::from_millis(200);

/// See [`QUIET_PERIOD`].
const QUIET_CPU_SECONDS: f64 = 0.021;

/// After this, it is measured as it is.
const QUIET_WAIT_MAX: Duration = Duration::from_secs(120);

/// Returns once this process is idle.
///
/// # Errors
/// `/proc` is not what it should be.
pub fn wait_until_quiet() -> Result<()> {
    let begun = Instant::now();
    let mut before = cpu_seconds_now()?;
    while begun.elapsed() < QUIET_WAIT_MAX {
        std::thread::sleep(QUIET_PERIOD);
        let now = cpu_seconds_now()?;
        if now - before <= QUIET_CPU_SECONDS {
            break;
        }
        before = now;
    }
    Ok(())
}
