//! The header of a syslog line, where it is one that nearly all senders write: what `usual` of `decode/syslog.py` finds.
//!
//! None for all others, and wherever a decoder would look for more than this: Python reads these.

use memchr::memchr_iter;

/// A header and where the message begins.
#[derive(Debug, PartialEq, Eq)]
pub struct Header<'a> {
    /// By number (RFC 5424, 6.2.1).
    pub facility: u8,
    /// Which of its parts are there: a decoder gives no field for the others.
    pub parts: u8,
    /// Whether there is structured data, of which fields and keyword searches know.
    pub data: bool,
    /// None for `-`.
    pub program: Option<&'a [u8]>,
    /// Where the message begins.
    pub start: usize,
}

/// As in `decode/syslog.py`.
const RELAYED: usize = 160;
const MODERN: u8 = 1;
const HOST: u8 = 2;
const PID: u8 = 4;
const MESSAGE_ID: u8 = 8;

/// The header of `line`.
#[must_use]
pub fn split(line: &[u8]) -> Option<Header<'_>> {
    let rest = line.strip_prefix(b"<")?;
    let digits = rest.iter().take(4).take_while(|byte| byte.is_ascii_digit()).count();
    let priority = rest[..digits].iter().fold(0, |value, digit| value * 10 + u32::from(digit - b'0'));
    let begins = digits < 3 || priority >= 100;
    if !(1..=3).contains(&digits) || !begins || priority > 191 || rest.get(digits) != Some(&b'>') {
        return None;
    }
    let (at, facility) = (digits + 2, (priority >> 3) as u8);
    let header = if line.get(at)?.is_ascii_digit() { modern(line, at, facility) } else { legacy(line, at, facility) }?;
    // The message that is repeated is part of another one.
    if line[header.start..].starts_with(b"message repeated ") { None } else { Some(header) }
}

/// RFC 3164.
fn legacy(line: &[u8], at: usize, facility: u8) -> Option<Header<'_>> {
    if !is_stamp(line.get(at..at + 16)?) {
        return None;
    }
    let rest = &line[at + 16..];
    let host = length(rest, usize::MAX, |byte| !matches!(byte, b'[' | b'<'));
    if host == 0 || rest[host - 1] == b':' || rest.get(host) != Some(&b' ') || is_zone(&rest[..host]) {
        return None;
    }
    let rest = &rest[host + 1..];
    let app = length(rest, 128, |byte| !matches!(byte, b'[' | b':' | b'=' | b'"' | b'{' | b'}' | b',' | b';'));
    let program = &rest[..app];
    if app == 0 || is_format(rest) {
        return None;
    }
    let mut rest = &rest[app..];
    let mut parts = if line[at + 16..at + 16 + host] == *b"-" { 0 } else { HOST };
    if let Some(inside) = rest.strip_prefix(b"[") {
        let pid = length(inside, 64, |byte| byte != b']');
        rest = inside[pid..].strip_prefix(b"]")?;
        if pid == 0 {
            return None;
        }
        parts |= PID;
    }
    rest = rest.strip_prefix(b":")?;
    if rest.first() == Some(&b'/') {
        return None;
    }
    rest = rest.strip_prefix(b" ").unwrap_or(rest);
    let start = line.len() - rest.len();
    // A relay may have taken a part of Cisco's header for a program.
    let near = &line[start..line.len().min(start + RELAYED)];
    if memchr_iter(b'%', near).any(|at| line[start + at - 1] == b' ') {
        return None;
    }
    Some(Header { facility, parts, data: false, program: Some(program), start })
}

