//! The words of a statement. A whole parser would refuse what statistics hold: texts that were cut off, lists
//! that a digest has folded into `(...)`, every dialect's extensions. What is wanted of a statement is
//! little, which of its places are values and with what they are compared, and that can be seen in its words.

/// A word of a statement, with the bytes that it is made of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Token {
    /// What it is.
    pub kind: Kind,
    /// Where it begins in the text.
    pub begin: usize,
    /// Where it ends.
    pub end: usize,
    /// How it is written: of names without their quotes, of bare words in lower case.
    pub text: String,
}

/// Kinds of words.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A bare word: a name or one of the language's own.
    Word,
    /// A name in quotes, which is never one of the language's own words.
    Name,
    /// A place where a value stood: `$1` or `?`.
    Parameter,
    /// A number that still stands there.
    Number,
    /// A text that still stands there.
    Text,
    /// `...`: something was left out.
    Gap,
    /// Everything else: operators of any length, commas, parentheses.
    Sign,
}

impl Token {
    /// Whether it is this word of the language.
    pub fn is(&self, word: &str) -> bool {
        matches!(self.kind, Kind::Word | Kind::Sign) && self.text == word
    }

    /// Whether it is one of these words of the language.
    pub fn is_any(&self, words: &[&str]) -> bool {
        words.iter().any(|word| self.is(word))
    }

    /// Whether it can be a name.
    pub fn is_name(&self) -> bool {
        matches!(self.kind, Kind::Word | Kind::Name)
    }

    /// Whether a value stands, or stood, here.
    pub fn is_value(&self) -> bool {
        matches!(self.kind, Kind::Parameter | Kind::Number | Kind::Text)
    }
}

/// How a server writes statements.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Dialect {
    /// PostgreSQL.
    Postgres,
    /// MySQL and MariaDB.
    Mysql,
}

/// The words of a statement without its comments, which may hold anything. `None` if a quote is never closed:
/// the text was cut off there.
pub fn tokens(text: &str, dialect: Dialect) -> Option<Vec<Token>> {
    let bytes = text.as_bytes();
    let mut found = Vec::new();
    let mut at = 0;
    while let Some(first) = text[at..].chars().next() {
        let rest = &text[at..];
        let next = bytes.get(at + 1).copied().unwrap_or(0);
        let begin = at;
        let mut put = |kind, length: usize, written: String| {
            found.push(Token { kind, begin, end: begin + length, text: written });
            length
        };
        at += match first {
            c if c.is_whitespace() => c.len_utf8(),
            '-' if next == b'-' => rest.find('\n').unwrap_or(rest.len()),
            '#' if dialect == Dialect::Mysql => rest.find('\n').unwrap_or(rest.len()),
            '/' if next == b'*' => rest.find("*/")? + 2,
            '\'' => {
                let length = quoted(rest, '\'', dialect == Dialect::Mysql)?;
                put(Kind::Text, length, String::new())
            }
            'e' | 'E' if next == b'\'' => {
                let length = 1 + quoted(&rest[1..], '\'', true)?;
                put(Kind::Text, length, String::new())
            }
            'b' | 'B' | 'x' | 'X' | 'n' | 'N' if next == b'\'' => {
                let length = 1 + quoted(&rest[1..], '\'', false)?;
                put(Kind::Text, length, String::new())
            }
            '"' if dialect == Dialect::Mysql => {
                let length = quoted(rest, '"', true)?;
                put(Kind::Text, length, String::new())
            }
            '"' | '`' => {
                let length = quoted(rest, first, false)?;
                let doubled = String::from_iter([first, first]);
                let name = rest[1..length - 1].replace(&doubled, &first.to_string());
                put(Kind::Name, length, name)
            }
            '$' if next.is_ascii_digit() => {
                let length = 1 + rest[1..].find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len() - 1);
                put(Kind::Parameter, length, rest[..length].into())
            }
            '$' if dialect == Dialect::Postgres => {
                let tag =
                    rest[1..].find(|c: char| !(c.is_alphanumeric() || c == '_')).unwrap_or(rest.len() - 1);
                if !rest[1 + tag..].starts_with('$') {
                    return None;
                }
                let (tag, body) = rest.split_at(tag + 2);
                let length = 2 * tag.len() + body.find(tag)?;
                put(Kind::Text, length, String::new())
            }
            '?' if dialect == Dialect::Mysql => put(Kind::Parameter, 1, "?".into()),
            '.' if rest.starts_with("...") => put(Kind::Gap, 3, "...".into()),
            c if c.is_ascii_digit() || c == '.' && next.is_ascii_digit() => {
                let length = number(rest);
                put(Kind::Number, length, rest[..length].into())
            }
            c if c.is_alphabetic() || c == '_' || c == '@' && dialect == Dialect::Mysql => {
                let ends = |c: char| !(c.is_alphanumeric() || matches!(c, '_' | '$' | '@'));
                let length = rest.find(ends).unwrap_or(rest.len());
                put(Kind::Word, length, rest[..length].to_lowercase())
            }
            ',' | '(' | ')' | ';' | '.' | '[' | ']' => put(Kind::Sign, 1, first.into()),
            c if c.is_ascii() => {
                let sign = |c: char| "+-*/<>=~!@#%^&|:?".contains(c);
                let length = rest.find(|c| !sign(c)).unwrap_or(rest.len()).max(1);
                let mut operator = &rest[..length];
                // A comment may begin right behind an operator, and a sign belongs to the number behind it.
                for comment in ["--", "/*"] {
                    operator = operator.split_once(comment).map_or(operator, |(before, _)| before);
                }
                while operator.len() > 1 && !operator.contains(['~', '!', '@', '#', '%', '^', '&', '|', '?'])
                {
                    let Some(shorter) = operator.strip_suffix(['-', '+']) else { break };
                    operator = shorter;
                }
                let cut = operator.len();
                put(Kind::Sign, cut.max(1), rest[..cut.max(1)].into())
            }
            c => put(Kind::Sign, c.len_utf8(), c.into()),
        };
    }
    Some(found)
}

