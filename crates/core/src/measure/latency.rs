//! Latencies in HdrHistograms: 1 ns to 1 h, three significant digits, merged and never averaged.

use crate::op::Timing;
use hdrhistogram::serialization::{Deserializer, Serializer, V2DeflateSerializer};
use serde::{Deserialize, Serialize};
use std::io::Read;

/// A histogram of nanoseconds.
pub type Histogram = hdrhistogram::Histogram<u64>;

const SHORTEST_NS: u64 = 1;
const LONGEST_NS: u64 = 3_600_000_000_000;
const DIGITS: u8 = 3;

/// An empty histogram with this product's bounds.
pub fn histogram() -> Histogram {
    Histogram::new_with_bounds(SHORTEST_NS, LONGEST_NS, DIGITS).expect("constant bounds are valid")
}

const OTHER_LOOP: &str = "an open loop has wait and residence, and a closed one has neither";

/// The latencies of one class of operations in one interval.
///
/// In a closed loop an operation is due when it is sent, so its wait is zero by definition and its residence
/// is its service; only one histogram is kept then.
#[derive(Debug, Clone)]
pub struct Latencies {
    service: Histogram,
    open: Option<Box<(Histogram, Histogram)>>,
}

impl Latencies {
    /// Nothing recorded yet, for a closed loop.
    pub fn closed() -> Self {
        Latencies { service: histogram(), open: None }
    }

    /// Nothing recorded yet, for an open loop: wait and residence are kept too.
    pub fn open() -> Self {
        Latencies { service: histogram(), open: Some(Box::new((histogram(), histogram()))) }
    }

    /// Nothing recorded yet, for the loop that is asked for.
    pub fn new(open: bool) -> Self {
        if open { Latencies::open() } else { Latencies::closed() }
    }

    /// Records one operation; anything longer than an hour counts as an hour.
    #[inline]
    pub fn record(&mut self, timing: &Timing) {
        self.service.saturating_record(timing.ended.0.saturating_sub(timing.began.0));
        if let Some(open) = &mut self.open {
            open.0.saturating_record(timing.began.0.saturating_sub(timing.due.0));
            open.1.saturating_record(timing.ended.0.saturating_sub(timing.due.0));
        }
    }

    /// Adds another interval or session.
    pub fn merge(&mut self, other: &Latencies) {
        self.service.add(&other.service).expect("all histograms have the same bounds");
        match (&mut self.open, &other.open) {
            (Some(mine), Some(theirs)) => {
                mine.0.add(&theirs.0).expect("all histograms have the same bounds");
                mine.1.add(&theirs.1).expect("all histograms have the same bounds");
            }
            (None, None) => {}
            _ => panic!("open and closed loops are never mixed"),
        }
    }

    /// Forgets everything but keeps the memory.
    pub fn clear(&mut self) {
        self.service.reset();
        if let Some(open) = &mut self.open {
            open.0.reset();
            open.1.reset();
        }
    }

    /// How many operations were recorded.
    pub fn count(&self) -> u64 {
        self.service.len()
    }

    /// ended − began.
    pub fn service(&self) -> &Histogram {
        &self.service
    }

    /// ended − due: what a user waits.
    pub fn residence(&self) -> &Histogram {
        self.open.as_ref().map_or(&self.service, |open| &open.1)
    }

    /// began − due; `None` in a closed loop, where it is zero by definition.
    pub fn wait(&self) -> Option<&Histogram> {
        self.open.as_ref().map(|open| &open.0)
    }

    /// As text, for records and pipes.
    pub fn to_text(&self) -> LatencyText {
        LatencyText {
            service: encode(&self.service),
            wait: self.wait().map(encode),
            residence: self.open.as_ref().map(|open| encode(&open.1)),
        }
    }

