//! The class `Events` of the import: what `engine/described.py` passes, made into a plan.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};

use foldhash::HashMap;
use memchr::memmem::Finder;
use pyo3::buffer::PyBuffer;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;
use pyo3::types::{PyBytes, PyDict, PyList, PyString, PyTuple};

use crate::columns::{self, Found};
use crate::events::{About, Answer, Lesson, Plan, RUN, SURE, State};
use crate::fields::{End, Group, Order, Place, Plain, Scan};
use crate::hs::{Library, Scratch};
use crate::layout::{Column, Computed, Cut};
use crate::lines::{Events as Lie, numbers_of, packed};
use crate::lookup_ask::Lookup;
use crate::lookup_read::Table;
use crate::rows::{Common, Rows, Table as Row, TableParts};
use crate::rules::{Node, Rules};
use crate::sift::{Direct, Named, Reads, Texts, View};

type Searches = (PyBackedBytes, Vec<(u32, u8)>);

/// One group, as `engine/described.py` describes it.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
struct GroupParts {
    folded: Option<Searches>,
    raw: Option<Searches>,
    exact: Vec<(String, u32)>,
    exact_cased: Vec<(String, u32)>,
    numbers: Vec<(i64, u32)>,
    plain: Vec<(u8, bool, String, u32)>,
    networks: Vec<(String, u32, u32)>,
    orders: Vec<(u8, f64, u32)>,
    lookups: Vec<(Py<Table>, usize, u32)>,
    open: Vec<u32>,
    all: Vec<u32>,
    absent: Vec<u32>,
    joined: bool,
}

impl GroupParts {
    fn build(self, library: &Library, scratch: &mut Scratch) -> Result<Group, String> {
        let mut scan = |given: Option<Searches>| -> Result<Option<Scan>, String> {
            let Some((bytes, searches)) = given else { return Ok(None) };
            let database = library.load(&bytes)?;
            scratch.fit(&database)?;
            let searches = searches
                .into_iter()
                .map(|(predicate, end)| {
                    let end = match end {
                        0 => End::Within,
                        1 => End::AtEnd,
                        2 => End::AtLineEnd,
                        3 => End::Perhaps,
                        _ => End::Anywhere,
                    };
                    (predicate, end)
                })
                .collect();
            Ok(Some(Scan { database, searches }))
        };
        let mut group = Group {
            folded: scan(self.folded)?,
            raw: scan(self.raw)?,
            open: self.open,
            all: self.all,
            absent: self.absent,
            joined: self.joined,
            ..Group::default()
        };
        for (text, predicate) in self.exact {
            group.exact.entry(text.into_bytes().into()).or_default().push(predicate);
        }
        for (text, predicate) in self.exact_cased {
            group.exact_cased.entry(text.into_bytes().into()).or_default().push(predicate);
        }
        for (number, predicate) in self.numbers {
            group.numbers.entry(number).or_default().push(predicate);
        }
        for (place, cased, text, predicate) in self.plain {
            group.plain.push(Plain { place: at(place)?, cased, text: text.into_bytes().into(), predicate });
        }
        for (address, bits, predicate) in self.networks {
            let address = address.parse().map_err(|_| format!("{address} is no address"))?;
            group.networks.push((address, bits, predicate));
        }
        for (order, value, predicate) in self.orders {
            let order = match order {
                0 => Order::Less,
                1 => Order::AtMost,
                2 => Order::More,
                _ => Order::AtLeast,
            };
            group.orders.push((order, value, predicate));
        }
        for (table, index, predicate) in self.lookups {
            let asked = table.get().asked(index).ok_or("no such index")?;
            group.lookups.push(Lookup { asked, predicate });
        }
        Ok(group)
    }
}

/// What rules ask of lines, as `engine/described.py` describes it.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
struct TextParts {
    keywords: Option<u32>,
    message: Vec<u32>,
    program: Vec<u32>,
    searched: Vec<u32>,
    with_message: Vec<u32>,
    with_program: Vec<u32>,
    direct: Vec<(u32, u8, bool, String)>,
    named_by: Vec<Vec<u8>>,
    formats: Vec<u8>,
    prefixed: (Vec<u8>, usize),
}

