/// Writes methods that change a value and return it, as builders have them.
macro_rules! setters {
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
