//! The two parts of an installation, before and after the start of the operator.

use clap::ValueEnum;

/// A part of the installation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Stage {
    /// Definitions, rights, policies, the certificate and the operator's credential
    Prepare,
    /// Waits for the operator, then registers the webhook and applies the agents
    Finish,
}

impl Stage {
    /// True if a run does this part. Without a choice it does both.
    pub(super) fn is_in(self, chosen: Option<Self>) -> bool {
        chosen.is_none_or(|chosen| chosen == self)
    }
}

/// True if webhook and agents wait for the operator. An operator that another tool may start later is not waited for.
pub(super) fn follows_operator(chosen: Option<Stage>, without_operator: bool) -> bool {
    !without_operator || chosen == Some(Stage::Finish)
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case(None, true, true)]
    #[case(Some(Stage::Prepare), true, false)]
    #[case(Some(Stage::Finish), false, true)]
    fn a_run_does_what_is_chosen(#[case] chosen: Option<Stage>, #[case] prepares: bool, #[case] finishes: bool) {
        assert_eq!((Stage::Prepare.is_in(chosen), Stage::Finish.is_in(chosen)), (prepares, finishes));
    }

    #[rstest]
    #[case::own_operator(None, false, true)]
    #[case::before_another_tool(None, true, false)]
    #[case::after_another_tool(Some(Stage::Finish), true, true)]
    fn webhook_and_agents_follow_the_operator(
        #[case] chosen: Option<Stage>,
        #[case] without_operator: bool,
        #[case] expected: bool,
    ) {
        assert_eq!(follows_operator(chosen, without_operator), expected);
    }
}
