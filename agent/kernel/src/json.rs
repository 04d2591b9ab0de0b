//! JSON objects (RFC 8259), read in place into the places of their values and a signature of their structure.
//!
//! Two events with one signature have the same names, nested in the same way and written in the same order, and values of
//! the same kinds: where the values that decoders look into are equal too, a decoder finds each field in the value of the
//! same number. `structure.rs` takes the order out. `None` everywhere means "not decided here": the text is no JSON
//! object, or has something in it that readers take differently (bad UTF-8, halves of surrogate pairs, control
//! characters), or a control character in a name.
//!
//! A signature is `OBJECT`, for each member its name, `NAME_END` and a value, then `END`. A value is an object, or `LIST`,
//! values, `END`, or a `Kind`. All marks are below the space, and nothing else is.

/// Nesting beyond which an event is not read.
pub const DEPTH: u32 = 64;
/// Bytes beyond which an event is not read.
pub const MAX_EVENT: usize = 1 << 20;
/// Values beyond which an event is not read.
pub const MAX_LEAVES: usize = 4096;

/// Times that the bytes of an event are looked through for objects in arrays, on average; with more it is not read.
const MAX_SKIPPED: usize = 4;

/// What a value is, as far as the structure of its event goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Kind {
    /// A string with something in it.
    Text = 0x10,
    /// `""`
    Empty,
    /// A whole number that is written as Python prints it.
    Int,
    /// A fraction that is written as Python prints it.
    Decimal,
    /// Any other number.
    Number,
    /// `true`
    True,
    /// `false`
    False,
    /// `null`
    Null,
    /// An array without an object in it.
    List,
    /// `[]`
    EmptyList,
}

/// A value that is no object, nor an array with objects in it: its bytes, of a string without the quotes.
#[derive(Clone, Copy, Debug)]
pub struct Leaf {
    /// Where it begins in the event.
    pub start: u32,
    /// Where it ends.
    pub end: u32,
    /// What it is.
    pub kind: Kind,
    /// Whether a string holds escapes.
    pub escaped: bool,
}

/// The values and the signature of one event.
#[derive(Default)]
pub struct Event {
    /// In the order of the text.
    pub leaves: Vec<Leaf>,
    /// See the module's text. Names without escapes.
    pub signature: Vec<u8>,
    spare: Vec<Leaf>,
}

/// Begins an object.
pub const OBJECT: u8 = 1;
/// Ends an object or an array.
pub const END: u8 = 2;
/// Begins an array with objects in it.
pub const LIST: u8 = 3;
/// Ends a name.
pub const NAME_END: u8 = 4;

impl Event {
    /// Read `data`, an object with nothing but white space around it.
    pub fn read(&mut self, data: &[u8]) -> Option<()> {
        self.leaves.clear();
        self.signature.clear();
        let least = data.iter().fold(b' ', |least, &byte| least.min(byte));
        if data.len() > MAX_EVENT || least < b' ' || simdutf8::basic::from_utf8(data).is_err() {
            return None;
        }
        let mut reader = Reader { data, at: 0, event: self, skipped: 0 };
        if reader.peek()? != b'{' {
            return None;
        }
        reader.object(0)?;
        reader.peek().is_none().then_some(())
    }

    /// Bring the values in the order of their numbers in `order`; those that are not in it are left out.
    pub fn arrange(&mut self, order: &[u32]) {
        self.spare.clear();
        self.spare.extend(order.iter().map(|&number| self.leaves[number as usize]));
        std::mem::swap(&mut self.leaves, &mut self.spare);
    }
}

struct Reader<'a> {
    data: &'a [u8],
    at: usize,
    event: &'a mut Event,
    /// Bytes of arrays that were looked through for an object; those in an array are looked through again.
    skipped: usize,
}