impl TextParts {
    /// Whether it names nothing that a plan lacks.
    fn fits(&self, groups: u32, predicates: usize) -> bool {
        let named = self.keywords.iter().chain(&self.message).chain(&self.program).chain(&self.searched);
        let held = self.with_message.iter().chain(&self.with_program);
        named.into_iter().all(|&group| group < groups) && held.into_iter().all(|&one| (one as usize) < predicates)
    }

    fn build(self, rules: &Rules) -> Texts {
        let direct: HashMap<_, _> = self
            .direct
            .iter()
            .map(|(predicate, place, cased, text)| {
                (*predicate, Direct { place: at(*place).ok(), cased: *cased, text: Finder::new(text).into_owned() })
            })
            .collect();
        let mut formats = [false; 256];
        self.formats.iter().for_each(|&byte| formats[usize::from(byte)] = true);
        Texts {
            message: self.message,
            program: self.program,
            keywords: self.searched,
            with_message: self.with_message,
            with_program: self.with_program,
            asks: rules.roots.iter().map(|&root| rules.count(root, &|one| direct.contains_key(&one))).collect(),
            direct,
            named_by: self.named_by.iter().map(|name| Finder::new(name).into_owned()).collect(),
            formats,
            prefixed: self.prefixed,
        }
    }
}

fn at(place: u8) -> Result<Place, String> {
    match place {
        0 => Ok(Place::Prefix),
        1 => Ok(Place::Suffix),
        2 => Ok(Place::Within),
        _ => Err(format!("{place} is no place")),
    }
}

fn about((kind, one, other): (u8, u32, u32)) -> Result<About, String> {
    match kind {
        0 => Ok(About::Text(one)),
        1 => Ok(About::Presence(one)),
        2 => Ok(About::Compare(None, one, other)),
        place => Ok(About::Compare(Some(at(place - 3)?), one, other)),
    }
}

/// Nesting of an expression (`plan/ir.py` has less).
const MAX_DEPTH: u32 = 200;

fn node(rules: &mut Rules, given: &Bound<PyAny>, predicates: usize, depth: u32) -> PyResult<u32> {
    let wrong = || PyValueError::new_err("not an expression");
    let made = if let Ok(predicate) = given.extract::<u32>() {
        if predicate as usize >= predicates {
            return Err(wrong());
        }
        Node::Leaf(predicate)
    } else {
        let parts = given.cast::<PyList>().map_err(|_| wrong())?;
        if depth > MAX_DEPTH || parts.is_empty() {
            return Err(wrong());
        }
        let mut inner = Vec::new();
        for part in parts.iter().skip(1) {
            inner.push(node(rules, &part, predicates, depth + 1)?);
        }
        match parts.get_item(0)?.extract::<String>()?.as_str() {
            "not" if inner.len() == 1 => Node::Not(inner[0]),
            "and" => Node::And(inner),
            "or" if !inner.is_empty() => Node::Or(inner),
            _ => return Err(wrong()),
        }
    };
    rules.nodes.push(made);
    Ok(rules.nodes.len() as u32 - 1)
}

/// Which rules JSON events may match: see `engine/native.py`.
#[pyclass(frozen)]
pub struct Events {
    plan: Plan,
    state: Mutex<State>,
    views: RwLock<Vec<Arc<View>>>,
    /// Names of the fields to show, by number.
    names: Vec<Py<PyString>>,
}

impl Events {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Little work, for which Python waits; but it goes on while another thread decides about a chunk.
    fn with<R: Send>(&self, py: Python, work: impl FnOnce(&mut State) -> R + Send) -> R {
        match self.state.try_lock() {
            Ok(mut state) => work(&mut state),
            Err(_) => py.detach(|| work(&mut self.lock())),
        }
    }
}

