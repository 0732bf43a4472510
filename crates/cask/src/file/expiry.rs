//! When the records of a file expire: bytes by time, in few pieces.
//!
//! - X1: a piece is `2^shift` seconds. When the times are too far apart for [`PIECES`] of them, pieces are joined in pairs.
//! - X2: a piece has expired when the last of its records has: so nothing counts too early, and by a seventh of the time that they are
//!   spread over too late at most. Times that lie in groups far apart are told apart exactly.
//!
//! Cost: 288 bytes for each file, a few ns for each record that expires.

/// How many pieces there are.
const PIECES: usize = 16;

#[derive(Debug, Clone, Default)]
pub(crate) struct Expiry {
    shift: u32,
    /// The number of the first piece: its time, shifted.
    first: u64,
    bytes: [u64; PIECES],
    /// When the last record of each piece expires.
    ends: [u64; PIECES],
    total: u64,
    latest: u64,
}

impl Expiry {
    /// A record of so many bytes expires at this time.
    pub(crate) fn add(&mut self, expires_at: u64, bytes: u64) {
        if self.total == 0 {
            (self.shift, self.first) = (0, expires_at);
        }
        while !self.fits(expires_at >> self.shift) {
            self.join();
        }
        let piece = expires_at >> self.shift;
        if piece < self.first {
            // It fits: those at the end are empty.
            self.bytes.rotate_right((self.first - piece) as usize % PIECES);
            self.ends.rotate_right((self.first - piece) as usize % PIECES);
            self.first = piece;
        }
        let index = (piece - self.first) as usize;
        if let (Some(sum), Some(end)) = (self.bytes.get_mut(index), self.ends.get_mut(index)) {
            // What an empty piece has there is from before it was moved.
            *end = if *sum == 0 { expires_at } else { expires_at.max(*end) };
            *sum = sum.saturating_add(bytes);
        }
        self.total = self.total.saturating_add(bytes);
        self.latest = self.latest.max(expires_at);
    }

    /// Whether there is room for this piece beside all others that have something.
    fn fits(&self, piece: u64) -> bool {
        let last = self.first.saturating_add(self.bytes.iter().rposition(|bytes| *bytes > 0).unwrap_or(0) as u64);
        last.max(piece) - self.first.min(piece) < PIECES as u64
    }

    /// X1.
    fn join(&mut self) {
        let first = self.first >> 1;
        let (mut joined, mut ends) = ([0u64; PIECES], [0u64; PIECES]);
        for (piece, bytes, last) in self.pieces() {
            let index = ((piece >> 1) - first) as usize;
            if let (Some(sum), Some(end)) = (joined.get_mut(index), ends.get_mut(index)) {
                *sum = sum.saturating_add(bytes);
                *end = last.max(*end);
            }
        }
        (self.first, self.bytes, self.ends) = (first, joined, ends);
        self.shift += 1;
    }

    /// Everything that another one has. A piece of it counts with its last record.
    pub(crate) fn add_all(&mut self, other: &Self) {
        for (_, bytes, end) in other.pieces() {
            self.add(end, bytes);
        }
    }

    /// Whether anything was added.
    pub(crate) const fn has_any(&self) -> bool {
        self.total > 0
    }

    /// Bytes of records that have expired at `now`, by X2.
    pub(crate) fn expired_bytes(&self, now: u64) -> u64 {
        if self.latest <= now {
            return self.total;
        }
        // A record is gone in the second that it names.
        self.pieces().take_while(|(_, _, end)| *end <= now).map(|(_, bytes, _)| bytes).sum()
    }

    /// Those that have something, in order.
    fn pieces(&self) -> impl Iterator<Item = (u64, u64, u64)> {
        let both = self.bytes.iter().zip(&self.ends);
        let numbered = (0..).zip(both).map(|(n, (&bytes, &end))| (self.first.wrapping_add(n), bytes, end));
        numbered.filter(|(_, bytes, _)| *bytes > 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fastrand::Rng;

    /// Goal: never more than what has expired, and at most what expired within a seventh of the whole span less, a third where two were joined.
    #[test]
    fn what_has_expired_is_told_never_too_early_and_a_little_late() {
        for seed in 0..200 {
            let mut random = Rng::with_seed(seed);
            let (start, most) = (random.u64(..1 << 40), 1u64 << random.u32(1..40));
            let span = 1 + random.u64(..most);
            let times: Vec<u64> = (0..500).map(|_| start + random.u64(..span)).collect();
            let (mut expiry, mut halves) = (Expiry::default(), [Expiry::default(), Expiry::default()]);
            for (n, &at) in times.iter().enumerate() {
                expiry.add(at, 10);
                halves[n % 2].add(at, 10);
            }
            let [mut one, other] = halves;
            one.add_all(&other);
            for now in (0..=20).map(|n| start + span * n / 20) {
                let gone = |now: u64| 10 * times.iter().filter(|&&at| at <= now).count() as u64;
                for (what, found, late) in [("one", expiry.expired_bytes(now), 7), ("two", one.expired_bytes(now), 3)] {
                    assert!(found <= gone(now), "{what}, seed {seed}: {found} of {} at {now}", gone(now));
                    let least = gone(now.saturating_sub(span / late + 1));
                    assert!(found >= least, "{what}, seed {seed}: {found}, at least {least} at {now}");
                }
            }
            assert_eq!((expiry.expired_bytes(start + span), one.expired_bytes(start + span)), (5000, 5000));
        }
    }

    #[test]
    fn any_time_can_be_added_in_any_order() {
        let mut expiry = Expiry::default();
        for at in [u64::MAX, 0, 1 << 63, 17, u64::MAX - 1] {
            expiry.add(at, 1);
        }
        assert_eq!((expiry.expired_bytes(u64::MAX), expiry.total), (5, 5));
        assert!(expiry.expired_bytes(1 << 62) <= 2);
    }
}