impl Reader<'_> {
    /// The next byte that is no space; control characters do not occur.
    #[inline]
    fn peek(&mut self) -> Option<u8> {
        peek(self.data, &mut self.at)
    }

    fn mark(&mut self, bytes: &[u8]) {
        self.event.signature.extend_from_slice(bytes);
    }

    fn object(&mut self, depth: u32) -> Option<()> {
        if depth >= DEPTH {
            return None;
        }
        self.at += 1;
        self.mark(&[OBJECT]);
        if self.peek()? == b'}' {
            self.at += 1;
        } else {
            loop {
                if self.peek()? != b'"' {
                    return None;
                }
                let data = self.data;
                let (start, end, escaped) = string(data, &mut self.at)?;
                let mut plain = Vec::new();
                let mut name = &data[start..end];
                if escaped {
                    unescape(name, &mut plain)?;
                    if plain.iter().any(|&byte| byte < b' ') {
                        return None;
                    }
                    name = &plain;
                }
                self.mark(name);
                self.mark(&[NAME_END]);
                if self.peek()? != b':' {
                    return None;
                }
                self.at += 1;
                self.value(depth)?;
                if !self.goes_on(b'}')? {
                    break;
                }
            }
        }
        self.mark(&[END]);
        Some(())
    }

    /// Past a comma, or past the `close` of what it is in.
    fn goes_on(&mut self, close: u8) -> Option<bool> {
        let byte = self.peek()?;
        self.at += 1;
        (byte == b',' || byte == close).then_some(byte == b',')
    }

    fn value(&mut self, depth: u32) -> Option<()> {
        match self.peek()? {
            b'{' => self.object(depth + 1),
            b'[' => self.list(depth + 1),
            _ => {
                let leaf = scalar(self.data, &mut self.at)?;
                self.leaf(leaf)
            }
        }
    }

    fn list(&mut self, depth: u32) -> Option<()> {
        let start = self.at;
        let holds_object = skip_list(self.data, &mut self.at, depth)?;
        self.skipped += self.at - start;
        if self.skipped > MAX_SKIPPED * self.data.len() {
            return None;
        }
        if !holds_object {
            let inside = &self.data[start + 1..self.at - 1];
            let kind = if inside.iter().all(|&byte| byte == b' ') { Kind::EmptyList } else { Kind::List };
            let leaf = Leaf { start: start as u32, end: self.at as u32, kind, escaped: false };
            return self.leaf(leaf);
        }
        self.at = start + 1;
        self.mark(&[LIST]);
        loop {
            self.value(depth)?;
            if !self.goes_on(b']')? {
                break;
            }
        }
        self.mark(&[END]);
        Some(())
    }

    fn leaf(&mut self, leaf: Leaf) -> Option<()> {
        self.mark(&[leaf.kind as u8]);
        if self.event.leaves.len() == MAX_LEAVES {
            return None;
        }
        self.event.leaves.push(leaf);
        Some(())
    }
}

#[inline]
fn peek(data: &[u8], at: &mut usize) -> Option<u8> {
    loop {
        match data.get(*at) {
            Some(b' ') => *at += 1,
            other => return other.copied(),
        }
    }
}

/// Where the next `"` or `\\` is, from `at` on: eight bytes at a step, as most strings are short.
#[inline]
fn special(data: &[u8], mut at: usize) -> Option<usize> {
    const LOW: u64 = u64::MAX / 255;
    const HIGH: u64 = LOW << 7;
    // The lowest high bit that is set is the first byte of `word` that is zero.
    let zeros = |word: u64| word.wrapping_sub(LOW) & !word & HIGH;
    while let Some(eight) = data.get(at..)?.first_chunk::<8>() {
        let word = u64::from_le_bytes(*eight);
        let found = zeros(word ^ (LOW * u64::from(b'"'))) | zeros(word ^ (LOW * u64::from(b'\\')));
        if found != 0 {
            return Some(at + found.trailing_zeros() as usize / 8);
        }
        at += 8;
    }
    data[at..].iter().position(|&byte| byte == b'"' || byte == b'\\').map(|count| at + count)
}

/// The string that begins here: where its inside begins and ends, and whether it holds escapes.
#[inline]
fn string(data: &[u8], at: &mut usize) -> Option<(usize, usize, bool)> {
    let start = *at + 1;
    let (mut end, mut escaped) = (start, false);
    loop {
        end = special(data, end)?;
        if data[end] == b'"' {
            *at = end + 1;
            return Some((start, end, escaped));
        }
        escaped = true;
        end += 2;
        match *data.get(end - 1)? {
            b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't' => {}
            b'u' => end += code_point(&data[end..])?.1,
            _ => return None,
        }
    }
}

/// The scalar that begins here.
fn scalar(data: &[u8], at: &mut usize) -> Option<Leaf> {
    let leaf = |start: usize, end: usize, kind, escaped| Leaf { start: start as u32, end: end as u32, kind, escaped };
    let start = *at;
    if data[start] == b'"' {
        let (start, end, escaped) = string(data, at)?;
        return Some(leaf(start, end, if start == end { Kind::Empty } else { Kind::Text }, escaped));
    }
    for (word, kind) in [(&b"true"[..], Kind::True), (b"false", Kind::False), (b"null", Kind::Null)] {
        if data[start..].starts_with(word) {
            *at += word.len();
            return Some(leaf(start, *at, kind, false));
        }
    }
    let kind = number(data, at)?;
    Some(leaf(start, *at, kind, false))
}