/// RFC 5424.
fn modern(line: &[u8], at: usize, facility: u8) -> Option<Header<'_>> {
    let mut rest = &line[at..];
    let mut word = || {
        let count = length(rest, usize::MAX, |_| true);
        let word = &rest[..count];
        rest = rest[count..].strip_prefix(b" ")?;
        (count > 0).then_some(word)
    };
    let (version, stamp, host, program, pid, id) = (word()?, word()?, word()?, word()?, word()?, word()?);
    let dated = stamp.len() > 4 && stamp[..4].iter().all(u8::is_ascii_digit) && stamp[4] == b'-';
    let numbered = version.len() < 4 && version[0] != b'0' && version.iter().all(u8::is_ascii_digit);
    // Names may be missing before a format.
    if !dated || !numbered || [program, pid, id].into_iter().any(is_format) {
        return None;
    }
    let data = rest.first() == Some(&b'[');
    match if data { past_data(rest)? } else { rest.strip_prefix(b"-").unwrap_or_default() } {
        [b' ', message @ ..] => rest = message,
        // Other text is not cut: `-x` is a message.
        [] if data || rest == b"-" => rest = &[],
        _ if data => return None,
        _ => {}
    }
    let rest = rest.strip_prefix(b"\xef\xbb\xbf").unwrap_or(rest);
    // Cisco's tag.
    if rest.first() == Some(&b'%') {
        return None;
    }
    let given = |part: &[u8], bit| if part == b"-" { 0 } else { bit };
    let parts = MODERN | given(host, HOST) | given(pid, PID) | given(id, MESSAGE_ID);
    let program = (program != b"-").then_some(program);
    Some(Header { facility, parts, data, program, start: line.len() - rest.len() })
}

/// What follows the elements that `text` begins with.
fn past_data(text: &[u8]) -> Option<&[u8]> {
    let mut rest = text;
    while let Some(inside) = rest.strip_prefix(b"[") {
        let name = length(inside, usize::MAX, |byte| !matches!(byte, b'=' | b'"' | b'[' | b']'));
        rest = &inside[name..];
        if name == 0 {
            return None;
        }
        loop {
            let spaces = rest.iter().take_while(|&&byte| byte == b' ').count();
            rest = &rest[spaces..];
            if let Some(behind) = rest.strip_prefix(b"]") {
                rest = behind;
                break;
            }
            let name = length(rest, usize::MAX, |byte| !matches!(byte, b'=' | b'"' | b']'));
            if spaces == 0 || name == 0 {
                return None;
            }
            rest = rest[name..].strip_prefix(b"=")?;
            rest = rest.strip_prefix(b" ").unwrap_or(rest).strip_prefix(b"\"")?;
            loop {
                match rest {
                    [b'"', behind @ ..] => break rest = behind,
                    [b'\\', _, behind @ ..] | [_, behind @ ..] => rest = behind,
                    [] => return None,
                }
            }
        }
    }
    Some(rest)
}

/// How many bytes, at most `most`, are no space and wanted.
fn length(text: &[u8], most: usize, wanted: impl Fn(u8) -> bool) -> usize {
    text.iter().take(most).take_while(|&&byte| !is_space(byte) && wanted(byte)).count()
}

/// Python's `\s`.
fn is_space(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t'..=b'\r')
}

/// Whether a zone or an offset may stand where the host does.
fn is_zone(host: &[u8]) -> bool {
    match host {
        [b'+' | b'-', digit, ..] => digit.is_ascii_digit(),
        _ => (2..=5).contains(&host.len()) && host.iter().all(u8::is_ascii_uppercase),
    }
}

fn is_format(text: &[u8]) -> bool {
    text.starts_with(b"CEF:") || text.starts_with(b"LEEF:")
}

