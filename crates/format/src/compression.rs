//! Compressed blocks and blobs, as RocksDB frames them.
//!
//! | byte | [`Compression`] | bytes                                                              |
//! |-----:|-----------------|--------------------------------------------------------------------|
//! |    0 | `None`          | the raw bytes                                                      |
//! |    1 | `Snappy`        | a Snappy block, which begins with its raw length                   |
//! |    2 | `Zlib`          | varint raw length, then deflate data without a header of zlib's    |
//! |    4 | `Lz4`           | varint raw length, then one LZ4 block                              |
//! |    5 | `Lz4hc`         | the same, packed with more patience; read, never written           |
//! |    7 | `Zstd`          | varint raw length, then one Zstandard frame                        |
//! |   64 | `Zstd`          | the same, from before that was final; read, never written          |
//!
//! bzip2 (3) and Xpress (6) are unsupported. Tables of format version 2 and later and blob files use the same
//! framing. Blocks of a table may be packed in sight of a [`Dictionary`]: such are read, never written.
//!
//! Source: RocksDB `include/rocksdb/compression_type.h`, `util/compression.cc` ("compress format version 2"),
//! `db/blob/blob_file_builder.cc`.

mod dictionary;

pub use dictionary::Dictionary;

use std::cell::RefCell;

use flate2::{Compress, Decompress, FlushCompress, FlushDecompress, Status};

use crate::error::DecodeError;
use crate::kept::with_kept;
use crate::limits::{LZ4_RAW_BYTES_MAX, TooLarge};
use crate::lz4;
use crate::varint::{self, VARINT64_BYTES_MAX};

/// RocksDB's `kZSTDNotFinalCompression`, which some programs still choose.
const ZSTD_NOT_FINAL: u8 = 64;
/// RocksDB's default level for Zstandard.
const ZSTD_LEVEL: i32 = 3;
/// RocksDB's default level for deflate.
const ZLIB_LEVEL: u32 = 6;
/// Distances of 16 KiB at most, as RocksDB writes, and unpacks without a larger window.
const ZLIB_WINDOW_BITS: u8 = 14;
/// A stored block of deflate is no longer.
const ZLIB_STORED_BYTES_MAX: usize = u16::MAX as usize;
/// Deflate's longest copy, of 258 bytes, takes two bits at least.
const ZLIB_RATIO_MAX: u64 = 1032;
/// One LZ4 byte extends a match by at most 255.
const LZ4_RATIO_MAX: u64 = 255;
/// A Snappy copy of three bytes yields at most 64.
const SNAPPY_RATIO_MAX: u64 = 22;
/// A Zstandard block of four bytes yields at most 128 KiB.
const ZSTD_RATIO_MAX: u64 = 32 << 10;
/// Largest block inside a Zstandard frame.
const ZSTD_BLOCK_BYTES_MAX: usize = 128 << 10;

/// How the bytes of a block or blob are packed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Compression {
    /// Not at all.
    #[default]
    None = 0,
    /// Snappy.
    Snappy = 1,
    /// Deflate, for stores that RocksDB packed so: slower to pack and unpack than [`Zstd`](Self::Zstd), and no smaller.
    Zlib = 2,
    /// LZ4: the fastest to unpack.
    Lz4 = 4,
    /// LZ4, packed harder by somebody else. Unpacks as LZ4.
    Lz4hc = 5,
    /// Zstandard: the smallest.
    Zstd = 7,
}

impl Compression {
    /// Each of them.
    pub const ALL: [Self; 6] = [Self::None, Self::Snappy, Self::Zlib, Self::Lz4, Self::Lz4hc, Self::Zstd];

    /// The kind that a trailer, a blob file or a blob index calls `byte`.
    ///
    /// # Errors
    /// Unsupported for any other byte.
    #[inline]
    pub fn from_u8(byte: u8) -> Result<Self, DecodeError> {
        Self::supported(byte).ok_or_else(|| unsupported(byte))
    }

    /// The same, not saying why there is none.
    #[inline]
    pub(crate) const fn supported(byte: u8) -> Option<Self> {
        match byte {
            0 => Some(Self::None),
            1 => Some(Self::Snappy),
            2 => Some(Self::Zlib),
            4 => Some(Self::Lz4),
            5 => Some(Self::Lz4hc),
            7 | ZSTD_NOT_FINAL => Some(Self::Zstd),
            _ => None,
        }
    }

    /// The byte on disk.
    pub const fn as_u8(self) -> u8 {
        self as u8
    }

