//! A little knowledge of Rust's surface, enough to tell code from comments and strings. No parser: the rules
//! only need words, braces and lines, and a rule that is easy to read is easy to trust.

/// The text with comments, strings and characters blanked out. Lines and columns stay where they were.
pub fn without_comments_and_strings(text: &str) -> String {
    let letters: Vec<char> = text.chars().collect();
    let mut out = String::with_capacity(text.len());
    let mut at = 0;
    while at < letters.len() {
        let end = end_of_blank(&letters, at);
        if end > at {
            out.extend(letters[at..end].iter().map(|letter| if *letter == '\n' { '\n' } else { ' ' }));
            at = end;
        } else {
            out.push(letters[at]);
            at += 1;
        }
    }
    out
}

/// Where the comment, string or character that begins at `at` ends; `at` itself when none does.
fn end_of_blank(letters: &[char], at: usize) -> usize {
    let next = letters.get(at + 1).copied();
    match letters[at] {
        '/' if next == Some('/') => find(letters, at, |letter| letter == '\n'),
        '/' if next == Some('*') => end_of_block_comment(letters, at),
        '"' => end_of_string(letters, at),
        '\'' if next == Some('\\') => find(letters, at + 3, |letter| letter == '\'') + 1,
        '\'' if letters.get(at + 2) == Some(&'\'') => at + 3,
        'r' | 'b' | 'c' if !follows_a_word(letters, at) => end_of_prefixed_string(letters, at),
        _ => at,
    }
    .min(letters.len())
}

fn find(letters: &[char], from: usize, wanted: impl Fn(char) -> bool) -> usize {
    (from..letters.len()).find(|index| wanted(letters[*index])).unwrap_or(letters.len())
}

fn follows_a_word(letters: &[char], at: usize) -> bool {
    at > 0 && is_word_letter(letters[at - 1])
}

/// Letters that make up a Rust name.
pub fn is_word_letter(letter: char) -> bool {
    letter.is_alphanumeric() || letter == '_'
}

fn end_of_block_comment(letters: &[char], at: usize) -> usize {
    let mut depth = 0;
    let mut index = at;
    while index < letters.len() {
        match (letters[index], letters.get(index + 1)) {
            ('/', Some('*')) => (depth, index) = (depth + 1, index + 2),
            ('*', Some('/')) => (depth, index) = (depth - 1, index + 2),
            _ => index += 1,
        }
        if depth == 0 {
            return index;
        }
    }
    index
}

fn end_of_string(letters: &[char], at: usize) -> usize {
    let mut index = at + 1;
    while index < letters.len() {
        match letters[index] {
            '\\' => index += 2,
            '"' => return index + 1,
            _ => index += 1,
        }
    }
    index
}

/// Strings with a prefix: `b"`, `c"`, and the raw ones, which end at a quote with as many hashes as they
/// began with.
fn end_of_prefixed_string(letters: &[char], at: usize) -> usize {
    let mut index = at;
    let mut raw = false;
    while let Some(letter @ ('r' | 'b' | 'c')) = letters.get(index) {
        raw |= *letter == 'r';
        index += 1;
    }
    if !raw {
        return if letters.get(index) == Some(&'"') { end_of_string(letters, index) } else { at };
    }
    let hashes = letters[index..].iter().take_while(|letter| **letter == '#').count();
    if letters.get(index + hashes) != Some(&'"') {
        return at;
    }
    let begin = index + hashes + 1;
    let closes = |quote: usize| {
        letters[quote] == '"'
            && letters[quote + 1..].iter().take(hashes).filter(|letter| **letter == '#').count() == hashes
    };
    (begin..letters.len()).find(|quote| closes(*quote)).map_or(letters.len(), |quote| quote + 1 + hashes)
}

/// Blanks items marked `#[cfg(test)]`. Takes what [`without_comments_and_strings`] gave.
pub fn without_tests(code: &str) -> String {
    let mut out = code.to_string();
    while let Some(begin) = out.find("#[cfg(test)]") {
        let end = end_of_item(&out, begin);
        let blank: String =
            out[begin..end].chars().map(|letter| if letter == '\n' { '\n' } else { ' ' }).collect();
        out.replace_range(begin..end, &blank);
    }
    out
}

