//! JSON that is read once, from front to end, into the JSON of events (RFC 8259; OTLP's as protobuf maps it).
//!
//! See `otlp.rs` for what `None` means. Names of an object's members are read when nothing in them is escaped, each
//! once; the resource stands before `scopeLogs`, the scope before `logRecords`, a key before its value.

use crate::json::{Kind, number, unescape};
use crate::made::{Fields, escape, float, special};
use crate::otlp::{EACH, Given, Log, MAX_ABOUT, MAX_DEPTH, MAX_IGNORED, MAX_RECORD, MAX_VALUES, Names, Scope, Step};

/// White space in a row.
const MAX_BLANK: usize = 1 << 10;
/// Bytes from which on a record is looked at for more objects and arrays than Python reads.
const FREE: usize = 32 << 10;
/// Objects and arrays of a record, also in its texts (as Python's `CONTAINERS`).
const CONTAINERS: usize = 8192;

/// A place in a text.
pub struct Json<'a> {
    data: &'a [u8],
    at: usize,
    scratch: Vec<u8>,
    values: usize,
}

impl<'a> Json<'a> {
    /// At its beginning.
    #[must_use]
    pub fn new(data: &'a [u8]) -> Self {
        Self { data, at: 0, scratch: Vec::new(), values: 0 }
    }

    /// The next byte that is no space.
    #[inline]
    fn peek(&mut self) -> Option<u8> {
        let start = self.at;
        loop {
            match self.data.get(self.at)? {
                b' ' | b'\t' | b'\n' | b'\r' if self.at - start < MAX_BLANK => self.at += 1,
                byte => return Some(*byte),
            }
        }
    }

    #[inline]
    fn eat(&mut self, byte: u8) -> Option<()> {
        (self.peek()? == byte).then(|| self.at += 1)
    }

    /// Past a comma, or past the `close` of what it is in.
    fn goes_on(&mut self, close: u8) -> Option<bool> {
        let byte = self.peek()?;
        self.at += 1;
        (byte == b',' || byte == close).then_some(byte == b',')
    }

    /// Past the `close` of what has just been opened.
    fn is_empty(&mut self, close: u8) -> Option<bool> {
        let empty = self.peek()? == close;
        self.at += usize::from(empty);
        Some(empty)
    }

    fn is_null(&mut self) -> Option<bool> {
        let null = self.peek()? == b'n';
        if null {
            self.word(b"null")?;
        }
        Some(null)
    }

    fn word(&mut self, word: &[u8]) -> Option<()> {
        self.data[self.at..].starts_with(word).then(|| self.at += word.len())
    }

    /// The inside of the string that begins here, and whether it holds escapes, which are not looked at.
    #[inline]
    fn string(&mut self) -> Option<(&'a [u8], bool)> {
        self.eat(b'"')?;
        let (start, mut beyond, mut escaped) = (self.at, false, false);
        loop {
            let (at, high) = special(self.data, self.at);
            beyond |= high;
            match self.data.get(at)? {
                b'"' => {
                    let inside = &self.data[start..at];
                    self.at = at + 1;
                    return (!beyond || simdutf8::basic::from_utf8(inside).is_ok()).then_some((inside, escaped));
                }
                b'\\' => {
                    escaped = true;
                    self.at = at + 2;
                }
                _ => return None,
            }
        }
    }

