//! Enums whose variants have a word each: the same in files, on the command line and in tables.

/// Declares such an enum.
macro_rules! words {
    ($(#[$attribute:meta])* pub enum $name:ident {
        $($(#[$of_variant:meta])* $variant:ident = $word:literal,)*
    }) => {
        $(#[$attribute])*
        #[derive(Clone, Copy, PartialEq, Eq, Debug, serde::Serialize, serde::Deserialize)]
        pub enum $name {
            $($(#[$of_variant])* #[serde(rename = $word)] $variant,)*
        }

        impl $name {
            pub const ALL: [Self; [$($word),*].len()] = [$(Self::$variant),*];

            pub fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => $word,)*
                }
            }

            pub fn by_name(name: &str) -> Option<Self> {
                Self::ALL.into_iter().find(|one| one.name() == name)
            }
        }
    };
}

/// Declares a struct with the default of each field beside it.
macro_rules! with_defaults {
    ($(#[$attribute:meta])* $visible:vis struct $name:ident {
        $($(#[$of_field:meta])* $seen:vis $field:ident: $type:ty = $default:expr,)*
    }) => {
        $(#[$attribute])*
        $visible struct $name {
            $($(#[$of_field])* $seen $field: $type,)*
        }

        impl Default for $name {
            fn default() -> Self {
                Self { $($field: $default,)* }
            }
        }
    };
}

pub(crate) use with_defaults;
pub(crate) use words;
