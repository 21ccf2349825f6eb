//! Verbs that check layers: `verify`, `fsck`.

use super::bar::Bar;
use super::failure::verb_on;
use crate::arguments::tree::Verify;
use crate::commands::error::CommandError;
use crate::commands::output::Output;
use crate::commands::promise;
use crate::text::{notice, say, shell};
use serde_json::{Value, json};
use std::path::Path;
use std::process::ExitCode;
use synconce_sys::reason;
use synconce_tree::record::TreeName;
use synconce_tree::{Alteration, Altered, AlteredFile, Compare, ContentAlteration, Store};

/// How many paths are listed.
const NAMED: usize = 10;

pub fn verify(store: &Store, arguments: &Verify, output: Output) -> Result<ExitCode, CommandError> {
    let name = &arguments.tree.name;
    promise::keep_if(|| Ok(synconce_tree::verify_syncs(store, Some(name))?))?;
    let bar = Bar::new("looked at");
    let compare = if arguments.content { Compare::Contents } else { Compare::Attributes };
    let verified = synconce_tree::verify(store, name, compare, &bar)?;
    drop(bar);
    let (altered, summed) = (&verified.altered, verified.summed);
    // Before the differences are accepted: later calls do not find them.
    altered.iter().for_each(say_altered);
    if arguments.accept {
        verified.accept(&Bar::new("looked at"))?;
    } else if let Some(hint) = hint_of(store, name, altered) {
        say(&format!("hint: {hint}"));
    }
    let others = verified.others_with_altered(name)?;
    let layers = altered.iter().map(|one| altered_json(one, arguments.content));
    output.write_or(&layers.collect::<Vec<_>>(), || {
        let layers = |count| format!("{count} {}", if count == 1 { "layer" } else { "layers" });
        if altered.is_empty() {
            notice(&format!("the layers of {name} are as they were frozen"));
        } else if arguments.accept {
            let others: Vec<_> = others.iter().map(TreeName::as_str).collect();
            let also = if others.is_empty() { "" } else { "; also in " };
            let layers = layers(altered.len());
            notice(&format!("accepted {layers} of {name} as found now{also}{}", others.join(", ")));
        }
        if summed > 0 {
            notice(&format!("checksums taken of {}: the next call compares them", layers(summed)));
        }
        Ok(())
    })?;
    let is_right = altered.is_empty() || arguments.accept;
    Ok(if is_right { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn say_altered(one: &Altered) {
    let path = |path: &Path| one.layer.join(path).display().to_string();
    match &one.alteration {
        Some(how @ Alteration::Entries(directories)) => {
            let directories = directories.iter().map(|at| format!("{} {how}", path(at)));
            say_some(directories.collect(), "directories");
        }
        Some(how) => say(&format!("{} {how}", one.layer.display())),
        None => {}
    }
    let files = one.files().iter().map(|AlteredFile { path: file, how }| match how {
        ContentAlteration::Changed => {
            format!("{} has other content than its checksum says", path(file))
        }
        ContentAlteration::Unread(errno) => {
            format!("cannot read {}: {}", path(file), reason(&(*errno).into()))
        }
        ContentAlteration::New => format!("{} has no checksum", path(file)),
        ContentAlteration::Gone => format!("{} is gone", path(file)),
    });
    say_some(files.collect(), "files");
}

/// Returns the commands that show what has changed, and that accept it. A file that cannot be read
/// is not accepted.
fn hint_of(store: &Store, name: &TreeName, altered: &[Altered]) -> Option<String> {
    let changed = altered.iter().filter(|one| one.alteration.is_some());
    let is_copied = changed.clone().any(|one| one.alteration == Some(Alteration::Replaced));
    // The times of another subvolume say nothing of the one that was frozen.
    let changed = changed.filter(|one| one.alteration != Some(Alteration::Replaced));
    let finds = changed.take(NAMED).map(|one| {
        let path = |path: &Path| path.display().to_string();
        let (layer, fingerprint) = (path(&one.layer), path(&one.fingerprint));
        shell(&["find".to_owned(), layer, "-cnewer".to_owned(), fingerprint])
    });
    let finds: Vec<_> = finds.collect();
    let mut files = altered.iter().flat_map(Altered::files).peekable();
    let has_files = files.peek().is_some();
    let can_be_read = files.all(|file| !matches!(file.how, ContentAlteration::Unread(_)));
    let options: &[_] = if has_files { &["--content", "--accept"] } else { &["--accept"] };
    let accept = verb_on(store.path(), &[&["verify"], options, &[name.as_str()]].concat());
    if finds.is_empty() {
        let copied = || format!("after a copy of the store, `{accept}` takes the content as it is");
        let written = || format!("`{accept}` takes the content as it is, if it is right");
        let by_checksum = (has_files && can_be_read).then(written);
        return is_copied.then(copied).or(by_checksum);
    }
    Some(format!(
        "`{}` lists the entries that changed after the layer was frozen; `{accept}` takes the content \
         as it is",
        finds.join("; ")
    ))
}

fn altered_json(one: &Altered, with_files: bool) -> Value {
    let (state, directories) = match &one.alteration {
        Some(Alteration::Entries(directories)) => ("changed", &directories[..]),
        Some(Alteration::Counted) => ("changed", &[][..]),
        Some(Alteration::Writable) => ("writable", &[][..]),
        Some(Alteration::Replaced) => ("replaced", &[][..]),
        None => ("unchanged", &[][..]),
    };
    let directories: Vec<_> = directories.iter().map(|path| path.to_string_lossy()).collect();
    let layer = one.layer.to_string_lossy();
    let mut shown = json!({ "layer": layer, "state": state, "directories": directories });
    if with_files {
        let files = one.files().iter().map(|AlteredFile { path, how }| {
            let error = match how {
                ContentAlteration::Changed => None,
                ContentAlteration::Unread(errno) => Some(reason(&(*errno).into())),
                ContentAlteration::New => Some("it has no checksum".to_owned()),
                ContentAlteration::Gone => Some("it is gone".to_owned()),
            };
            json!({ "path": path.to_string_lossy(), "error": error })
        });
        shown["files"] = files.collect();
    }
    shown
}

/// Says the first of `lines`, and how many more `things` there are.
fn say_some(lines: Vec<String>, things: &str) {
    lines.iter().take(NAMED).for_each(|line| say(line));
    if lines.len() > NAMED {
        say(&format!("and {} more {things}", lines.len() - NAMED));
    }
}

pub fn fsck(store: &Store, output: Output) -> Result<ExitCode, CommandError> {
    promise::keep_if(|| Ok(synconce_tree::verify_syncs(store, None)?))?;
    let bar = Bar::new("looked at");
    let mut faults = Vec::new();
    let looked = synconce_tree::fsck(store, &mut faults, &bar);
    drop(bar);
    if let Err(error) = looked {
        // What was found before an interrupt.
        faults.iter().for_each(|fault| say(&fault.to_string()));
        return Err(error.into());
    }
    let all = faults.iter().map(|fault| json!({ "fault": fault.to_string() }));
    output.write_or(&all.collect::<Vec<_>>(), || {
        faults.iter().for_each(|fault| say(&fault.to_string()));
        if faults.is_empty() {
            notice(&format!("no faults in {}", store.path().display()));
        }
        Ok(())
    })?;
    if faults.is_empty() {
        return Ok(ExitCode::SUCCESS);
    }
    let (path, count) = (store.path().display(), faults.len());
    say(&format!("{count} {} in {path}", if count == 1 { "fault" } else { "faults" }));
    let verb = |verb: &[&str]| verb_on(store.path(), verb);
    say(&format!(
        "hint: `{} NAME` shows what has changed; `{} NAME` removes a damaged tree, and `{} NAME@N` only \
         its generation N",
        verb(&["verify"]),
        verb(&["remove", "--force"]),
        verb(&["remove"]),
    ));
    Ok(ExitCode::FAILURE)
}
