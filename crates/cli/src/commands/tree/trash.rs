//! `synconce tree remove`, `gc`, and emptying the trash.

use super::bar::Bar;
use super::failure::verb_on;
use super::show::size;
use super::store::{self, purpose};
use crate::arguments::tree::{Gc, Remove};
use crate::commands::error::CommandError;
use crate::commands::output::{Output, print};
use crate::text::{notice, say};
use serde_json::{Value, json};
use synconce_durable::error::Error;
use synconce_durable::record::time;
use synconce_sys::process::{self, Side};
use synconce_sys::procfs::process_name;
use synconce_sys::reason;
use synconce_tree::{
    Changes, Collected, Emptied, Guard, Guarded, IfBusy, Interrupted, LayerMount, Store,
};

/// How many failed removals are listed.
const NAMED: usize = 5;

pub fn remove(store: &Store, arguments: &Remove, output: Output) -> Result<(), CommandError> {
    let (mut removed, mut failed) = (Vec::new(), Vec::new());
    let changes = if arguments.force { Changes::Dropped } else { Changes::Kept };
    // The other trees are removed all the same, as with rm(1).
    for name in &arguments.names {
        match synconce_tree::remove(store, name, changes) {
            Ok(()) => removed.push(name),
            Err(error) => failed.push((name, error)),
        }
    }
    if arguments.wait {
        empty(store, IfBusy::Wait)?;
    }
    let errors = failed.iter().map(|(name, error)| {
        let error = error.to_string();
        json!({ "name": name, "error": error })
    });
    output.write(&json!({ "removed": removed, "failed": errors.collect::<Vec<_>>() }))?;
    let last = failed.pop();
    for (_, error) in failed {
        refused(error).report();
    }
    last.map_or(Ok(()), |(_, error)| Err(refused(error)))
}

fn refused(error: Error) -> CommandError {
    let (forced, with) = match Guarded::in_error(error.io()) {
        Some(Guarded { store, tree, by }) => {
            let with = if *by == Guard::Changes { " with its changes" } else { "" };
            (verb_on(store, &["remove", "--force", tree]), with)
        }
        None => return error.into(),
    };
    CommandError::from(error.to_string()).hint(format!("`{forced}` removes it{with}"))
}

/// Shows the trees that `remove` would remove, and the space that is freed with each.
pub fn preview(store: &Store, arguments: &Remove, output: Output) -> Result<(), CommandError> {
    let (listed, _) = synconce_tree::list(store)?;
    let mut shown = Vec::new();
    for name in &arguments.names {
        let Some(one) = listed.iter().find(|one| one.record.name == *name) else {
            let frees = synconce_tree::older_generation(store, name)?.own;
            shown.push(json!({ "name": name, "frees": frees }));
            continue;
        };
        if let Some(used) = &one.used {
            return Err(CommandError::from(format!("cannot remove {name}: {used}")));
        }
        if one.is_open && !arguments.force {
            let why = "it has changes that are not committed";
            return Err(CommandError::from(format!("cannot remove {name}: {why}"))
                .hint("`--force` removes it with its changes"));
        }
        shown.push(json!({ "name": name, "frees": one.own }));
    }
    let text = shown.iter().map(|one| {
        let freed = size(one["frees"].as_u64());
        format!("{} would be removed and free {freed}\n", one["name"].as_str().unwrap_or_default())
    });
    output.write_or(&shown, || print(text.collect::<String>()))
}

pub fn gc(store: &Store, arguments: &Gc, output: Output) -> Result<(), CommandError> {
    let Collected { recovered, layers, mounted, strays } = synconce_tree::gc(store)?;
    store::report(&recovered);
    mounted.iter().for_each(|mount| notice(&kept(mount)));
    for stray in strays {
        notice(&format!("{} is no layer, and stays: move it out of the store", stray.display()));
    }
    let if_busy = if arguments.wait { IfBusy::Wait } else { IfBusy::Leave };
    let emptied = empty(store, if_busy)?;
    let lost: Vec<_> = recovered.lost.iter().map(|lost| &lost.tree).collect();
    output.write(&json!({
        "interrupted": in_json(&recovered.interrupted),
        "lost": lost,
        "layers": layers,
        "entries": emptied,
        "mounted": mounted.iter().map(mount_in_json).collect::<Vec<_>>(),
    }))
}

