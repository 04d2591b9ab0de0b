//! What is a key, as bytes, and the hash that spreads keys: to the bit what `lookup/keys.py` says.

#![allow(clippy::cast_precision_loss)]

use std::borrow::Cow;
use std::net::IpAddr;

use pyo3::prelude::*;
use pyo3::types::{PyBool, PyBytes, PyFloat, PyInt, PyString};

const ONE: u64 = 0x9E37_79B9_7F4A_7C15;
const TWO: u64 = 0xD6E8_FEB8_6659_FD93;

/// Kind of an index.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    Text,
    Folded,
    Domain,
    Number,
    Ip,
    Range,
}

impl Kind {
    pub fn parse(kind: &str) -> Option<Self> {
        Some(match kind {
            "text" => Self::Text,
            "nocase" => Self::Folded,
            "domain" => Self::Domain,
            "number" => Self::Number,
            "ip" | "cidr" => Self::Ip,
            "range" => Self::Range,
            _ => return None,
        })
    }
}

/// A key made canonical; small ones without an allocation.
pub enum Key<'a> {
    Text(Cow<'a, [u8]>),
    Four([u8; 4]),
    Eight([u8; 8]),
    Sixteen([u8; 16]),
}

impl Key<'_> {
    pub fn bytes(&self) -> &[u8] {
        match self {
            Self::Text(text) => text,
            Self::Four(bytes) => bytes,
            Self::Eight(bytes) => bytes,
            Self::Sixteen(bytes) => bytes,
        }
    }
}

fn mix(a: u64, b: u64) -> u64 {
    let product = u128::from(a) * u128::from(b);
    product as u64 ^ (product >> 64) as u64
}

pub fn hash(key: &[u8], seed: u64) -> u64 {
    let mut found = seed ^ (key.len() as u64).wrapping_mul(ONE);
    let (words, rest) = key.as_chunks::<8>();
    for word in words {
        found = mix(found ^ u64::from_le_bytes(*word) ^ TWO, ONE);
    }
    if !rest.is_empty() {
        let mut last = [0; 8];
        last[..rest.len()].copy_from_slice(rest);
        found = mix(found ^ u64::from_le_bytes(last) ^ TWO, ONE);
    }
    mix(found ^ ONE, TWO)
}

/// The place in a directory of `bits`, and the byte that follows.
pub fn place(hash: u64, bits: u32) -> (usize, u8) {
    (hash.checked_shr(64 - bits).unwrap_or(0) as usize, (hash >> (56 - bits)) as u8)
}

pub fn spread(mut number: u64) -> u64 {
    number = (number ^ (number >> 33)).wrapping_mul(0xFF51_AFD7_ED55_8CCD);
    number = (number ^ (number >> 33)).wrapping_mul(0xC4CE_B9FE_1A85_EC53);
    number ^ (number >> 33)
}

/// The inverse of `spread`.
pub fn gather(mut number: u64) -> u64 {
    number = (number ^ (number >> 33)).wrapping_mul(0x9CB4_B2F8_1293_37DB);
    number = (number ^ (number >> 33)).wrapping_mul(0x4F74_430C_22A5_4005);
    number ^ (number >> 33)
}

fn ordered(number: f64) -> [u8; 8] {
    let bits = (number + 0.0).to_bits();
    (bits ^ if bits >> 63 == 1 { u64::MAX } else { 1 << 63 }).to_be_bytes()
}

/// The address that a text is: as `address` of `model/event.py`.
pub fn parsed(text: &[u8]) -> Option<IpAddr> {
    let text = text.trim_ascii();
    let text = text.split(|&byte| byte == b'%').next()?;
    let brackets: &[char] = &['[', ']'];
    let address: IpAddr = std::str::from_utf8(text).ok()?.trim_matches(brackets).parse().ok()?;
    Some(address.to_canonical())
}

pub fn address(text: &[u8]) -> Option<Key<'static>> {
    if let Some(four) = four(text) {
        return Some(Key::Four(four));
    }
    Some(match parsed(text)? {
        IpAddr::V4(address) => Key::Four(address.octets()),
        IpAddr::V6(address) => Key::Sixteen(address.octets()),
    })
}

/// The address of IPv4 that a text is. Without a branch for each octet: half of their sizes would be guessed wrong.
#[allow(clippy::similar_names)]
pub fn four(text: &[u8]) -> Option<[u8; 4]> {
    const EACH: u128 = u128::MAX / 255;
    if !(7..=15).contains(&text.len()) {
        return None;
    }
    let mut padded = [b'0'; 16];
    padded[..text.len()].copy_from_slice(text);
    let bytes = u128::from_le_bytes(padded);
    let other = bytes ^ (EACH * u128::from(b'.'));
    // In each byte the upper bit, where there is a dot.
    let dots = !(((other & (EACH * 0x7F)) + EACH * 0x7F) | other) & (EACH << 7);
    // Dots become zeros, too; digits are what is left below ten.
    let digits = bytes ^ (EACH * u128::from(b'0')) ^ ((dots >> 7) * u128::from(b'.' ^ b'0'));
    let mut wrong = (digits | (digits + EACH * 0x76)) & (EACH << 7) != 0;
    wrong |= dots.count_ones() != 3;
    let (mut dots, mut start, mut found) = (dots | 1 << (text.len() * 8 + 7), 0, [0; 4]);
    for octet in &mut found {
        let end = (dots.trailing_zeros() / 8) & 15;
        dots &= dots.wrapping_sub(1);
        let size = end.wrapping_sub(start);
        wrong |= !(1..=3).contains(&size);
        let part = (digits >> (start * 8)) as u32 & 0x00FF_FFFF;
        let first = part & 255;
        let part = part << (3u32.wrapping_sub(size).wrapping_mul(8) & 31);
        let value = (part & 255) * 100 + (part >> 8 & 255) * 10 + (part >> 16 & 255);
        wrong |= value > 255 || (size > 1 && first == 0);
        *octet = value as u8;
        start = (end + 1) & 15;
    }
    (!wrong).then_some(found)
}

