//! Expressions: read once into code for a stack, so that neither a deep nor a long one can exhaust a
//! thread's.

use super::Names;
use super::draw::Chance;
use super::function::{Function, MOST_ARGUMENTS, NAMED, Named};
use super::text::{Cursor, Mistake, is_letter};
use super::value::Value;
use crate::nearest::did_you_mean;

/// Parentheses, functions and CASE within one another; every one takes some of the reader's stack.
const DEEPEST: usize = 100;
/// No expression that a person wrote comes near it.
const LONGEST: usize = 100_000;

/// What the machine does next.
#[derive(Debug, Clone, PartialEq)]
enum Code {
    Constant(Value),
    /// The variable of this number.
    Variable(usize),
    Call(Function, usize),
    /// Goes on there if the value decides an AND or OR by itself.
    Decided {
        by: bool,
        to: usize,
    },
    /// The value of an AND or OR must be a truth value.
    Truth,
    /// Takes a value and goes on there unless it is true.
    Unless(usize),
    GoTo(usize),
    /// Compares with a constant of IS.
    Is(Value, bool),
}

/// An expression that was understood.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Expression(Vec<Code>);

impl Expression {
    /// Reads what is at `place` up to its end.
    pub(super) fn parse(cursor: Cursor<'_>, names: &mut Names) -> Result<Expression, Mistake> {
        let mut reader =
            Reader { lexer: Lexer { cursor }, token: (Token::End, 0), code: Vec::new(), names, depth: 0 };
        reader.advance()?;
        reader.expression(0)?;
        match reader.token.0 {
            Token::End => Ok(Expression(reader.code)),
            _ => Err(reader.unexpected("an operator or the end of the line")),
        }
    }

    /// Computes it. `stack` is only memory to be used again.
    ///
    /// # Errors
    /// In pgbench's words where it has some.
    pub fn value(
        &self,
        variables: &dyn Fn(usize) -> Result<Value, String>,
        chance: &mut Chance,
        stack: &mut Vec<Value>,
        notes: &mut Vec<Value>,
    ) -> Result<Value, String> {
        stack.clear();
        let mut at = 0;
        while let Some(code) = self.0.get(at) {
            at += 1;
            match code {
                Code::Constant(value) => stack.push(value.clone()),
                Code::Variable(number) => stack.push(variables(*number)?),
                Code::Call(function, count) => {
                    let first = stack.len() - count;
                    let value = function.of(&stack[first..], chance, notes)?;
                    stack.truncate(first);
                    stack.push(value);
                }
                Code::Decided { by, to } => match stack.pop().expect("its left side") {
                    // As in pgbench, where `null or true` is NULL.
                    Value::Null => {
                        stack.push(Value::Null);
                        at = *to;
                    }
                    value if value.boolean()? == *by => {
                        stack.push(value);
                        at = *to;
                    }
                    _ => {}
                },
                Code::Truth => match stack.last().expect("its right side") {
                    Value::Null => {}
                    value => drop(value.boolean()?),
                },
                Code::Unless(to) => {
                    if !stack.pop().expect("a condition").is_true() {
                        at = *to;
                    }
                }
                Code::GoTo(to) => at = *to,
                Code::Is(constant, is) => {
                    let value = stack.pop().expect("its left side");
                    stack.push(Value::Boolean((value == *constant) == *is));
                }
            }
        }
        Ok(stack.pop().expect("every expression has a value"))
    }
}

#[derive(Debug, Clone, PartialEq)]
enum Token {
    Constant(Value),
    /// Too large by one for an integer, unless a minus stands before it.
    LeastInteger,
    Variable(String),
    Word(String),
    Sign(&'static str),
    End,
}

/// Longer ones first.
const SIGNS: [&str; 20] = [
    "<<", ">>", "<=", ">=", "<>", "!=", "<", ">", "=", "+", "-", "*", "/", "%", "|", "#", "&", "~", "(", ")",
];

struct Lexer<'a> {
    cursor: Cursor<'a>,
}