    /// As a table's property `rocksdb.compression` spells it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::None => "NoCompression",
            Self::Snappy => "Snappy",
            Self::Zlib => "Zlib",
            Self::Lz4 => "LZ4",
            Self::Lz4hc => "LZ4HC",
            Self::Zstd => "ZSTD",
        }
    }

    /// As RocksDB's OPTIONS file spells it.
    pub const fn option_name(self) -> &'static str {
        match self {
            Self::None => "kNoCompression",
            Self::Snappy => "kSnappyCompression",
            Self::Zlib => "kZlibCompression",
            Self::Lz4 => "kLZ4Compression",
            Self::Lz4hc => "kLZ4HCCompression",
            Self::Zstd => "kZSTD",
        }
    }

    /// The kind that [`option_name`](Self::option_name) spells so, or that was spelled so before Zstandard was final.
    pub fn from_option_name(name: &str) -> Option<Self> {
        if name == "kZSTDNotFinalCompression" {
            return Some(Self::Zstd);
        }
        Self::ALL.into_iter().find(|kind| kind.option_name() == name)
    }
}

#[cold]
fn unsupported(byte: u8) -> DecodeError {
    match byte {
        3 => DecodeError::unsupported("compression", 0, "bzip2 is not supported"),
        6 => DecodeError::unsupported("compression", 0, "Xpress is not supported"),
        _ => DecodeError::unsupported("compression", 0, format!("kind {byte} is not known")),
    }
}

/// What each thread keeps: making a context costs more than packing a block.
#[derive(Default)]
struct Contexts {
    snappy: Option<snap::raw::Encoder>,
    zlib_pack: Option<Compress>,
    zlib_unpack: Option<Decompress>,
    zstd_pack: Option<zstd::bulk::Compressor<'static>>,
    zstd_unpack: Option<zstd::zstd_safe::DCtx<'static>>,
}

thread_local! {
    static CONTEXTS: RefCell<Contexts> = RefCell::default();
}

/// Replaces `out` by `raw`, packed and framed. The result may be longer than `raw`: whether it is worth keeping is the caller's to say.
///
/// Cost: one pass over `raw`; contexts are kept per thread, so only a growing `out` allocates.
///
/// # Errors
/// If `raw` is longer than the format holds: 4 GiB, or [`LZ4_RAW_BYTES_MAX`] for LZ4. `out` is then empty.
pub fn compress(kind: Compression, raw: &[u8], out: &mut Vec<u8>) -> Result<(), TooLarge> {
    out.clear();
    let limit_bytes = match kind {
        Compression::Lz4 | Compression::Lz4hc => LZ4_RAW_BYTES_MAX,
        Compression::Snappy | Compression::Zlib | Compression::Zstd => u32::MAX as usize,
        Compression::None => usize::MAX,
    };
    TooLarge::check("value to compress", raw.len(), limit_bytes)?;
    match kind {
        Compression::None => out.extend_from_slice(raw),
        Compression::Snappy => compress_snappy(raw, out),
        Compression::Zlib => compress_zlib(raw, out),
        Compression::Lz4 | Compression::Lz4hc => compress_lz4(raw, out),
        Compression::Zstd => compress_zstd(raw, out),
    }
    Ok(())
}

fn compress_snappy(raw: &[u8], out: &mut Vec<u8>) {
    out.resize(snap::raw::max_compress_len(raw.len()), 0);
    let packed =
        with_kept(&CONTEXTS, |contexts| contexts.snappy.get_or_insert_with(snap::raw::Encoder::new).compress(raw, out));
    match packed {
        Ok(count) => out.truncate(count),
        Err(_) => store_snappy(raw, out),
    }
}

fn compress_zlib(raw: &[u8], out: &mut Vec<u8>) {
    varint::put_u64(out, raw.len() as u64);
    let header_bytes = out.len();
    // What does not compress is stored, and the ends of blocks come on top: less than a hundredth, and some bytes.
    out.resize(header_bytes.saturating_add(raw.len()).saturating_add(raw.len() / 64 + 64), 0);
    let packed = with_kept(&CONTEXTS, |contexts| {
        let new = || Compress::new_with_window_bits(flate2::Compression::new(ZLIB_LEVEL), false, ZLIB_WINDOW_BITS);
        let context = contexts.zlib_pack.get_or_insert_with(new);
        context.reset();
        let status = context.compress(raw, out.get_mut(header_bytes..)?, FlushCompress::Finish).ok()?;
        let count = usize::try_from(context.total_out()).ok()?;
        (status == Status::StreamEnd).then_some(count)
    });
    out.truncate(header_bytes + packed.unwrap_or(0));
    if packed.is_none() {
        store_zlib(raw, out);
    }
}

