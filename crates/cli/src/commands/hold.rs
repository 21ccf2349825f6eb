//! `synconce hold`

mod run;
mod show;

pub use self::show::{Report, reports};

use crate::arguments::hold::{Hold, Named, Verb};
use crate::exit;
use crate::text::{notice, say};
use std::ffi::OsStr;
use std::path::Path;
use std::process::ExitCode;
use synconce_daemon::config::{Config, Unusable, path_of};
use synconce_daemon::error::Failure;
use synconce_daemon::start::{Started, start};
use synconce_daemon::stop::{Stopped, stop};

/// A message for the user, and a command that helps.
struct Trouble {
    message: String,
    hint: Option<String>,
}

impl From<Failure> for Trouble {
    fn from(failure: Failure) -> Self {
        Self { message: failure.to_string(), hint: failure.remedy() }
    }
}

impl From<String> for Trouble {
    fn from(message: String) -> Self {
        Self { message, hint: None }
    }
}

impl Trouble {
    fn report(&self) -> ExitCode {
        say(&self.message);
        if let Some(hint) = &self.hint {
            say(&format!("hint: {hint}"));
        }
        exit::FAILED.into()
    }
}

/// Starts, stops, recovers or shows holds.
pub fn hold(arguments: Hold) -> ExitCode {
    if let Verb::Status(arguments) = &arguments.verb {
        return show::show(arguments).unwrap_or_else(|trouble| trouble.report());
    }
    if !rustix::process::geteuid().is_root() {
        return say_root();
    }
    let done = match arguments.verb {
        Verb::Start(named) => begin(&named),
        Verb::Stop(named) => end(&named),
        Verb::Recover(arguments) => run::recover(&arguments),
        Verb::Settle(named) => run::settle(&named),
        Verb::Run(arguments) => return run::run(&arguments),
        Verb::Status(_) => Ok(()),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(trouble) => trouble.report(),
    }
}

fn say_root() -> ExitCode {
    let message = "cannot hold files: only root may mount on them".to_owned();
    Trouble { message, hint: Some("sudo synconce hold".to_owned()) }.report()
}

/// Reads the file of the hold `name`.
fn read(name: &OsStr) -> Result<Config, Trouble> {
    Config::read(name).map_err(|error| {
        // A file of the working directory, without the slash that makes it a path.
        let is_here = Path::new(name).is_file() && path_of(name) != Path::new(name);
        let hint = match &error {
            _ if is_here => Some(format!("synconce hold start ./{}", name.display())),
            Unusable::Read(..) => Some("synconce hold status".to_owned()),
            _ => None,
        };
        Trouble { message: error.to_string(), hint }
    })
}

fn begin(named: &Named) -> Result<(), Trouble> {
    let config = read(&named.name)?;
    if start(&config)? == Started::InForce {
        notice(&format!("the files of {} are held already", config.name));
    }
    Ok(())
}

fn end(named: &Named) -> Result<(), Trouble> {
    let name = stem(&named.name);
    if stop(&name)? == Stopped::NotInForce {
        notice(&format!("there is no hold {name} to stop"));
    }
    Ok(())
}

/// Returns the name of the hold that `word` names, whose file may be gone by now.
fn stem(word: &OsStr) -> String {
    let path = path_of(word);
    path.file_stem().unwrap_or_default().to_string_lossy().into_owned()
}
