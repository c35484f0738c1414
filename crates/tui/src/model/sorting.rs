//! How a table is sorted: by one of its columns, one way or the other.

use std::cmp::Ordering;

/// The columns of a table.
pub trait Column: Copy + Default + PartialEq + 'static {
    /// What is sorted: `jobs`.
    const ROWS: &'static str;
    /// All of them, one after another, by their names.
    const ALL: &'static [(Self, &'static str)];

    /// Returns its name.
    fn name(self) -> &'static str {
        Self::ALL.iter().find(|(column, _)| *column == self).map_or("", |(_, name)| name)
    }

    /// Returns the column of this name.
    fn parse(name: &str) -> Option<Self> {
        Self::ALL.iter().find(|(_, known)| *known == name).map(|(column, _)| *column)
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sorting<C> {
    pub column: C,
    /// Whether the last of that order comes first.
    pub reversed: bool,
}

impl<C: Column> Sorting<C> {
    /// Sorts by a column, or the other way round if it is sorted by it already.
    pub fn by(&mut self, column: C) {
        *self = Self { column, reversed: self.column == column && !self.reversed };
    }

    /// Sorts by the next column.
    pub fn by_next(&mut self) {
        let column = super::next(C::ALL, |(column, _)| *column == self.column).0;
        *self = Self { column, reversed: false };
    }

    /// Sorts by the column of this name.
    pub fn by_name(&mut self, name: &str) -> Result<(), String> {
        let column = C::parse(name).ok_or_else(|| {
            let names: Vec<&str> = C::ALL.iter().map(|(_, name)| *name).collect();
            format!("{} are not sorted by `{name}`, but by {}", C::ROWS, names.join(", "))
        })?;
        self.by(column);
        Ok(())
    }

    /// Returns the order of two rows that compare so in the column.
    pub fn order(self, compared: Ordering) -> Ordering {
        if self.reversed { compared.reverse() } else { compared }
    }

    /// Says how the table is sorted.
    pub fn words(self) -> String {
        let way = if self.reversed { ", the other way round" } else { "" };
        format!("{} sorted by {}{way}", C::ROWS, self.column.name())
    }
}

/// Columns by which ranks are sorted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RankColumn {
    /// By rank, those that the cause or RAS names first.
    #[default]
    Trouble,
    Rank,
    Host,
    Gpu,
    /// Those that failed, then the slowest first.
    Phase,
    Loaded,
    /// Most first.
    Warnings,
    Errors,
    /// Those that have written nothing for the longest first.
    Silent,
    /// Those whose last step is the oldest first.
    Step,
}

impl Column for RankColumn {
    const ROWS: &'static str = "ranks";
    const ALL: &'static [(Self, &'static str)] = &[
        (Self::Trouble, "trouble"),
        (Self::Phase, "phase"),
        (Self::Errors, "errors"),
        (Self::Warnings, "warnings"),
        (Self::Silent, "silent"),
        (Self::Step, "step"),
        (Self::Rank, "rank"),
        (Self::Host, "host"),
        (Self::Gpu, "gpu"),
        (Self::Loaded, "loaded"),
    ];
}

/// Columns by which nodes are sorted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum NodeColumn {
    /// As the matrix numbers them, those with a rank that failed or that the cause or RAS names first.
    #[default]
    Trouble,
    /// As the matrix numbers them.
    Node,
    /// Those with the slowest ranks first.
    Reached,
    Loaded,
    /// By their lowest rank.
    Ranks,
}

impl Column for NodeColumn {
    const ROWS: &'static str = "nodes";
    const ALL: &'static [(Self, &'static str)] = &[
        (Self::Trouble, "trouble"),
        (Self::Reached, "reached"),
        (Self::Loaded, "loaded"),
        (Self::Ranks, "ranks"),
        (Self::Node, "node"),
    ];
}

/// Columns by which collectives are sorted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CollectiveColumn {
    /// Those with a late rank first, then those with the most time.
    #[default]
    Trouble,
    Collective,
    /// Most first.
    Ranks,
    /// Largest messages first.
    Size,
    /// Slowest first.
    BusBandwidth,
    /// Most first.
    Expected,
    Time,
    Communicator,
}

impl Column for CollectiveColumn {
    const ROWS: &'static str = "collectives";
    const ALL: &'static [(Self, &'static str)] = &[
        (Self::Trouble, "trouble"),
        (Self::Time, "time"),
        (Self::BusBandwidth, "bandwidth"),
        (Self::Expected, "expected"),
        (Self::Size, "size"),
        (Self::Collective, "collective"),
        (Self::Ranks, "ranks"),
        (Self::Communicator, "communicator"),
    ];
}
