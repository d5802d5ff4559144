//! Numbers as Java prints them, and the order in which its hash maps hand out their entries.

/// `Double.toString`: the shortest digits that read back, with an exponent outside 10⁻³..10⁷.
pub fn double(x: f64) -> String {
    if x.is_nan() {
        return "NaN".into();
    }
    if x.is_infinite() {
        return if x > 0.0 { "Infinity" } else { "-Infinity" }.into();
    }
    if x == 0.0 || (1e-3..1e7).contains(&x.abs()) {
        return format!("{x:?}");
    }
    let text = format!("{x:e}");
    let (digits, exponent) = text.split_once('e').unwrap_or((&text, "0"));
    let point = if digits.contains('.') { "" } else { ".0" };
    format!("{digits}{point}E{exponent}")
}

/// `DecimalFormat("#.##")`: at most two decimals, rounded half to even.
pub fn two_decimals(x: f64) -> String {
    if !x.is_finite() {
        return "NaN".into();
    }
    let text = format!("{x:.2}");
    let text = text.trim_end_matches('0').trim_end_matches('.');
    if text == "-0" { "0".into() } else { text.into() }
}

/// `String.hashCode`.
fn hash(text: &str) -> i32 {
    text.encode_utf16().fold(0i32, |hash, unit| hash.wrapping_mul(31).wrapping_add(i32::from(unit)))
}

/// Sorts names as a `ConcurrentHashMap` of that many entries iterates over them: by bin. People's scripts
/// should not depend on it; some do.
pub fn map_order<T>(names: &mut [(String, T)]) {
    // The table doubles when three quarters of its bins are used.
    let mut bins = 16u32;
    while names.len() as u32 >= bins * 3 / 4 {
        bins *= 2;
    }
    names.sort_by_key(|(name, _)| {
        let hash = hash(name) as u32;
        (hash ^ (hash >> 16)) & (bins - 1)
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_javas() {
        // As `System.out.println(x)` of OpenJDK 19 and later prints them.
        for (x, text) in [
            (0.0, "0.0"),
            (1.0, "1.0"),
            (123456.789, "123456.789"),
            (9_999_999.0, "9999999.0"),
            (1e7, "1.0E7"),
            (12_345_678.9, "1.23456789E7"),
            (0.001, "0.001"),
            (0.00012, "1.2E-4"),
            (f64::NAN, "NaN"),
        ] {
            assert_eq!(double(x), text);
        }
        for (x, text) in [(0.0, "0"), (0.5, "0.5"), (1234.5678, "1234.57"), (3.10, "3.1"), (1e6, "1000000")] {
            assert_eq!(two_decimals(x), text);
        }
    }

    #[test]
    fn names_come_in_the_order_of_a_java_map() {
        // "READ".hashCode() is 2511254, "UPDATE".hashCode() is −1785516855, "CLEANUP".hashCode() 1574756996.
        assert_eq!(
            (hash("READ"), hash("UPDATE"), hash("CLEANUP")),
            (2_511_254, -1_785_516_855, 1_574_756_996)
        );
        let mut names: Vec<(String, ())> =
            ["READ", "UPDATE", "CLEANUP"].iter().map(|name| (name.to_string(), ())).collect();
        map_order(&mut names);
        // The order that YCSB's own documentation shows for workload A.
        let order: Vec<&str> = names.iter().map(|(name, ())| name.as_str()).collect();
        assert_eq!(order, ["READ", "CLEANUP", "UPDATE"]);
    }
}