    /// Reads what [`Latencies::to_text`] wrote of an open loop, or of a closed one.
    ///
    /// # Errors
    /// When a histogram is none, is not one of ours, or is missing.
    pub fn from_text(text: &LatencyText, open: bool) -> Result<Self, String> {
        let open = match (&text.wait, &text.residence, open) {
            (Some(wait), Some(residence), true) => Some(Box::new((ours(wait)?, ours(residence)?))),
            (None, None, false) => None,
            _ => return Err(OTHER_LOOP.into()),
        };
        Ok(Latencies { service: ours(&text.service)?, open })
    }
}

/// [`Latencies`] as HdrHistogram's own compressed V2 encoding in base64, the payload of `.hlog` lines.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LatencyText {
    /// ended − began.
    pub service: String,
    /// began − due, in an open loop.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub wait: Option<String>,
    /// ended − due, in an open loop; in a closed one it equals `service`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub residence: Option<String>,
}

impl LatencyText {
    /// What users waited, counted; service and wait are not read.
    ///
    /// # Errors
    /// When the histogram is none, or is not one of ours.
    pub fn residence(&self) -> Result<Counts, String> {
        Counts::from_text(self.residence.as_ref().unwrap_or(&self.service))
    }

    /// How long operations took, of an open loop or of a closed one; all else is read too, and is one of
    /// ours.
    ///
    /// # Errors
    /// When a histogram is none, is not one of ours, or is missing.
    pub fn service(&self, open: bool) -> Result<Counts, String> {
        match (&self.wait, &self.residence, open) {
            (Some(wait), Some(residence), true) => {
                Counts::from_text(wait)?;
                Counts::from_text(residence)?;
            }
            (None, None, false) => {}
            _ => return Err(OTHER_LOOP.into()),
        }
        Counts::from_text(&self.service)
    }
}

/// What a [`Histogram`] counted, without its empty counters: a figure of 100,000 trials reads as many, and
/// taking a quarter of a megabyte for each costs ten times what reading the few used ones does.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Counts {
    /// (highest nanosecond of the counter, count), the lowest first.
    counters: Vec<(u64, u64)>,
    len: u64,
}

/// Counters for each doubling: half of the power of two above 2 × 10^[`DIGITS`].
const HALF: u64 = 1 << 10;
/// Counters of [`histogram`]: one for each of the first 2 × [`HALF`] nanoseconds, then [`HALF`] a doubling.
const COUNTERS: u64 = 33 * HALF;

impl Counts {
    /// Of a histogram with the bounds of [`histogram`].
    pub fn of(histogram: &Histogram) -> Counts {
        let counters =
            histogram.iter_recorded().map(|step| (step.value_iterated_to(), step.count_at_value()));
        Counts { counters: counters.collect(), len: histogram.len() }
    }

    /// Reads what [`encode`] wrote of a histogram with the bounds of [`histogram`]. The library reads into a
    /// whole histogram only; the format is V2 of HdrHistogram's specification: counters as ZigZag LEB128 of
    /// at most nine bytes, a negative one standing for a run of empty ones.
    fn from_text(text: &str) -> Result<Counts, String> {
        let bytes = plain(text)?;
        let long = |at| Some(number(&bytes, at)? << 32 | number(&bytes, at + 4)?);
        let bounds = (long(16), long(24), number(&bytes, 12));
        if bounds != (Some(SHORTEST_NS), Some(LONGEST_NS), Some(u64::from(DIGITS)))
            || number(&bytes, 8) != Some(0)
        {
            return Err(format!("a histogram with bounds and digits {bounds:?}, not one of ours"));
        }
        let mut rest = bytes.get(HEADER..).unwrap_or_default();
        if number(&bytes, 4) != Some(rest.len() as u64) {
            return Err("not an HdrHistogram: its counters are not as long as announced".into());
        }
        let (mut counts, mut index) = (Counts::default(), 0_u64);
        while !rest.is_empty() {
            let counter = counter(&mut rest).ok_or("not an HdrHistogram: it is cut short")?;
            if counter < 0 {
                index = index.saturating_add(counter.unsigned_abs());
                continue;
            }
            if index >= COUNTERS {
                return Err(format!("an HdrHistogram of more than {COUNTERS} counters"));
            }
            if counter > 0 {
                let doubled = (index / HALF).saturating_sub(1);
                let lowest = (index - doubled * HALF) << doubled;
                counts.counters.push((lowest + (1 << doubled) - 1, counter.unsigned_abs()));
                counts.len = more(counts.len, counter.unsigned_abs())?;
            }
            index += 1;
        }
        Ok(counts)
    }