fn compress_lz4(raw: &[u8], out: &mut Vec<u8>) {
    varint::put_u64(out, raw.len() as u64);
    let header_bytes = out.len();
    out.resize(header_bytes.saturating_add(lz4::packed_bytes_max(raw.len())), 0);
    let packed = lz4::pack(raw, out.get_mut(header_bytes..).unwrap_or_default());
    out.truncate(header_bytes + packed.unwrap_or(0));
    if packed.is_none() {
        store_lz4(raw, out);
    }
}

fn compress_zstd(raw: &[u8], out: &mut Vec<u8>) {
    varint::put_u64(out, raw.len() as u64);
    let header_bytes = out.len();
    out.resize(header_bytes.saturating_add(zstd::zstd_safe::compress_bound(raw.len())), 0);
    let packed = with_kept(&CONTEXTS, |contexts| {
        let context = match &mut contexts.zstd_pack {
            Some(context) => context,
            empty => empty.insert(zstd::bulk::Compressor::new(ZSTD_LEVEL).ok()?),
        };
        context.compress_to_buffer(raw, out.get_mut(header_bytes..)?).ok()
    });
    out.truncate(header_bytes + packed.unwrap_or(0));
    if packed.is_none() {
        store_zstd(raw, out);
    }
}

// The packers fail only for want of memory. Then the bytes go out unpacked, in the same framing.

fn store_snappy(raw: &[u8], out: &mut Vec<u8>) {
    out.clear();
    varint::put_u64(out, raw.len() as u64);
    for piece in raw.chunks(1 << 16) {
        // A literal with its length less one in two bytes.
        out.push(61 << 2);
        out.extend_from_slice(&(piece.len() as u16).wrapping_sub(1).to_le_bytes());
        out.extend_from_slice(piece);
    }
}

fn store_zlib(raw: &[u8], out: &mut Vec<u8>) {
    let mut pieces = raw.chunks(ZLIB_STORED_BYTES_MAX).peekable();
    loop {
        let piece = pieces.next().unwrap_or_default();
        let is_last = pieces.peek().is_none();
        let count = piece.len() as u16;
        out.push(u8::from(is_last));
        out.extend_from_slice(&count.to_le_bytes());
        out.extend_from_slice(&(!count).to_le_bytes());
        out.extend_from_slice(piece);
        if is_last {
            return;
        }
    }
}

fn store_lz4(raw: &[u8], out: &mut Vec<u8>) {
    // One last sequence: literals only.
    if raw.len() < 15 {
        out.push((raw.len() as u8) << 4);
    } else {
        out.push(15 << 4);
        let rest = raw.len() - 15;
        out.resize(out.len() + rest / 255, 255);
        out.push((rest % 255) as u8);
    }
    out.extend_from_slice(raw);
}

fn store_zstd(raw: &[u8], out: &mut Vec<u8>) {
    out.extend_from_slice(&0xfd2f_b528u32.to_le_bytes());
    // One segment, content size in eight bytes.
    out.push(0b1110_0000);
    out.extend_from_slice(&(raw.len() as u64).to_le_bytes());
    let block = |piece: &[u8], last: bool, out: &mut Vec<u8>| {
        let header = (piece.len() as u32) << 3 | u32::from(last);
        out.extend(header.to_le_bytes().into_iter().take(3));
        out.extend_from_slice(piece);
    };
    let mut pieces = raw.chunks(ZSTD_BLOCK_BYTES_MAX).peekable();
    if pieces.peek().is_none() {
        block(&[], true, out);
    }
    while let Some(piece) = pieces.next() {
        block(piece, pieces.peek().is_none(), out);
    }
}

/// Replaces `out` by what was packed into `compressed`.
///
/// Cost: one pass. Allocates the raw length, once the input is known to be long enough for it; clears what `out` grows by, so one that
/// was as long before is not cleared.
///
/// # Errors
/// Corrupt if `compressed` is not what [`compress`] writes, or says that it unpacks to more than `limit_bytes`. `out` is then empty.
pub fn decompress(
    kind: Compression,
    compressed: &[u8],
    out: &mut Vec<u8>,
    limit_bytes: usize,
) -> Result<(), DecodeError> {
    decompress_with(None, kind, compressed, out, limit_bytes)
}

