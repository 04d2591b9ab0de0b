//! OTLP's log records to events, as `inputs/push/otlp.py` makes them, byte for byte, without a dictionary.
//!
//! `otlp_json.rs` and `otlp_protobuf.rs` read a body, here is what they fill, and `otlp_class.rs` is what Python imports.
//! `None` everywhere means "not read here": the body is malformed, or has something in it that is rare and
//! takes long to say here as well (a name given twice, an unknown field, a resource behind its records). Python then
//! reads it from its beginning, and says what is wrong with it. So what stands here is what senders really send.
//!
//! A step is bounded by what it reads and writes (`WORK`), and goes on where the one before it stopped.

use foldhash::HashMap;

use crate::made::{Fields, escape, integer};
use crate::otlp_json::Json;
use crate::otlp_protobuf::Protobuf;

/// Bytes that one step reads and writes, about; what else it does is counted as so many bytes.
const WORK: usize = 512 << 10;
/// Bytes that one step writes, and a last event; a chunk has 256 KiB.
const MOST: usize = 192 << 10;
/// Events of one step.
const EVENTS: usize = 4096;
/// What is begun once a record, scope or resource.
pub const EACH: usize = 64;
/// A call of Python's.
const CALL: usize = 4096;
/// Bytes of an event; a longer one would have to be cut.
const MAX_EVENT: usize = 1 << 20;
/// Bytes of a record.
pub const MAX_RECORD: usize = 256 << 10;
/// Bytes of a resource, or of a scope, and of all that it says of its records (as Python's `ABOUT_BYTES`).
pub const MAX_ABOUT: usize = 32 << 10;
/// Bytes of what is not looked at.
pub const MAX_IGNORED: usize = 1 << 10;
/// Values within one record, and how deep they may be nested.
pub const MAX_VALUES: usize = 1024;
/// Of values in values.
pub const MAX_DEPTH: usize = 16;
/// Bytes of a text that is read as JSON or syslog.
const MAX_TEXT: usize = 16 << 10;

/// ECS names, levels and severity numbers, from Python's tables.
pub struct Names {
    ecs: HashMap<Box<[u8]>, Box<[u8]>>,
    levels: Vec<Box<[u8]>>,
    /// Severities by name.
    pub severities: HashMap<Box<[u8]>, i64>,
}

impl Names {
    /// `ecs`: names and what they are in ECS; `levels`: by severity.
    #[must_use]
    pub fn new(ecs: HashMap<String, String>, levels: Vec<String>, severities: HashMap<String, i64>) -> Self {
        let bytes = |text: &str| Box::from(text.as_bytes());
        let json = |text: &str| {
            let mut out = Vec::new();
            escape(text.as_bytes(), &mut out);
            out.into_boxed_slice()
        };
        Self {
            ecs: ecs.into_iter().map(|(name, other)| (bytes(&name), json(&other))).collect(),
            levels: levels.into_iter().map(|level| json(&level)).collect(),
            severities: severities.into_iter().map(|(name, number)| (bytes(&name), number)).collect(),
        }
    }

    /// Append an attribute's name in ECS, in quotes.
    pub fn write(&self, name: &[u8], out: &mut Vec<u8>) {
        match self.ecs.get(name) {
            Some(json) => out.extend_from_slice(json),
            None => escape(name, out),
        }
    }
}

/// What makes an object of the fields of a text that is JSON or has a syslog header: Python's `texts.of_text`.
pub type OfText<'a> = &'a mut dyn FnMut(&str) -> Option<Vec<u8>>;

/// What a reader is given for its step.
pub struct Given<'a> {
    /// Names and numbers.
    pub names: &'a Names,
    /// Python's reader of texts.
    pub of_text: OfText<'a>,
}

/// One record. Texts are in quotes; empty: not there.
#[derive(Default)]
pub struct Log {
    /// Nanoseconds.
    pub time: u64,
    /// The same, of whoever saw it.
    pub observed: u64,
    /// By number.
    pub severity: i64,
    /// Severity by text.
    pub level: Vec<u8>,
    /// The event's name.
    pub event: Vec<u8>,
    /// In hex.
    pub trace: Vec<u8>,
    /// In hex.
    pub span: Vec<u8>,
    /// The body's fields, then all.
    pub fields: Fields,
    /// The attributes.
    pub attributes: Fields,
}

