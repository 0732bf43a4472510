//! The rooms under test, and a walker through what they read.

#[path = "../../../../crates/db/src/iterate/ahead.rs"]
#[expect(dead_code, reason = "a part of another crate's source")]
mod ahead;
#[path = "../../../../crates/db/src/iterate/aide.rs"]
mod aide;
#[path = "../../../../crates/db/src/iterate/pace.rs"]
#[expect(dead_code, reason = "a part of another crate's source")]
pub(crate) mod pace;
#[path = "../../../../crates/db/src/iterate/stretch.rs"]
mod stretch;
mod visible;
mod walk;

pub use visible::{Store, Walk};
