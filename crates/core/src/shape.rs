//! The name of the JSON contract, and how a shape of it is declared.

use serde::{Serialize, Serializer};

/// Declares objects of reports, with the derives that all have; `new`, if there is one, is written by hand.
#[doc(hidden)]
#[macro_export]
macro_rules! shapes {
    ($($(#[$about:meta])* pub struct $name:ident$(<$life:lifetime>)? { $($(#[$note:meta])* pub $field:ident: $type:ty,)* })*) => {
        $(
            $(#[$about])*
            #[derive(Clone, Debug, serde::Serialize)]
            #[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
            #[non_exhaustive]
            pub struct $name$(<$life>)? {
                $($(#[$note])* pub $field: $type,)*
            }
        )*
    };
}

/// The schema name in every object.
pub const SCHEMA: &str = "weftrun/v1";

/// The first field of every object, written as [`SCHEMA`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SchemaName;

impl Serialize for SchemaName {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(SCHEMA)
    }
}

#[cfg(feature = "schema")]
impl schemars::JsonSchema for SchemaName {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "SchemaName".into()
    }

    fn inline_schema() -> bool {
        true
    }

    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({"const": SCHEMA, "description": "Name of the contract; it changes only with a break."})
    }
}