impl Log {
    /// For the next record.
    pub fn clear(&mut self) {
        (self.time, self.observed, self.severity) = (0, 0, 0);
        for text in [&mut self.level, &mut self.event, &mut self.trace, &mut self.span] {
            text.clear();
        }
        self.fields.clear();
        self.attributes.clear();
    }

    /// The body is a text, which is UTF-8; `plain`: nothing in it is escaped.
    pub fn text(&mut self, text: &[u8], plain: bool, given: &mut Given) -> Option<()> {
        let object = text.first() == Some(&b'{');
        if object || has_header(text) {
            if text.len() > MAX_TEXT {
                return None;
            }
            self.fields.work += text.len() * 4;
            if object && Json::new(text).object_of_text(&mut self.fields).is_some() {
                return Some(());
            }
            self.fields.clear();
            self.fields.work += CALL;
            let made = (given.of_text)(std::str::from_utf8(text).ok()?)?;
            return Json::new(&made).object_of_text(&mut self.fields);
        }
        self.fields.name().extend_from_slice(b"\"message\"");
        let out = self.fields.value();
        if plain {
            out.push(b'"');
            out.extend_from_slice(text);
            out.push(b'"');
        } else {
            escape(text, out);
        }
        self.fields.end(false)
    }

    /// Write the event.
    fn write(&mut self, names: &Names, about: &Fields, out: &mut Vec<u8>) -> Option<()> {
        let (fields, attributes) = (&mut self.fields, &mut self.attributes);
        let time = if self.time == 0 { self.observed } else { self.time };
        if time != 0 {
            fields.name().extend_from_slice(b"\"@timestamp\"");
            integer(time, fields.value());
            fields.end(false)?;
        }
        let has = |text: &[u8]| text.len() > 2;
        if has(&self.level) {
            fields.set(b"\"log.level\"", &self.level)?;
        } else if self.severity != 0 {
            let level = usize::try_from(self.severity).ok().and_then(|number| names.levels.get(number));
            fields.set(b"\"log.level\"", level.or_else(|| names.levels.first())?)?;
        }
        let said =
            [(&b"\"event.action\""[..], &self.event), (b"\"trace.id\"", &self.trace), (b"\"span.id\"", &self.span)];
        for (name, text) in said {
            if has(text) {
                fields.set(name, text)?;
            }
        }
        if attributes.get(b"\"SYSLOG_IDENTIFIER\"").is_some()
            && let Some(text) = attributes.get(b"\"message\"")
            && text[0] == b'"'
        {
            let text = text.to_vec();
            attributes.set(b"\"MESSAGE\"", &text)?;
        }
        fields.merge(attributes)?;
        let before = out.len();
        fields.write_with(about, out)?;
        (out.len() - before <= MAX_EVENT).then_some(())
    }
}

/// Whether `texts.py` may find a syslog header in a text: wherever its expression matches, and somewhat more.
fn has_header(text: &[u8]) -> bool {
    let is = |at: usize, fits: fn(u8) -> bool| text.get(at).is_some_and(|&byte| fits(byte));
    let digit = |at| is(at, |byte| byte.is_ascii_digit() || byte >= 0x80);
    let blank = |at| is(at, |byte| byte == b' ');
    match text.first() {
        Some(b'<') => digit(1),
        Some(b'A'..=b'Z') => {
            is(1, |byte| byte.is_ascii_lowercase())
                && is(2, |byte| byte.is_ascii_lowercase())
                && blank(3)
                && (digit(4) || blank(4))
                && digit(5)
        }
        Some(b'0'..=b'9') => {
            let dated = (1..4).all(|at| is(at, |byte| byte.is_ascii_digit())) && is(4, |byte| byte == b'-');
            dated || (1..4).any(|at| is(at, |byte| byte >= 0x80))
        }
        Some(0x80..) => {
            let head = &text[..text.len().min(4)];
            let head = head.utf8_chunks().next().and_then(|chunk| chunk.valid().chars().next());
            head.is_none_or(char::is_numeric)
        }
        _ => false,
    }
}

