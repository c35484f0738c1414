//! Reads pickles that hold plain data only. Opcodes that would run code (`GLOBAL`, `REDUCE`, …) are
//! refused: a dump comes from a job, and a job's files are not trusted.

use std::cell::Cell;

use super::DumpError;

type Result<T> = std::result::Result<T, DumpError>;

/// Most values of one dump.
const VALUES: usize = 4_000_000;

/// Most steps that queries of one dump may take. A dump refers to a value again in a few bytes, so that one
/// of 1 MB can hold a hundred thousand lists of a hundred thousand members; that of 20,000 collectives
/// takes a quarter.
const STEPS: u64 = 20_000_000;

/// A value; containers hold indices into the [`Pickle`].
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// `None`, and numbers too large to matter.
    None,
    /// `True`, `False`.
    Bool(bool),
    /// An integer.
    Int(i64),
    /// A float.
    Float(f64),
    /// A string, or bytes read as one.
    Text(String),
    /// A list or tuple.
    List(Vec<u32>),
    /// A dictionary.
    Dict(Vec<(u32, u32)>),
}

/// All values of a pickle.
#[derive(Clone, Debug)]
pub struct Pickle {
    values: Vec<Value>,
    root: u32,
    /// Steps left for queries.
    left: Cell<u64>,
}

impl Pickle {
    /// Reads a pickle of protocol 2 to 5.
    pub fn read(bytes: &[u8]) -> Result<Self> {
        PickleReader {
            bytes,
            at: 0,
            values: Vec::new(),
            stack: Vec::new(),
            marks: Vec::new(),
            memo: Vec::new(),
        }
        .run()
    }

    /// Returns whether queries took more steps than any real dump needs: then the answers are incomplete.
    pub fn is_exhausted(&self) -> bool {
        self.left.get() == 0
    }

    /// Takes steps; returns false if none are left.
    fn spend(&self, steps: usize) -> bool {
        self.left.set(self.left.get().saturating_sub(steps as u64));
        !self.is_exhausted()
    }

    /// Returns the outermost value.
    pub fn root(&self) -> Node<'_> {
        Node { pickle: self, at: self.root }
    }
}

/// A value in its pickle.
#[derive(Clone, Copy, Debug)]
pub struct Node<'a> {
    pickle: &'a Pickle,
    at: u32,
}

impl<'a> Node<'a> {
    fn value(self) -> &'a Value {
        self.pickle.values.get(self.at as usize).unwrap_or(&Value::None)
    }

    /// Returns the value of a key; none once the dump is exhausted.
    pub fn get(self, key: &str) -> Option<Node<'a>> {
        self.entries().find(|(name, _)| *name == key).map(|(_, node)| node)
    }

    /// Returns the keys that are strings, with their values.
    pub fn entries(self) -> impl Iterator<Item = (&'a str, Node<'a>)> {
        let entries = match self.value() {
            Value::Dict(entries) => entries.as_slice(),
            _ => &[],
        };
        entries.iter().take_while(move |_| self.pickle.spend(1)).filter_map(move |(key, value)| {
            let key = Node { pickle: self.pickle, at: *key }.text()?;
            Some((key, Node { pickle: self.pickle, at: *value }))
        })
    }

    /// Returns the values of a list.
    pub fn items(self) -> impl Iterator<Item = Node<'a>> {
        let items = match self.value() {
            Value::List(items) => items.as_slice(),
            _ => &[],
        };
        let within = items.iter().take_while(move |_| self.pickle.spend(1));
        within.map(move |at| Node { pickle: self.pickle, at: *at })
    }

    /// Returns a string.
    pub fn text(self) -> Option<&'a str> {
        match self.value() {
            Value::Text(text) => Some(text),
            _ => None,
        }
    }

    /// Returns a string that is read to its end, which costs one step per byte.
    pub fn long_text(self) -> Option<&'a str> {
        self.text().filter(|text| self.pickle.spend(text.len()))
    }

    /// Returns an integer.
    pub fn int(self) -> Option<i64> {
        match self.value() {
            Value::Int(int) => Some(*int),
            _ => None,
        }
    }

    /// Returns a truth value.
    pub fn bool(self) -> Option<bool> {
        match self.value() {
            Value::Bool(bool) => Some(*bool),
            _ => None,
        }
    }
}

struct PickleReader<'a> {
    bytes: &'a [u8],
    at: usize,
    values: Vec<Value>,
    stack: Vec<u32>,
    marks: Vec<usize>,
    memo: Vec<u32>,
}

