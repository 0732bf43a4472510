//! The system's entropy.

use std::collections::hash_map::RandomState;
use std::fs::File;
use std::hash::BuildHasher;
use std::io::{self, Read};

use crate::Entropy;

/// The kernel's random numbers.
#[derive(Debug, Clone, Copy, Default)]
pub struct OsEntropy;

impl Entropy for OsEntropy {
    fn fill(&self, out: &mut [u8]) {
        if from_kernel(out).is_ok() || from_device(out).is_ok() {
            return;
        }
        // No system call and no device, as in a bare chroot: the seeds that std took from the system at start
        // still make identities unique, which is all that Esker asks for.
        for (index, chunk) in out.chunks_mut(8).enumerate() {
            let word = RandomState::new().hash_one(index).to_le_bytes();
            for (byte, random) in chunk.iter_mut().zip(word) {
                *byte = random;
            }
        }
    }
}

#[cfg(target_os = "linux")]
fn from_kernel(mut out: &mut [u8]) -> io::Result<()> {
    while !out.is_empty() {
        match rustix::rand::getrandom(&mut *out, rustix::rand::GetRandomFlags::empty()) {
            Ok(count) => out = out.get_mut(count..).unwrap_or_default(),
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

#[cfg(not(target_os = "linux"))]
fn from_kernel(_: &mut [u8]) -> io::Result<()> {
    Err(io::ErrorKind::Unsupported.into())
}

fn from_device(out: &mut [u8]) -> io::Result<()> {
    File::open("/dev/urandom")?.read_exact(out)
}
