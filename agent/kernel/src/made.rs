//! Events as they are made: one JSON object each, field by field, as `orjson` writes what Python would hold.
//!
//! A field that is set again keeps its place, as in a dictionary. Nothing here looks at Python.

/// Fields that one object may have here.
const MAX_FIELDS: usize = 128;

const LOW: u64 = u64::MAX / 255;
const HIGH: u64 = LOW << 7;

/// Fields of an object, written one behind the other.
#[derive(Default)]
pub struct Fields {
    /// `"name":value`, commas between.
    bytes: Vec<u8>,
    entries: Vec<Entry>,
    open: Entry,
    /// A bit for each name, so that most names are surely not in.
    marks: u64,
    /// A field was set again: `bytes` is not what is in the object.
    moved: bool,
    /// What looking for names has cost, about in bytes read.
    pub work: usize,
}

/// Where a field and its value begin and end.
#[derive(Clone, Copy, Default)]
struct Entry {
    start: usize,
    colon: usize,
    end: usize,
}

/// The bit of a name, which is in quotes.
fn mark(name: &[u8]) -> u64 {
    let last = name[name.len() - 2];
    1 << ((name.len() as u64 ^ u64::from(name[1]).wrapping_mul(7) ^ u64::from(last).wrapping_mul(13)) & 63)
}

impl Fields {
    /// Forget all.
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.entries.clear();
        (self.marks, self.moved) = (0, false);
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Whether they take no more bytes than so many.
    #[must_use]
    pub fn is_within(&self, most: usize) -> Option<()> {
        (self.bytes.len() <= most).then_some(())
    }

    /// Where the name of a further field is written to, in quotes.
    pub fn name(&mut self) -> &mut Vec<u8> {
        if !self.bytes.is_empty() {
            self.bytes.push(b',');
        }
        self.open.start = self.bytes.len();
        &mut self.bytes
    }

    /// Where its value is written to, once the name is.
    pub fn value(&mut self) -> &mut Vec<u8> {
        self.open.colon = self.bytes.len();
        self.bytes.push(b':');
        &mut self.bytes
    }

    /// The field is written. None: there are too many, or the name is there already and may be `once` only.
    pub fn end(&mut self, once: bool) -> Option<()> {
        let entry = Entry { end: self.bytes.len(), ..self.open };
        let name = &self.bytes[entry.start..entry.colon];
        let bit = mark(name);
        if self.marks & bit != 0 {
            self.work += self.entries.len() * 4;
            if let Some(old) = self.entries.iter().position(|old| self.bytes[old.start..old.colon] == *name) {
                (self.entries[old], self.moved) = (entry, true);
                return (!once).then_some(());
            }
        }
        self.marks |= bit;
        self.entries.push(entry);
        (self.entries.len() <= MAX_FIELDS).then_some(())
    }

    /// Set a field; `name` in quotes.
    pub fn set(&mut self, name: &[u8], value: &[u8]) -> Option<()> {
        self.name().extend_from_slice(name);
        self.value().extend_from_slice(value);
        self.end(false)
    }

    /// The JSON of a field's value.
    pub fn get(&mut self, name: &[u8]) -> Option<&[u8]> {
        if self.marks & mark(name) == 0 {
            return None;
        }
        self.work += self.entries.len() * 4;
        let entry = self.entries.iter().find(|entry| self.bytes[entry.start..entry.colon] == *name)?;
        Some(&self.bytes[entry.colon + 1..entry.end])
    }

    /// Set all fields of `other`.
    pub fn merge(&mut self, other: &Self) -> Option<()> {
        if self.marks & other.marks != 0 || other.moved {
            return other.each().try_for_each(|(name, value)| self.set(name, value));
        }
        if other.is_empty() {
            return Some(());
        }
        if !self.bytes.is_empty() {
            self.bytes.push(b',');
        }
        let at = self.bytes.len();
        self.bytes.extend_from_slice(&other.bytes);
        let shifted = |one: &Entry| Entry { start: at + one.start, colon: at + one.colon, end: at + one.end };
        self.entries.extend(other.entries.iter().map(shifted));
        self.marks |= other.marks;
        (self.entries.len() <= MAX_FIELDS).then_some(())
    }

