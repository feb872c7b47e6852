//! The spare that takes the voters of a cluster, if the user names none.

use mczk_api::contract::requested_places::RequestedPlaces;

use super::homes::VoterHomes;

/// The place for the voters of a home that leave a cluster. `problem` says why a spare could take none.
///
/// Voters that are on their way to a spare, or there, stay with it: the same command may be run again.
///
/// # Errors
/// If no declared spare could take them: what is wrong with each.
pub(super) fn choose(
    homes: &VoterHomes,
    requested: &RequestedPlaces,
    (home, left): (&str, &str),
    problem: impl Fn(&str) -> Option<String>,
) -> Result<String, String> {
    let place = homes.voters(home).place;
    if place != left {
        return Ok(place);
    }
    let mut problems = Vec::new();
    for spare in homes.spares().iter().filter(|spare| *spare != left) {
        let is_taken = homes.is_of_another(spare, home) || requested.gives_to_another(spare, home);
        let taken = is_taken.then(|| format!("{spare} is for the voters of another cluster"));
        match taken.or_else(|| problem(spare)) {
            None => return Ok(spare.clone()),
            Some(why) => problems.push(why),
        }
    }
    if problems.is_empty() {
        return Err(format!("failover.spares names no cluster that could take the voters of {home}. Add one there"));
    }
    let problems = problems.join(". ");
    Err(format!("no spare can take the voters of {home} now. {problems}. Mend one, or name one with --to"))
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]
mod tests {
    use rstest::rstest;
    use serde_json::json;

    use super::*;
    use crate::fixtures::multi_cluster_zookeeper;

    /// The voters of m2 are at m4, those of m1 and m3 at home.
    fn chosen(spares: &[&str], annotation: &str, left: (&str, &str), broken: &[&str]) -> Result<String, String> {
        let requested = annotation.parse().unwrap();
        let object = multi_cluster_zookeeper(json!({
            "spec": { "failover": { "spares": spares } },
            "status": { "clusters": [
                { "name": "m1", "voters": [1] }, { "name": "m2", "movedTo": "m4" }, { "name": "m3", "voters": [3] },
                { "name": "m4", "voters": [2] },
            ] },
        }));
        let problem = |spare: &str| broken.contains(&spare).then(|| format!("{spare} is not Ready"));
        choose(&VoterHomes::of(&object, &requested), &requested, left, problem)
    }

    #[rstest]
    #[case::the_first(&["m5", "m6"], "", ("m1", "m1"), &[], "m5")]
    #[case::one_is_in_use(&["m4", "m5"], "", ("m1", "m1"), &[], "m5")]
    #[case::one_cannot(&["m5", "m6"], "", ("m1", "m1"), &["m5"], "m6")]
    #[case::one_is_requested(&["m5", "m6"], "m3=m5", ("m1", "m1"), &[], "m6")]
    #[case::the_request_of_its_own(&["m5", "m6"], "m1=m5", ("m1", "m1"), &[], "m5")]
    #[case::there_already(&["m4", "m5"], "", ("m2", "m2"), &[], "m4")]
    #[case::away_from_the_spare(&["m4", "m5"], "", ("m2", "m4"), &[], "m5")]
    fn the_default_spare(
        #[case] spares: &[&str],
        #[case] annotation: &str,
        #[case] left: (&str, &str),
        #[case] broken: &[&str],
        #[case] expected: &str,
    ) {
        assert_eq!(chosen(spares, annotation, left, broken).as_deref(), Ok(expected));
    }

    #[test]
    fn every_spare_has_a_reason() {
        let error = chosen(&["m4", "m5"], "", ("m1", "m1"), &["m5"]).unwrap_err();
        insta::assert_snapshot!(error, @r"
        no spare can take the voters of m1 now. m4 is for the voters of another cluster. m5 is not Ready. Mend one, or name one with --to
        ");
        let error = chosen(&["m4"], "", ("m2", "m4"), &[]).unwrap_err();
        insta::assert_snapshot!(error, @r"
        failover.spares names no cluster that could take the voters of m2. Add one there
        ");
    }
}
