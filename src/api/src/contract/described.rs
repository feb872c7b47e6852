//! Enums whose values have a text for users and a meaning. The tables of the reference are generated from them.

/// Declares such an enum: its description, then each value with its meaning and its text.
#[macro_export]
macro_rules! described {
    ($(#[doc = $about:literal])+ $type:ident; $($(#[doc = $meaning:literal])+ $name:ident = $text:expr;)+) => {
        $(#[doc = $about])+
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum $type {
            $($(#[doc = $meaning])+ $name,)+
        }

        impl $type {
            /// Every value.
            pub const ALL: &[Self] = &[$(Self::$name),+];

            /// The text that users read.
            #[must_use]
            pub const fn as_str(self) -> &'static str {
                match self {
                    $(Self::$name => $text,)+
                }
            }

            /// What the value stands for.
            #[must_use]
            pub fn meaning(self) -> &'static str {
                match self {
                    $(Self::$name => concat!($($meaning),+).trim(),)+
                }
            }
        }
    };
}

pub use described;
