//! What a process costs, as the kernel counts it, and how long operations take.

mod latency;
mod memory;
mod process;

pub use latency::Latencies;
pub use memory::PeakMemory;
pub use process::{cost_now, cpu_seconds_now, disk_bytes};