/// The end of the item that begins here: its closing brace, or a semicolon before any brace.
fn end_of_item(code: &str, begin: usize) -> usize {
    let mut braces = 0;
    // A semicolon inside other brackets belongs to an array's type: `fn f(a: [u8; 4]) { .. }`.
    let mut brackets = 0;
    for (offset, letter) in code[begin..].char_indices() {
        match letter {
            '{' => braces += 1,
            '}' if braces == 1 => return begin + offset + 1,
            '}' => braces -= 1,
            '(' | '[' => brackets += 1,
            ')' | ']' => brackets -= 1,
            ';' if braces == 0 && brackets == 0 => return begin + offset + 1,
            _ => {}
        }
    }
    code.len()
}

/// The positions of a name where it stands as a word of its own.
pub fn words<'a>(code: &'a str, name: &'a str) -> impl Iterator<Item = usize> + 'a {
    code.match_indices(name).map(|(at, _)| at).filter(move |at| {
        let before = code[..*at].chars().next_back();
        let after = code[at + name.len()..].chars().next();
        !before.is_some_and(is_word_letter) && !after.is_some_and(is_word_letter)
    })
}

/// The line number of a position, counted from 1.
pub fn line_at(text: &str, position: usize) -> usize {
    text[..position].matches('\n').count() + 1
}

/// A function: its name, the line it begins on, and how many lines it takes.
#[derive(Debug, PartialEq)]
pub struct Function {
    pub name: String,
    pub line: usize,
    pub lines: usize,
}

/// All functions with a body, nested ones too.
pub fn functions(code: &str) -> Vec<Function> {
    let mut found = Vec::new();
    for at in words(code, "fn") {
        let name: String =
            code[at + 2..].trim_start().chars().take_while(|letter| is_word_letter(*letter)).collect();
        let end = end_of_item(code, at);
        // A function type (`fn(u8)`) has no name; a trait's method may have no body.
        if name.is_empty() || !code[at..end].ends_with('}') {
            continue;
        }
        let line = line_at(code, at);
        found.push(Function { name, line, lines: line_at(code, end) - line + 1 });
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_strings_and_characters_go_and_lines_stay() {
        let text = "a /* b\n/* c */ d */ e // f\n\"g\\\"h\" 'i' '\\n' r#\"j\"k\"# b\"l\" 'life m";
        let code = without_comments_and_strings(text);
        let left: Vec<&str> = code.split_whitespace().collect();
        assert_eq!(left, ["a", "e", "'life", "m"]);
        assert_eq!(code.matches('\n').count(), text.matches('\n').count());
        assert_eq!(code.chars().count(), text.chars().count());
    }

    #[test]
    fn names_that_end_in_r_are_no_raw_strings() {
        assert_eq!(without_comments_and_strings("bar r b rb(x) r#fn"), "bar r b rb(x) r#fn");
    }

    #[test]
    fn test_modules_go_and_the_rest_stays() {
        let code =
            "fn a() {}\n#[cfg(test)]\nmod tests {\n fn b() {}\n}\nfn c() {}\n#[cfg(test)]\nmod t;\nfn d() {}";
        let names: Vec<String> =
            functions(&without_tests(code)).into_iter().map(|found| found.name).collect();
        assert_eq!(names, ["a", "c", "d"]);
    }

    #[test]
    fn functions_are_measured_and_declarations_are_not() {
        let code =
            "trait T { fn declared(&self); }\nfn long(a: [u8; 4]) {\n  if x { y }\n}\ntype F = fn(u8);\n";
        assert_eq!(functions(code), [Function { name: "long".to_string(), line: 2, lines: 3 }]);
    }

    #[test]
    fn a_word_is_not_a_part_of_one() {
        assert_eq!(words("unsafe_code unsafe my_unsafe unsafe{", "unsafe").collect::<Vec<_>>(), [12, 29]);
    }
}