    /// How many were counted.
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Whether nothing was counted.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// As [`Histogram::value_at_quantile`], for a quantile above 0: nanoseconds.
    pub fn value_at_quantile(&self, quantile: f64) -> u64 {
        let rank = ((quantile.min(1.0) * self.len as f64).ceil() as u64).max(1);
        let mut below = 0;
        let reached = self.counters.iter().find(|(_, count)| {
            below += count;
            below >= rank
        });
        reached.map_or(0, |(value, _)| *value)
    }

    /// As [`Histogram::mean`].
    pub fn mean(&self) -> f64 {
        let middle = |highest: u64| lowest(highest) + ((highest - lowest(highest)).div_ceil(2));
        let all = self.len as f64;
        self.counters
            .iter()
            .fold(0.0, |sum, (value, count)| sum + middle(*value) as f64 * *count as f64 / all)
    }

    /// As [`Histogram::min`].
    pub fn min(&self) -> u64 {
        self.counters.first().map_or(0, |(highest, _)| lowest(*highest))
    }

    /// As [`Histogram::max`].
    pub fn max(&self) -> u64 {
        self.counters.last().map_or(0, |(highest, _)| *highest)
    }

    /// How many are at most `longest` nanoseconds, to the three digits of a histogram.
    pub fn up_to(&self, longest: u64) -> u64 {
        let within = self.counters.iter().take_while(|(highest, _)| lowest(*highest) <= longest);
        within.map(|(_, count)| count).sum()
    }

    /// Adds what another counted.
    pub fn merge(&mut self, other: &Counts) {
        if self.is_empty() {
            return self.clone_from(other);
        }
        self.counters.extend_from_slice(&other.counters);
        self.counters.sort_unstable();
        self.counters.dedup_by(|next, kept| {
            let same = next.0 == kept.0;
            kept.1 += if same { next.1 } else { 0 };
            same
        });
        self.len += other.len;
    }

    /// Adds them to a histogram with the bounds of [`histogram`].
    pub fn add_to(&self, histogram: &mut Histogram) {
        for (value, count) in &self.counters {
            histogram.record_n(*value, *count).expect("all histograms have the same bounds");
        }
    }
}

/// The lowest nanosecond of the counter with this highest one.
fn lowest(highest: u64) -> u64 {
    let doubled = highest.max(1).ilog2().saturating_sub(HALF.ilog2());
    highest >> doubled << doubled
}

/// What a histogram has counted: no more than leaves room for a thousand of them to be added.
fn more(counted: u64, counter: u64) -> Result<u64, String> {
    const MOST: u64 = 1 << 53;
    let sum = counted.checked_add(counter).filter(|sum| *sum <= MOST);
    sum.ok_or_else(|| "an HdrHistogram that counted more than there can be".into())
}

/// The next counter, ZigZag LEB128 in which a ninth byte has eight bits; `None` at the end.
fn counter(rest: &mut &[u8]) -> Option<i64> {
    let mut value = 0_u64;
    for at in 0..LONGEST_COUNTER {
        let (byte, behind) = rest.split_first()?;
        *rest = behind;
        if at + 1 == LONGEST_COUNTER {
            value |= u64::from(*byte) << 56;
            break;
        }
        value |= u64::from(byte & 0x7f) << (7 * at);
        if byte & 0x80 == 0 {
            break;
        }
    }
    Some((value >> 1) as i64 ^ -((value & 1) as i64))
}