/// What scope and resource say of each record.
#[derive(Default)]
pub struct Scope {
    /// The resource's attributes.
    pub resource: Fields,
    /// The scope's attributes.
    pub scope: Fields,
    /// Its name, in quotes.
    pub name: Vec<u8>,
    /// Its version, in quotes.
    pub version: Vec<u8>,
    about: Fields,
    ready: bool,
}

impl Scope {
    /// A resource begins.
    pub fn begin_resource(&mut self) {
        self.resource.clear();
        self.begin();
    }

    /// A scope begins.
    pub fn begin(&mut self) {
        self.scope.clear();
        self.name.clear();
        self.version.clear();
        self.ready = false;
    }

    /// All of the scope is known. Once, before its first record, or at its end.
    pub fn ready(&mut self) -> Option<()> {
        if self.ready {
            return Some(());
        }
        self.about.clear();
        self.about.merge(&self.resource)?;
        self.about.merge(&self.scope)?;
        for (name, text) in [(&b"\"otel.scope.name\""[..], &self.name), (b"\"otel.scope.version\"", &self.version)] {
            if text.len() > 2 {
                self.about.set(name, text)?;
            }
        }
        self.ready = true;
        self.about.is_within(MAX_ABOUT)
    }
}

/// What a step has made.
#[derive(Default)]
pub struct Step {
    /// The events, one behind the other.
    pub data: Vec<u8>,
    /// Where each ends.
    pub ends: Vec<u32>,
    /// How much was done, see `WORK`.
    pub work: usize,
}

impl Step {
    /// A record is read.
    pub fn record(&mut self, log: &mut Log, scope: &Scope, names: &Names) -> Option<()> {
        let before = self.data.len();
        log.write(names, &scope.about, &mut self.data)?;
        self.ends.push(self.data.len() as u32);
        let found = std::mem::take(&mut log.fields.work) + std::mem::take(&mut log.attributes.work);
        self.work += self.data.len() - before + found;
        Some(())
    }

    /// Whether it is time to stop.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.work >= WORK || self.data.len() >= MOST || self.ends.len() >= EVENTS
    }
}

/// A body that is read in steps.
pub enum Reader {
    /// As JSON.
    Json(crate::otlp_json::Reader),
    /// As protobuf.
    Protobuf(Protobuf),
}

impl Reader {
    /// At the beginning of a body.
    #[must_use]
    pub fn new(json: bool) -> Self {
        if json { Self::Json(crate::otlp_json::Reader::default()) } else { Self::Protobuf(Protobuf::default()) }
    }