#[pymethods]
impl Events {
    /// `module`: the file of the imported extension module of `hyperscan`. `folding`: pairs of characters.
    /// `predicates`: kind, group, other group. `guesses`: by predicate, lower is rarer. `rules`: `ir.dump` of each,
    /// and the tables that it selects events for, if it does nothing else. `shown`: names of the fields to
    /// show, and by rule their numbers.
    #[new]
    #[allow(clippy::too_many_arguments)]
    fn new(
        module: &str,
        folding: Vec<(char, char)>,
        predicates: Vec<(u8, u32, u32)>,
        guesses: Vec<f64>,
        groups: Vec<GroupParts>,
        texts: TextParts,
        rules: Vec<(Bound<PyAny>, Vec<TableParts>)>,
        shown: (Vec<Py<PyString>>, Vec<Vec<u32>>),
    ) -> PyResult<Self> {
        let (names, shown) = shown;
        let (mut built, mut tables) = (Rules::default(), Vec::new());
        for (rule, selected) in rules {
            let root = node(&mut built, &rule, predicates.len(), 0)?;
            built.roots.push(root);
            let selected = selected.into_iter().map(Row::build).collect::<Option<_>>();
            tables.push(selected.ok_or_else(|| PyValueError::new_err("not a table"))?);
        }
        let count = groups.len() as u32;
        let fits = |group: &u32| *group < count;
        if !predicates.iter().all(|(_, one, other)| fits(one) && fits(other))
            || !texts.fits(count, predicates.len())
            || guesses.len() != predicates.len()
            || !shown.iter().flatten().all(|&name| (name as usize) < names.len())
        {
            return Err(PyValueError::new_err("no such group"));
        }
        let make = || {
            let library = Library::open(module)?;
            let mut scratch = Scratch::new(library);
            let text = |&(kind, number, _): &(u8, u32, u32)| (kind == 0).then_some(number);
            built.join(&predicates.iter().map(text).collect::<Vec<_>>());
            let mut together = vec![0.0; guesses.len()];
            for (&head, guess) in built.heads.iter().zip(guesses) {
                together[head as usize] += guess;
            }
            built.find_needs(groups.len(), &|predicate| {
                let (_, left, right) = predicates[predicate as usize];
                [left, right]
            });
            let predicates = predicates.into_iter().map(about).collect::<Result<Vec<_>, _>>()?;
            let compared = predicates.iter().filter_map(|predicate| match predicate {
                About::Compare(_, one, other) => Some([*one, *other]),
                _ => None,
            });
            let plan = Plan {
                compared: compared.flatten().collect(),
                predicates,
                groups: groups
                    .into_iter()
                    .map(|parts| parts.build(&library, &mut scratch))
                    .collect::<Result<_, _>>()?,
                keywords: texts.keywords,
                texts: texts.build(&built),
                rules: built,
                folding: folding.into_iter().collect(),
                guesses: together,
                tables,
                shown,
                names: names.len(),
            };
            let state = Mutex::new(State::new(&plan, scratch));
            Ok(Self { plan, state, views: RwLock::default(), names })
        };
        make().map_err(|error: String| PyValueError::new_err(error))
    }

    /// Register a kind of input: what its lines are (0: not known, 1: syslog, 2: text), the rules that they can meet,
    /// and those of them that need no literal; ascending. Returns what `decide`, `sift` and `learn` take.
    fn view(&self, reads: u8, rules: Vec<u32>, always: Vec<u32>) -> PyResult<u16> {
        let known = |given: &[u32]| {
            given.is_sorted() && given.iter().all(|&rule| (rule as usize) < self.plan.rules.roots.len())
        };
        if !known(&rules) || !known(&always) {
            return Err(PyValueError::new_err("no such rules"));
        }
        let reads = match reads {
            0 => Reads::Nothing,
            1 => Reads::Syslog,
            _ => Reads::Text,
        };
        let mut views = self.views.write().unwrap_or_else(PoisonError::into_inner);
        views.push(Arc::new(View { reads, rules, always }));
        u16::try_from(views.len() - 1).map_err(|_| PyValueError::new_err("too many kinds of inputs"))
    }