    fn each(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        self.entries.iter().map(|one| (&self.bytes[one.start..one.colon], &self.bytes[one.colon + 1..one.end]))
    }

    fn inside(&self, out: &mut Vec<u8>) {
        if !self.moved {
            return out.extend_from_slice(&self.bytes);
        }
        for (number, one) in self.entries.iter().enumerate() {
            if number > 0 {
                out.push(b',');
            }
            out.extend_from_slice(&self.bytes[one.start..one.end]);
        }
    }

    /// The object.
    pub fn write(&self, out: &mut Vec<u8>) {
        out.push(b'{');
        self.inside(out);
        out.push(b'}');
    }

    /// The object with `about` behind its fields; with a name in both `about` comes first, with this object's value.
    pub fn write_with(&mut self, about: &Self, out: &mut Vec<u8>) -> Option<()> {
        if self.is_empty() || about.is_empty() {
            (if self.is_empty() { about } else { self }).write(out);
            return Some(());
        }
        if self.marks & about.marks != 0 {
            self.work += about.entries.len() * 4;
            if about.each().any(|(name, _)| self.get(name).is_some()) {
                let mut both = Self::default();
                both.merge(about)?;
                self.each().try_for_each(|(name, value)| both.set(name, value))?;
                both.write(out);
                self.work += both.bytes.len() + both.work;
                return Some(());
            }
        }
        out.push(b'{');
        self.inside(out);
        out.push(b',');
        about.inside(out);
        out.push(b'}');
        Some(())
    }
}

/// Where the next byte is that a JSON string cannot hold as it is, and whether a byte beyond ASCII stands before it, or
/// perhaps close behind it.
#[must_use]
pub fn special(data: &[u8], mut at: usize) -> (usize, bool) {
    let zeros = |word: u64| word.wrapping_sub(LOW) & !word;
    let mut high = 0;
    while let Some(eight) = data.get(at..).and_then(|rest| rest.first_chunk::<8>()) {
        let word = u64::from_le_bytes(*eight);
        let quote = zeros(word ^ (LOW * u64::from(b'"'))) | zeros(word ^ (LOW * u64::from(b'\\')));
        let found = (quote | (word.wrapping_sub(LOW * 0x20) & !word)) & HIGH;
        high |= word & HIGH;
        if found != 0 {
            // The lowest bit is right; those above it may be a borrow's.
            return (at + found.trailing_zeros() as usize / 8, high != 0);
        }
        at += 8;
    }
    let mut beyond = high != 0;
    for &byte in &data[at.min(data.len())..] {
        if byte < 0x20 || byte == b'"' || byte == b'\\' {
            break;
        }
        beyond |= byte >= 0x80;
        at += 1;
    }
    (at, beyond)
}

/// Append a text, which is UTF-8, as a JSON string.
pub fn escape(text: &[u8], out: &mut Vec<u8>) {
    const HEX: &[u8; 16] = b"0123456789abcdef";
    out.push(b'"');
    let mut start = 0;
    loop {
        let (at, _) = special(text, start);
        out.extend_from_slice(&text[start..at]);
        let Some(&byte) = text.get(at) else { break };
        let short = match byte {
            b'"' | b'\\' => byte,
            8 => b'b',
            12 => b'f',
            b'\n' => b'n',
            b'\r' => b'r',
            b'\t' => b't',
            _ => 0,
        };
        if short == 0 {
            out.extend_from_slice(b"\\u00");
            out.extend_from_slice(&[HEX[usize::from(byte >> 4)], HEX[usize::from(byte & 15)]]);
        } else {
            out.extend_from_slice(&[b'\\', short]);
        }
        start = at + 1;
    }
    out.push(b'"');
}

