//! The definition of one key of a job file: its shape, the field of the job it sets, and its flags.

use crate::request::FabricRequest;
use crate::spec::{JobSpec, Role};
use crate::text::did_you_mean;

use super::field::Field;

/// A table of keys.
#[derive(Debug)]
pub struct Table {
    /// Its name for display: `fabric`, `roles.NAME`; empty for the whole file.
    pub name: &'static str,
    pub doc: &'static str,
    /// Its keys, in the order of the reference page.
    pub keys: &'static [Key],
}

#[derive(Clone, Copy, Debug)]
pub struct Key {
    /// Its name in a file.
    pub name: &'static str,
    /// The shape of its value.
    pub shape: Shape,
    /// What it does.
    pub doc: &'static str,
    /// An example in TOML; empty where one line is not enough.
    pub example: &'static str,
    pub required: bool,
    /// Whether the configuration's `[job]` table may set it for all jobs.
    pub config: bool,
    /// Other accepted names.
    pub aliases: &'static [&'static str],
    /// Names that other tools use for it, for "did you mean".
    pub synonyms: &'static [&'static str],
    /// What it sets.
    pub place: FieldAccess,
    /// The flags that set it.
    pub flags: &'static [Flag],
}

/// What a key sets.
#[derive(Clone, Copy, Debug)]
pub(crate) enum FieldAccess {
    Job(fn(&mut JobSpec) -> &mut dyn Field),
    /// A field of a role; at the top of the file, of the only worker.
    Role(fn(&mut Role) -> &mut dyn Field),
    Fabric(fn(&mut FabricRequest) -> &mut dyn Field),
    /// The fabric request, key by key.
    Request,
    /// The roles, key by key.
    Roles,
    /// A setting of one backend.
    Setting {
        /// The backend's name.
        backend: &'static str,
        /// The setting's name.
        key: &'static str,
    },
    /// A part of a value that is read as a whole, such as the mount path of a volume.
    Part,
}

/// A flag that sets a key.
#[derive(Clone, Copy, Debug)]
pub struct Flag {
    /// Its name on the command line: `--nodes`.
    pub name: &'static str,
    /// The letter of its short form.
    pub short: Option<char>,
    /// The name of its value in help; empty where it takes none.
    pub value: &'static str,
    /// Its help, where the key's own text does not fit.
    pub help: Option<&'static str>,
    /// The section of help that lists it.
    pub group: Group,
    /// Whether verbs with several documents accept several values, although a job accepts one.
    pub repeated: bool,
    /// For a flag that names a rule: the word it sets.
    pub word: Option<&'static str>,
}

/// The heading under which help lists a flag.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Group {
    /// What the job is.
    Job,
    /// Which fabric it uses, and how.
    Fabric,
    /// Flags of the whole program that also set a key.
    Global,
}

impl Flag {
    pub(crate) const fn new(name: &'static str, value: &'static str) -> Self {
        Self { name, short: None, value, help: None, group: Group::Job, repeated: false, word: None }
    }