/// The length of what is in quotes, with them; a doubled quote is one of its letters.
fn quoted(rest: &str, quote: char, escapes: bool) -> Option<usize> {
    let mut letters = rest.char_indices().skip(1).peekable();
    while let Some((at, letter)) = letters.next() {
        if letter == '\\' && escapes {
            letters.next()?;
        } else if letter == quote {
            if letters.peek().is_none_or(|(_, next)| *next != quote) {
                return Some(at + quote.len_utf8());
            }
            letters.next();
        }
    }
    None
}

fn number(rest: &str) -> usize {
    let bytes = rest.as_bytes();
    let mut length = 0;
    while let Some(byte) = bytes.get(length) {
        let exponent = matches!(byte, b'e' | b'E')
            && bytes.get(length + 1).is_some_and(|next| next.is_ascii_digit() || matches!(next, b'-' | b'+'));
        match byte {
            // Of three dots none belongs to a number.
            b'.' if rest[length..].starts_with("..") => break,
            b'0'..=b'9' | b'.' | b'_' => length += 1,
            b'x' | b'X' if length == 1 && bytes[0] == b'0' => length += 1,
            b'a'..=b'f' | b'A'..=b'F' if rest.starts_with("0x") || rest.starts_with("0X") => length += 1,
            _ if exponent => length += 2,
            _ => break,
        }
    }
    length.max(1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn of(text: &str, dialect: Dialect) -> Vec<(Kind, String)> {
        tokens(text, dialect).unwrap().into_iter().map(|token| (token.kind, token.text)).collect()
    }

    #[test]
    fn names_values_and_gaps_are_told_apart() {
        use Kind::*;
        let found = of(
            "SELECT \"A\"\"b\".x FROM t /* 'secret */ WHERE id>=$12 -- 5\n AND n=-1.5e3",
            Dialect::Postgres,
        );
        let kinds: Vec<Kind> = found.iter().map(|(kind, _)| *kind).collect();
        assert_eq!(
            kinds,
            [Word, Name, Sign, Word, Word, Word, Word, Word, Sign, Parameter, Word, Word, Sign, Sign, Number],
            "{found:?}"
        );
        assert_eq!((found[1].1.as_str(), found[9].1.as_str()), ("A\"b", "$12"));
        let found =
            of("SELECT `c` FROM `t` WHERE `id` IN (...) AND b = ? AND a = \"x\\\"y\" # z", Dialect::Mysql);
        assert_eq!(found.iter().filter(|(kind, _)| *kind == Gap).count(), 1);
        assert_eq!(found.iter().filter(|(kind, _)| *kind == Parameter).count(), 1);
        assert_eq!(found.iter().filter(|(kind, _)| *kind == Text).count(), 1);
        assert_eq!(of("$a$it's$a$ E'\\'' 0xFF", Dialect::Postgres).len(), 3);
        for cut in ["SELECT 'it", "SELECT \"a", "/* x", "$a$ x", "E'\\"] {
            assert_eq!(tokens(cut, Dialect::Postgres), None, "{cut}");
        }
    }

    proptest! {
        #[test]
        fn no_text_is_too_strange(text in ".{0,60}") {
            for dialect in [Dialect::Postgres, Dialect::Mysql] {
                for token in tokens(&text, dialect).unwrap_or_default() {
                    prop_assert!(token.begin < token.end && text.get(token.begin..token.end).is_some());
                }
            }
        }
    }
}