fn decompress_with(
    dictionary: Option<&Dictionary>,
    kind: Compression,
    compressed: &[u8],
    out: &mut Vec<u8>,
    limit_bytes: usize,
) -> Result<(), DecodeError> {
    let done = match kind {
        Compression::None => raw_length(compressed.len() as u64, compressed.len(), 1, limit_bytes).map(|_| {
            out.clear();
            out.extend_from_slice(compressed);
        }),
        Compression::Snappy => decompress_snappy(compressed, out, limit_bytes),
        Compression::Zlib => decompress_zlib(dictionary, compressed, out, limit_bytes),
        Compression::Lz4 | Compression::Lz4hc => decompress_lz4(dictionary, compressed, out, limit_bytes),
        Compression::Zstd => decompress_zstd(dictionary, compressed, out, limit_bytes),
    };
    if done.is_err() {
        out.clear();
    }
    done
}

/// So many bytes at the front of what is packed say what it unpacks to.
pub const RAW_LEN_BYTES_MAX: usize = VARINT64_BYTES_MAX;

/// What `packed_bytes` of input say that they unpack to, of which `front` is the first [`RAW_LEN_BYTES_MAX`] (all, if there are fewer).
///
/// # Errors
/// Corrupt if so few bytes cannot hold that many, or it is more than `limit_bytes`.
pub fn raw_len(kind: Compression, front: &[u8], packed_bytes: usize, limit_bytes: usize) -> Result<usize, DecodeError> {
    match kind {
        Compression::None => raw_length(packed_bytes as u64, packed_bytes, 1, limit_bytes),
        Compression::Snappy => {
            let raw_bytes = snap::raw::decompress_len(front).map_err(|error| bad_data("Snappy data", 0, error))?;
            raw_length(raw_bytes as u64, packed_bytes, SNAPPY_RATIO_MAX, limit_bytes)
        }
        Compression::Zlib | Compression::Lz4 | Compression::Lz4hc | Compression::Zstd => {
            let (raw_bytes, count, _) = length_prefix(front)?;
            let ratio_max = match kind {
                Compression::Zlib => ZLIB_RATIO_MAX,
                Compression::Zstd => ZSTD_RATIO_MAX,
                _ => LZ4_RATIO_MAX,
            };
            raw_length(raw_bytes, packed_bytes.saturating_sub(count), ratio_max, limit_bytes)
        }
    }
}

/// The raw length as a size, if `packed_bytes` of input can yield it and the caller wants it.
fn raw_length(raw_bytes: u64, packed_bytes: usize, ratio_max: u64, limit_bytes: usize) -> Result<usize, DecodeError> {
    let refuse = |reason: String| DecodeError::corrupt("raw length", 0, reason);
    if raw_bytes > (packed_bytes as u64).saturating_mul(ratio_max) {
        return Err(refuse(format!("{packed_bytes} compressed bytes cannot hold {raw_bytes}")));
    }
    usize::try_from(raw_bytes)
        .ok()
        .filter(|&bytes| bytes <= limit_bytes)
        .ok_or_else(|| refuse(format!("{raw_bytes} bytes, at most {limit_bytes} are expected")))
}

fn bad_data(name: &'static str, offset: usize, reason: impl std::fmt::Display) -> DecodeError {
    DecodeError::corrupt(name, offset as u64, format!("does not decompress: {reason}"))
}

fn decompress_snappy(compressed: &[u8], out: &mut Vec<u8>, limit_bytes: usize) -> Result<(), DecodeError> {
    let bad = |error| bad_data("Snappy data", 0, error);
    let raw_bytes = snap::raw::decompress_len(compressed).map_err(bad)?;
    out.resize(raw_length(raw_bytes as u64, compressed.len(), SNAPPY_RATIO_MAX, limit_bytes)?, 0);
    let count = snap::raw::Decoder::new().decompress(compressed, out).map_err(bad)?;
    whole("Snappy data", 0, count, out)
}

fn decompress_zlib(
    dictionary: Option<&Dictionary>,
    compressed: &[u8],
    out: &mut Vec<u8>,
    limit_bytes: usize,
) -> Result<(), DecodeError> {
    let (raw_bytes, offset, data) = length_prefix(compressed)?;
    out.resize(raw_length(raw_bytes, data.len(), ZLIB_RATIO_MAX, limit_bytes)?, 0);
    let count = with_kept(&CONTEXTS, |contexts| {
        let context = contexts.zlib_unpack.get_or_insert_with(|| Decompress::new(false));
        context.reset(false);
        if let Some(dictionary) = dictionary {
            context.set_dictionary(dictionary.raw())?;
        }
        let status = context.decompress(data, out, FlushDecompress::Finish)?;
        // What goes on, or ends before the input does, is not what was packed.
        let is_whole = status == Status::StreamEnd && context.total_in() == data.len() as u64;
        Ok(is_whole.then(|| context.total_out()))
    });
    let count = count.map_err(|error: flate2::DecompressError| bad_data("deflate data", offset, error))?;
    let count = count.ok_or_else(|| bad_data("deflate data", offset, "it does not end where it should"))?;
    whole("deflate data", offset, usize::try_from(count).unwrap_or(usize::MAX), out)
}