    /// A member's name, past the colon.
    fn name(&mut self) -> Option<&'a [u8]> {
        let (name, escaped) = self.string()?;
        self.eat(b':')?;
        (!escaped).then_some(name)
    }

    /// Append the string that begins here.
    fn write_string(&mut self, out: &mut Vec<u8>) -> Option<()> {
        let (inside, escaped) = self.string()?;
        if escaped {
            self.unescaped(inside)?;
            escape(&self.scratch, out);
        } else {
            out.push(b'"');
            out.extend_from_slice(inside);
            out.push(b'"');
        }
        Some(())
    }

    fn unescaped(&mut self, inside: &[u8]) -> Option<()> {
        self.scratch.clear();
        unescape(inside, &mut self.scratch)
    }

    /// Append the number that begins here.
    fn write_number(&mut self, out: &mut Vec<u8>) -> Option<()> {
        let start = self.at;
        let kind = number(self.data, &mut self.at)?;
        let text = &self.data[start..self.at];
        match kind {
            Kind::Int => out.extend_from_slice(text),
            _ if !text.iter().any(|byte| matches!(byte, b'.' | b'e' | b'E')) => return None, // "-0", beyond 64 bits
            _ => float(std::str::from_utf8(text).ok()?.parse().ok()?, out),
        }
        Some(())
    }

    /// Append a string, number, true, false or null.
    fn write_scalar(&mut self, out: &mut Vec<u8>) -> Option<()> {
        let word: &[u8] = match self.peek()? {
            b'"' => return self.write_string(out),
            b't' => b"true",
            b'f' => b"false",
            b'n' => b"null",
            b'{' | b'[' => return None,
            _ => return self.write_number(out),
        };
        self.word(word)?;
        out.extend_from_slice(word);
        Some(())
    }

    fn count_value(&mut self) -> Option<()> {
        self.values += 1;
        (self.values <= MAX_VALUES).then_some(())
    }

    // --- any JSON

    /// All of the text is an object: its fields.
    pub fn object_of_text(&mut self, fields: &mut Fields) -> Option<()> {
        self.object(fields, 0)?;
        self.peek().is_none().then_some(())
    }

    fn object(&mut self, fields: &mut Fields, depth: usize) -> Option<()> {
        self.eat(b'{')?;
        if self.is_empty(b'}')? {
            return Some(());
        }
        loop {
            self.peek()?;
            self.write_string(fields.name())?;
            self.eat(b':')?;
            self.value(fields.value(), depth)?;
            fields.end(true)?;
            if !self.goes_on(b'}')? {
                return Some(());
            }
        }
    }

    fn value(&mut self, out: &mut Vec<u8>, depth: usize) -> Option<()> {
        self.count_value()?;
        match self.peek()? {
            b'{' | b'[' if depth > MAX_DEPTH => None,
            b'{' => {
                let mut inner = Fields::default();
                self.object(&mut inner, depth + 1)?;
                inner.write(out);
                Some(())
            }
            b'[' => self.array(out, |reader, out| reader.value(out, depth + 1)),
            _ => self.write_scalar(out),
        }
    }

    /// Append the array that begins here.
    fn array(&mut self, out: &mut Vec<u8>, mut each: impl FnMut(&mut Self, &mut Vec<u8>) -> Option<()>) -> Option<()> {
        self.eat(b'[')?;
        out.push(b'[');
        if !self.is_empty(b']')? {
            loop {
                each(self, out)?;
                if !self.goes_on(b']')? {
                    break;
                }
                out.push(b',');
            }
        }
        out.push(b']');
        Some(())
    }

    // --- OTLP's

    /// Call `each` with the number that `names` have for each member's name; none comes twice, and no other at all.
    fn members(&mut self, names: &[&[u8]], mut each: impl FnMut(&mut Self, usize) -> Option<()>) -> Option<()> {
        self.eat(b'{')?;
        if self.is_empty(b'}')? {
            return Some(());
        }
        let mut seen = 0_u32;
        loop {
            let name = self.name()?;
            let number = names.iter().position(|one| *one == name)?;
            if seen >> number & 1 == 1 {
                return None;
            }
            seen |= 1 << number;
            each(self, number)?;
            if !self.goes_on(b'}')? {
                return Some(());
            }
        }
    }

    /// Past a value that says nothing of an event.
    fn ignored(&mut self) -> Option<()> {
        let (start, mut out) = (self.at, Vec::new());
        self.write_scalar(&mut out)?;
        (self.at - start <= MAX_IGNORED).then_some(())
    }

    /// A whole number as it is written, also in a string.
    fn digits(&mut self) -> Option<&'a [u8]> {
        let quoted = self.peek()? == b'"';
        self.at += usize::from(quoted);
        let start = self.at;
        self.data.get(start)?;
        if number(self.data, &mut self.at)? != Kind::Int {
            return None;
        }
        let text = &self.data[start..self.at];
        if quoted {
            self.word(b"\"")?;
        }
        Some(text)
    }

    fn natural(&mut self) -> Option<u64> {
        if self.is_null()? {
            return Some(0);
        }
        std::str::from_utf8(self.digits()?).ok()?.parse().ok()
    }

    fn severity(&mut self, names: &Names) -> Option<i64> {
        if self.is_null()? {
            return Some(0);
        }
        let start = self.at;
        if self.data[start] == b'"' {
            let (name, escaped) = self.string()?;
            if let Some(number) = names.severities.get(name) {
                return (!escaped).then_some(*number);
            }
            self.at = start;
        }
        std::str::from_utf8(self.digits()?).ok()?.parse().ok()
    }

    /// A text, or nothing for null.
    fn text(&mut self, out: &mut Vec<u8>) -> Option<()> {
        if self.is_null()? {
            return Some(());
        }
        self.write_string(out)
    }

    /// The list of keys and values that begins here, as fields; null is an empty one.
    fn pairs(&mut self, fields: &mut Fields, names: Option<&Names>, depth: usize) -> Option<()> {
        if self.is_null()? {
            return Some(());
        }
        self.eat(b'[')?;
        if self.is_empty(b']')? {
            return Some(());
        }
        loop {
            self.eat(b'{')?;
            if self.name()? != b"key" {
                return None;
            }
            match names {
                None => self.write_string(fields.name())?,
                Some(names) => {
                    let (key, escaped) = self.string()?;
                    if escaped {
                        self.unescaped(key)?;
                        names.write(&self.scratch, fields.name());
                    } else {
                        names.write(key, fields.name());
                    }
                }
            }
            let out = fields.value();
            if self.goes_on(b'}')? {
                if self.name()? != b"value" {
                    return None;
                }
                self.any(out, depth)?;
                self.eat(b'}')?;
            } else {
                out.extend_from_slice(b"null");
            }
            fields.end(true)?;
            if !self.goes_on(b']')? {
                return Some(());
            }
        }
    }

    /// Append the plain value of the `AnyValue` that begins here.
    fn any(&mut self, out: &mut Vec<u8>, depth: usize) -> Option<()> {
        self.count_value()?;
        if depth > MAX_DEPTH {
            return None;
        }
        if self.is_null()? {
            out.extend_from_slice(b"null");
            return Some(());
        }
        self.eat(b'{')?;
        if self.is_empty(b'}')? {
            out.extend_from_slice(b"null");
            return Some(());
        }
        let name = self.name()?;
        self.item(name, out, depth)?;
        self.eat(b'}')
    }

    /// The value of the one member of an `AnyValue`.
    fn item(&mut self, name: &[u8], out: &mut Vec<u8>, depth: usize) -> Option<()> {
        match name {
            b"stringValue" | b"boolValue" | b"doubleValue" | b"bytesValue" => self.write_scalar(out),
            b"intValue" => {
                let null = self.is_null()?;
                out.extend_from_slice(if null { b"0" } else { self.digits()? });
                Some(())
            }
            b"arrayValue" => {
                let mut made = false;
                self.members(&[b"values"], |reader, _| {
                    if reader.is_null()? {
                        return Some(());
                    }
                    made = true;
                    reader.array(out, |reader, out| reader.any(out, depth + 1))
                })?;
                if !made {
                    out.extend_from_slice(b"[]");
                }
                Some(())
            }
            b"kvlistValue" => {
                let mut inner = Fields::default();
                self.members(&[b"values"], |reader, _| reader.pairs(&mut inner, None, depth + 1))?;
                inner.write(out);
                Some(())
            }
            _ => None,
        }
    }

    /// A record's body.
    fn body(&mut self, log: &mut Log, given: &mut Given) -> Option<()> {
        if self.is_null()? {
            return Some(());
        }
        self.eat(b'{')?;
        if self.is_empty(b'}')? {
            return Some(());
        }
        let name = self.name()?;
        let first = self.peek()?;
        if name == b"kvlistValue" {
            self.members(&[b"values"], |reader, _| reader.pairs(&mut log.fields, None, 1))?;
        } else if first == b'"' && name != b"intValue" {
            if !matches!(name, b"stringValue" | b"boolValue" | b"doubleValue" | b"bytesValue") {
                return None;
            }
            let (inside, escaped) = self.string()?;
            if escaped {
                self.unescaped(inside)?;
                log.text(&self.scratch, false, given)?;
            } else {
                log.text(inside, true, given)?;
            }
        } else {
            log.fields.name().extend_from_slice(b"\"message\"");
            self.item(name, log.fields.value(), 0)?;
            log.fields.end(true)?;
            if first == b'n' && name != b"intValue" {
                log.fields.clear();
            }
        }
        self.eat(b'}')
    }

    fn record(&mut self, log: &mut Log, given: &mut Given) -> Option<()> {
        const NAMES: [&[u8]; 11] = [
            b"timeUnixNano",
            b"observedTimeUnixNano",
            b"severityNumber",
            b"severityText",
            b"body",
            b"attributes",
            b"traceId",
            b"spanId",
            b"eventName",
            b"flags",
            b"droppedAttributesCount",
        ];
        let start = self.at;
        self.members(&NAMES, |reader, name| {
            match name {
                0 => log.time = reader.natural()?,
                1 => log.observed = reader.natural()?,
                2 => log.severity = reader.severity(given.names)?,
                3 => reader.text(&mut log.level)?,
                4 => reader.body(log, given)?,
                5 => reader.pairs(&mut log.attributes, Some(given.names), 0)?,
                6 => reader.text(&mut log.trace)?,
                7 => reader.text(&mut log.span)?,
                8 => reader.text(&mut log.event)?,
                _ => reader.ignored()?,
            }
            Some(())
        })?;
        let raw = &self.data[start..self.at];
        let containers = || raw.iter().filter(|byte| matches!(byte, b'[' | b'{')).count();
        (raw.len() <= FREE || containers() <= CONTAINERS).then_some(())
    }
}

