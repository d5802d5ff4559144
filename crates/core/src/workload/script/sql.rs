//! Where an SQL statement ends: not at a semicolon in quotes, comments, parentheses or the body of a
//! function.

use super::text::{Cursor, Mistake, is_letter};

/// A statement being read.
pub(super) struct Scan<'a> {
    cursor: Cursor<'a>,
    /// As it is sent: `\;` has become a semicolon, `\:` a colon.
    text: String,
    parentheses: usize,
    /// The first words, which tell whether BEGIN begins a body.
    words: Vec<String>,
    bodies: usize,
    joins: bool,
}

impl<'a> Scan<'a> {
    pub fn new(cursor: Cursor<'a>) -> Self {
        Scan { cursor, text: String::new(), parentheses: 0, words: Vec::new(), bodies: 0, joins: false }
    }

    pub fn at(&self) -> usize {
        self.cursor.at
    }

    /// Whether what was read are several statements, to be sent at once.
    pub fn joins(&self) -> bool {
        self.joins
    }

    /// Takes `length` bytes as they stand.
    fn take(&mut self, length: usize) {
        self.text.push_str(&self.cursor.rest()[..length]);
        self.cursor.at += length;
    }

    /// Reads until the semicolon, a meta command, or the end of the script.
    pub fn statement(&mut self) -> Result<String, Mistake> {
        while let Some(first) = self.cursor.rest().chars().next() {
            let rest = self.cursor.rest();
            match first {
                ';' if self.parentheses == 0 && self.bodies == 0 => {
                    self.take(1);
                    break;
                }
                '\\' => match rest.as_bytes().get(1) {
                    Some(escaped @ (b';' | b':')) => {
                        self.text.push(char::from(*escaped));
                        self.joins |= *escaped == b';';
                        self.cursor.at += 2;
                        self.words.clear();
                    }
                    _ => break,
                },
                '\'' => self.quoted('\'', false)?,
                '"' => self.quoted('"', false)?,
                '$' => self.dollars()?,
                '/' if rest.starts_with("/*") => self.comment()?,
                '-' if rest.starts_with("--") => self.take(rest.find('\n').unwrap_or(rest.len())),
                '(' => {
                    self.parentheses += 1;
                    self.take(1);
                }
                ')' => {
                    self.parentheses = self.parentheses.saturating_sub(1);
                    self.take(1);
                }
                c if is_letter(c) => self.word()?,
                c => self.take(c.len_utf8()),
            }
        }
        Ok(std::mem::take(&mut self.text))
    }

    fn word(&mut self) -> Result<(), Mistake> {
        let rest = self.cursor.rest();
        let length = rest.find(|c: char| !is_letter(c) && c != '$').unwrap_or(rest.len());
        let word = &rest[..length];
        if matches!(word, "E" | "e") && rest[length..].starts_with('\'') {
            self.take(length);
            return self.quoted('\'', true);
        }
        if self.parentheses == 0 && word.len() < 16 {
            self.count(&word.to_ascii_lowercase());
        }
        self.take(length);
        Ok(())
    }

    /// `CREATE [OR REPLACE] FUNCTION|PROCEDURE ... BEGIN ... END` has semicolons of its own.
    fn count(&mut self, word: &str) {
        if self.words.len() < 4 {
            self.words.push(word.into());
        }
        let words: Vec<&str> = self.words.iter().map(String::as_str).collect();
        let is_body = matches!(
            words.as_slice(),
            ["create", "function" | "procedure", ..] | ["create", "or", "replace", "function" | "procedure"]
        );
        match word {
            "begin" if is_body => self.bodies += 1,
            "case" if self.bodies > 0 => self.bodies += 1,
            "end" => self.bodies = self.bodies.saturating_sub(1),
            _ => {}
        }
    }

    fn quoted(&mut self, quote: char, escapes: bool) -> Result<(), Mistake> {
        let (begin, bytes) = (self.cursor.at, self.cursor.rest().as_bytes());
        let mut length = 1;
        while let Some(&byte) = bytes.get(length) {
            length += 1;
            if byte == b'\\' && escapes {
                length += 1;
            } else if byte == quote as u8 {
                // A doubled quote goes on as another text, which is the same for finding the end.
                self.take(length);
                return Ok(());
            }
        }
        Err(self.cursor.mistake(begin, format!("what is opened by {quote} here is never closed")))
    }

    /// `$tag$ ... $tag$`, or a parameter.
    fn dollars(&mut self) -> Result<(), Mistake> {
        let (begin, rest) = (self.cursor.at, self.cursor.rest());
        let length = rest[1..].find(|c: char| !is_letter(c)).map_or(rest.len(), |length| 1 + length);
        let is_tag = rest[length..].starts_with('$') && !rest[1..].starts_with(|c: char| c.is_ascii_digit());
        if !is_tag {
            self.take(length);
            return Ok(());
        }
        let tag = &rest[..=length];
        match rest[tag.len()..].find(tag) {
            Some(at) => {
                self.take(2 * tag.len() + at);
                Ok(())
            }
            None => {
                let shown: String = tag.chars().take(40).collect();
                Err(self.cursor.mistake(begin, format!("what is opened by {shown} here is never closed")))
            }
        }
    }

    /// Comments of this kind nest.
    fn comment(&mut self) -> Result<(), Mistake> {
        let (begin, bytes) = (self.cursor.at, self.cursor.rest().as_bytes());
        let (mut depth, mut at) = (0usize, 0);
        loop {
            match bytes.get(at..at + 2) {
                Some(b"/*") => {
                    depth += 1;
                    at += 2;
                }
                Some(b"*/") => {
                    depth -= 1;
                    at += 2;
                    if depth == 0 {
                        self.take(at);
                        return Ok(());
                    }
                }
                Some(_) => at += 1,
                None => {
                    return Err(self.cursor.mistake(begin, "the comment that begins here is never closed"));
                }
            }
        }
    }
}
