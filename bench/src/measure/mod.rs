//! What a process costs, as the kernel counts it, and how long operations take.

mod latency;
mod memory;
mod process;
mod quiet;

pub use latency::Latencies;
pub use memory::PeakMemory;
pub use process::{cost_now, disk_bytes};
pub use quiet::wait_until_quiet;