/// The length before deflate, LZ4 and Zstandard data, how many bytes it takes, and the data.
fn length_prefix(compressed: &[u8]) -> Result<(u64, usize, &[u8]), DecodeError> {
    varint::get_u64(compressed)
        .and_then(|(raw_bytes, count)| Some((raw_bytes, count, compressed.get(count..)?)))
        .ok_or_else(|| DecodeError::corrupt("raw length", 0, "not a variable-length integer"))
}

fn decompress_lz4(
    dictionary: Option<&Dictionary>,
    compressed: &[u8],
    out: &mut Vec<u8>,
    limit_bytes: usize,
) -> Result<(), DecodeError> {
    let (raw_bytes, offset, data) = length_prefix(compressed)?;
    out.resize(raw_length(raw_bytes, data.len(), LZ4_RATIO_MAX, limit_bytes)?, 0);
    let unpacked = match dictionary {
        None => lz4::unpack(data, out).map_err(|error| bad_data("LZ4 data", offset, error)),
        Some(dictionary) => lz4_flex::block::decompress_into_with_dict(data, out, dictionary.raw())
            .map_err(|error| bad_data("LZ4 data", offset, error)),
    };
    let count = unpacked?;
    whole("LZ4 data", offset, count, out)
}

fn decompress_zstd(
    dictionary: Option<&Dictionary>,
    compressed: &[u8],
    out: &mut Vec<u8>,
    limit_bytes: usize,
) -> Result<(), DecodeError> {
    let (raw_bytes, offset, data) = length_prefix(compressed)?;
    let raw_bytes = raw_length(raw_bytes, data.len(), ZSTD_RATIO_MAX, limit_bytes)?;
    if let Ok(Some(frame_bytes)) = zstd::zstd_safe::get_frame_content_size(data)
        && frame_bytes != raw_bytes as u64
    {
        return Err(bad_data("Zstandard data", offset, format!("its frame says {frame_bytes} bytes, not {raw_bytes}")));
    }
    unpack_zstd(dictionary, data, offset, raw_bytes, out)
}

/// Makes `out` the `raw_bytes` that `data` unpacks to, which lies at `offset` of what is being read.
fn unpack_zstd(
    dictionary: Option<&Dictionary>,
    data: &[u8],
    offset: usize,
    raw_bytes: usize,
    out: &mut Vec<u8>,
) -> Result<(), DecodeError> {
    // Not more than was asked for, even if `out` has more room from an earlier use.
    out.resize(raw_bytes, 0);
    let dictionary = dictionary.map(Dictionary::for_zstd).transpose()?;
    let count = with_kept(&CONTEXTS, |contexts| {
        let context = match &mut contexts.zstd_unpack {
            Some(context) => context,
            empty => empty.insert(zstd::zstd_safe::DCtx::try_create().ok_or("no memory")?),
        };
        let unpacked = match dictionary {
            None => context.decompress(out.as_mut_slice(), data),
            Some(dictionary) => context.decompress_using_ddict(out.as_mut_slice(), data, dictionary),
        };
        unpacked.map_err(zstd::zstd_safe::get_error_name)
    });
    let count = count.map_err(|error| bad_data("Zstandard data", offset, error))?;
    whole("Zstandard data", offset, count, out)
}

/// Replaces `out` by what one frame of Zstandard's unpacks to, which has no length before it.
///
/// # Errors
/// Corrupt if `frame` is none, does not say how much it unpacks to, or says more than it can hold or `limit_bytes`. `out` is then empty.
pub fn unpack_frame(frame: &[u8], out: &mut Vec<u8>, limit_bytes: usize) -> Result<(), DecodeError> {
    out.clear();
    let said = zstd::zstd_safe::get_frame_content_size(frame);
    let Ok(Some(raw_bytes)) = said else {
        return Err(bad_data("Zstandard data", 0, "no frame that says how long it is"));
    };
    // Empty ones have less than a block.
    let raw_bytes = raw_length(raw_bytes, frame.len(), ZSTD_RATIO_MAX, limit_bytes)?;
    unpack_zstd(None, frame, 0, raw_bytes, out).inspect_err(|_| out.clear())
}

fn whole(name: &'static str, offset: usize, count: usize, out: &[u8]) -> Result<(), DecodeError> {
    if count != out.len() {
        return Err(bad_data(name, offset, format!("{count} bytes come out, {} were promised", out.len())));
    }
    Ok(())
}

#[cfg(test)]
mod tests;
