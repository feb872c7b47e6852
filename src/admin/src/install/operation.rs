//! Operations of Karmada's protocol, as words of a command line.

use clap::{ValueEnum, builder::PossibleValue};

use mczk_rules::interpreter::wire::Operation;

/// An operation, which has Karmada's name on a command line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct OperationWord(pub(crate) Operation);

impl OperationWord {
    /// All operations, in the order of Karmada's documentation.
    pub(crate) const ALL: [Self; Operation::ALL.len()] = {
        let [replica, revise, aggregate, health, dependency] = Operation::ALL;
        [Self(replica), Self(revise), Self(aggregate), Self(health), Self(dependency)]
    };
}

impl ValueEnum for OperationWord {
    fn value_variants<'a>() -> &'a [Self] {
        &Self::ALL
    }

    fn to_possible_value(&self) -> Option<PossibleValue> {
        Some(PossibleValue::new(self.0.name()).help(match self.0 {
            Operation::InterpretReplica => "Number of replicas, and requirements of each",
            Operation::ReviseReplica => "The object with another number of replicas",
            Operation::AggregateStatus => "Status of the template, from those of the member clusters",
            Operation::InterpretHealth => "Health of the object in a member cluster",
            Operation::InterpretDependency => "Secrets and `ConfigMap`s that Karmada must propagate with the object",
        }))
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn an_operation_has_its_name_on_a_command_line() {
        let names = OperationWord::value_variants().iter().map(|word| word.to_possible_value().unwrap());
        assert!(names.map(|value| value.get_name().to_owned()).eq(Operation::ALL.map(|one| one.name().to_owned())));
    }
}
