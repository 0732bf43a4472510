//! Opening a regular file by its name, and nothing else.
//!
//! An open of a named pipe waits for whoever opens its other end, for ever perhaps; a device has no bytes at places. What a store takes for its
//! file may be either, by mistake or by malice.
//!
//! Cost: two calls beside the open, which ask what it is, and take back what kept it from waiting.

use std::fs::{self, File, FileType, OpenOptions};
use std::io;
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::Path;

use rustix::fs::{OFlags, fcntl_setfl};
use rustix::io::Errno;

/// Opens what `path` names, if that is a regular file. Of `options`, flags of its own are replaced.
pub(super) fn open(path: &Path, options: &mut OpenOptions) -> io::Result<File> {
    let file = match options.custom_flags(OFlags::NONBLOCK.bits() as i32).open(path) {
        // Somebody has a lease on the file and is asked to give it up (`fcntl(2)`): that is waited for, as ever.
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => options.custom_flags(0).open(path)?,
        // A socket, or a pipe that nobody reads.
        Err(error) if error.raw_os_error() == Some(Errno::NXIO.raw_os_error()) => {
            fs::metadata(path).and_then(|found| check(found.file_type()))?;
            return Err(error);
        }
        opened => opened?,
    };
    check(file.metadata()?.file_type())?;
    // Of regular files some file systems, such as those in user space, are told of it at each call.
    fcntl_setfl(&file, OFlags::empty())?;
    Ok(file)
}

fn check(kind: FileType) -> io::Result<()> {
    let what = match kind {
        kind if kind.is_file() => return Ok(()),
        // The system opens directories for reading, too, and says so only when they are read.
        kind if kind.is_dir() => return Err(Errno::ISDIR.into()),
        kind if kind.is_fifo() => "a named pipe",
        kind if kind.is_socket() => "a socket",
        _ => "a device",
    };
    Err(io::Error::other(format!(
        "this is {what} in place of a file; move it away, and bring the file back if there was one"
    )))
}
