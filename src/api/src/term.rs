//! Numbers of leaders' terms: which of them count. The election and the fence of a rollout have the same bound.

/// The highest number that counts as a term. A Lease counts one term for each change of leaders, so it never gets there.
const HIGHEST: i32 = i32::MAX / 2;

/// The term that a number shows, or 0 for a number that no leader wrote: another client has then lost the count.
#[must_use]
pub fn counted(number: i32) -> i32 {
    if (1..=HIGHEST).contains(&number) { number } else { 0 }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case(1, 1)]
    #[case(HIGHEST, HIGHEST)]
    #[case(0, 0)]
    #[case(-1, 0)]
    #[case(i32::MIN, 0)]
    #[case(HIGHEST + 1, 0)]
    #[case(i32::MAX, 0)]
    fn a_number_beyond_the_bounds_is_no_term(#[case] number: i32, #[case] term: i32) {
        assert_eq!(counted(number), term);
    }
}
