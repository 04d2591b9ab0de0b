//! OTLP's protobuf, read once, from front to end, into the JSON of events. See `otlp.rs` for what `None` means.
//!
//! A field is a key (number and wire type), and its value or its length and bytes. Read are the fields of
//! `opentelemetry/proto/logs/v1`, each but lists once, the resource before its scopes, the scope before its records.

use crate::made::{Fields, escape, float, integer};
use crate::otlp::{EACH, Given, Log, MAX_ABOUT, MAX_DEPTH, MAX_IGNORED, MAX_RECORD, MAX_VALUES, Names, Scope, Step};

/// Fields of one message (as Python's `MAX_FIELDS`).
const MAX_FIELDS: usize = 500_000;
/// Bytes from which on a record is looked at for more messages than Python reads.
const SMALL: usize = 16 << 10;
/// Bytes of 0 to 4 in such a record, of which each may be a message.
const FEW: usize = 16_384;

enum Value<'a> {
    Varint(u64),
    Eight([u8; 8]),
    Four,
    Bytes(&'a [u8]),
}

/// A place in a message.
#[derive(Clone, Copy)]
struct Wire<'a> {
    data: &'a [u8],
    at: usize,
}

impl<'a> Wire<'a> {
    fn new(data: &'a [u8]) -> Self {
        Self { data, at: 0 }
    }

    #[inline]
    fn varint(&mut self) -> Option<u64> {
        let (mut value, mut shift) = (0, 0);
        loop {
            let byte = *self.data.get(self.at)?;
            self.at += 1;
            if shift == 63 && byte > 1 {
                return None;
            }
            value |= u64::from(byte & 127) << shift;
            if byte < 128 {
                return Some(value);
            }
            shift += 7;
        }
    }

    fn bytes(&mut self) -> Option<&'a [u8]> {
        let length = usize::try_from(self.varint()?).ok()?;
        let found = self.data.get(self.at..self.at.checked_add(length)?)?;
        self.at += length;
        Some(found)
    }

    /// The next field; None also at the end of the message.
    #[inline]
    fn field(&mut self) -> Option<(u64, Value<'a>)> {
        let key = self.varint()?;
        let value = match key & 7 {
            0 => Value::Varint(self.varint()?),
            1 => {
                let eight = *self.data.get(self.at..)?.first_chunk()?;
                self.at += 8;
                Value::Eight(eight)
            }
            2 => Value::Bytes(self.bytes()?),
            5 => {
                self.data.get(self.at..)?.first_chunk::<4>()?;
                self.at += 4;
                Value::Four
            }
            _ => return None,
        };
        Some((key >> 3, value))
    }

    fn is_over(&self) -> bool {
        self.at == self.data.len()
    }
}

/// Call `each` with every field of a message.
#[inline]
fn each<'a>(data: &'a [u8], mut each: impl FnMut(u64, Value<'a>) -> Option<()>) -> Option<()> {
    let mut wire = Wire::new(data);
    while !wire.is_over() {
        let (number, value) = wire.field()?;
        each(number, value)?;
    }
    Some(())
}

/// The fields that came, each once.
#[derive(Default)]
struct Once(u64);

impl Once {
    fn first(&mut self, number: u64) -> Option<()> {
        let bit = 1_u64.checked_shl(u32::try_from(number).ok()?)?;
        let seen = self.0 & bit != 0;
        self.0 |= bit;
        (!seen).then_some(())
    }
}

fn utf8(bytes: &[u8]) -> Option<&[u8]> {
    simdutf8::basic::from_utf8(bytes).is_ok().then_some(bytes)
}

fn write_text(bytes: &[u8], out: &mut Vec<u8>) -> Option<()> {
    escape(utf8(bytes)?, out);
    Some(())
}

fn ignored(bytes: &[u8]) -> Option<()> {
    (bytes.len() <= MAX_IGNORED && utf8(bytes).is_some()).then_some(())
}

fn write_hex(bytes: &[u8], out: &mut Vec<u8>) {
    const HEX: &[u8; 16] = b"0123456789abcdef";
    out.push(b'"');
    for byte in bytes {
        out.extend_from_slice(&[HEX[usize::from(byte >> 4)], HEX[usize::from(byte & 15)]]);
    }
    out.push(b'"');
}

