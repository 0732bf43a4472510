//! One script: compiled, looked over, and asked.

use esker_raft_log::{Error, Offered, Queue, Result, Verdict};
use rhai::{AST, Dynamic, Engine, EvalAltResult, FuncArgs, Position, Scope};

use crate::Item;
use crate::state::State;

/// What a script may have, each with how many parameters.
const APPEND: (&str, usize) = ("filter_append", 7);
const COMPACT: (&str, usize) = ("filter_compact", 6);
const CLEAN: (&str, usize) = ("filter_clean", 5);

/// A script that was compiled.
pub struct Script {
    name: String,
    source: String,
    engine: Engine,
    ast: AST,
}

impl std::fmt::Debug for Script {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Script").field("name", &self.name).finish_non_exhaustive()
    }
}

impl Script {
    /// Compiles `source`; `name` stands for it in errors, and may be a path. What it prints goes to the standard output.
    ///
    /// # Errors
    /// `InvalidArgument`: it does not compile, or one of its functions has another number of parameters than it is called with.
    pub fn new(name: impl Into<String>, source: impl Into<String>) -> Result<Self> {
        let (name, source, engine) = (name.into(), source.into(), Engine::new());
        let ast = engine.compile(&source).map_err(|error| told(&name, &source, error.1, &error.0))?;
        let script = Self { name, source, engine, ast };
        [APPEND, COMPACT, CLEAN].into_iter().try_for_each(|function| script.expect(function))?;
        Ok(script)
    }

    /// The same script, with `print` for each line that it prints.
    #[must_use]
    pub fn with_print(mut self, print: fn(&str)) -> Self {
        self.engine.on_print(print);
        self.engine.on_debug(move |text, _, _| print(text));
        self
    }

    /// Whether it has none of the functions, so that everything stays.
    pub fn is_empty(&self) -> bool {
        ![APPEND, COMPACT, CLEAN].into_iter().any(|(name, _)| self.has(name))
    }

    fn has(&self, function: &str) -> bool {
        self.ast.iter_functions().any(|found| found.name == function)
    }

    /// Refuses a function that would never be called.
    fn expect(&self, (function, parameters): (&str, usize)) -> Result<()> {
        let others = self.ast.iter_functions().filter(|found| found.name == function);
        match others.map(|found| found.params.len()).find(|found| *found != parameters) {
            Some(found) => {
                Err(self.told_of(function, format_args!("{function} has {parameters} parameters, and here {found}")))
            }
            None => Ok(()),
        }
    }

    pub(crate) fn ask(&self, group: u64, state: State, queue: Queue, item: Offered) -> Result<Verdict> {
        // Rhai's numbers are signed, as they are in scripts for the original.
        let number = |number: u64| number as i64;
        let queue = match queue {
            Queue::Append => 0i64,
            Queue::Rewrite => 1,
        };
        let (id, first, count, rewritten) =
            (number(group), number(state.first), number(state.count), number(state.rewritten));
        let (function, answer) = match item {
            Offered::Entries { first: from, last } => {
                let arguments = (id, first, count, rewritten, queue, number(from), number(last));
                (APPEND.0, self.call(APPEND.0, arguments))
            }
            Offered::Compact { index } => {
                (COMPACT.0, self.call(COMPACT.0, (id, first, count, rewritten, queue, number(index))))
            }
            Offered::Clean => (CLEAN.0, self.call(CLEAN.0, (id, first, count, rewritten, queue))),
            _ => return Ok(Verdict::Keep),
        };
        answer.and_then(|answer| self.verdict(function, answer)).map_err(|error| error.while_doing(Item(group, item)))
    }

    /// Calls a function; one that is not there keeps everything.
    fn call(&self, function: &str, arguments: impl FuncArgs) -> Result<Dynamic> {
        if !self.has(function) {
            return Ok(Dynamic::from_int(0));
        }
        self.engine.call_fn(&mut Scope::new(), &self.ast, function, arguments).map_err(|error| self.failed(&error))
    }

    /// What a function failed with, at the place where it did: perhaps in one that it calls.
    fn failed(&self, error: &EvalAltResult) -> Error {
        match error {
            EvalAltResult::ErrorInFunctionCall(_, _, cause, _) => self.failed(cause),
            cause => {
                let words = cause.to_string();
                let place = cause.position();
                // They end with the place, which is told in front of them.
                let words = words.strip_suffix(&format!(" ({place})")).unwrap_or(&words);
                told(&self.name, &self.source, place, words)
            }
        }
    }

    fn verdict(&self, function: &str, answer: Dynamic) -> Result<Verdict> {
        match answer.as_int() {
            Ok(0) => Ok(Verdict::Keep),
            Ok(1) => Ok(Verdict::Discard),
            Ok(2) => Ok(Verdict::DiscardEarlier),
            _ if answer.is_unit() => {
                Err(self.told_of(function, format_args!("{function} returned nothing: it must return 0, 1 or 2")))
            }
            _ => Err(self.told_of(function, format_args!("{function} returned {answer}: it must return 0, 1 or 2"))),
        }
    }

    /// An error about the whole of a function, at the line where it begins.
    fn told_of(&self, function: &str, what: impl std::fmt::Display) -> Error {
        let begins = |line: &str| {
            let words = line.trim_start().strip_prefix("private ").unwrap_or(line).trim_start();
            words.strip_prefix("fn ").is_some_and(|rest| rest.trim_start().starts_with(function))
        };
        let line = self.source.lines().position(begins).and_then(|line| u16::try_from(line + 1).ok());
        told(&self.name, &self.source, line.map_or(Position::NONE, |line| Position::new(line, 0)), what)
    }
}

/// What is wrong with a script, with the line that it is wrong in.
fn told(name: &str, source: &str, place: Position, what: impl std::fmt::Display) -> Error {
    let Some(line) = place.line() else { return Error::invalid_argument(format!("{name}: {what}")) };
    let text = source.lines().nth(line.saturating_sub(1)).unwrap_or_default().trim();
    let column = place.position().map(|column| format!(", column {column}")).unwrap_or_default();
    Error::invalid_argument(format!("{name}, line {line}{column}: {what} (`{text}`)"))
}
