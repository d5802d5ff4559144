//! "Did you mean": the right word for a slip of the pen.

/// The known word that is nearest to a given one, in whatever case, if half of it is right. Of equals the one
/// that begins most alike.
pub fn nearest<'a>(given: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let lower = given.to_lowercase();
    let near = known.into_iter().filter_map(|word| {
        let known = word.to_lowercase();
        let distance = strsim::damerau_levenshtein(&lower, &known);
        let longer = known.chars().count().max(lower.chars().count());
        (distance <= longer / 2).then(|| (distance, strsim::jaro_winkler(&lower, &known), word))
    });
    near.max_by(|a, b| b.0.cmp(&a.0).then(a.1.total_cmp(&b.1))).map(|(_, _, word)| word)
}

/// Up to `most` known words that may be meant: the nearest one, and those that hold a word of the given ones.
pub fn near<'a>(given: &str, known: &[&'a str], most: usize) -> Vec<&'a str> {
    const SHORTEST: usize = 4;
    let lower = given.to_lowercase();
    let words: Vec<&str> = lower.split(' ').filter(|word| word.chars().count() >= SHORTEST).collect();
    let holds = |known: &&&str| {
        let known = known.to_lowercase();
        words.iter().any(|word| {
            known.split(' ').any(|part| {
                part.starts_with(word) || word.starts_with(part) && part.chars().count() >= SHORTEST
            })
        })
    };
    let mut near: Vec<&str> = nearest(given, known.iter().copied()).into_iter().collect();
    for word in known.iter().filter(holds) {
        if !near.contains(word) {
            near.push(word);
        }
    }
    near.truncate(most);
    near
}

/// "; did you mean "disk"?", to be put behind what is wrong; empty where no word is near.
pub fn did_you_mean<'a>(given: &str, known: impl IntoIterator<Item = &'a str>) -> String {
    nearest(given, known).map_or(String::new(), |word| format!("; did you mean {word:?}?"))
}

/// "unknown axis `disc`: did you mean `disk`?", or the list where no word is near.
pub fn unknown(what: &str, given: &str, known: &[&str]) -> String {
    let mut names: Vec<&str> = Vec::new();
    for name in known {
        if !names.contains(name) {
            names.push(name);
        }
    }
    match (nearest(given, names.iter().copied()), names.is_empty()) {
        (Some(name), _) => format!("unknown {what} `{given}`: did you mean `{name}`?"),
        (None, true) => format!("unknown {what} `{given}`: there is none"),
        (None, false) => format!("unknown {what} `{given}`: there are {}", names.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_word_is_half_right_at_least() {
        let words = ["disk", "working_set", "durability"];
        assert_eq!(nearest("disc", words), Some("disk"));
        assert_eq!(nearest("Workingset", words), Some("working_set"));
        assert_eq!(nearest("x", words), None);
        assert_eq!(nearest("pth", ["kind", "path", "nth"]), Some("path"));
        assert_eq!(unknown("axis", "disc", &words), "unknown axis `disc`: did you mean `disk`?");
        assert_eq!(unknown("axis", "x", &["a", "b", "a"]), "unknown axis `x`: there are a, b");
        assert_eq!(unknown("axis", "x", &[]), "unknown axis `x`: there is none");
        let words = ["shaped disk", "disk", "queue depth", "device"];
        assert_eq!(near("shape", &words, 3), ["shaped disk"]);
        assert_eq!(near("the depth", &words, 3), ["queue depth"]);
        assert_eq!(near("disks", &words, 1), ["disk"]);
        assert!(near("xyzzy", &words, 3).is_empty());
    }
}
