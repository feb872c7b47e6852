//! The annotation by which a user says where the voters of each cluster shall be.

use mczk_api::contract::labels::FAILOVER;

/// The pairs of the annotation, in its order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct RequestedPlaces(Vec<(String, String)>);

impl RequestedPlaces {
    /// The pairs of a value. `name` is the ensemble, for the remedy.
    ///
    /// # Errors
    /// If a part of the value is no pair: the command would drop what it cannot read.
    pub(super) fn read(value: Option<&str>, name: &str) -> Result<Self, String> {
        let parts = value.unwrap_or_default().split(',').map(str::trim).filter(|part| !part.is_empty());
        let pair = |part: &str| {
            let halves = part.split_once('=').map(|(home, place)| (home.trim(), place.trim()));
            let halves = halves.filter(|(home, place)| !home.is_empty() && !place.is_empty() && !place.contains('='));
            halves.map(|(home, place)| (home.to_owned(), place.to_owned())).ok_or_else(|| {
                format!(
                    "the annotation {FAILOVER} has {part:?}, which is no pair CLUSTER=PLACE. Correct it, or remove it: kubectl \
                     annotate mczk {name} {FAILOVER}-"
                )
            })
        };
        parts.map(pair).collect::<Result<_, _>>().map(Self)
    }

    /// The homes that the annotation names.
    pub(super) fn homes(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(|(home, _)| home.as_str())
    }

    /// True if the annotation has a pair of this home.
    pub(super) fn names(&self, home: &str) -> bool {
        self.homes().any(|named| named == home)
    }

    /// True if the annotation gives this place to another home.
    pub(super) fn gives_to_another(&self, place: &str, home: &str) -> bool {
        self.0.iter().any(|(other, given)| given == place && other != home)
    }

    /// The pairs with this one, in the place of any other of the home.
    pub(super) fn with(&self, home: &str, place: &str) -> Self {
        let mut pairs = self.without(home).0;
        let at = self.0.iter().take_while(|(named, _)| named != home).count();
        pairs.insert(at.min(pairs.len()), (home.to_owned(), place.to_owned()));
        Self(pairs)
    }

    /// The pairs without that of the home.
    pub(super) fn without(&self, home: &str) -> Self {
        Self(self.0.iter().filter(|(named, _)| named != home).cloned().collect())
    }

    /// The value of the annotation; `None` if there is no pair.
    pub(super) fn value(&self) -> Option<String> {
        let pairs: Vec<String> = self.0.iter().map(|(home, place)| format!("{home}={place}")).collect();
        (!pairs.is_empty()).then(|| pairs.join(","))
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case::first(None, "m1=m4")]
    #[case::empty(Some(" , "), "m1=m4")]
    #[case::beside_others(Some("m2=m2"), "m2=m2,m1=m4")]
    #[case::in_the_place_of_another(Some("m1=m1, m2 = m2"), "m1=m4,m2=m2")]
    #[case::the_same(Some("m1=m4"), "m1=m4")]
    #[case::named_twice(Some("m2=m2,m1=m5,m3=m3,m1=m1"), "m2=m2,m1=m4,m3=m3")]
    fn a_pair_is_set(#[case] before: Option<&str>, #[case] after: &str) {
        let pairs = RequestedPlaces::read(before, "zk").unwrap();
        assert_eq!(pairs.with("m1", "m4").value().as_deref(), Some(after));
    }

    #[rstest]
    #[case::none(None, None)]
    #[case::the_last(Some("m1=m4"), None)]
    #[case::one_of_two(Some("m1=m4,m2=m2"), Some("m2=m2"))]
    #[case::of_others(Some("m2=m2"), Some("m2=m2"))]
    #[case::named_twice(Some("m1=m4,m2=m2,m1=m1"), Some("m2=m2"))]
    fn a_pair_is_removed(#[case] before: Option<&str>, #[case] after: Option<&str>) {
        let pairs = RequestedPlaces::read(before, "zk").unwrap();
        assert_eq!(pairs.without("m1").value().as_deref(), after);
    }

    #[rstest]
    #[case("m1", "\"m1\"")]
    #[case("m2=m2,=m4", "\"=m4\"")]
    #[case("m1=,m2=m2", "\"m1=\"")]
    #[case("m1=m4=m5", "\"m1=m4=m5\"")]
    fn what_is_no_pair_is_refused_with_a_remedy(#[case] value: &str, #[case] part: &str) {
        let error = RequestedPlaces::read(Some(value), "zk").unwrap_err();
        assert!(error.contains(part), "{error}");
        assert!(error.ends_with("kubectl annotate mczk zk mczk.io/failover-"), "{error}");
    }
}