/// How deep in a body a reader is.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum Level {
    #[default]
    Body,
    Resource,
    Scope,
    End,
}

/// Where a body is read, between two steps.
#[derive(Default)]
pub struct Reader {
    at: usize,
    /// What the next child of is read: of an object a member, of an array an element.
    level: Level,
    /// In the array of the level's children, not in the object that has it.
    within: bool,
    /// Nothing has been read of that object or array.
    fresh: bool,
    begun: bool,
    /// By level, the array was there.
    seen: [bool; 3],
    /// Members of the object: the resource or scope, and `schemaUrl`.
    about: [[bool; 2]; 3],
    scope: Scope,
    log: Log,
}

impl Reader {
    /// See `otlp::Reader`.
    pub fn step(&mut self, body: &[u8], given: &mut Given, step: &mut Step) -> Option<bool> {
        while self.level != Level::End {
            if step.is_full() {
                return Some(false);
            }
            let before = self.at;
            self.next(body, given, step)?;
            step.work += self.at - before + EACH;
        }
        Some(true)
    }

    fn next(&mut self, body: &[u8], given: &mut Given, step: &mut Step) -> Option<()> {
        // No child is longer, but for the arrays, of which each child is read by itself.
        let mut json = Json::new(&body[..body.len().min(self.at + MAX_RECORD)]);
        json.at = self.at;
        if !self.begun {
            json.eat(b'{')?;
            (self.begun, self.fresh) = (true, true);
        }
        let more = if std::mem::take(&mut self.fresh) {
            !json.is_empty(if self.within { b']' } else { b'}' })?
        } else {
            json.goes_on(if self.within { b']' } else { b'}' })?
        };
        match (more, self.within) {
            (false, true) => self.within = false,
            (false, false) => self.close(&mut json, body)?,
            (true, true) => self.element(&mut json, given, step)?,
            (true, false) => self.member(&mut json, given)?,
        }
        self.at = json.at;
        Some(())
    }

