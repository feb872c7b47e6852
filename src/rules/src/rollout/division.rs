//! How many voters each cluster gets.
//!
//! Karmada divides replicas by weights alone: it knows no quorum, and it leaves out a cluster that is not Ready. So the
//! operator decides the numbers, and Karmada gets them as static weights, which it divides exactly.

use mczk_api::contract::server_list::majority;

/// The voters of each cluster, from those that it has now, in the same order. They add up to `replicas`.
///
/// No cluster holds so many voters that the ensemble cannot lose it, if the number of clusters allows that. Within that limit
/// as few voters move as possible: a new voter goes to the cluster with the fewest, and the cluster with the most loses one.
/// Among equals the first cluster gets a voter, and the last one loses it.
#[must_use]
pub(super) fn divide(replicas: i32, current: &[i32]) -> Vec<i32> {
    let limit = limit(replicas, current.len());
    let mut counts: Vec<i32> = current.iter().map(|count| (*count).clamp(0, limit)).collect();
    loop {
        let sum: i32 = counts.iter().sum();
        let next = match sum.cmp(&replicas) {
            std::cmp::Ordering::Equal => return counts,
            std::cmp::Ordering::Less => counts.iter_mut().min_by_key(|count| **count).map(|count| *count += 1),
            std::cmp::Ordering::Greater => counts.iter_mut().max_by_key(|count| **count).map(|count| *count -= 1),
        };
        if next.is_none() {
            return counts;
        }
    }
}

/// The most voters of one cluster: those that the ensemble can lose, or an equal share if that is more.
fn limit(replicas: i32, clusters: usize) -> i32 {
    let voters = usize::try_from(replicas).unwrap_or(0);
    let spare = voters - majority(voters).min(voters);
    let equal = voters.div_ceil(clusters.max(1));
    i32::try_from(spare.max(equal)).unwrap_or(i32::MAX)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]
mod tests {
    use proptest::prelude::*;
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case::first_five(5, &[0, 0, 0], &[2, 2, 1])]
    #[case::first_three_of_four(3, &[0, 0, 0, 0], &[1, 1, 1, 0])]
    #[case::unchanged(5, &[1, 2, 2], &[1, 2, 2])]
    #[case::one_cluster_for_another(5, &[2, 2, 0], &[2, 2, 1])]
    #[case::more(7, &[2, 1, 2], &[3, 2, 2])]
    #[case::fewer(3, &[2, 1, 2], &[1, 1, 1])]
    #[case::one_cluster_more(5, &[2, 2, 1, 0], &[2, 2, 1, 0])]
    #[case::majority_is_given_up(5, &[3, 0, 2], &[2, 1, 2])]
    #[case::two_clusters(5, &[0, 0], &[3, 2])]
    #[case::two_clusters_unchanged(5, &[2, 3], &[2, 3])]
    #[case::four_in_three(4, &[0, 0, 0], &[2, 1, 1])]
    #[case::one_cluster(3, &[0], &[3])]
    #[case::no_cluster(3, &[], &[])]
    fn voters(#[case] replicas: i32, #[case] current: &[i32], #[case] expected: &[i32]) {
        assert_eq!(divide(replicas, current), expected);
    }

    /// Voters that join: the moves of a division.
    fn joins(current: &[i32], counts: &[i32]) -> i32 {
        current.iter().zip(counts).map(|(before, after)| (after - before).max(0)).sum()
    }

    /// Every division of some replicas over some clusters.
    fn all(replicas: i32, clusters: usize) -> Vec<Vec<i32>> {
        if clusters == 0 {
            return if replicas == 0 { vec![Vec::new()] } else { Vec::new() };
        }
        (0..=replicas)
            .flat_map(|first| {
                all(replicas - first, clusters - 1).into_iter().map(move |rest| [vec![first], rest].concat())
            })
            .collect()
    }

    proptest! {
        #[test]
        fn the_division_is_complete_safe_and_moves_the_fewest(
            replicas in 1..8_i32,
            current in proptest::collection::vec(0..5_i32, 1..5),
        ) {
            let counts = divide(replicas, &current);
            prop_assert_eq!(counts.iter().sum::<i32>(), replicas);
            let limit = limit(replicas, current.len());
            prop_assert!(counts.iter().all(|count| (0..=limit).contains(count)));
            if current.len() >= 3 && replicas % 2 == 1 {
                prop_assert!(counts.iter().all(|count| *count == 1 && replicas == 1 || 2 * count < replicas));
            }
            let safe = all(replicas, current.len()).into_iter().filter(|all| all.iter().all(|count| *count <= limit));
            let fewest = safe.map(|other| joins(&current, &other)).min();
            prop_assert_eq!(Some(joins(&current, &counts)), fewest, "{:?} to {:?}", current, counts);
        }

        /// The numbers follow from the current ones alone, not from names.
        #[test]
        fn the_result_of_a_division_stays(replicas in 1..8_i32, current in proptest::collection::vec(0..5_i32, 1..5)) {
            let counts = divide(replicas, &current);
            prop_assert_eq!(&divide(replicas, &counts), &counts);
            let mut turned = counts.clone();
            turned.reverse();
            let mut again = divide(replicas, &turned);
            again.reverse();
            prop_assert_eq!(again, counts, "another order of names moves no voter");
        }
    }
}
