//! Manual pages: options by clap_mangen, the other sections from `synconce::arguments::manual`,
//! and the tables of docs/hold.md that it names.

use clap::Command;
use clap_mangen::Man;
use std::fs;
use std::io::{self, Write};
use synconce::arguments::manual::{Sections, sections, tables};

/// Returns the page `name` of `command`, whose subcommands have pages of their own.
pub fn page(command: &Command, name: &str) -> io::Result<String> {
    // clap_mangen takes the page's name from the command.
    let shown = command.clone().display_name(name.to_owned());
    let man = Man::new(shown);
    let mut text = Vec::new();
    let (title, version) = (name.to_uppercase(), env!("CARGO_PKG_VERSION"));
    writeln!(text, ".TH {} 1 \"\" \"synconce {version}\" \"User Commands\"", escape(&title))?;
    man.render_name_section(&mut text)?;
    synopsis(command, &mut text)?;
    man.render_description_section(&mut text)?;
    if command.get_arguments().any(|argument| !argument.is_hide_set()) {
        man.render_options_section(&mut text)?;
    }
    if super::pages_of(command).next().is_some() {
        writeln!(text, ".SH SUBCOMMANDS")?;
        for inner in super::pages_of(command) {
            let about = inner.get_about().map(ToString::to_string).unwrap_or_default();
            let page = escape(&format!("{name}-{}", inner.get_name()));
            writeln!(text, ".TP\n.BR {page} (1)\n{}", line(&about))?;
        }
    }
    for (title, heading) in tables(name) {
        let page = fs::read_to_string(super::docs().join("hold.md"))?.replace('`', "");
        terms(&mut text, title, &table(&page, heading)?)?;
    }
    let Sections { exit_status, files, environment, examples, see_also } = sections(name);
    terms(&mut text, "EXIT STATUS", exit_status)?;
    terms(&mut text, "FILES", files)?;
    terms(&mut text, "ENVIRONMENT", environment)?;
    typed(&mut text, "EXAMPLES", examples)?;
    if !see_also.is_empty() {
        writeln!(text, ".SH \"SEE ALSO\"")?;
        let pages = see_also.iter().enumerate().map(|(at, (page, section))| {
            let comma = if at + 1 < see_also.len() { "," } else { "" };
            format!(".BR {} ({section}){comma}", escape(page))
        });
        writeln!(text, "{}", pages.collect::<Vec<_>>().join("\n"))?;
    }
    Ok(tidy(&String::from_utf8_lossy(&text)))
}

/// Writes the usage lines as `--help` shows them.
fn synopsis(command: &Command, text: &mut Vec<u8>) -> io::Result<()> {
    writeln!(text, ".SH SYNOPSIS")?;
    let usage = command.clone().render_usage().to_string();
    for (at, usage) in usage.trim_start_matches("Usage: ").lines().enumerate() {
        let usage = usage.trim();
        let words = usage.find(['[', '<', '-']).unwrap_or(usage.len());
        let (name, rest) = usage.split_at(words);
        let gap = if at > 0 { ".br\n" } else { "" };
        writeln!(text, "{gap}\\fB{}\\fR {}", escape(name.trim()), escape(rest))?;
    }
    Ok(())
}

/// Returns the rows of the first table after `heading` in `page`, which has two columns.
fn table<'a>(page: &'a str, heading: &str) -> io::Result<Vec<(&'a str, &'a str)>> {
    let is_heading = |line: &&str| line.trim_start_matches('#') == format!(" {heading}");
    let lines = page.lines().skip_while(|line| !is_heading(line));
    let lines = lines.skip_while(|line| !line.starts_with("| ")).skip(2);
    let rows = lines.map_while(|line| line.strip_prefix("| ")?.strip_suffix(" |"));
    let rows: Option<Vec<_>> = rows.map(|row| row.split_once(" | ")).collect();
    let missing = || io::Error::other(format!("docs/hold.md has no table after {heading}"));
    rows.filter(|rows| !rows.is_empty()).ok_or_else(missing)
}

/// Writes a section of `terms` with their meanings, unless there are none.
fn terms(text: &mut Vec<u8>, title: &str, terms: &[(&str, &str)]) -> io::Result<()> {
    heading(text, title, terms)?;
    for (term, meaning) in terms {
        writeln!(text, ".TP\n\\fB{}\\fR\n{}", escape(term), line(meaning))?;
    }
    Ok(())
}

/// Writes a section of `commands`, each after its meaning, unless there are none.
fn typed(text: &mut Vec<u8>, title: &str, commands: &[(&str, &str)]) -> io::Result<()> {
    heading(text, title, commands)?;
    for (command, meaning) in commands {
        let (meaning, command) = (line(meaning), line(command));
        writeln!(text, "{meaning}\n.PP\n.RS 4\n.nf\n{command}\n.fi\n.RE\n.PP")?;
    }
    Ok(())
}

fn heading(text: &mut Vec<u8>, title: &str, rows: &[(&str, &str)]) -> io::Result<()> {
    if rows.is_empty() { Ok(()) } else { writeln!(text, ".SH \"{title}\"") }
}

/// Returns `text` as a line of roff.
fn line(text: &str) -> String {
    let text = escape(text);
    if text.starts_with(['.', '\'']) { format!("\\&{text}") } else { text }
}

fn escape(text: &str) -> String {
    text.replace('\\', "\\e").replace('-', "\\-")
}

/// Returns `page` without what `mandoc -T lint` warns about: empty lines, breaks before a
/// list, and blanks at the ends of lines.
fn tidy(page: &str) -> String {
    let mut lines: Vec<String> = Vec::new();
    for line in page.lines().map(str::trim_end) {
        let last = lines.last().map(String::as_str);
        match line {
            // Text of another paragraph.
            "" if !matches!(last, None | Some(".sp" | ".br" | ".PP")) => {
                lines.push(".sp".to_owned());
            }
            "" => {}
            ".br" if matches!(last, Some(".sp" | ".br")) => {}
            _ => {
                let starts = [".TP", ".SH", ".RS", ".RE", ".IP"];
                if starts.iter().any(|start| line.starts_with(start)) {
                    while lines.last().is_some_and(|it| matches!(&it[..], ".sp" | ".br" | ".PP")) {
                        lines.pop();
                    }
                }
                lines.push(line.to_owned());
            }
        }
    }
    while lines.last().is_some_and(|line| matches!(&line[..], ".sp" | ".br" | ".PP")) {
        lines.pop();
    }
    lines.join("\n") + "\n"
}
