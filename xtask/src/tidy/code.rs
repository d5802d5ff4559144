//! A little knowledge of Rust's surface, enough to tell code from comments and strings. The compiler's own
//! tokens say which is which; the rules only need words, braces and lines.

use proc_macro2::{LineColumn, TokenStream, TokenTree};

/// The text with comments, strings and characters blanked out. Lines and columns stay where they were. What
/// is no Rust has no code.
pub fn without_comments_and_strings(text: &str) -> String {
    let mut code: Vec<Vec<char>> = text.split('\n').map(|line| vec![' '; line.chars().count()]).collect();
    let lines: Vec<Vec<char>> = text.split('\n').map(|line| line.chars().collect()).collect();
    if let Ok(tokens) = text.parse::<TokenStream>() {
        lay_down(tokens, &lines, &mut code);
    }
    let code: Vec<String> = code.into_iter().map(String::from_iter).collect();
    code.join("\n")
}

/// Copies tokens from where they stand in `lines`. A comment for rustdoc is tokens too, none of which stands
/// in the text as it is written there.
fn lay_down(tokens: TokenStream, lines: &[Vec<char>], code: &mut [Vec<char>]) {
    let mut put = |at: LineColumn, token: &str| {
        let (line, from) = (at.line - 1, at.column);
        let to = from + token.chars().count();
        if lines[line].get(from..to).is_some_and(|there| there.iter().copied().eq(token.chars())) {
            code[line][from..to].copy_from_slice(&lines[line][from..to]);
        }
    };
    let mut groups = Vec::new();
    for token in tokens {
        match token {
            TokenTree::Group(group) => {
                let braces = match group.delimiter() {
                    proc_macro2::Delimiter::Parenthesis => ["(", ")"],
                    proc_macro2::Delimiter::Brace => ["{", "}"],
                    proc_macro2::Delimiter::Bracket => ["[", "]"],
                    proc_macro2::Delimiter::None => ["", ""],
                };
                put(group.span_open().start(), braces[0]);
                put(group.span_close().start(), braces[1]);
                groups.push(group.stream());
            }
            TokenTree::Literal(literal) if literal.to_string().starts_with(|c: char| c.is_ascii_digit()) => {
                put(literal.span().start(), &literal.to_string());
            }
            TokenTree::Literal(_) => {}
            other => put(other.span().start(), &other.to_string()),
        }
    }
    for group in groups {
        lay_down(group, lines, code);
    }
}

/// Letters that make up a Rust name.
pub fn is_word_letter(letter: char) -> bool {
    letter.is_alphanumeric() || letter == '_'
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
        let text =
            "a /* b\n/* c */ d */ e // f\n\"g\\\"h\" 'i' '\\n' r#\"j\"k\"# b\"l\" 'life m /// n\n(ö 7.5)";
        let code = without_comments_and_strings(text);
        let left: Vec<&str> = code.split_whitespace().collect();
        assert_eq!(left, ["a", "e", "'life", "m", "(ö", "7.5)"]);
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
