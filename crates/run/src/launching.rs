//! Converts the words of a command line into the arguments of `launch`.

use crate::held::RUN_VARIABLE;
use crate::options::Options;
use std::ffi::{CString, OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::{env, io};
use synconce_sys::launch::Command;

/// The search path of execvp(3) if PATH is unset.
const DEFAULT_PATH: &str = "/bin:/usr/bin";

/// Returns what to execute for the command of `options`, with the id `run` in its environment.
///
/// # Errors
/// `EINVAL` for a word with a NUL byte or an empty command.
pub(crate) fn command(options: &Options, run: Option<&str>) -> io::Result<Command> {
    let (name, others) = options.command.split_first().ok_or(io::ErrorKind::InvalidInput)?;
    let path = env::var_os("PATH").unwrap_or_else(|| DEFAULT_PATH.into());
    let variables = options.environment.clone().unwrap_or_else(|| env::vars_os().collect());
    let mut environment = Vec::new();
    for (name, value) in variables.iter().filter(|(name, _)| run.is_none() || name != RUN_VARIABLE)
    {
        environment.push(join(name, "=", value)?);
    }
    if let Some(run) = run {
        environment.push(c_string(format!("{RUN_VARIABLE}={run}").into())?);
    }
    Ok(Command {
        candidates: candidates(name, &path)?,
        arguments: [options.argv0.as_ref().unwrap_or(name)]
            .into_iter()
            .chain(others)
            .cloned()
            .map(c_string)
            .collect::<Result<_, _>>()?,
        environment,
    })
}

/// Returns the paths at which a command may be, in order: the command itself if it contains a
/// slash, else its name in each directory of `path`. An empty directory is the current one.
fn candidates(name: &OsStr, path: &OsStr) -> io::Result<Vec<CString>> {
    if name.as_bytes().contains(&b'/') {
        return Ok(vec![c_string(name.to_owned())?]);
    }
    if name.is_empty() {
        return Ok(Vec::new());
    }
    path.as_bytes()
        .split(|byte| *byte == b':')
        .map(|directory| match directory {
            b"" => c_string(name.to_owned()),
            _ => join(OsStr::from_bytes(directory), "/", name),
        })
        .collect()
}

fn join(left: &OsStr, middle: &str, right: &OsStr) -> io::Result<CString> {
    c_string([left, OsStr::new(middle), right].into_iter().collect())
}

fn c_string(string: OsString) -> io::Result<CString> {
    Ok(CString::new(string.into_vec())?)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(name: &str, path: &str) -> Vec<String> {
        let found = candidates(OsStr::new(name), OsStr::new(path)).unwrap();
        found.into_iter().map(|path| path.into_string().unwrap()).collect()
    }

    #[test]
    fn a_name_without_a_slash_is_looked_for_in_every_directory_of_the_path() {
        assert_eq!(found("ls", "/a::/b"), ["/a/ls", "ls", "/b/ls"]);
    }

    #[test]
    fn a_name_with_a_slash_is_taken_as_it_is() {
        assert_eq!(found("./ls", "/a"), ["./ls"]);
    }

    #[test]
    fn an_empty_name_is_nowhere() {
        assert!(found("", "/a").is_empty());
    }
}