    setters! { const
        short(letter: char) |flag| flag.short = Some(letter);
        help(text: &'static str) |flag| flag.help = Some(text);
        group(group: Group) |flag| flag.group = group;
        repeated() |flag| flag.repeated = true;
        sets(word: &'static str) |flag| flag.word = Some(word);
    }
}

/// The shape of a value.
#[derive(Clone, Copy, Debug)]
pub enum Shape {
    /// A string.
    Text,
    /// A string, or a number or boolean that reads the same either way.
    Scalar,
    /// A list of strings, or one string for a list of one.
    Texts,
    /// A list of strings, numbers and booleans, each kept as it is written.
    Values,
    /// A list of strings, or a string that is split into words.
    Command,
    /// `true` or `false`.
    Bool,
    /// A whole number.
    Count {
        /// The minimum.
        min: u32,
    },
    /// A Kubernetes quantity, as a string or a number.
    Quantity,
    /// A duration, as a string or a number of seconds.
    Duration,
    /// One of these words.
    Word(&'static [Word]),
    /// `auto`, `compute` or a number.
    Gid,
    /// Rule ids, each with one of these words.
    Rules(&'static [Word]),
    /// Free keys with values of one shape.
    Map(&'static Shape),
    /// A table with these keys.
    Table(&'static Table),
    /// Free names, each a table with these keys; their order is kept.
    Named(&'static Table),
    /// The first shape that fits the kind of value.
    OneOf(&'static [Shape]),
    /// Anything.
    Any,
}

/// A word with its meaning.
#[derive(Debug)]
pub struct Word {
    /// The word.
    pub word: &'static str,
    /// What it means.
    pub doc: &'static str,
    /// A short form, accepted everywhere.
    pub alias: Option<&'static str>,
}

pub(crate) const fn word(word: &'static str, doc: &'static str) -> Word {
    Word { word, doc, alias: None }
}

impl Word {
    /// Returns whether this is the word or its short form.
    pub fn is(&self, text: &str) -> bool {
        self.word == text || self.alias == Some(text)
    }
}

pub(crate) const fn key(name: &'static str, shape: Shape, doc: &'static str) -> Key {
    Key {
        name,
        shape,
        doc,
        example: "",
        required: false,
        config: false,
        aliases: &[],
        synonyms: &[],
        place: FieldAccess::Part,
        flags: &[],
    }
}

impl Key {
    setters! { const
        example(toml: &'static str) |key| key.example = toml;
        required() |key| key.required = true;
        config() |key| key.config = true;
        alias(names: &'static [&'static str]) |key| key.aliases = names;
        synonyms(names: &'static [&'static str]) |key| key.synonyms = names;
        at(place: FieldAccess) |key| key.place = place;
        job(field: fn(&mut JobSpec) -> &mut dyn Field) |key| key.place = FieldAccess::Job(field);
        role(field: fn(&mut Role) -> &mut dyn Field) |key| key.place = FieldAccess::Role(field);
        fabric(field: fn(&mut FabricRequest) -> &mut dyn Field) |key| key.place = FieldAccess::Fabric(field);
        flags(flags: &'static [Flag]) |key| key.flags = flags;
    }

    /// Returns whether this is its name or an alias.
    pub fn is(&self, name: &str) -> bool {
        self.name == name || self.aliases.contains(&name)
    }
}

impl Table {
    /// Returns the key of a name or alias.
    pub fn key(&self, name: &str) -> Option<&'static Key> {
        self.keys.iter().find(|key| key.is(name))
    }

    /// Returns the key that an unknown name probably means: the one that other tools call so, or the
    /// nearest.
    pub fn meant(&self, name: &str) -> Option<&'static str> {
        let spelling = name.replace('-', "_").to_lowercase();
        let known =
            self.keys.iter().find(|key| key.name == spelling || key.synonyms.contains(&spelling.as_str()));
        known.map(|key| key.name).or_else(|| did_you_mean(name, self.keys.iter().map(|key| key.name)))
    }
}

impl Shape {
    /// Returns the table of keys that a value may be, if it may be one.
    pub(crate) fn table(&self) -> Option<&'static Table> {
        match self {
            Self::Table(table) => Some(table),
            Self::OneOf(shapes) => shapes.iter().find_map(Self::table),
            _ => None,
        }
    }

    /// Returns the accepted words, if the value may be a word.
    pub(crate) fn words(&self) -> Option<&'static [Word]> {
        match self {
            Self::Word(words) => Some(words),
            Self::OneOf(shapes) => shapes.iter().find_map(Self::words),
            _ => None,
        }
    }

    /// Returns the expected value in the user's terms.
    pub fn expected(&self) -> String {
        match self {
            Self::Text => "a string".to_owned(),
            Self::Scalar => "a string, a whole number or a boolean".to_owned(),
            Self::Texts | Self::Command => "a list of strings, or one string".to_owned(),
            Self::Values => "a list of strings, numbers or booleans".to_owned(),
            Self::Bool => "`true` or `false`".to_owned(),
            Self::Count { min: 0 } => "a whole number".to_owned(),
            Self::Count { min } => format!("a whole number from {min}"),
            Self::Quantity => "a quantity such as `\"64Gi\"`".to_owned(),
            Self::Duration => "a duration such as `\"12h\"` or `\"1d12h\"`".to_owned(),
            Self::Word(words) => {
                let words: Vec<String> = words.iter().map(|word| format!("`{}`", word.word)).collect();
                format!("one of {}", words.join(", "))
            }
            Self::Gid => "`auto`, `compute` or a number from 0".to_owned(),
            Self::Rules(_) => "a table of rule ids, each `auto`, `on` or `off`".to_owned(),
            Self::Map(_) | Self::Table(_) => "a table".to_owned(),
            Self::Named(_) => "a table of tables, one for each name".to_owned(),
            Self::OneOf(shapes) => shapes.iter().map(Self::expected).collect::<Vec<_>>().join(", or "),
            Self::Any => "anything".to_owned(),
        }
    }
}