fn integer(text: &[u8]) -> Option<i64> {
    let digits = text.strip_prefix(b"-").unwrap_or(text);
    if digits.is_empty() || digits.len() > 19 || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    if digits.len() < 19 {
        let whole = digits.iter().fold(0, |whole, digit| whole * 10 + i64::from(digit - b'0'));
        return Some(if digits.len() < text.len() { -whole } else { whole });
    }
    std::str::from_utf8(text).ok()?.parse().ok()
}

fn real(text: &[u8]) -> Option<f64> {
    if text.contains(&b'_') {
        return None;
    }
    std::str::from_utf8(text).ok()?.parse().ok().filter(|number: &f64| number.is_finite())
}

/// The key that a text is; one that is not ASCII comes folded (`Lookup._asked`).
pub fn canonical(kind: Kind, text: &[u8]) -> Option<Key<'_>> {
    match kind {
        Kind::Text => Some(Key::Text(Cow::Borrowed(text))),
        Kind::Folded => Some(Key::Text(folded(text))),
        Kind::Domain => {
            let text = text.strip_suffix(b".").unwrap_or(text);
            if text.is_empty() { None } else { Some(Key::Text(folded(text))) }
        }
        Kind::Number => integer(text).map(|number| Key::Eight(number.to_le_bytes())),
        Kind::Ip => address(text),
        Kind::Range => real(text).map(|number| Key::Eight(ordered(number))),
    }
}

fn folded(text: &[u8]) -> Cow<'_, [u8]> {
    // Of all bytes at once, many at a time.
    if text.iter().fold(false, |found, byte| found | byte.is_ascii_uppercase()) {
        Cow::Owned(text.to_ascii_lowercase())
    } else {
        Cow::Borrowed(text)
    }
}

/// The key that a value of Python's is.
pub fn of<'a>(kind: Kind, value: &'a Bound<'_, PyAny>) -> Option<Key<'a>> {
    if let Ok(text) = value.cast::<PyString>() {
        return canonical(kind, text.to_str().ok()?.as_bytes());
    }
    if let Ok(bytes) = value.cast::<PyBytes>() {
        return canonical(kind, bytes.as_bytes());
    }
    if value.is_exact_instance_of::<PyBool>() {
        return None;
    }
    match kind {
        Kind::Number => {
            let number = if let Ok(float) = value.cast::<PyFloat>() {
                let float = float.value();
                // The bounds are powers of two, so the comparison is exact.
                if float.fract() != 0.0 || !(-(2f64.powi(63))..2f64.powi(63)).contains(&float) {
                    return None;
                }
                float as i64
            } else {
                value.cast::<PyInt>().ok()?.extract().ok()?
            };
            Some(Key::Eight(number.to_le_bytes()))
        }
        Kind::Range => {
            let number = if let Ok(float) = value.cast::<PyFloat>() {
                float.value()
            } else {
                let whole: i64 = value.cast::<PyInt>().ok()?.extract().ok()?;
                if whole.unsigned_abs() >= 1 << 53 {
                    return None;
                }
                whole as f64
            };
            number.is_finite().then(|| Key::Eight(ordered(number)))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::four;

    /// An address is read as the standard library reads it, and what is none is none.
    #[test]
    fn addresses_of_four_bytes() {
        let octets = ["0", "1", "9", "10", "99", "100", "255", "256", "300", "999", "00", "01", "007", "", "1000", "a"];
        for one in octets {
            for other in octets {
                for text in [
                    format!("{one}.{other}.3.4"),
                    format!("10.2.{one}.{other}"),
                    format!("{one}.{one}.{other}.{other}"),
                    format!("{one}.{other}.1"),
                    format!("{one}.{other}.1.2.3"),
                    format!(".{one}.{other}.1"),
                    format!("{one}:{other}.1.1"),
                    format!("{one}.{other}..1"),
                    format!(" 1.2.{one}.{other}"),
                    format!("1.2.{one}.{other}\u{e9}"),
                ] {
                    let expected = text.parse::<Ipv4Addr>().ok().map(|address| address.octets());
                    assert_eq!(four(text.as_bytes()), expected, "{text}");
                }
            }
        }
    }
}