/// Reads a histogram that has the bounds of [`histogram`].
pub(super) fn ours(text: &str) -> Result<Histogram, String> {
    let read = decode(text)?;
    let (bounds, own) = ((read.low(), read.high(), read.sigfig()), (SHORTEST_NS, LONGEST_NS, DIGITS));
    match bounds == own {
        true => Ok(read),
        false => Err(format!("a histogram with bounds and digits {bounds:?}, not {own:?}")),
    }
}

/// A histogram in HdrHistogram's compressed V2 encoding, base64.
pub fn encode(histogram: &Histogram) -> String {
    use base64::Engine;
    let mut bytes = Vec::new();
    V2DeflateSerializer::new().serialize(histogram, &mut bytes).expect("writing to memory does not fail");
    base64::engine::general_purpose::STANDARD.encode(bytes)
}

/// The most counters of a histogram that is read: five digits from 1 ns to an hour, 27 MB. Whoever wrote it
/// chooses, and the memory is taken before anything is counted.
const MOST_COUNTERS: u64 = 7 << 19;
/// The most bytes that a counter, or a row of empty ones, takes.
const LONGEST_COUNTER: u64 = 9;

/// Reads what [`encode`], or any other HdrHistogram implementation, wrote.
///
/// # Errors
/// When it is no histogram, or claims to be larger than any that is needed.
pub fn decode(text: &str) -> Result<Histogram, String> {
    let bytes = plain(text)?;
    // The library negates what stands for a row of empty counters, and adds the others.
    let (mut counters, mut counted) = (bytes.get(HEADER..).unwrap_or_default(), 0);
    while let Some(counter) = counter(&mut counters) {
        if counter == i64::MIN {
            return Err("not an HdrHistogram: a row of 2^63 empty counters".into());
        }
        counted = more(counted, counter.max(0).unsigned_abs())?;
    }
    let mut rest = bytes.as_slice();
    let histogram =
        Deserializer::new().deserialize(&mut rest).map_err(|e| format!("not an HdrHistogram: {e}"))?;
    if rest.is_empty() { Ok(histogram) } else { Err(format!("{} bytes behind an HdrHistogram", rest.len())) }
}

/// The V2 encoding without compression and base64, of a histogram that is not too large.
fn plain(text: &str) -> Result<Vec<u8>, String> {
    use base64::Engine;
    let bytes =
        base64::engine::general_purpose::STANDARD.decode(text).map_err(|e| format!("not base64: {e}"))?;
    let bytes = unpacked(bytes)?;
    check(&bytes)?;
    Ok(bytes)
}

/// What a compressed histogram holds, its checksum compared: the library stops reading before that, and takes
/// a damaged histogram for another one. Anything else stays as it is.
fn unpacked(bytes: Vec<u8>) -> Result<Vec<u8>, String> {
    /// Cookie of the compressed format V2.
    const COMPRESSED: [u8; 4] = [0x1c, 0x84, 0x93, 0x14];
    const LONGEST: u64 = HEADER as u64 + MOST_COUNTERS * LONGEST_COUNTER;
    let Some((head, packed)) = bytes.split_at_checked(8).filter(|(head, _)| head[..4] == COMPRESSED) else {
        return Ok(bytes);
    };
    let length = u32::from_be_bytes([head[4], head[5], head[6], head[7]]) as usize;
    if length != packed.len() {
        return Err(format!("not an HdrHistogram: {} bytes where {length} are announced", packed.len()));
    }
    let mut plain = Vec::new();
    flate2::read::ZlibDecoder::new(packed)
        .take(LONGEST)
        .read_to_end(&mut plain)
        .map_err(|error| format!("not an HdrHistogram: {error}"))?;
    Ok(plain)
}

/// Bytes before the counters of the V2 encoding: cookie, length of the counters, offset, digits, lowest and
/// highest value, ratio.
const HEADER: usize = 40;