/// Says why a layer that nothing refers to is kept.
fn kept(mount: &LayerMount) -> String {
    let at = mount.point.display();
    let Some(pid) = mount.pid else {
        return format!("a layer of a removed tree stays: it is mounted at {at}");
    };
    let name = process_name(pid).unwrap_or_default();
    format!(
        "a layer of a removed tree stays: it is mounted at {at} in the mount namespace of process \
         {pid} ({name})"
    )
}

fn mount_in_json(mount: &LayerMount) -> Value {
    json!({ "mount_point": mount.point.to_string_lossy(), "pid": mount.pid })
}

/// Shows what `gc` would remove.
pub fn preview_gc(store: &Store, output: Output) -> Result<(), CommandError> {
    let garbage = synconce_tree::garbage(store)?;
    let result = json!({
        "interrupted": in_json(&garbage.interrupted),
        "layers": garbage.layers,
        "trash": garbage.trash,
    });
    output.write_or(&result, || {
        let mut text = String::new();
        for one in &garbage.interrupted {
            text += &format!("{}, begun {}, would be removed\n", purpose(one), time(one.began));
        }
        text += &format!("{} unneeded layers would be removed\n", garbage.layers.len());
        text += &format!("{} entries of the trash would be removed\n", garbage.trash);
        print(&text)
    })
}

fn in_json(interrupted: &[Interrupted]) -> Vec<Value> {
    let one = |one: &Interrupted| json!({ "what": purpose(one), "began": time(one.began) });
    interrupted.iter().map(one).collect()
}

/// Empties the trash; returns how many entries were removed.
fn empty(store: &Store, if_busy: IfBusy) -> Result<u64, CommandError> {
    let bar = Bar::new("removed");
    let emptied = synconce_tree::empty_trash(store, if_busy, synconce_fs::threads(), &bar)?;
    drop(bar);
    report(store, &emptied)?;
    Ok(emptied.entries)
}

fn report(store: &Store, emptied: &Emptied) -> Result<(), CommandError> {
    if emptied.busy {
        notice("another process empties the trash; --wait waits for it");
    }
    emptied.left.iter().take(NAMED).for_each(|error| say(&error.to_string()));
    match emptied.left.len() {
        0 => Ok(()),
        left => Err(CommandError::from(format!("{left} paths stay in the trash")).hint(format!(
            "what is mounted there has to be unmounted; then `{}`",
            verb_on(store.path(), &["gc"])
        ))),
    }
}

/// Empties the trash, if there is any, in a child process of the lowest priority; in a sealed run
/// in this process, because the run names each process that outlives its command, to be restarted.
/// The calling process must be single-threaded, because it forks.
pub fn empty_in_background(store: &Store) {
    if !synconce_tree::has_trash(store).unwrap_or(false) {
        return;
    }
    let threads = synconce_fs::threads();
    if synconce_run::refuse_if_sealed().is_err() {
        // What stays in the trash is for the next command.
        let _ = synconce_tree::empty_trash(store, IfBusy::Leave, threads, &());
        return;
    }
    match process::fork() {
        Ok(Side::Parent(_)) => {}
        Ok(Side::Child) => {
            process::leave_session();
            process::give_way();
            let code = synconce_tree::empty_trash(store, IfBusy::Leave, threads, &()).is_err();
            process::exit_now(i32::from(code))
        }
        Err(error) => {
            let reason = reason(&error);
            say(&format!("cannot make a process that empties the trash: {reason}"));
            say(&format!("hint: `{}` empties it", verb_on(store.path(), &["gc"])));
        }
    }
}
