//! Converts the words of a command line into the arguments of `launch`.

use crate::options::RunOptions;
use crate::request::held::RUN_VARIABLE;
use std::ffi::{CString, OsStr, OsString};
use std::os::unix::ffi::OsStringExt;
use std::{env, io};
use synconce_sys::launch::Executed;
use synconce_sys::search;

/// Returns what to execute for the command of `options`, with the id `run` in its environment.
///
/// # Errors
/// `EINVAL` for a word with a NUL byte or an empty command.
pub(crate) fn command(options: &RunOptions, run: Option<&str>) -> io::Result<Executed> {
    let (name, others) = options.command.split_first().ok_or(io::ErrorKind::InvalidInput)?;
    let candidates = search::candidates(name, env::var_os("PATH").as_deref())
        .map(|path| c_string(path.into()))
        .collect::<Result<_, _>>()?;
    let variables = options.environment.clone().unwrap_or_else(|| env::vars_os().collect());
    let mut environment = Vec::new();
    for (name, value) in variables.iter().filter(|(name, _)| run.is_none() || name != RUN_VARIABLE)
    {
        environment.push(c_string([name, OsStr::new("="), value].into_iter().collect())?);
    }
    if let Some(run) = run {
        environment.push(c_string(format!("{RUN_VARIABLE}={run}").into())?);
    }
    Ok(Executed {
        candidates,
        arguments: [options.argv0.as_ref().unwrap_or(name)]
            .into_iter()
            .chain(others)
            .cloned()
            .map(c_string)
            .collect::<Result<_, _>>()?,
        environment,
    })
}

fn c_string(string: OsString) -> io::Result<CString> {
    Ok(CString::new(string.into_vec())?)
}
