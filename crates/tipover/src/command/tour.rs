//! `tipover tour`: ten questions, each with a command that answers it within a minute.

use super::{BadInput, Ending, quoted};
use anyhow::Result;
use clap::Args;
use serde::{Deserialize, Serialize};

/// Ten questions, and the command that answers each within a minute
///
/// Without a number it lists them. All run on the embedded engine and leave what they find in the results
/// folder, as the commands themselves do. Exit codes are those of the commands.
#[derive(Debug, Args)]
pub struct Tour {
    /// Carry out the command of this question, or of all one after another
    #[arg(value_name = "NUMBER|all")]
    which: Option<String>,
}

/// A question, as `tour.toml` has it.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Question {
    /// In a sentence.
    pub question: String,
    /// The words of the command after `tipover`.
    pub command: Vec<String>,
    /// Where the picture is.
    pub picture: String,
    /// What to see in it.
    pub look_for: String,
    /// The question whose results it works on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after: Option<usize>,
}

impl Question {
    /// The command as one would type it.
    fn typed(&self) -> String {
        let words: Vec<String> = self.command.iter().map(|word| quoted(word)).collect();
        format!("tipover {}", words.join(" "))
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    question: Vec<Question>,
}

/// All questions, in their order.
pub fn questions() -> Vec<Question> {
    toml::from_str::<File>(include_str!("tour.toml")).expect("the questions come with the program").question
}

impl Tour {
    /// Lists the questions, or carries out commands by `perform`, which takes a command's words.
    ///
    /// # Errors
    /// There is no such question, or the only command that was asked for could not be carried out.
    pub fn execute(&self, json: bool, perform: impl Fn(&[String]) -> Result<Ending>) -> Result<Ending> {
        let all = questions();
        let chosen = match self.which.as_deref() {
            None => {
                list(&all, json)?;
                return Ok(Ending::Held);
            }
            Some("all") => 0..all.len(),
            Some(number) => match number.parse::<usize>() {
                Ok(number) if (1..=all.len()).contains(&number) => number - 1..number,
                _ => {
                    let why = format!("there is no question `{number}`: give 1 to {}, or `all`", all.len());
                    return Err(BadInput(why).into());
                }
            },
        };
        let is_one = chosen.len() == 1;
        let mut held = Ending::Held;
        for (number, question) in all.iter().enumerate().skip(chosen.start).take(chosen.len()) {
            announce(number + 1, question);
            match perform(&question.command) {
                Ok(Ending::Held) => {}
                Ok(other) => held = other,
                Err(error) if is_one => return Err(error),
                // The others may still be answered; an interrupt ends them all.
                Err(error) if error.is::<crate::interrupt::Interrupted>() => return Err(error),
                Err(error) => {
                    eprintln!("tipover: {error:#}");
                    held = Ending::NotHeld;
                }
            }
            eprintln!("\nPicture: {}\nLook for: {}\n", question.picture, question.look_for);
        }
        Ok(held)
    }
}

/// To standard error, so that a command's answer stays what it would be without us.
fn announce(number: usize, question: &Question) {
    eprintln!("{number}. {}\n$ {}\n", question.question, question.typed());
}

fn list(all: &[Question], json: bool) -> Result<()> {
    if json {
        println!("{}", serde_json::to_string_pretty(all)?);
        return Ok(());
    }
    for (number, question) in all.iter().enumerate() {
        println!("{:>2}. {}\n    {}", number + 1, question.question, question.typed());
        if let Some(after) = question.after {
            println!("    (on the results of question {after})");
        }
    }
    println!("\n`tipover tour 3` carries out the third, `tipover tour all` one after another.");
    Ok(())
}
