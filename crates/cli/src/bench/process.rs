//! What the system says of this process: processor time, memory, device bytes. From `/proc/self`; what it does not say
//! is left out.

use serde_json::{Value, json};

/// Units of processor time in a second: `USER_HZ`, 100 for programs on every 64-bit Linux that Rust runs on.
const TICKS_PER_SECOND: f64 = 100.0;

/// Since the process began.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct Usage {
    pub(super) user_seconds: f64,
    pub(super) system_seconds: f64,
    /// The most memory that was ever resident, mapped files included.
    pub(super) peak_rss_bytes: Option<u64>,
    /// Memory now resident that no file stands behind.
    pub(super) anonymous_bytes: Option<u64>,
    pub(super) io: Io,
}

/// Bytes between this process and the devices.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Io {
    pub(super) read_bytes: Option<u64>,
    /// Pages made dirty, whether or not they ever reached a device.
    pub(super) write_bytes: Option<u64>,
    /// Of these, what was deleted before it was written out.
    pub(super) cancelled_write_bytes: Option<u64>,
}

impl Usage {
    pub(super) fn now() -> Self {
        let read = |name: &str| std::fs::read_to_string(format!("/proc/self/{name}")).unwrap_or_default();
        Self::parse(&read("stat"), &read("status"), &read("io"))
    }

    fn parse(stat: &str, status: &str, io: &str) -> Self {
        // The program's name stands in parentheses and may hold anything.
        let after_name = stat.rsplit_once(')').map(|(_, rest)| rest).unwrap_or_default();
        let mut times = after_name.split_whitespace().skip(11).map(|ticks| ticks.parse::<f64>().unwrap_or_default());
        let mut seconds = || times.next().unwrap_or_default() / TICKS_PER_SECOND;
        let (user_seconds, system_seconds) = (seconds(), seconds());
        let kib = |name| field(status, name).map(|kib| kib * 1024);
        Self {
            user_seconds,
            system_seconds,
            peak_rss_bytes: kib("VmHWM"),
            anonymous_bytes: kib("RssAnon"),
            io: Io {
                read_bytes: field(io, "read_bytes"),
                write_bytes: field(io, "write_bytes"),
                cancelled_write_bytes: field(io, "cancelled_write_bytes"),
            },
        }
    }

    /// What was used since `earlier`. Memory is as it is now.
    pub(super) fn since(&self, earlier: &Self) -> Self {
        Self {
            user_seconds: self.user_seconds - earlier.user_seconds,
            system_seconds: self.system_seconds - earlier.system_seconds,
            io: self.io.since(&earlier.io),
            ..*self
        }
    }
}

impl Io {
    fn since(&self, earlier: &Self) -> Self {
        let difference = |now: Option<u64>, then: Option<u64>| Some(now?.saturating_sub(then?));
        Self {
            read_bytes: difference(self.read_bytes, earlier.read_bytes),
            write_bytes: difference(self.write_bytes, earlier.write_bytes),
            cancelled_write_bytes: difference(self.cancelled_write_bytes, earlier.cancelled_write_bytes),
        }
    }

    /// What was written without what was deleted in time.
    pub(super) fn net_write_bytes(&self) -> Option<u64> {
        Some(self.write_bytes?.saturating_sub(self.cancelled_write_bytes?))
    }

    pub(super) fn object(&self) -> Value {
        json!({
            "read_bytes": self.read_bytes,
            "write_bytes": self.write_bytes,
            "cancelled_write_bytes": self.cancelled_write_bytes,
            "net_write_bytes": self.net_write_bytes(),
        })
    }
}

/// The number behind `name:`.
fn field(text: &str, name: &str) -> Option<u64> {
    let value = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
    value.split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_systems_words_are_understood() {
        let stat = "7 (a) b) S 1 2 3 4 5 6 7 8 9 10 250 50 0 0";
        let status = "Name:\tx\nVmHWM:\t  12 kB\nRssAnon:\t   5 kB\n";
        let io = "rchar: 9\nread_bytes: 1\nwrite_bytes: 100\ncancelled_write_bytes: 30\n";
        let usage = Usage::parse(stat, status, io);
        assert_eq!((usage.user_seconds, usage.system_seconds), (2.5, 0.5));
        assert_eq!((usage.peak_rss_bytes, usage.anonymous_bytes), (Some(12 << 10), Some(5 << 10)));
        assert_eq!(usage.io.net_write_bytes(), Some(70));
        assert_eq!(Usage::parse("", "", ""), Usage::default());
    }

    #[test]
    fn this_process_has_memory() {
        let now = Usage::now();
        assert!(now.peak_rss_bytes > Some(0) && now.anonymous_bytes > Some(0));
        assert_eq!(now.since(&now).user_seconds, 0.0);
    }
}