/// `Mmm dd hh:mm:ss `, a day that each month has.
fn is_stamp(text: &[u8]) -> bool {
    let &[m0, m1, m2, b' ', d0, d1, b' ', h0, h1, b':', i0, i1, b':', s0, s1, b' '] = text else { return false };
    let month = matches!(
        &[m0, m1, m2],
        b"Jan" | b"Feb" | b"Mar" | b"Apr" | b"May" | b"Jun" | b"Jul" | b"Aug" | b"Sep" | b"Oct" | b"Nov" | b"Dec"
    );
    let day = matches!((d0, d1), (b' ', b'1'..=b'9') | (b'1', b'0'..=b'9') | (b'2', b'0'..=b'8'));
    let hour = matches!((h0, h1), (b'0' | b'1', b'0'..=b'9') | (b'2', b'0'..=b'3'));
    let sixty = |tens, ones: u8| matches!(tens, b'0'..=b'5') && ones.is_ascii_digit();
    month && day && hour && sixty(i0, i1) && sixty(s0, s1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parts(line: &str) -> Option<(u8, Option<&str>, &str)> {
        split(line.as_bytes()).map(|header| {
            let program = header.program.map(|program| std::str::from_utf8(program).unwrap());
            (header.parts, program, &line[header.start..])
        })
    }

    #[test]
    fn headers_that_nearly_all_senders_write() {
        assert_eq!(parts("<34>Oct 11 22:14:15 mx su: 'su root'"), Some((HOST, Some("su"), "'su root'")));
        assert_eq!(parts("<0>Feb  9 00:00:00 - a.b[1]:x"), Some((PID, Some("a.b"), "x")));
        assert_eq!(parts("<191>May 28 23:59:59 h a:  x"), Some((HOST, Some("a"), " x")));
        let modern = "<165>1 2003-10-11T22:14:15Z h app - ID47 - \u{feff}x";
        assert_eq!(parts(modern), Some((MODERN | HOST | MESSAGE_ID, Some("app"), "x")));
        assert_eq!(parts("<165>1 2003-10 - - 7 - x y"), Some((MODERN | PID, None, "x y")));
        assert_eq!(parts("<165>1 2003-10 - - 7 - -"), Some((MODERN | PID, None, "")));
        let data = |data: &str| format!("<9>1 2003-10 h a - - {data}");
        for known in ["[a]", r#"[a b="c\"]" d= ""]"#, r#"[a b=""][c ]"#] {
            assert_eq!(parts(&data(&format!("{known} x"))).unwrap().2, "x", "{known}");
            assert_eq!(parts(&data(known)).unwrap().2, "");
        }
        assert_eq!(parts(&data("-x")).unwrap().2, "-x");
        assert_eq!(split(b"<34>Oct 11 22:14:15 mx su: x").unwrap().facility, 4);
    }

    #[test]
    fn what_others_read() {
        for line in [
            "",
            "<",
            "<>Oct 11 22:14:15 mx su: x",
            "<034>Oct 11 22:14:15 mx su: x",
            "<192>Oct 11 22:14:15 mx su: x",
            "<1111>Oct 11 22:14:15 mx su: x",
            "<34>Oct 11 22:14:15 mx",
            "<34>Oct 29 22:14:15 mx su: x",
            "<34>Okt 11 22:14:15 mx su: x",
            "<34>Oct 11 24:14:15 mx su: x",
            "<34>Oct 11 22:14:15 mx: su: x",
            "<34>Oct 11 22:14:15  su: x",
            "<34>Oct 11 22:14:15 mx su x",
            "<34>Oct 11 22:14:15 mx su[]: x",
            "<34>Oct 11 22:14:15 mx su[1] x",
            "<34>Oct 11 22:14:15 mx su:/x",
            "<34>Oct 11 22:14:15 mx 123: *Oct 11 22:14:15: %A-1-B: x",
            "<34>Oct 11 22:14:15 mx a: %A-1-B: x",
            "<34>Oct 11 22:14:15 UTC su: x",
            "<34>Oct 11 22:14:15 +0100 su: x",
            "<165>1 2003-10-11T22:14:15Z h app - ID47 - %A-1-B: x",
            "<34>Oct 11 22:14:15 mx CEF:0|a",
            "<34>Oct 11 22:14:15 mx su: message repeated 2 times: [ x]",
            "<165>1 2003-10-11T22:14:15Z h app - ID47",
            "<165>01 2003-10-11T22:14:15Z h app - ID47 - x",
            "<165>1 2003 h app - ID47 - x",
            "<165>1 2003-10 h app - ID47 [a b=\"c\"]x",
            "<165>1 2003-10 h app - ID47 [a b=\"c] x",
            "<165>1 2003-10 h app - ID47 [a b=c] x",
            "<165>1 2003-10 h app - ID47 [] x",
            "<165>1 2003-10 h app - ID47 [a][b=] x",
            "<165>1 2003-10 h CEF:0 - ID47 - x",
            "<165>1 2003-10  h app - ID47 - x",
        ] {
            assert_eq!(parts(line), None, "{line}");
        }
    }
}