impl Lexer<'_> {
    /// The next token and where it begins.
    fn next(&mut self) -> Result<(Token, usize), Mistake> {
        self.cursor.skip_blanks();
        let at = self.cursor.at;
        let rest = self.cursor.rest();
        let Some(first) = rest.chars().next() else { return Ok((Token::End, at)) };
        let (token, length) = match first {
            '0'..='9' | '.' => self.number(rest)?,
            ':' => {
                let length = rest[1..].find(|c: char| !is_letter(c)).unwrap_or(rest.len() - 1);
                if length == 0 {
                    return Err(self.cursor.mistake(at, "a colon needs the name of a variable behind it"));
                }
                (Token::Variable(rest[1..=length].to_string()), length + 1)
            }
            c if is_letter(c) => {
                let length = rest.find(|c: char| !is_letter(c)).unwrap_or(rest.len());
                (Token::Word(rest[..length].to_string()), length)
            }
            ',' => (Token::Sign(","), 1),
            c => match SIGNS.into_iter().find(|sign| rest.starts_with(sign)) {
                Some(sign) => (Token::Sign(sign), sign.len()),
                None => return Err(self.cursor.mistake(at, format!("unexpected character ({c})"))),
            },
        };
        self.cursor.at += length;
        Ok((token, at))
    }

    fn number(&self, rest: &str) -> Result<(Token, usize), Mistake> {
        let bytes = rest.as_bytes();
        let digits = |from: usize| bytes[from..].iter().take_while(|byte| byte.is_ascii_digit()).count();
        let mut end = digits(0);
        let whole = end;
        if bytes.get(end) == Some(&b'.') {
            end += 1 + digits(end + 1);
        }
        if end == 1 && whole == 0 {
            return Err(self.cursor.mistake(self.cursor.at, "unexpected character (.)"));
        }
        if matches!(bytes.get(end), Some(b'e' | b'E')) {
            let signed = usize::from(matches!(bytes.get(end + 1), Some(b'+' | b'-')));
            let exponent = digits((end + 1 + signed).min(bytes.len()));
            if exponent > 0 {
                end += 1 + signed + exponent;
            }
        }
        let text = &rest[..end];
        let shown = || text.chars().take(40).collect::<String>();
        if end == whole {
            let token = match text.parse() {
                Ok(value) => Token::Constant(Value::Integer(value)),
                Err(_) if text == "9223372036854775808" => Token::LeastInteger,
                Err(_) => {
                    let words = format!("bigint constant overflow ({})", shown());
                    return Err(self.cursor.mistake(self.cursor.at, words));
                }
            };
            return Ok((token, end));
        }
        match text.parse::<f64>() {
            Ok(value) if value.is_finite() => Ok((Token::Constant(Value::Double(value)), end)),
            _ => {
                let words = format!("double constant overflow ({})", shown());
                Err(self.cursor.mistake(self.cursor.at, words))
            }
        }
    }
}

struct Reader<'a, 'n> {
    lexer: Lexer<'a>,
    token: (Token, usize),
    code: Vec<Code>,
    names: &'n mut Names,
    depth: usize,
}

/// How tightly the levels bind, from the loosest to the tightest.
const OR: u8 = 1;
const AND: u8 = 2;
const NOT: u8 = 3;
const IS: u8 = 4;
const COMPARISON: u8 = 5;
const BITS: u8 = 6;
const SUM: u8 = 7;
const PRODUCT: u8 = 8;
const UNARY: u8 = 9;

impl Reader<'_, '_> {
    fn advance(&mut self) -> Result<Token, Mistake> {
        let next = self.lexer.next()?;
        Ok(std::mem::replace(&mut self.token, next).0)
    }

    fn unexpected(&self, wanted: &str) -> Mistake {
        let found = match &self.token.0 {
            Token::End => "the line ends".to_string(),
            Token::Constant(value) => format!("there is {value}"),
            Token::LeastInteger => return self.too_large(),
            Token::Variable(name) => format!("there is :{name}"),
            Token::Word(word) => format!("there is `{word}`"),
            Token::Sign(sign) => format!("there is `{sign}`"),
        };
        self.lexer.cursor.mistake(self.token.1, format!("syntax error: {wanted} should be here, and {found}"))
    }

    fn too_large(&self) -> Mistake {
        self.lexer.cursor.mistake(self.token.1, "bigint constant overflow (9223372036854775808)")
    }

    fn emit(&mut self, code: Code) -> Result<usize, Mistake> {
        if self.code.len() == LONGEST {
            let words = format!("the expression has more than {LONGEST} parts");
            return Err(self.lexer.cursor.mistake(self.token.1, words));
        }
        self.code.push(code);
        Ok(self.code.len() - 1)
    }

    /// Makes the jump at `at` lead to what comes next.
    fn land(&mut self, at: usize) {
        let here = self.code.len();
        match &mut self.code[at] {
            Code::Decided { to, .. } | Code::Unless(to) | Code::GoTo(to) => *to = here,
            _ => unreachable!("only jumps land"),
        }
    }