    /// The events of the `runs` of a chunk (native 32-bit integers, start and end; None: all of it). `ends`: an
    /// `array("I")` of where events end; None: each is followed by a newline. `again`: they were left undecided before.
    ///
    /// `common`: see `Common`; where it is given, events that only give rows are taken together (`Answer`).
    ///
    /// Gives native 32-bit integers: start, end, count, rules of each event that rules may match; the runs that are not
    /// decided here; (start, end) of events to `learn`; and of those that were taken start and end, rows, hosts.
    #[allow(clippy::too_many_arguments)]
    fn decide<'py>(
        &self,
        py: Python<'py>,
        data: &[u8],
        ends: Option<PyBuffer<u32>>,
        runs: Option<&[u8]>,
        view: u16,
        again: bool,
        common: Option<Common<'py>>,
    ) -> PyResult<Decided<'py>> {
        let ends = ends.map(|ends| ends.to_vec(py)).transpose()?;
        let runs = runs.map_or_else(|| vec![0, data.len() as u32], numbers_of);
        let rows = common.is_some();
        let answer = py.detach(|| {
            let events = ends.as_deref().map_or(Lie::Lines, Lie::Ends);
            let mut answer = Answer::new(rows);
            self.lock().decide(&self.plan, data, events, &runs, (view, again), &mut answer);
            answer
        });
        let taken = common.map(|common| self.taken(py, data, &answer, common)).transpose()?;
        Ok((packed(py, &answer.found)?, packed(py, &answer.rest)?, answer.ask, taken))
    }

    /// Of what `Lines.candidates` gave as `found` for these `runs`, what is left without the rules that surely do not
    /// match, and with those that need no literal; and (start, end) of events to `learn`.
    #[allow(clippy::too_many_arguments)]
    fn sift<'py>(
        &self,
        py: Python<'py>,
        data: &[u8],
        ends: Option<PyBuffer<u32>>,
        runs: Option<&[u8]>,
        found: &[u8],
        view: u16,
        apart: bool,
    ) -> PyResult<(Bound<'py, PyBytes>, Spans)> {
        let ends = ends.map(|ends| ends.to_vec(py)).transpose()?;
        let runs = runs.map_or_else(|| vec![0, data.len() as u32], numbers_of);
        let views = self.views.read().unwrap_or_else(PoisonError::into_inner);
        let known = views.get(usize::from(view)).cloned();
        drop(views);
        let known = known.ok_or_else(|| PyValueError::new_err("no such kind of input"))?;
        let answer = py.detach(|| {
            let (events, found) = (ends.as_deref().map_or(Lie::Lines, Lie::Ends), numbers_of(found));
            let mut answer = Answer::default();
            let named = Named { data, events, runs: &runs, found: &found, apart };
            self.lock().sift(&self.plan, &named, view, &known, &mut answer);
            answer
        });
        Ok((packed(py, &answer.found)?, answer.ask))
    }

    /// Take over what Python found out about `event` when it looked into the values of the numbers `inspected`, ascending;
    /// None: that nothing can be said of events with these.
    ///
    /// `present`: groups whose field is there, ascending, with the numbers of their values. `parts`, `guards`: group,
    /// value, and the cuts or bytes of `Computed`. `rules`: native 32-bit integers.
    #[allow(clippy::needless_pass_by_value)]
    fn learn(&self, py: Python, event: &[u8], view: u16, inspected: Vec<u32>, lesson: Option<LessonParts>) {
        let lesson = lesson.map(|(present, parts, guards, holds, open, rules, leaves, columns, shown)| {
            let mut computed = HashMap::<u32, Computed>::default();
            for (group, leaf, cuts) in parts {
                let cuts = cuts.into_iter().map(|(separator, after, last)| Cut { separator, after, last }).collect();
                computed.entry(group).or_default().parts.push((leaf, cuts));
            }
            for (group, leaf, bytes) in guards {
                computed.entry(group).or_default().guards.push((leaf, bytes));
            }
            let columns = columns.into_iter().map(Column::of).collect();
            let rules = numbers_of(&rules).into();
            let shown = shown.into_iter().map(|(number, code)| (number, Column::of(code))).collect();
            Lesson { present, computed, holds, open, rules, leaves, columns, shown }
        });
        self.with(py, |state| state.learn(&self.plan, event, view, &inspected, lesson));
    }

    /// Events of the structure of `event` are left to others from now on. False where that does not help (`State`).
    fn distrust(&self, py: Python, event: &[u8]) -> bool {
        self.with(py, |state| state.distrust(event))
    }

    /// The values of the columns of an event (`columns.rs`); None: decoders have to say all of them.
    fn columns<'py>(&self, py: Python<'py>, event: &[u8], view: u16) -> PyResult<Option<Bound<'py, PyTuple>>> {
        let found = self.with(py, |state| {
            let (layout, leaves) = state.known(event, view)?;
            Some(columns::found(&layout.columns, leaves).collect::<Vec<_>>())
        });
        found.map(|found| columns::values(py, event, &found)).transpose()
    }

    /// The fields that `rules` show (`columns.rs`); None: decoders have to say all of them.
    #[allow(clippy::needless_pass_by_value)]
    fn shown<'py>(
        &self,
        py: Python<'py>,
        event: &[u8],
        view: u16,
        rules: Vec<u32>,
    ) -> PyResult<Option<Bound<'py, PyDict>>> {
        let found = self.with(py, |state| {
            let (layout, leaves) = state.known(event, view)?;
            let of_rules = rules.iter().filter_map(|&rule| self.plan.shown.get(rule as usize));
            let mut names: Vec<u32> = of_rules.flatten().copied().collect();
            names.sort_unstable();
            names.dedup();
            Some(names.into_iter().map(|name| (name, Found::of(layout.shown(name), leaves))).collect::<Vec<_>>())
        });
        found.map(|fields| columns::shown(py, event, &self.names, &fields)).transpose()
    }

    /// Pattern and end of every hit of a group's searches in a text with its pad.
    fn hits(&self, py: Python, group: usize, cased: bool, data: &[u8]) -> PyResult<Vec<(u32, u32)>> {
        let scan =
            self.plan.groups.get(group).and_then(|group| if cased { &group.raw } else { &group.folded }.as_ref());
        let scan = scan.ok_or_else(|| PyValueError::new_err("no such searches"))?;
        let hits = self.with(py, |state| state.hits(&scan.database, data));
        hits.ok_or_else(|| PyValueError::new_err("Hyperscan refused a text"))
    }

    /// Objects seen, those of them not decided here, layouts learned, layouts refused, panics.
    fn counts(&self, py: Python) -> (u64, u64, u64, u64, u64) {
        let counts = self.with(py, |state| state.counts);
        (counts.events, counts.rest, counts.learned, counts.refused, counts.panics)
    }
}

