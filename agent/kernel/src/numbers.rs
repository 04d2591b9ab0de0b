//! Where text holds a number that Python may print otherwise than it is written: `NUMBER_GUARDS` and `BARE_NUMBER` of
//! `plan/literals.py`, by hand, as they cost Hyperscan more than all literals do.

use memchr::memmem::Finder;

/// Characters one of which stands before a number, where that is not the first of an event.
const BEFORE: &[u8] = b":,[ \t\n\r\x0b\x0c\0\xbf";

/// Digits and points in a row that no number of Python has.
const LONG: usize = 16;

/// Bytes that are looked at together.
const BLOCK: usize = 16;

/// Call `each` with where such a number ends in `data`, at least once for each that lies within one event.
pub fn ends(data: &[u8], mut each: impl FnMut(usize)) {
    exponents(data, &mut each);
    long(data, &mut each);
    for found in Finder::new(b"0.0000").find_iter(data) {
        each(found + 6);
    }
}

/// `[:,\[\s\x00\xbf]-?[0-9]+(?:\.[0-9]+)?e[-+0-9]`, of either case.
fn exponents(data: &[u8], each: &mut impl FnMut(usize)) {
    let behind = data.get(1..).unwrap_or_default();
    let mut look = |from: usize, digits: &[u8], es: &[u8]| {
        for (i, (&digit, &e)) in digits.iter().zip(es).enumerate() {
            if is_exponent(digit, e) && has_number(data, from + i + 1) {
                each(from + i + 3);
            }
        }
    };
    let (blocks, rest) = behind.as_chunks::<BLOCK>();
    for (number, (digits, es)) in data.as_chunks::<BLOCK>().0.iter().zip(blocks).enumerate() {
        // Written without a branch, so that it is compiled to vectors.
        if digits.iter().zip(es).fold(false, |any, (&digit, &e)| any | is_exponent(digit, e)) {
            look(number * BLOCK, digits, es);
        }
    }
    let left = behind.len() - rest.len();
    look(left, &data[left..], rest);
}

#[allow(clippy::needless_bitwise_bool)]
fn is_exponent(digit: u8, e: u8) -> bool {
    digit.is_ascii_digit() & (e | 0x20 == b'e')
}

/// Whether the `e` at `at`, which a digit precedes, is a number's.
fn has_number(data: &[u8], at: usize) -> bool {
    if !matches!(data.get(at + 1), Some(b'0'..=b'9' | b'-' | b'+')) {
        return false;
    }
    let integer = digits_before(data, at, u8::is_ascii_digit);
    let whole = match data[..integer] {
        [.., before, b'.'] if before.is_ascii_digit() => Some(digits_before(data, integer - 1, u8::is_ascii_digit)),
        _ => None,
    };
    [Some(integer), whole].into_iter().flatten().any(|start| {
        let sign = start - usize::from(data[..start].last() == Some(&b'-'));
        data[..sign].last().is_some_and(|before| BEFORE.contains(before))
    })
}

/// Where the digits begin that end at `at`.
fn digits_before(data: &[u8], at: usize, is_digit: impl Fn(&u8) -> bool) -> usize {
    data[..at].iter().rposition(|byte| !is_digit(byte)).map_or(0, |found| found + 1)
}

/// `[0-9.]{16}`: a run of so many fills eight aligned bytes.
fn long(data: &[u8], each: &mut impl FnMut(usize)) {
    let of_number = |&byte: &u8| byte.is_ascii_digit() || byte == b'.';
    let mut seen = 0;
    for (number, eight) in data.as_chunks::<8>().0.iter().enumerate() {
        let at = number * 8;
        if may_be_digits(u64::from_ne_bytes(*eight)) && at >= seen && eight.iter().all(of_number) {
            let start = digits_before(data, at, of_number);
            let end = data[at..].iter().position(|byte| !of_number(byte)).map_or(data.len(), |found| at + found);
            if end - start >= LONG {
                (start + LONG..end).step_by(LONG).for_each(&mut *each);
                each(end);
            }
            seen = end;
        }
    }
}

/// False when one of the eight bytes is outside `.` (0x2e) to `9` (0x39).
fn may_be_digits(bytes: u64) -> bool {
    const EACH: u64 = u64::MAX / 0xff;
    let above = bytes.wrapping_add(EACH * (0x7f - 0x39));
    let below = bytes.wrapping_add(EACH * (0x80 - 0x2e));
    (bytes | above | !below) & (EACH * 0x80) == 0
}

/// Whether `event` begins as a number with an exponent: `-?[0-9][0-9.]*[eE][-+]?[0-9]`.
#[must_use]
pub fn is_bare(event: &[u8]) -> bool {
    let digits = event.strip_prefix(b"-").unwrap_or(event);
    if !digits.first().is_some_and(u8::is_ascii_digit) {
        return false;
    }
    let length = digits.iter().take_while(|&&byte| byte.is_ascii_digit() || byte == b'.').count();
    match &digits[length..] {
        [b'e' | b'E', b'-' | b'+', digit, ..] | [b'e' | b'E', digit, ..] => digit.is_ascii_digit(),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(data: &[u8]) -> Vec<usize> {
        let mut found = Vec::new();
        ends(data, |end| found.push(end));
        found
    }

    #[test]
    fn exponents_of_numbers_only() {
        for number in [&b" 1e5"[..], b"[-1.5E+", b"\"a\":10e-3", b"\xbf7e1", b"\n1e5", b"x,123.456e0"] {
            assert_eq!(found(number).len(), 1, "{number:?}");
        }
        for other in [&b"1e5"[..], b" 1ef", b" a1e5", b" .1e5", b" 1.2.3e5", b" --1e5", b"c0ffee1e5", b" 1e", b" 1."] {
            assert_eq!(found(other), [0; 0], "{other:?}");
        }
        for shift in 0..200 {
            let mut data = vec![b'x'; shift];
            data.extend_from_slice(b" 12e3 ");
            assert_eq!(found(&data), [shift + 5]);
        }
    }

    #[test]
    fn long_numbers() {
        for length in 0..80 {
            for before in 0..40 {
                let data = [vec![b'x'; before], vec![b'7'; length], b" 7".to_vec()].concat();
                let all = found(&data);
                assert_eq!(all.is_empty(), length < 16, "{before} {length}");
                assert!(all.iter().all(|end| (before + 16..=before + length).contains(end)));
                assert!(
                    (before..(before + length).saturating_sub(15))
                        .all(|x| all.iter().any(|&end| end > x && end <= x + 31))
                );
            }
        }
        assert_eq!(found(b"x1234567.12345678"), [17]);
        assert_eq!(found(b"x123456712345678x12345678.1234567"), [33]);
    }

    #[test]
    fn small_numbers() {
        assert_eq!(found(b"a 0.00001 0.0001 x0.0000"), [8, 24]);
    }

    #[test]
    fn bare_numbers() {
        for number in [&b"1e5"[..], b"-1.5E+3 x", b"1.2.3e0", b"0e-1"] {
            assert!(is_bare(number));
        }
        for other in [&b""[..], b"-", b".1e5", b"1e", b"1e+", b"e5", b"10", b"1e+x", b"--1e5"] {
            assert!(!is_bare(other));
        }
    }
}