    /// Behind an object.
    fn close(&mut self, json: &mut Json, body: &[u8]) -> Option<()> {
        self.within = true;
        self.level = match self.level {
            Level::Scope => {
                self.scope.ready()?;
                Level::Resource
            }
            Level::Resource => Level::Body,
            _ => {
                let blank = json.peek().is_none() && json.at == body.len();
                return blank.then(|| self.level = Level::End);
            }
        };
        Some(())
    }

    /// An element of `resourceLogs`, `scopeLogs` or `logRecords`.
    fn element(&mut self, json: &mut Json, given: &mut Given, step: &mut Step) -> Option<()> {
        let inner = match self.level {
            Level::Body => {
                self.scope.begin_resource();
                Level::Resource
            }
            Level::Resource => {
                self.scope.begin();
                Level::Scope
            }
            _ => {
                self.log.clear();
                json.record(&mut self.log, given)?;
                return step.record(&mut self.log, &self.scope, given.names);
            }
        };
        json.eat(b'{')?;
        (self.level, self.within, self.fresh) = (inner, false, true);
        (self.seen[inner as usize], self.about[inner as usize]) = (false, [false; 2]);
        Some(())
    }

    /// A member of the body, of a resource's logs, or of a scope's.
    fn member(&mut self, json: &mut Json, given: &mut Given) -> Option<()> {
        let (level, start, name) = (self.level as usize, json.at, json.name()?);
        if name == [&b"resourceLogs"[..], b"scopeLogs", b"logRecords"][level] {
            if std::mem::replace(&mut self.seen[level], true) {
                return None;
            }
            if self.level == Level::Scope {
                self.scope.ready()?;
            }
            if !json.is_null()? {
                json.eat(b'[')?;
                (self.within, self.fresh) = (true, true);
            }
            return Some(());
        }
        let which = match (level, name) {
            (1, b"resource") | (2, b"scope") if !self.seen[level] => 0,
            (1 | 2, b"schemaUrl") => 1,
            _ => return None,
        };
        if std::mem::replace(&mut self.about[level][which], true) {
            return None;
        }
        let scope = &mut self.scope;
        if which == 1 {
            json.ignored()?;
        } else if json.is_null()? {
        } else if level == 1 {
            json.members(&[b"attributes", b"droppedAttributesCount"], |json, name| match name {
                0 => json.pairs(&mut scope.resource, Some(given.names), 0),
                _ => json.ignored(),
            })?;
        } else {
            let names: [&[u8]; 4] = [b"name", b"version", b"attributes", b"droppedAttributesCount"];
            json.members(&names, |json, name| match name {
                0 => json.write_string(&mut scope.name),
                1 => json.write_string(&mut scope.version),
                2 => json.pairs(&mut scope.scope, Some(given.names), 0),
                _ => json.ignored(),
            })?;
        }
        (json.at - start <= MAX_ABOUT).then_some(())
    }
}
