//! Any bytes: the readers of OTLP return, in steps that are bounded, and each event is one JSON object, in which no name
//! is twice.

#![no_main]

#[allow(dead_code)]
#[path = "../../src/json.rs"]
mod json;
#[allow(dead_code)]
#[path = "../../src/made.rs"]
mod made;
#[allow(dead_code)]
#[path = "../../src/otlp.rs"]
mod otlp;
#[allow(dead_code)]
#[path = "../../src/otlp_json.rs"]
mod otlp_json;
#[allow(dead_code)]
#[path = "../../src/otlp_protobuf.rs"]
mod otlp_protobuf;

use std::collections::HashSet;
use std::fmt;

use libfuzzer_sys::fuzz_target;
use serde::de::{Deserialize, Deserializer, Error, MapAccess, SeqAccess, Visitor};

use otlp::{Given, Names, Reader, Step};

/// Any JSON whose objects have no name twice.
struct Once;

impl<'de> Deserialize<'de> for Once {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Each;
        impl<'de> Visitor<'de> for Each {
            type Value = Once;

            fn expecting(&self, formatter: &mut fmt::Formatter) -> fmt::Result {
                formatter.write_str("JSON")
            }

            fn visit_bool<E>(self, _: bool) -> Result<Once, E> {
                Ok(Once)
            }

            fn visit_i64<E>(self, _: i64) -> Result<Once, E> {
                Ok(Once)
            }

            fn visit_u64<E>(self, _: u64) -> Result<Once, E> {
                Ok(Once)
            }

            fn visit_f64<E>(self, _: f64) -> Result<Once, E> {
                Ok(Once)
            }

            fn visit_str<E>(self, _: &str) -> Result<Once, E> {
                Ok(Once)
            }

            fn visit_unit<E>(self) -> Result<Once, E> {
                Ok(Once)
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Once, A::Error> {
                while list.next_element::<Once>()?.is_some() {}
                Ok(Once)
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Once, A::Error> {
                let mut names = HashSet::<String>::new();
                while let Some((name, Once)) = map.next_entry::<String, Once>()? {
                    if !names.insert(name) {
                        return Err(A::Error::custom("a name that is given twice"));
                    }
                }
                Ok(Once)
            }
        }
        deserializer.deserialize_any(Each)
    }
}

fuzz_target!(|data: &[u8]| {
    let map = |pairs: &[(&str, &str)]| pairs.iter().map(|(a, b)| ((*a).into(), (*b).into())).collect();
    let names = Names::new(
        map(&[("http.method", "http.request.method"), ("http.url", "url.original"), ("appname", "SYSLOG_IDENTIFIER")]),
        vec![String::new(), "trace".into(), "info".into()],
        [("SEVERITY_NUMBER_INFO".to_owned(), 9)].into_iter().collect(),
    );
    for json in [true, false] {
        let mut reader = Reader::new(json);
        loop {
            let (mut step, mut start) = (Step::default(), 0);
            let mut of_text = |text: &str| Some(format!("{{\"message\":{}}}", text.len()).into_bytes());
            let done = reader.step(data, &mut Given { names: &names, of_text: &mut of_text }, &mut step);
            assert!(step.data.len() < 256 << 10 || step.ends.len() == 1);
            if done.is_some() {
                for end in step.ends.iter().map(|end| *end as usize) {
                    let event = &step.data[start..end];
                    assert!(event.starts_with(b"{"));
                    serde_json::from_slice::<Once>(event).expect("one object");
                    start = end;
                }
                assert_eq!(start, step.data.len());
            }
            if done != Some(false) {
                break;
            }
        }
    }
});
