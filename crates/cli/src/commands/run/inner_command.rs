//! The command inside programs that start it in their arguments, such as sudo, and inside the
//! script of a shell.

use super::addresses::Variables;
use crate::commands::wrappers::{Wrapper, file_name, parts, script_of};
use synconce_sys::search::SYSTEM_DIRECTORIES;

/// Looks at a program, its arguments and the variables of its environment.
type Find<'a, T> = &'a dyn Fn(&str, &[&str], Variables<'_>) -> Option<T>;

/// Returns what `find` returns for the program of the command inside `words`, its arguments and the
/// variables of its environment. Returns None for a script of several commands.
pub(super) fn find_in_inner_command<T>(
    words: &[&str],
    variables: Variables<'_>,
    find: Find<'_, T>,
) -> Option<T> {
    let is_assignment = |word: &&str| word.contains('=') && !word.starts_with('-');
    if words.first().is_some_and(is_assignment) {
        return find_in_inner_command(&[&["env"], words].concat(), variables, find);
    }
    let (path, words) = words.split_first()?;
    let program = file_name(path);
    if let Some(script) = script_of(program, words) {
        let parts = parts(script);
        let [only] = &parts[..] else { return None };
        let only: Vec<_> = only.iter().map(String::as_str).collect();
        return find_in_inner_command(&only, variables, find);
    }
    if let Some(wrapper) = Wrapper::of(program, words) {
        let Wrapper { options, inner, .. } = wrapper;
        // sudo(8) drops the caller's variables, unless -E or --preserve-env is given.
        let is_preserved = |word: &&str| word.starts_with("--preserve-env");
        let keeps = !matches!(program, "sudo" | "doas")
            || wrapper.has_flag('E')
            || options.iter().any(is_preserved);
        let given = |name: &str| {
            let value = |word: &&str| word.strip_prefix(name)?.strip_prefix('=').map(str::to_owned);
            let value = options.iter().rev().find_map(value);
            let value = value.or_else(|| keeps.then(|| variables(name)).flatten());
            // sudo searches directories of its own (`secure_path` in sudoers(5)).
            value.or_else(|| (!keeps && name == "PATH").then(|| SYSTEM_DIRECTORIES.join(":")))
        };
        return find_in_inner_command(inner, &given, find);
    }
    find(path, words, variables)
}
