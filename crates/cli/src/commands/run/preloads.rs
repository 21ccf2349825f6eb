//! Libraries that drop syncs before a run sees them.

use crate::commands::wrappers::{Wrapper, file_name, parts, script_of};
use crate::text::{notice, shell};
use std::env;
use std::ffi::OsString;
use std::fs;
use synconce_doctor::{PRELOAD_FILE, dropper, preload_removal, preloads};
use synconce_sys::search;

/// Prints a notice if a preloaded library drops syncs before they become system calls: the run
/// does not see them, so it does not commit what they were for.
pub(in crate::commands) fn warn_of_preloads(command: &[OsString]) {
    if synconce_run::is_held() {
        return;
    }
    let variable = env::var_os("LD_PRELOAD").unwrap_or_default();
    if let Some((library, others)) = dropping_library(&variable.to_string_lossy()) {
        say_of_preload("LD_PRELOAD", &library);
        if others.is_empty() {
            notice("hint: unset LD_PRELOAD");
        } else {
            notice(&format!("hint: export LD_PRELOAD={}", shell(&[others.join(":")])));
        }
    }
    let file = fs::read(PRELOAD_FILE).unwrap_or_default();
    if let Some((library, _)) = dropping_library(&String::from_utf8_lossy(&file)) {
        say_of_preload(PRELOAD_FILE, &library);
        notice(&format!("hint: {}", preload_removal(&library)));
    }
    let words: Vec<_> = command.iter().filter_map(|word| word.to_str()).collect();
    if let Some(dropping) = dropping_word(&words) {
        notice(&format!(
            "the command has {dropping}, which drops syncs before the run sees them: what it drops \
             is not committed"
        ));
        notice(&format!("hint: leave {dropping} out"));
    }
}

/// Returns the word with which a command, or the script of a shell in it, preloads a library that
/// drops syncs: `eatmydata`, or a value of LD_PRELOAD.
fn dropping_word(words: &[&str]) -> Option<String> {
    let (first, rest) = words.split_first()?;
    let assigned = |word: &&str| {
        let value = word.strip_prefix("LD_PRELOAD=")?;
        dropping_library(value).map(|(library, _)| library)
    };
    if first.contains('=') {
        return assigned(first).or_else(|| dropping_word(rest));
    }
    let program = file_name(first);
    if program == "eatmydata" {
        return (!is_our_link(first)).then(|| program.to_owned());
    }
    if let Some(script) = script_of(program, rest) {
        let in_part = |part: &Vec<String>| {
            dropping_word(&part.iter().map(String::as_str).collect::<Vec<_>>())
        };
        return parts(script).iter().find_map(in_part);
    }
    if program == "export" {
        return rest.iter().find_map(assigned);
    }
    let wrapper = Wrapper::of(program, rest)?;
    if program == "command" && wrapper.has_flag('v') {
        return None;
    }
    wrapper.options.iter().find_map(assigned).or_else(|| dropping_word(wrapper.inner))
}

/// Whether `eatmydata`, as the command names it, is a link to synconce.
fn is_our_link(program: &str) -> bool {
    let found = search::find(program).and_then(|path| path.canonicalize().ok());
    found.is_some() && found == env::current_exe().ok()
}

fn say_of_preload(origin: &str, library: &str) {
    notice(&format!(
        "{origin} has {library}, which drops syncs before the run sees them: what it drops is \
         not committed"
    ));
}

/// Returns the first library in `text` that drops syncs, and all libraries that drop none.
fn dropping_library(text: &str) -> Option<(String, Vec<String>)> {
    let drops = |library: &String| dropper(library).is_some();
    let (dropping, others): (Vec<_>, Vec<_>) = preloads(text).into_iter().partition(drops);
    Some((dropping.into_iter().next()?, others))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_that_preloads_is_found_behind_wrappers_and_in_scripts() {
        let library = Some("libeatmydata.so");
        for (words, found) in [
            (&["/usr/bin/eatmydata", "make"][..], Some("eatmydata")),
            (&["nice", "-n", "5", "/usr/bin/eatmydata", "--", "make"], Some("eatmydata")),
            (&["env", "LD_PRELOAD=libeatmydata.so", "make"], library),
            (&["env", "LD_PRELOAD=libeatmydata.so:libfakeroot.so", "make"], library),
            (&["sh", "-c", "LD_PRELOAD=libeatmydata.so make"], library),
            (&["sh", "-c", "export LD_PRELOAD=libeatmydata.so; make"], library),
            (&["sh", "-c", "command -v eatmydata"], None),
            (&["sh", "-c", "cd /tmp && /usr/bin/eatmydata make"], Some("eatmydata")),
            (&["env", "LD_PRELOAD=libfakeroot.so", "make"], None),
            (&["grep", "eatmydata", "file"], None),
            (&["apt-get", "install", "eatmydata"], None),
        ] {
            assert_eq!(dropping_word(words).as_deref(), found, "{words:?}");
        }
    }
}