/// Past the number that begins here, where a byte is.
pub fn number(data: &[u8], at: &mut usize) -> Option<Kind> {
    let start = *at;
    let digits = |at: &mut usize| {
        let count = data[*at..].iter().take_while(|byte| byte.is_ascii_digit()).count();
        *at += count;
        count
    };
    let minus = usize::from(data[start] == b'-');
    *at += minus;
    let zero = *data.get(*at)? == b'0';
    let whole = digits(at);
    if whole == 0 || (zero && whole > 1) {
        return None;
    }
    let mut kind = if is_whole(&data[start..*at], whole) && !(zero && minus == 1) { Kind::Int } else { Kind::Number };
    if data.get(*at) == Some(&b'.') {
        *at += 1;
        let from = *at;
        let count = digits(at);
        let fraction = &data[from..*at];
        // 15 digits survive a float; Python prints none but the needed ones, and smaller numbers with an exponent.
        let printed = count == 1 || (fraction.last() != Some(&b'0') && !(zero && fraction.starts_with(b"0000")));
        kind = if printed && whole + count <= 15 { Kind::Decimal } else { Kind::Number };
        if count == 0 {
            return None;
        }
    }
    if let Some(b'e' | b'E') = data.get(*at) {
        *at += 1;
        kind = Kind::Number;
        if let Some(b'+' | b'-') = data.get(*at) {
            *at += 1;
        }
        if digits(at) == 0 {
            return None;
        }
    }
    // What no float holds is a text (`decode/values.py`).
    if kind == Kind::Number && !std::str::from_utf8(&data[start..*at]).ok()?.parse::<f64>().ok()?.is_finite() {
        return None;
    }
    Some(kind)
}

/// Whether a reader keeps these digits as a whole number: in 64 bits.
fn is_whole(text: &[u8], digits: usize) -> bool {
    let fits = |text: &str| text.parse::<i64>().is_ok() || text.parse::<u64>().is_ok();
    digits <= 18 || (digits <= 20 && std::str::from_utf8(text).is_ok_and(fits))
}

/// Past the array that begins here: whether an object is in it, at whatever depth.
fn skip_list(data: &[u8], at: &mut usize, depth: u32) -> Option<bool> {
    if depth >= DEPTH {
        return None;
    }
    *at += 1;
    if peek(data, at)? == b']' {
        *at += 1;
        return Some(false);
    }
    loop {
        match peek(data, at)? {
            b'{' => return Some(true),
            b'[' => {
                if skip_list(data, at, depth + 1)? {
                    return Some(true);
                }
            }
            _ => {
                scalar(data, at)?;
            }
        }
        match peek(data, at)? {
            b',' => *at += 1,
            b']' => {
                *at += 1;
                return Some(false);
            }
            _ => return None,
        }
    }
}

/// Every scalar of a `Kind::List` that begins at `at`, however deep it is nested.
pub fn each_item(data: &[u8], mut at: usize, mut take: impl FnMut(Leaf)) -> Option<()> {
    let mut depth = 0_u32;
    loop {
        match peek(data, &mut at)? {
            b'[' => {
                depth += 1;
                at += 1;
            }
            b']' => {
                depth -= 1;
                at += 1;
                if depth == 0 {
                    return Some(());
                }
            }
            b',' => at += 1,
            _ => take(scalar(data, &mut at)?),
        }
    }
}

/// Append the text of the inside of a string.
pub fn unescape(mut inside: &[u8], out: &mut Vec<u8>) -> Option<()> {
    while let Some(count) = memchr::memchr(b'\\', inside) {
        out.extend_from_slice(&inside[..count]);
        let code = *inside.get(count + 1)?;
        inside = &inside[count + 2..];
        out.push(match code {
            b'"' | b'\\' | b'/' => code,
            b'b' => 8,
            b'f' => 12,
            b'n' => b'\n',
            b'r' => b'\r',
            b't' => b'\t',
            b'u' => {
                let (point, used) = code_point(inside)?;
                out.extend_from_slice(point.encode_utf8(&mut [0; 4]).as_bytes());
                inside = &inside[used..];
                continue;
            }
            _ => return None,
        });
    }
    out.extend_from_slice(inside);
    Some(())
}

/// The character that `digits` behind `\\u` stand for, and how many bytes they are: two escapes may be one character.
fn code_point(digits: &[u8]) -> Option<(char, usize)> {
    let high = hex4(digits)?;
    if !(0xd800..0xdc00).contains(&high) {
        return Some((char::from_u32(high)?, 4));
    }
    let low = hex4(digits.get(4..)?.strip_prefix(b"\\u")?)?;
    let pair = (0xdc00..0xe000).contains(&low).then(|| 0x1_0000 + ((high - 0xd800) << 10) + (low - 0xdc00))?;
    Some((char::from_u32(pair)?, 10))
}

