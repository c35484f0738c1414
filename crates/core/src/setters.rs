/// Writes methods that change a value and return it, as builders have them; with `const`, those of tables in the sources.
macro_rules! setters {
    (const $($name:ident($($argument:ident: $type:ty),*) |$own:ident| $change:expr;)*) => {$(
        pub(crate) const fn $name(mut self, $($argument: $type),*) -> Self {
            let $own = &mut self;
            $change;
            self
        }
    )*};
    ($($(#[$about:meta])* $name:ident($($argument:ident: $type:ty),*) |$own:ident| $change:expr;)*) => {$(
        $(#[$about])*
        #[must_use]
        pub fn $name(mut self, $($argument: $type),*) -> Self {
            let $own = &mut self;
            $change;
            self
        }
    )*};
}
