//! Kubernetes' quantities as numbers.

/// Whole bytes of a quantity such as `2Gi`, `500M` or `1e9`, rounded down. `None` if the text is no quantity, or beyond 2^64.
///
/// The text is parsed without floating point, so that two texts of one amount give one number.
#[must_use]
pub fn bytes(quantity: &str) -> Option<u64> {
    u64::try_from(thousandths(quantity)? / 1000).ok()
}

/// True if two texts are equal, or are quantities of one amount such as `0.5` and `500m`.
#[must_use]
pub fn is_same_amount(one: &str, other: &str) -> bool {
    one == other || thousandths(one).is_some_and(|amount| thousandths(other) == Some(amount))
}

/// Thousandths of a quantity. Two texts of one amount give one number.
#[must_use]
pub fn thousandths(quantity: &str) -> Option<u128> {
    let text = quantity.strip_prefix('+').unwrap_or(quantity);
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, suffix) = text.split_at_checked(end)?;
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if whole.is_empty() && fraction.is_empty() {
        return None;
    }
    let digits: u128 = format!("{whole}{fraction}").parse().ok()?;
    let decimals = u32::try_from(fraction.len()).ok()?;
    let (factor, power): (u128, i32) = match suffix {
        "" => (1, 0),
        "n" => (1, -9),
        "u" => (1, -6),
        "m" => (1, -3),
        "k" => (1, 3),
        "M" => (1, 6),
        "G" => (1, 9),
        "T" => (1, 12),
        "P" => (1, 15),
        "E" => (1, 18),
        "Ki" => (1 << 10, 0),
        "Mi" => (1 << 20, 0),
        "Gi" => (1 << 30, 0),
        "Ti" => (1 << 40, 0),
        "Pi" => (1 << 50, 0),
        "Ei" => (1 << 60, 0),
        exponent => (1, exponent.strip_prefix(['e', 'E'])?.parse().ok()?),
    };
    let scaled = digits.checked_mul(factor)?;
    let power = power.checked_add(3)?.checked_sub(i32::try_from(decimals).ok()?)?;
    match u32::try_from(power) {
        Ok(up) => scaled.checked_mul(10_u128.checked_pow(up)?),
        Err(_) => Some(10_u128.checked_pow(power.unsigned_abs()).map_or(0, |divisor| scaled / divisor)),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case("1", Some(1))]
    #[case("2Gi", Some(2 << 30))]
    #[case("1.5Gi", Some(3 << 29))]
    #[case("500M", Some(500_000_000))]
    #[case("1e3", Some(1000))]
    #[case("1E", Some(1_000_000_000_000_000_000))]
    #[case("1500m", Some(1))]
    #[case(".5k", Some(500))]
    #[case("+1Ki", Some(1024))]
    #[case("", None)]
    #[case("Gi", None)]
    #[case("1Xi", None)]
    #[case("99999999999Ei", None)]
    fn amounts(#[case] text: &str, #[case] expected: Option<u64>) {
        assert_eq!(bytes(text), expected);
    }

    #[test]
    fn two_texts_of_one_amount_are_equal() {
        assert!(is_same_amount("0.5", "500m") && is_same_amount("1024Mi", "1Gi"));
        assert!(!is_same_amount("1G", "1Gi") && !is_same_amount("500m", "501m"));
        assert!(is_same_amount("none", "none") && !is_same_amount("none", "nothing"));
    }
}