    /// Go on in `body` until a step is full; true: to its end.
    pub fn step(&mut self, body: &[u8], given: &mut Given, step: &mut Step) -> Option<bool> {
        match self {
            Self::Json(reader) => reader.step(body, given, step),
            Self::Protobuf(reader) => reader.step(body, given, step),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names() -> Names {
        let map = |pairs: &[(&str, &str)]| pairs.iter().map(|(a, b)| ((*a).into(), (*b).into())).collect();
        Names::new(
            map(&[("http.method", "http.request.method")]),
            vec![String::new(), "trace".into()],
            HashMap::default(),
        )
    }

    /// The events, the steps, and whether that is all.
    fn read(body: &[u8], json: bool) -> (Vec<String>, usize, bool) {
        let (names, mut reader, mut found, mut steps) = (names(), Reader::new(json), Vec::new(), 0);
        loop {
            let (mut step, mut start) = (Step::default(), 0);
            let mut of_text = |text: &str| Some(format!("{{\"of\":{}}}", text.len()).into_bytes());
            let done = reader.step(body, &mut Given { names: &names, of_text: &mut of_text }, &mut step);
            if done.is_some() {
                for end in step.ends.iter().map(|end| *end as usize) {
                    found.push(String::from_utf8(step.data[start..end].to_vec()).unwrap());
                    start = end;
                }
            }
            steps += 1;
            if done != Some(false) {
                return (found, steps, done.is_some());
            }
        }
    }

    fn json(resource: &str, records: &str) -> String {
        format!("{{\"resourceLogs\":[{{\"resource\":{resource},\"scopeLogs\":[{{\"logRecords\":[{records}]}}]}}]}}")
    }

    fn field(number: u8, value: &[u8]) -> Vec<u8> {
        let mut made = vec![number << 3 | 2, value.len() as u8];
        made.extend_from_slice(value);
        made
    }

    #[test]
    fn a_record_in_both_forms() {
        let wanted = r#"{"message":"said","@timestamp":7,"log.level":"trace","http.request.method":"GET","a":true}"#;
        let record = r#"{"timeUnixNano":"7","severityNumber":1,"body":{"stringValue":"said"},
            "attributes":[{"key":"http.method","value":{"stringValue":"GET"}}]}"#;
        let about = r#"{"attributes":[{"key":"a","value":{"boolValue":true}}]}"#;
        assert_eq!(read(json(about, record).as_bytes(), true), (vec![wanted.to_owned()], 1, true));

        let pair = |key: &[u8], value: &[u8]| [field(1, key), field(2, value)].concat();
        let record = [
            vec![1 << 3 | 1, 7, 0, 0, 0, 0, 0, 0, 0, 2 << 3, 1],
            field(5, &field(1, b"said")),
            field(6, &pair(b"http.method", &field(1, b"GET"))),
        ];
        let resource = field(1, &field(1, &pair(b"a", &[2 << 3, 1])));
        let body = field(1, &[resource, field(2, &field(2, &record.concat()))].concat());
        assert_eq!(read(&body, false), (vec![wanted.to_owned()], 1, true));
        for end in 1..body.len() {
            assert!(!read(&body[..end], false).2, "{end}");
        }
    }

    #[test]
    fn texts_that_python_reads() {
        let of =
            |text: &str| read(json("{}", &format!("{{\"body\":{{\"stringValue\":{text:?}}}}}")).as_bytes(), true).0;
        assert_eq!(of(r#"{"a":[1, 2.50]}"#), [r#"{"a":[1,2.5]}"#]);
        for text in ["{", "<13>said", "Nov 23 06:16:34 h a: b", "2026-11-23T06:16:34Z h a: b"] {
            assert_eq!(of(text), [format!("{{\"of\":{}}}", text.len())]);
        }
        for text in ["<b>", "November", "2026", "é", " {"] {
            assert_eq!(of(text), [format!("{{\"message\":\"{text}\"}}")]);
        }
    }

    #[test]
    fn what_is_odd_is_not_read() {
        for record in [
            r#"{"body":{"stringValue":"a","intValue":1}}"#,
            r#"{"attributes":[{"key":"a","value":{}},{"key":"a","value":{}}]}"#,
            r#"{"body":{},"body":{}}"#,
            r#"{"more":1}"#,
            "{},",
        ] {
            assert!(!read(json("{}", record).as_bytes(), true).2, "{record}");
        }
        assert!(!read(br#"{"resourceLogs":[{"scopeLogs":[],"resource":{}}]}"#, true).2);
        assert!(!read(b"{} x", true).2);
        assert!(read(b" {} ", true).2);
    }

    #[test]
    fn a_large_body_takes_many_steps() {
        let records = vec![r#"{"body":{"stringValue":"a"}}"#; 20_000].join(",");
        let (found, steps, whole) = read(json("{}", &records).as_bytes(), true);
        assert!(whole && steps > 4 && found.len() == 20_000);
        let attributes =
            format!("{{\"attributes\":[{{\"key\":\"a\",\"value\":{{\"stringValue\":\"{}\"}}}}]}}", "x".repeat(20_000));
        let (found, steps, whole) = read(json(&attributes, &["{}"; 90].join(",")).as_bytes(), true);
        assert!(whole && steps > 8 && found.len() == 90);
    }
}