fn write_base64(bytes: &[u8], out: &mut Vec<u8>) {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    out.push(b'"');
    for three in bytes.chunks(3) {
        let word = three.iter().fold(0, |word, &byte| word << 8 | usize::from(byte)) << (8 * (3 - three.len()));
        for place in 0..4 {
            out.push(if place > three.len() { b'=' } else { DIGITS[word >> (18 - 6 * place) & 63] });
        }
    }
    out.push(b'"');
}

/// The one field of an `AnyValue`; number 0: nothing is in it.
fn kind(data: &[u8]) -> Option<(u64, Value<'_>)> {
    let mut wire = Wire::new(data);
    if wire.is_over() {
        return Some((0, Value::Four));
    }
    let found = wire.field()?;
    (wire.is_over() && found.0 != 0).then_some(found)
}

/// Values within one record, as they come.
struct Values(usize);

impl Values {
    /// A field of a pair: its name, its value.
    fn pair(&mut self, data: &[u8], fields: &mut Fields, names: Option<&Names>, depth: usize) -> Option<()> {
        let (mut key, mut value) = (None, None);
        each(data, |number, found| {
            let (1 | 2, Value::Bytes(bytes)) = (number, found) else { return None };
            (if number == 1 { &mut key } else { &mut value }).replace(bytes).is_none().then_some(())
        })?;
        let key = utf8(key.unwrap_or_default())?;
        let out = fields.name();
        match names {
            Some(names) => names.write(key, out),
            None => escape(key, out),
        }
        self.any(value.unwrap_or_default(), fields.value(), depth)?;
        fields.end(true)
    }

    /// Append the plain value of an `AnyValue`.
    fn any(&mut self, data: &[u8], out: &mut Vec<u8>, depth: usize) -> Option<()> {
        self.0 += 1;
        if self.0 > MAX_VALUES || depth > MAX_DEPTH {
            return None;
        }
        match kind(data)? {
            (0, _) => out.extend_from_slice(b"null"),
            (number, value) => self.item(number, &value, out, depth)?,
        }
        Some(())
    }

    fn item(&mut self, number: u64, value: &Value, out: &mut Vec<u8>, depth: usize) -> Option<()> {
        match (number, value) {
            (1, Value::Bytes(text)) => write_text(text, out)?,
            (2, Value::Varint(value)) => out.extend_from_slice(if *value == 0 { b"false" } else { b"true" }),
            (3, Value::Varint(value)) => integer(value.cast_signed(), out),
            (4, Value::Eight(value)) => float(f64::from_le_bytes(*value), out),
            (5, Value::Bytes(values)) => {
                out.push(b'[');
                let mut first = true;
                each(values, |number, value| {
                    let (1, Value::Bytes(value)) = (number, value) else { return None };
                    if !std::mem::take(&mut first) {
                        out.push(b',');
                    }
                    self.any(value, out, depth + 1)
                })?;
                out.push(b']');
            }
            (6, Value::Bytes(pairs)) => {
                let mut inner = Fields::default();
                self.pairs(pairs, &mut inner, depth + 1)?;
                inner.write(out);
            }
            (7, Value::Bytes(bytes)) => write_base64(bytes, out),
            _ => return None,
        }
        Some(())
    }

    fn pairs(&mut self, data: &[u8], fields: &mut Fields, depth: usize) -> Option<()> {
        each(data, |number, value| {
            let (1, Value::Bytes(pair)) = (number, value) else { return None };
            self.pair(pair, fields, None, depth)
        })
    }
}

fn body(data: &[u8], log: &mut Log, given: &mut Given, values: &mut Values) -> Option<()> {
    match kind(data)? {
        (0, _) => Some(()),
        (1, Value::Bytes(text)) => log.text(utf8(text)?, false, given),
        (6, Value::Bytes(pairs)) => values.pairs(pairs, &mut log.fields, 1),
        (number, value) => {
            log.fields.name().extend_from_slice(b"\"message\"");
            values.item(number, &value, log.fields.value(), 0)?;
            log.fields.end(true)
        }
    }
}