/// A number of four bytes, the highest first.
fn number(bytes: &[u8], at: usize) -> Option<u64> {
    let bytes = bytes.get(at..at + 4)?;
    Some(bytes.iter().fold(0, |number, byte| number << 8 | u64::from(*byte)))
}

/// Whether a V2 encoding takes no more memory than [`MOST_COUNTERS`] need.
fn check(bytes: &[u8]) -> Result<(), String> {
    /// Cookie of the format V2; there is no other that is not compressed.
    const PLAIN: u64 = 0x1c84_9313;
    let short = || "not an HdrHistogram: it is cut short".to_string();
    if number(bytes, 0).ok_or_else(short)? != PLAIN {
        return Err("not an HdrHistogram: it begins as none does".into());
    }
    let long = |at| Some(number(bytes, at)? << 32 | number(bytes, at + 4)?);
    let length = number(bytes, 4).ok_or_else(short)?;
    let (digits, low, high) =
        (number(bytes, 12).ok_or_else(short)?, long(16).ok_or_else(short)?, long(24).ok_or_else(short)?);
    if length > bytes.len().saturating_sub(HEADER) as u64 {
        return Err(short());
    }
    // As HdrHistogram lays its counters out: buckets, each twice as wide as the one before, of equal halves.
    let half = 10_u64.pow(digits.min(5) as u32).next_power_of_two();
    let first = u128::from(2 * half) << low.max(1).ilog2();
    let buckets = 1 + (0..).take_while(|doubled| first << doubled <= u128::from(high)).count() as u64;
    match (buckets + 1) * half {
        counters if counters > MOST_COUNTERS => {
            Err(format!("an HdrHistogram of {counters} counters, and {MOST_COUNTERS} are the most"))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::units::Tick;

    fn timing(due: u64, began: u64, ended: u64) -> Timing {
        Timing { due: Tick(due), began: Tick(began), ended: Tick(ended) }
    }

    #[test]
    fn waiting_in_the_generator_counts_as_residence() {
        let mut latencies = Latencies::open();
        latencies.record(&timing(0, 900, 1000));
        assert_eq!(latencies.service().max(), 100);
        assert_eq!(latencies.wait().unwrap().max(), 900);
        assert_eq!(latencies.residence().max(), 1000);
    }

    #[test]
    fn merging_is_addition_and_text_is_lossless() {
        let (mut a, mut b) = (Latencies::closed(), Latencies::closed());
        for n in 1..1000 {
            a.record(&timing(0, 0, n * 10));
            b.record(&timing(0, 0, n * 1000));
        }
        let mut both = a.clone();
        both.merge(&b);
        assert_eq!(both.count(), 1998);
        let back = Latencies::from_text(&both.to_text(), false).unwrap();
        assert_eq!(back.service(), both.service());
        assert!(decode("%%%").is_err() && decode("aGVsbG8=").is_err());
    }

    proptest::proptest! {
        #[test]
        fn counts_say_what_their_histogram_says(
            values in proptest::collection::vec((0_u32..45, 0_u64..u64::MAX, 1_u64..1_000_000), 0..60),
            others in proptest::collection::vec(0..LONGEST_NS, 0..60),
            quantile in 0.001_f64..1.0,
            damaged in proptest::prelude::any::<(usize, u8)>(),
        ) {
            let (mut one, mut other) = (histogram(), histogram());
            for (bits, value, count) in values {
                one.saturating_record_n(value >> (63 - bits), count);
            }
            others.iter().for_each(|value| other.saturating_record(*value));
            let text = encode(&one);
            let counts = Counts::from_text(&text).unwrap();
            proptest::prop_assert_eq!(&counts, &Counts::of(&one));
            for at in [quantile, 0.5, 0.99, 1.0] {
                proptest::prop_assert_eq!(counts.value_at_quantile(at), one.value_at_quantile(at));
            }
            let ends = |counts: &Counts| (counts.min(), counts.max(), counts.mean().to_bits());
            proptest::prop_assert_eq!(ends(&counts), (one.min(), one.max(), one.mean().to_bits()));
            for longest in others.iter().copied().chain([0, 2_047, 2_048, 2_049, LONGEST_NS]) {
                proptest::prop_assert_eq!(counts.up_to(longest), one.count_between(0, longest));
            }
            let mut both = counts;
            both.merge(&Counts::of(&other));
            let mut added = histogram();
            both.add_to(&mut added);
            one.add(&other).unwrap();
            proptest::prop_assert_eq!(&added, &one);
            proptest::prop_assert_eq!(both, Counts::of(&one));
            // What is damaged is refused here where it is refused as a histogram, packed or not.
            let mut plain = plain(&text).unwrap();
            let at = damaged.0 % plain.len();
            plain[at] = damaged.1;
            let text = {
                use base64::Engine;
                base64::engine::general_purpose::STANDARD.encode(plain)
            };
            if let (Ok(counts), Ok(histogram)) = (Counts::from_text(&text), ours(&text)) {
                proptest::prop_assert_eq!(counts, Counts::of(&histogram));
            }
        }
    }

    #[test]
    fn a_row_of_empty_counters_that_cannot_be_negated_is_refused() {
        use base64::Engine;
        let mut bytes = plain(&encode(&histogram())).unwrap();
        bytes.truncate(HEADER);
        bytes[4..8].copy_from_slice(&9_u32.to_be_bytes());
        bytes.extend([0xff; 9]);
        let text = base64::engine::general_purpose::STANDARD.encode(bytes);
        assert!(decode(&text).unwrap_err().contains("2^63"), "{:?}", decode(&text));
        assert!(Counts::from_text(&text).unwrap().is_empty());
    }

    #[test]
    fn what_would_overflow_when_it_is_added_is_refused() {
        for (count, is_read) in [(1 << 52, true), ((1 << 52) + 1, false), (i64::MAX as u64, false)] {
            let mut much = histogram();
            much.record_n(1_000, count).unwrap();
            much.record_n(2_000, count).unwrap();
            let text = encode(&much);
            assert_eq!(
                (decode(&text).is_ok(), Counts::from_text(&text).is_ok()),
                (is_read, is_read),
                "{count}"
            );
        }
    }

    #[test]
    fn there_are_as_many_counters_as_a_histogram_has() {
        assert_eq!(histogram().distinct_values() as u64, COUNTERS);
        for text in [encode(&Histogram::new_with_bounds(1, 1_000, 2).unwrap()), "%%%".into(), "aGVs".into()] {
            Counts::from_text(&text).unwrap_err();
        }
    }

    #[test]
    fn histograms_of_others_are_read_and_those_that_claim_too_much_are_not() {
        let read = |low, high, digits| {
            let mut histogram = Histogram::new_with_bounds(low, high, digits).unwrap();
            histogram.record(low.max(1) * 3).unwrap();
            decode(&encode(&histogram)).map(|read| assert_eq!(read, histogram))
        };
        for (low, high, digits) in [(1, 3_600_000_000, 3), (1_000, u64::MAX / 2, 3), (1, LONGEST_NS, 5)] {
            read(low, high, digits).unwrap();
        }
        assert!(read(1, u64::MAX / 2, 5).unwrap_err().contains("counters"), "47 MB");
        // Ours are all alike, so that they can be added.
        let other = encode(&Histogram::new_with_bounds(1, 1_000, 2).unwrap());
        let text = |service: &str, wait: Option<&str>| LatencyText {
            service: service.into(),
            wait: wait.map(String::from),
            residence: None,
        };
        let mine = encode(&histogram());
        assert!(Latencies::from_text(&text(&mine, None), false).is_ok());
        assert!(Latencies::from_text(&text(&other, None), false).unwrap_err().contains("bounds"));
        for (text, open) in [(text(&mine, None), true), (text(&mine, Some(&mine)), false)] {
            assert!(Latencies::from_text(&text, open).unwrap_err().contains("open loop"));
        }
    }
}