    fn is_word(&self, word: &str) -> bool {
        matches!(&self.token.0, Token::Word(found) if found.eq_ignore_ascii_case(word))
    }

    fn expect_word(&mut self, word: &str) -> Result<(), Mistake> {
        match self.is_word(word) {
            true => self.advance().map(drop),
            false => Err(self.unexpected(&word.to_uppercase())),
        }
    }

    fn expect_sign(&mut self, sign: &str) -> Result<(), Mistake> {
        match matches!(self.token.0, Token::Sign(found) if found == sign) {
            true => self.advance().map(drop),
            false => Err(self.unexpected(&format!("`{sign}`"))),
        }
    }

    /// Reads an operand and every operator behind it that binds at least as tightly as `least`.
    fn expression(&mut self, least: u8) -> Result<(), Mistake> {
        self.depth += 1;
        if self.depth > DEEPEST {
            let words = format!("the expression is nested more than {DEEPEST} deep");
            return Err(self.lexer.cursor.mistake(self.token.1, words));
        }
        self.operand()?;
        let mut compared = false;
        while let Some((level, function)) = self.operator() {
            if level < least {
                break;
            }
            if compared && level == COMPARISON {
                return Err(self.unexpected("no second comparison without parentheses"));
            }
            compared = level == COMPARISON;
            match (level, function) {
                (OR | AND, _) => {
                    self.advance()?;
                    let jump = self.emit(Code::Decided { by: level == OR, to: 0 })?;
                    self.expression(level + 1)?;
                    self.emit(Code::Truth)?;
                    self.land(jump);
                }
                (_, Some(function)) => {
                    self.advance()?;
                    self.expression(level + 1)?;
                    self.emit(Code::Call(function, 2))?;
                }
                (_, None) => self.is()?,
            }
        }
        self.depth -= 1;
        Ok(())
    }

    /// The operator that the next token is; those without a function are words.
    fn operator(&self) -> Option<(u8, Option<Function>)> {
        let (level, function) = match &self.token.0 {
            Token::Word(word) => {
                let level = match word.to_ascii_lowercase().as_str() {
                    "or" => OR,
                    "and" => AND,
                    "is" | "isnull" | "notnull" => IS,
                    _ => return None,
                };
                return Some((level, None));
            }
            Token::Sign(sign) => match *sign {
                "=" => (COMPARISON, Function::Equal),
                "<>" | "!=" => (COMPARISON, Function::Unequal),
                "<" => (COMPARISON, Function::Less),
                "<=" => (COMPARISON, Function::LessOrEqual),
                ">" => (COMPARISON, Function::Greater),
                ">=" => (COMPARISON, Function::GreaterOrEqual),
                "|" => (BITS, Function::Or),
                "#" => (BITS, Function::ExclusiveOr),
                "&" => (BITS, Function::And),
                "<<" => (BITS, Function::ShiftLeft),
                ">>" => (BITS, Function::ShiftRight),
                "+" => (SUM, Function::Add),
                "-" => (SUM, Function::Subtract),
                "*" => (PRODUCT, Function::Multiply),
                "/" => (PRODUCT, Function::Divide),
                "%" => (PRODUCT, Function::Modulo),
                _ => return None,
            },
            _ => return None,
        };
        Some((level, Some(function)))
    }

    /// `IS [NOT] NULL|TRUE|FALSE`, `ISNULL`, `NOTNULL`.
    fn is(&mut self) -> Result<(), Mistake> {
        let Token::Word(word) = self.advance()? else {
            unreachable!("the operators without a function are words")
        };
        let mut is = !word.eq_ignore_ascii_case("notnull");
        let constant = if word.eq_ignore_ascii_case("is") {
            if self.is_word("not") {
                self.advance()?;
                is = false;
            }
            let constant = match () {
                () if self.is_word("null") => Value::Null,
                () if self.is_word("true") => Value::Boolean(true),
                () if self.is_word("false") => Value::Boolean(false),
                () => return Err(self.unexpected("NULL, TRUE or FALSE")),
            };
            self.advance()?;
            constant
        } else {
            Value::Null
        };
        self.emit(Code::Is(constant, is)).map(drop)
    }