impl Events {
    fn taken<'py>(&self, py: Python<'py>, data: &[u8], answer: &Answer, common: Common<'py>) -> PyResult<Taken<'py>> {
        let mut rows = Rows::new(py, common);
        let width = answer.values.len() / answer.taken.len().max(1);
        for (&(start, end, run), found) in answer.taken.iter().zip(answer.values.chunks(width.max(1))) {
            let count = (answer.found[run + 2] & !(SURE | RUN)) as usize;
            let rules = &answer.found[run + 3..run + 3 + count];
            let tables = rules.iter().flat_map(|&rule| &self.plan.tables[rule as usize]);
            rows.add(&data[start as usize..end as usize], start, found, tables)?;
        }
        Ok((answer.taken.iter().map(|&(start, end, _)| (start, end)).collect(), rows.rows, rows.hosts))
    }
}

/// Start and end of events.
type Spans = Vec<(u32, u32)>;

/// Events that only give rows: where they are, rows, hosts.
type Taken<'py> = (Spans, Bound<'py, PyList>, Bound<'py, PyList>);

type Decided<'py> = (Bound<'py, PyBytes>, Bound<'py, PyBytes>, Spans, Option<Taken<'py>>);

type Parts = Vec<(u32, u32, Vec<(u8, bool, bool)>)>;
type LessonParts = (
    Vec<(u32, Vec<u32>)>,
    Parts,
    Vec<(u32, u32, Vec<u8>)>,
    Vec<u32>,
    Vec<u32>,
    PyBackedBytes,
    u32,
    Vec<i64>,
    Vec<(u32, i64)>,
);