fn record(data: &[u8], log: &mut Log, given: &mut Given) -> Option<()> {
    let (mut once, mut values) = (Once::default(), Values(0));
    if data.len() > MAX_RECORD || (data.len() > SMALL && data.iter().filter(|&&byte| byte < 5).count() > FEW) {
        return None;
    }
    each(data, |number, value| {
        if number == 6 {
            let Value::Bytes(pair) = value else { return None };
            return values.pair(pair, &mut log.attributes, Some(given.names), 0);
        }
        once.first(number)?;
        match (number, value) {
            (1, Value::Eight(time)) => log.time = u64::from_le_bytes(time),
            (2, Value::Varint(number)) => log.severity = i32::try_from(number.cast_signed()).ok()?.into(),
            (3, Value::Bytes(text)) => write_text(text, &mut log.level)?,
            (5, Value::Bytes(bytes)) => body(bytes, log, given, &mut values)?,
            (7, Value::Varint(_)) | (8, Value::Four) => {}
            (9, Value::Bytes(bytes)) => write_hex(bytes, &mut log.trace),
            (10, Value::Bytes(bytes)) => write_hex(bytes, &mut log.span),
            (11, Value::Eight(time)) => log.observed = u64::from_le_bytes(time),
            (12, Value::Bytes(text)) => write_text(text, &mut log.event)?,
            _ => return None,
        }
        Some(())
    })
}

/// A message that is read.
#[derive(Default)]
struct Open {
    end: usize,
    fields: usize,
    /// Fields that came.
    once: Once,
    /// One of the messages in it came.
    within: bool,
}

/// Where a body is read, between two steps.
#[derive(Default)]
pub struct Protobuf {
    at: usize,
    /// The body, a resource's logs, a scope's; the last is the innermost.
    open: Vec<Open>,
    begun: bool,
    scope: Scope,
    log: Log,
}

impl Protobuf {
    /// See `otlp::Reader`.
    pub fn step(&mut self, body: &[u8], given: &mut Given, step: &mut Step) -> Option<bool> {
        if !std::mem::replace(&mut self.begun, true) {
            self.open.push(Open { end: body.len(), ..Open::default() });
        }
        while let Some(open) = self.open.last() {
            if step.is_full() {
                return Some(false);
            }
            step.work += EACH;
            if self.at < open.end {
                self.field(body, given, step)?;
                continue;
            }
            if self.open.len() == 3 {
                self.scope.ready()?;
            }
            self.open.pop();
        }
        Some(true)
    }

    fn field(&mut self, body: &[u8], given: &mut Given, step: &mut Step) -> Option<()> {
        let depth = self.open.len();
        let open = self.open.last_mut()?;
        let mut wire = Wire { data: &body[..open.end], at: self.at };
        let (number, Value::Bytes(bytes)) = wire.field()? else { return None };
        open.fields += 1;
        if open.fields > MAX_FIELDS {
            return None;
        }
        match (depth, number) {
            (1, 1) | (2, 2) => {
                open.within = true;
                if depth == 1 {
                    self.scope.begin_resource();
                } else {
                    self.scope.begin();
                }
                self.open.push(Open { end: wire.at, ..Open::default() });
                self.at = wire.at - bytes.len();
                return Some(());
            }
            (3, 2) => {
                open.within = true;
                self.scope.ready()?;
                self.log.clear();
                record(bytes, &mut self.log, given)?;
                step.record(&mut self.log, &self.scope, given.names)?;
            }
            (2 | 3, 1) if !open.within && bytes.len() <= MAX_ABOUT => {
                open.once.first(1)?;
                said(bytes, depth == 2, &mut self.scope, given.names)?;
            }
            (2 | 3, 3) => {
                open.once.first(3)?;
                ignored(bytes)?;
            }
            _ => return None,
        }
        step.work += wire.at - self.at;
        self.at = wire.at;
        Some(())
    }
}

/// A resource, or a scope.
fn said(data: &[u8], resource: bool, scope: &mut Scope, names: &Names) -> Option<()> {
    let (mut once, mut values) = (Once::default(), Values(0));
    each(data, |number, value| match (resource, number, value) {
        (true, 1, Value::Bytes(pair)) => values.pair(pair, &mut scope.resource, Some(names), 0),
        (false, 3, Value::Bytes(pair)) => values.pair(pair, &mut scope.scope, Some(names), 0),
        (false, 1, Value::Bytes(text)) => once.first(1).and_then(|()| write_text(text, &mut scope.name)),
        (false, 2, Value::Bytes(text)) => once.first(2).and_then(|()| write_text(text, &mut scope.version)),
        (true, 2, Value::Varint(_)) | (false, 4, Value::Varint(_)) => Some(()),
        _ => None,
    })
}