    fn operand(&mut self) -> Result<(), Mistake> {
        match self.token.0.clone() {
            Token::Constant(value) => {
                self.emit(Code::Constant(value))?;
                self.advance().map(drop)
            }
            Token::Variable(name) => {
                let number = self.names.number(&name);
                self.emit(Code::Variable(number))?;
                self.advance().map(drop)
            }
            Token::Sign("(") => {
                self.advance()?;
                self.expression(0)?;
                self.expect_sign(")")
            }
            Token::Sign("+") => {
                self.advance()?;
                self.expression(UNARY)
            }
            Token::Sign("-") => {
                self.advance()?;
                if self.token.0 == Token::LeastInteger {
                    self.emit(Code::Constant(Value::Integer(i64::MIN)))?;
                    return self.advance().map(drop);
                }
                // Subtracted from nothing, so that -0.0 is 0 as it is in pgbench.
                self.emit(Code::Constant(Value::Integer(0)))?;
                self.expression(UNARY)?;
                self.emit(Code::Call(Function::Subtract, 2)).map(drop)
            }
            Token::Sign("~") => {
                self.advance()?;
                self.emit(Code::Constant(Value::Integer(-1)))?;
                self.expression(SUM)?;
                self.emit(Code::Call(Function::ExclusiveOr, 2)).map(drop)
            }
            Token::Word(word) => self.word(&word),
            _ => Err(self.unexpected("a value")),
        }
    }

    fn word(&mut self, word: &str) -> Result<(), Mistake> {
        let constant = match word.to_ascii_lowercase().as_str() {
            "null" => Value::Null,
            "true" => Value::Boolean(true),
            "false" => Value::Boolean(false),
            "not" => {
                self.advance()?;
                self.expression(NOT)?;
                return self.emit(Code::Call(Function::Not, 1)).map(drop);
            }
            "case" => return self.case(),
            "when" | "then" | "else" | "end" | "and" | "or" | "is" | "isnull" | "notnull" => {
                return Err(self.unexpected("a value"));
            }
            name => return self.call(name),
        };
        self.emit(Code::Constant(constant))?;
        self.advance().map(drop)
    }

    fn case(&mut self) -> Result<(), Mistake> {
        self.advance()?;
        let mut ends = Vec::new();
        if !self.is_word("when") {
            return Err(self.unexpected("WHEN"));
        }
        while self.is_word("when") {
            self.advance()?;
            self.expression(0)?;
            let next = self.emit(Code::Unless(0))?;
            self.expect_word("then")?;
            self.expression(0)?;
            ends.push(self.emit(Code::GoTo(0))?);
            self.land(next);
        }
        if self.is_word("else") {
            self.advance()?;
            self.expression(0)?;
        } else {
            self.emit(Code::Constant(Value::Null))?;
        }
        self.expect_word("end")?;
        ends.into_iter().for_each(|end| self.land(end));
        Ok(())
    }

    fn call(&mut self, name: &str) -> Result<(), Mistake> {
        let at = self.token.1;
        let dialect = self.names.dialect;
        let Some(named) = NAMED.iter().find(|named| named.name == name) else {
            let known = NAMED.iter().filter(|named| named.dialect <= dialect);
            let near = did_you_mean(name, known.map(|named| named.name));
            return Err(self.lexer.cursor.mistake(at, format!("unexpected function name ({name}){near}")));
        };
        if named.dialect > dialect {
            let words = format!("{name} is none of pgbench's functions: it is for the scripts of plans");
            return Err(self.lexer.cursor.mistake(at, words));
        }
        self.advance()?;
        self.expect_sign("(")?;
        let mut count = 0;
        while !matches!(self.token.0, Token::Sign(")")) || count > 0 {
            self.expression(0)?;
            count += 1;
            match self.token.0 {
                Token::Sign(",") if count < MOST_ARGUMENTS => self.advance()?,
                Token::Sign(",") => {
                    return Err(self.unexpected(&format!("no more than {MOST_ARGUMENTS} arguments")));
                }
                _ => break,
            };
        }
        self.expect_sign(")")?;
        self.check(named, count, at)?;
        if named.seeded && count == named.least {
            let number = self.names.number("default_seed");
            self.emit(Code::Variable(number))?;
            count += 1;
        }
        self.emit(Code::Call(named.function, count)).map(drop)
    }

    fn check(&self, named: &Named, count: usize, at: usize) -> Result<(), Mistake> {
        let Named { name, least, most, .. } = *named;
        if (least..=most).contains(&count) {
            return Ok(());
        }
        let words = match (least, most) {
            (1, MOST_ARGUMENTS) => format!("at least one argument expected ({name})"),
            _ if least == most => {
                format!("unexpected number of arguments ({name}): it takes {least}, and there are {count}")
            }
            _ => format!(
                "unexpected number of arguments ({name}): it takes {least} or {most}, and there are {count}"
            ),
        };
        Err(self.lexer.cursor.mistake(at, words))
    }
}