fn hex4(bytes: &[u8]) -> Option<u32> {
    bytes.get(..4)?.iter().try_fold(0, |value, &byte| Some(value << 4 | char::from(byte).to_digit(16)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &[u8]) -> Option<Event> {
        let mut event = Event::default();
        event.read(text).map(|()| event)
    }

    fn kinds(text: &str) -> Vec<Kind> {
        read(text.as_bytes()).expect(text).leaves.iter().map(|leaf| leaf.kind).collect()
    }

    #[test]
    fn what_readers_take_differently_is_not_read() {
        let refused: [&[u8]; 22] = [
            b"",
            b"1",
            b"[1]",
            b"{",
            b"{\"a\":1,}",
            b"{\"a\" 1}",
            b"{a:1}",
            b"{\"a\":01}",
            b"{\"a\":1.}",
            b"{\"a\":.5}",
            b"{\"a\":+1}",
            b"{\"a\":NaN}",
            b"{\"a\":\"\x01\"}",
            b"{\"a\":\"\xff\"}",
            b"{\"a\":\"\\ud800\"}",
            b"{\"a\":\"\\udc00\"}",
            b"{\"a\":\"\\x41\"}",
            b"{\"a\":1}{",
            b"{\"a\":[1,]}",
            b"{\"a\":tru}",
            b"{\"\\u001f\":1}",
            b"{\"\\ud800\":1}",
        ];
        for text in refused {
            assert!(read(text).is_none(), "{}", String::from_utf8_lossy(text));
        }
        let deep = |levels: usize| format!("{}1{}", "{\"a\":".repeat(levels), "}".repeat(levels));
        assert!(read(deep(DEPTH as usize - 1).as_bytes()).is_some());
        assert!(read(deep(DEPTH as usize + 1).as_bytes()).is_none());
        let many = format!("{{\"a\":{{{}}}}}", vec!["\"b\":1"; MAX_LEAVES + 1].join(","));
        assert!(read(many.as_bytes()).is_none());
    }

    #[test]
    fn numbers_as_python_prints_them() {
        let text =
            r#"{"a":[{}, 0, -7, 18446744073709551615, 18446744073709551616, -0, 1.5, 1.50, 0.0001, 0.00001, 1e5]}"#;
        let (int, decimal, other) = (Kind::Int, Kind::Decimal, Kind::Number);
        assert_eq!(kinds(text), [int, int, int, other, other, decimal, other, decimal, other, other]);
    }

    #[test]
    fn structure_is_in_the_signature_and_no_value() {
        let signature = |text: &str| read(text.as_bytes()).expect(text).signature;
        let own = r#"{"EventID":1,"Image":"a"}"#;
        assert_eq!(signature(own), signature(r#"{ "EventID" : 2, "Image":"other" }"#));
        for other in [
            r#"{"EventID":"1","Image":"a"}"#,
            r#"{"EventID":1,"Image":""}"#,
            r#"{"EventID":1,"Image":null}"#,
            r#"{"Image":"a","EventID":1}"#,
            r#"{"EventID":1,"Image":{"a":"a"}}"#,
            r#"{"EventID":1,"Image":["a"]}"#,
        ] {
            assert_ne!(signature(own), signature(other), "{other}");
        }
        assert_eq!(signature(own), signature(r#"{"Event\u0049D":1,"\u0049mage":"b"}"#));
        assert_ne!(signature(r#"{"a":[]}"#), signature(r#"{"a":[1]}"#));
        assert_eq!(signature(r#"{"a":[ ]}"#), signature(r#"{"a":[]}"#));
    }

    #[test]
    fn escapes_stand_for_their_characters() {
        let mut out = Vec::new();
        unescape(br#"a\"\\\/\b\f\n\r\t\u00e9\ud83d\ude00"#, &mut out).unwrap();
        assert_eq!(out, "a\"\\/\u{8}\u{c}\n\r\t\u{e9}\u{1f600}".as_bytes());
    }

    #[test]
    fn items_of_nested_arrays() {
        let text = br#"[1, ["a", [], [null]], true]"#;
        let mut found = Vec::new();
        each_item(text, 0, |leaf| found.push(leaf.kind)).unwrap();
        assert_eq!(found, [Kind::Int, Kind::Text, Kind::Null, Kind::True]);
    }
}
