/// Declares an enum whose values have words for people: each variant stands beside its word. In JSON it is what its
/// `serde` attributes say.
/// With `: ALL` behind the name, a constant lists all values.
#[doc(hidden)]
#[macro_export]
macro_rules! word_enum {
    ($(#[$about:meta])* $vis:vis enum $name:ident: ALL { $($(#[$note:meta])* $variant:ident = $word:literal,)* }) => {
        $crate::word_enum! { $(#[$about])* $vis enum $name { $($(#[$note])* $variant = $word,)* } }

        impl $name {
            /// All values, in order.
            pub const ALL: [Self; [$($word),*].len()] = [$(Self::$variant),*];
        }
    };
    ($(#[$about:meta])* $vis:vis enum $name:ident { $($(#[$note:meta])* $variant:ident = $word:literal,)* }) => {
        $(#[$about])*
        $vis enum $name { $($(#[$note])* $variant,)* }

        impl $name {
            /// Returns its word.
            pub fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $word,)* }
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.pad(self.as_str())
            }
        }
    };
}
