//! The annotation by which a user says where the voters of each cluster shall be.

use std::{collections::BTreeMap, str::FromStr};

use super::labels::FAILOVER;

/// The pairs of the annotation [`FAILOVER`], `HOME=PLACE` each, in its order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RequestedPlaces(Vec<(String, String)>);

impl RequestedPlaces {
    /// The pairs of the annotation; none if there is no annotation.
    ///
    /// # Errors
    /// As [`RequestedPlaces::from_str`].
    pub fn read(annotations: &BTreeMap<String, String>) -> Result<Self, String> {
        annotations.get(FAILOVER).map(String::as_str).unwrap_or_default().parse()
    }

    /// Home and place of each pair.
    pub fn pairs(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(home, place)| (home.as_str(), place.as_str()))
    }

    /// The homes that the annotation names.
    pub fn homes(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(|(home, _)| home.as_str())
    }

    /// True if the annotation has a pair of this home.
    #[must_use]
    pub fn names(&self, home: &str) -> bool {
        self.homes().any(|named| named == home)
    }

    /// True if the annotation gives this place to another home.
    #[must_use]
    pub fn gives_to_another(&self, place: &str, home: &str) -> bool {
        self.0.iter().any(|(other, given)| given == place && other != home)
    }

    /// The pairs with this one, in the place of any other of the home.
    #[must_use]
    pub fn with(&self, home: &str, place: &str) -> Self {
        let mut pairs = self.without(home).0;
        let at = self.0.iter().take_while(|(named, _)| named != home).count();
        pairs.insert(at.min(pairs.len()), (home.to_owned(), place.to_owned()));
        Self(pairs)
    }

    /// The pairs without that of the home.
    #[must_use]
    pub fn without(&self, home: &str) -> Self {
        Self(self.0.iter().filter(|(named, _)| named != home).cloned().collect())
    }

    /// The value of the annotation; `None` if there is no pair.
    #[must_use]
    pub fn value(&self) -> Option<String> {
        let pairs: Vec<String> = self.0.iter().map(|(home, place)| format!("{home}={place}")).collect();
        (!pairs.is_empty()).then(|| pairs.join(","))
    }
}

impl FromStr for RequestedPlaces {
    /// The first part of the value that is no pair: what cannot be read must be neither followed nor dropped.
    type Err = String;

    fn from_str(value: &str) -> Result<Self, String> {
        let parts = value.split(',').map(str::trim).filter(|part| !part.is_empty());
        let pair = |part: &str| {
            let halves = part.split_once('=').map(|(home, place)| (home.trim(), place.trim()));
            let halves = halves.filter(|(home, place)| !home.is_empty() && !place.is_empty() && !place.contains('='));
            halves.map(|(home, place)| (home.to_owned(), place.to_owned())).ok_or_else(|| part.to_owned())
        };
        parts.map(pair).collect::<Result<_, _>>().map(Self)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case::first("", "m1=m4")]
    #[case::empty(" , ", "m1=m4")]
    #[case::beside_others("m2=m2", "m2=m2,m1=m4")]
    #[case::in_the_place_of_another("m1=m1, m2 = m2", "m1=m4,m2=m2")]
    #[case::the_same("m1=m4", "m1=m4")]
    #[case::named_twice("m2=m2,m1=m5,m3=m3,m1=m1", "m2=m2,m1=m4,m3=m3")]
    fn a_pair_is_set(#[case] before: &str, #[case] after: &str) {
        let pairs = RequestedPlaces::from_str(before).unwrap();
        assert_eq!(pairs.with("m1", "m4").value().as_deref(), Some(after));
    }

    #[rstest]
    #[case::none("", None)]
    #[case::the_last("m1=m4", None)]
    #[case::one_of_two("m1=m4,m2=m2", Some("m2=m2"))]
    #[case::of_others("m2=m2", Some("m2=m2"))]
    #[case::named_twice("m1=m4,m2=m2,m1=m1", Some("m2=m2"))]
    fn a_pair_is_removed(#[case] before: &str, #[case] after: Option<&str>) {
        let pairs = RequestedPlaces::from_str(before).unwrap();
        assert_eq!(pairs.without("m1").value().as_deref(), after);
    }

    #[rstest]
    #[case("m1", "m1")]
    #[case("m2=m2, =m4", "=m4")]
    #[case("m1=,m2=m2", "m1=")]
    #[case("m1=m4=m5", "m1=m4=m5")]
    fn what_is_no_pair_is_refused(#[case] value: &str, #[case] part: &str) {
        assert_eq!(RequestedPlaces::from_str(value).unwrap_err(), part);
    }
}
