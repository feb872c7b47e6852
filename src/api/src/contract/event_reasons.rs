//! The form of tables of events. Operator and agent each have one; `docs/reference/events.md` is generated from them.

/// Severity of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Severity {
    /// The event reports progress.
    Normal,
    /// The event reports a failure.
    Warning,
}

/// Declares the enum of reasons of events, each with its meaning, its severity and the action of the user.
#[macro_export]
macro_rules! event_reasons {
    ($(#[doc = $about:literal])+ $type:ident; $($(#[doc = $meaning:literal])+ $name:ident, $severity:ident; $help:literal;)+) => {
        $crate::described! {
            $(#[doc = $about])+
            $type;
            $($(#[doc = $meaning])+ $name = stringify!($name);)+
        }

        impl $type {
            /// The action that the user takes.
            #[must_use]
            pub const fn help(self) -> &'static str {
                match self {
                    $(Self::$name => $help,)+
                }
            }

            /// The severity of the event.
            #[must_use]
            pub const fn severity(self) -> $crate::contract::event_reasons::Severity {
                match self {
                    $(Self::$name => $crate::contract::event_reasons::Severity::$severity,)+
                }
            }
        }
    };
}

pub use event_reasons;