impl PickleReader<'_> {
    fn run(mut self) -> Result<Pickle> {
        loop {
            let code = self.take(1)?[0];
            match code {
                0x80 => _ = self.take(1)?,
                0x95 => _ = self.take(8)?,
                b'}' => self.push(Value::Dict(Vec::new()))?,
                b']' | b')' => self.push(Value::List(Vec::new()))?,
                b'(' => self.marks.push(self.stack.len()),
                b'N' => self.push(Value::None)?,
                0x88 => self.push(Value::Bool(true))?,
                0x89 => self.push(Value::Bool(false))?,
                b'K' | b'M' | b'J' | 0x8a | b'G' => self.number(code)?,
                b'X' | b'T' | b'B' => self.text(4)?,
                0x8c | b'U' | b'C' => self.text(1)?,
                0x8d | 0x8e => self.text(8)?,
                b'q' | b'r' | 0x94 => self.memoize(code)?,
                b'h' | b'j' => self.recall(code)?,
                b's' => self.set(Some(2))?,
                b'u' => self.set(None)?,
                b'a' => self.append(Some(1))?,
                b'e' => self.append(None)?,
                b't' => self.tuple(None)?,
                0x85..=0x87 => self.tuple(Some(usize::from(code - 0x84)))?,
                b'.' => {
                    let root = self.stack.pop().ok_or_else(|| self.broken())?;
                    return Ok(Pickle { values: self.values, root, left: Cell::new(STEPS) });
                }
                _ => return Err(DumpError::NotPlainData { offset: self.at }),
            }
        }
    }

    fn broken(&self) -> DumpError {
        DumpError::Unreadable { offset: self.at }
    }

    fn take(&mut self, count: usize) -> Result<&[u8]> {
        let end =
            self.at.checked_add(count).filter(|end| *end <= self.bytes.len()).ok_or_else(|| self.broken())?;
        let taken = &self.bytes[self.at..end];
        self.at = end;
        Ok(taken)
    }

    /// Reads a little-endian number of `size` bytes.
    fn size(&mut self, size: usize) -> Result<u64> {
        Ok(self.take(size)?.iter().rev().fold(0, |number, byte| number << 8 | u64::from(*byte)))
    }

    fn push(&mut self, value: Value) -> Result<()> {
        if self.values.len() >= VALUES {
            return Err(DumpError::TooManyValues);
        }
        let at = u32::try_from(self.values.len()).map_err(|_| self.broken())?;
        self.values.push(value);
        self.stack.push(at);
        Ok(())
    }

    fn number(&mut self, code: u8) -> Result<()> {
        let value = match code {
            b'K' => Value::Int(self.size(1)?.cast_signed()),
            b'M' => Value::Int(self.size(2)?.cast_signed()),
            b'J' => Value::Int(i64::from(u32::try_from(self.size(4)?).unwrap_or(0).cast_signed())),
            b'G' => Value::Float(f64::from_bits(self.size(8)?.swap_bytes())),
            _ => {
                let length = usize::try_from(self.size(1)?).unwrap_or(0);
                let bytes = self.take(length)?;
                let negative = bytes.last().is_some_and(|byte| byte & 0x80 != 0);
                if length > 8 {
                    Value::None
                } else {
                    let start = if negative { -1 } else { 0 };
                    Value::Int(bytes.iter().rev().fold(start, |number, byte| number << 8 | i64::from(*byte)))
                }
            }
        };
        self.push(value)
    }

    fn text(&mut self, size: usize) -> Result<()> {
        let length = usize::try_from(self.size(size)?).map_err(|_| self.broken())?;
        let text = String::from_utf8_lossy(self.take(length)?).into_owned();
        self.push(Value::Text(text))
    }

    fn memoize(&mut self, code: u8) -> Result<()> {
        let at = match code {
            b'q' => self.size(1)?,
            b'r' => self.size(4)?,
            _ => self.memo.len() as u64,
        };
        let at = usize::try_from(at).ok().filter(|at| *at < VALUES).ok_or_else(|| self.broken())?;
        let top = *self.stack.last().ok_or_else(|| self.broken())?;
        if self.memo.len() <= at {
            self.memo.resize(at + 1, u32::MAX);
        }
        self.memo[at] = top;
        Ok(())
    }

    fn recall(&mut self, code: u8) -> Result<()> {
        let at = self.size(if code == b'h' { 1 } else { 4 })?;
        let known =
            usize::try_from(at).ok().and_then(|at| self.memo.get(at)).copied().filter(|at| *at != u32::MAX);
        let known = known.ok_or_else(|| self.broken())?;
        if self.stack.len() >= VALUES {
            return Err(self.broken());
        }
        self.stack.push(known);
        Ok(())
    }

    /// Takes so many values from the stack, or those above the last mark.
    fn pop(&mut self, count: Option<usize>) -> Result<Vec<u32>> {
        let from = match count {
            Some(count) => self.stack.len().checked_sub(count),
            None => self.marks.pop().filter(|from| *from <= self.stack.len()),
        };
        Ok(self.stack.split_off(from.ok_or_else(|| self.broken())?))
    }

    fn tuple(&mut self, count: Option<usize>) -> Result<()> {
        let items = self.pop(count)?;
        self.push(Value::List(items))
    }

    fn set(&mut self, count: Option<usize>) -> Result<()> {
        let items = self.pop(count)?;
        if let Some(Value::Dict(entries)) = self.stack.last().and_then(|at| self.values.get_mut(*at as usize))
        {
            entries.extend(items.chunks_exact(2).map(|pair| (pair[0], pair[1])));
            return Ok(());
        }
        Err(self.broken())
    }

    fn append(&mut self, count: Option<usize>) -> Result<()> {
        let items = self.pop(count)?;
        if let Some(Value::List(list)) = self.stack.last().and_then(|at| self.values.get_mut(*at as usize)) {
            list.extend(items);
            return Ok(());
        }
        Err(self.broken())
    }
}
