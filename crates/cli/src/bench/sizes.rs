//! How large values are: all alike, evenly spread, or a mix.

use std::fmt;

use crate::sizes::parse_bytes;

use super::values::HEAD_BYTES;

/// The largest value that may be asked for.
const VALUE_BYTES_MAX: u64 = 64 << 20;

/// Sizes and how often each occurs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ValueSizes {
    /// All of this size.
    Fixed(usize),
    /// From the first to the second, which is included.
    Uniform(usize, usize),
    /// Each size as often as its weight says.
    Mix(Vec<(usize, u64)>),
}

impl ValueSizes {
    /// `4KiB`, `uniform:100:1000` or `100:50,1000:30,16384:20`, each a size and its weight.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        if let Some(range) = text.strip_prefix("uniform:") {
            let (least, most) = range.split_once(':').ok_or("write it as uniform:MIN:MAX")?;
            let (least, most) = (parse_size(least)?, parse_size(most)?);
            if least > most {
                return Err(format!("the smallest size, {least}, is above the largest, {most}"));
            }
            return Ok(Self::Uniform(least, most));
        }
        if !text.contains(':') {
            return parse_size(text).map(Self::Fixed);
        }
        let entry = |part: &str| {
            let (size, weight) = part.split_once(':').ok_or_else(|| format!("{part:?} is not SIZE:WEIGHT"))?;
            match weight.parse::<u32>() {
                Ok(weight) if weight > 0 => Ok((parse_size(size)?, u64::from(weight))),
                _ => Err(format!("{weight:?} is no weight: write a whole number above 0")),
            }
        };
        text.split(',').map(entry).collect::<Result<_, String>>().map(Self::Mix)
    }

    /// The size that a random number means.
    #[inline]
    pub(super) fn pick(&self, random: u32) -> usize {
        // The high bits of a product: an even choice below the other factor.
        let below = |limit: u64| ((u128::from(random) * u128::from(limit)) >> 32) as u64;
        match self {
            Self::Fixed(size) => *size,
            Self::Uniform(least, most) => least + below((most - least) as u64 + 1) as usize,
            Self::Mix(sizes) => {
                let mut left = below(sizes.iter().map(|(_, weight)| weight).sum());
                for (size, weight) in sizes {
                    if left < *weight {
                        return *size;
                    }
                    left -= weight;
                }
                HEAD_BYTES
            }
        }
    }

    /// The largest that occurs.
    pub(super) fn largest(&self) -> usize {
        match self {
            Self::Fixed(size) | Self::Uniform(_, size) => *size,
            Self::Mix(sizes) => sizes.iter().map(|(size, _)| *size).max().unwrap_or_default(),
        }
    }

    /// The average.
    pub(super) fn mean(&self) -> f64 {
        match self {
            Self::Fixed(size) => *size as f64,
            Self::Uniform(least, most) => (least + most) as f64 / 2.0,
            Self::Mix(sizes) => {
                let (bytes, weights) = sizes.iter().fold((0.0, 0.0), |(bytes, weights), &(size, weight)| {
                    (bytes + size as f64 * weight as f64, weights + weight as f64)
                });
                bytes / weights
            }
        }
    }
}

fn parse_size(text: &str) -> Result<usize, String> {
    let bytes = parse_bytes(text)?;
    if (HEAD_BYTES as u64..=VALUE_BYTES_MAX).contains(&bytes) {
        return Ok(bytes as usize);
    }
    Err(format!("a value says whose it is in its first {HEAD_BYTES} bytes: from that to {VALUE_BYTES_MAX} bytes"))
}

impl fmt::Display for ValueSizes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Fixed(size) => write!(f, "{size}"),
            Self::Uniform(least, most) => write!(f, "uniform:{least}:{most}"),
            Self::Mix(sizes) => {
                let parts: Vec<String> = sizes.iter().map(|(size, weight)| format!("{size}:{weight}")).collect();
                f.write_str(&parts.join(","))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_understood_or_refused() {
        for text in ["100", "uniform:100:2000", "100:50,1000:30,16384:20"] {
            assert_eq!(ValueSizes::parse(text).unwrap().to_string(), text);
        }
        assert_eq!(ValueSizes::parse("4KiB"), Ok(ValueSizes::Fixed(4096)));
        for text in ["", "15", "65MiB", "uniform:100", "uniform:200:100", "100:0", "100:x", "100,200:1", "many"] {
            assert!(ValueSizes::parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn each_size_comes_as_often_as_its_weight_says() {
        let sizes = ValueSizes::parse("100:50,1000:30,16384:20").unwrap();
        let mut random = crate::bench::random::Random::new(1, 1);
        let mut bytes = 0.0;
        for _ in 0..100_000 {
            bytes += sizes.pick(random.next() as u32) as f64;
        }
        assert!((bytes / 100_000.0 / sizes.mean() - 1.0).abs() < 0.02);
        assert_eq!((sizes.pick(0), sizes.pick(u32::MAX), sizes.largest()), (100, 16384, 16384));
        let even = ValueSizes::Uniform(20, 22);
        assert_eq!((even.pick(0), even.pick(u32::MAX)), (20, 22));
    }
}