/// Append a whole number.
pub fn integer(value: impl Into<i128>, out: &mut Vec<u8>) {
    let value: i128 = value.into();
    let (mut left, mut digits, mut at) = (value.unsigned_abs() as u64, [0; 20], 20);
    loop {
        at -= 1;
        digits[at] = b'0' + (left % 10) as u8;
        left /= 10;
        if left == 0 {
            break;
        }
    }
    if value < 0 {
        out.push(b'-');
    }
    out.extend_from_slice(&digits[at..]);
}

/// Append a float: the shortest digits that say it; what JSON cannot say is null.
pub fn float(value: f64, out: &mut Vec<u8>) {
    let size = value.abs();
    if !value.is_finite() {
        return out.extend_from_slice(b"null");
    }
    if (1e-5..1e-4).contains(&size) {
        return out.extend_from_slice(format!("{value}").as_bytes());
    }
    let text = format!("{value:?}");
    match text.split_once('e') {
        Some((digits, power)) if !power.starts_with('-') => {
            out.extend_from_slice(format!("{digits}e+{power}").as_bytes());
        }
        _ => out.extend_from_slice(text.as_bytes()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(write: impl FnOnce(&mut Vec<u8>)) -> String {
        let mut out = Vec::new();
        write(&mut out);
        String::from_utf8(out).unwrap()
    }

    fn fields(given: &[(&str, &str)]) -> Fields {
        let mut made = Fields::default();
        for (name, value) in given {
            made.set(format!("\"{name}\"").as_bytes(), value.as_bytes()).unwrap();
        }
        made
    }

    #[test]
    fn texts_and_numbers() {
        assert_eq!(
            written(|out| escape("a\"\\\n\u{1}\u{7f}é and a long tail\t".as_bytes(), out)),
            "\"a\\\"\\\\\\n\\u0001\u{7f}é and a long tail\\t\""
        );
        assert_eq!(written(|out| integer(i64::MIN, out)), i64::MIN.to_string());
        assert_eq!(written(|out| integer(u64::MAX, out)), u64::MAX.to_string());
        let cases = [(1.0, "1.0"), (1e16, "1e+16"), (1e-5, "0.00001"), (1.5e-7, "1.5e-7"), (-0.0, "-0.0")];
        for (value, text) in cases {
            assert_eq!(written(|out| float(value, out)), text);
        }
        assert_eq!(written(|out| float(f64::NAN, out)), "null");
    }

    #[test]
    fn a_field_that_is_set_again_keeps_its_place() {
        let mut made = fields(&[("a", "1"), ("b", "2"), ("a", "3")]);
        assert_eq!(written(|out| made.write(out)), r#"{"a":3,"b":2}"#);
        assert_eq!(made.get(b"\"a\""), Some(&b"3"[..]));
        made.name().extend_from_slice(b"\"b\"");
        made.value().push(b'4');
        assert_eq!(made.end(true), None);
    }

    #[test]
    fn what_is_about_all_stands_behind() {
        let about = fields(&[("x", "1"), ("y", "2")]);
        let cases: [(&[_], _); 3] = [
            (&[("a", "0")], r#"{"a":0,"x":1,"y":2}"#),
            (&[], r#"{"x":1,"y":2}"#),
            (&[("a", "0"), ("y", "9")], r#"{"x":1,"y":9,"a":0}"#),
        ];
        for (given, wanted) in cases {
            assert_eq!(written(|out| fields(given).write_with(&about, out).unwrap()), wanted);
        }
        assert_eq!(written(|out| fields(&[]).write_with(&fields(&[]), out).unwrap()), "{}");
    }

    #[test]
    fn where_a_string_ends() {
        for text in ["abc\"", "abcdefgh\"ijklmnop", "abcdefghijk\n", "abcdefg\\", "plain text of some length"] {
            let wanted = text.bytes().position(|byte| byte < 32 || byte == b'"' || byte == b'\\').unwrap_or(text.len());
            assert_eq!(special(text.as_bytes(), 0), (wanted, false), "{text}");
        }
        assert_eq!(special("é and so on and on\"".as_bytes(), 0), (19, true));
    }
}
