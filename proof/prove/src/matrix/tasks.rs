//! The list of rows.

use crate::Arguments;
use crate::config::{Config, Disk, MarkerPlace, Mode, Scope};
use crate::mutants::{MUTANTS, Mutant};
use crate::row::Role;
use crate::tool::Tool;
use crate::work::{Kind, Programs, Real, Work};

/// A row that has not been made yet.
pub(super) struct Task {
    pub role: Role,
    pub name: String,
    pub config: Config,
    pub work: Work,
    pub tool: Tool,
    pub cuts: usize,
}

/// One mount of each kind of file system.
const KINDS: [Disk; 3] = [Disk::Ext4, Disk::Xfs, Disk::Btrfs];

/// Returns all rows that `arguments` select.
pub(super) fn tasks(arguments: &Arguments) -> Vec<Task> {
    let mut tasks = promise(arguments);
    tasks.extend(random(arguments));
    if arguments.real {
        let row = |disk, real| kept(arguments, config_of(disk, Work::Real(real)), Work::Real(real));
        tasks.extend(Real::ALL.iter().flat_map(|real| KINDS.map(|disk| row(disk, *real))));
    }
    tasks.extend(controls(arguments));
    tasks.extend(mutants(arguments));
    if !arguments.no_rivals {
        tasks.extend(rivals(arguments));
    }
    tasks
}

/// Returns a supervised config with the marker on the same file system.
fn same_disk(disk: Disk) -> Config {
    Config::supervised(disk, MarkerPlace::Same)
}

/// Like `same_disk`, for a `work` that may hold nothing.
fn config_of(disk: Disk, work: Work) -> Config {
    let scope = if work.asks_for_syncs() { Scope::Held } else { Scope::All };
    Config { scope, ..same_disk(disk) }
}

/// Returns a row of the promise.
fn kept(arguments: &Arguments, config: Config, work: Work) -> Task {
    Task {
        role: Role::Promise,
        name: work.name(),
        config,
        work,
        tool: Tool::Synconce(arguments.synconce.clone()),
        cuts: arguments.cuts,
    }
}

fn promise(arguments: &Arguments) -> Vec<Task> {
    let works = |config: Config| match (config.marker, config.mode) {
        (MarkerPlace::Same, Mode::Supervised) => {
            &[Work::Files, Work::Daemon, Work::Checkpoint, Work::Excepted, Work::OtherUser][..]
        }
        (MarkerPlace::Same, Mode::Sealed) => &[Work::Files, Work::Checkpoint],
        (MarkerPlace::Other, _) => &[Work::Files, Work::TwoDisks],
        _ => &[Work::Files][..],
    };
    let row = |config| works(config).iter().map(move |work| kept(arguments, config, *work));
    let all = Config::all().into_iter().flat_map(row);
    let unpack = |disk| kept(arguments, config_of(disk, Work::Unpack), Work::Unpack);
    all.chain(Disk::SOUND.map(unpack)).collect()
}

/// Random programs on every sound disk. For programs of three operations the marker is on
/// another disk, because the journal of a shared disk would hide a wrong order between the
/// two.
fn random(arguments: &Arguments) -> Vec<Task> {
    let kinds = [
        (Kind::Pairs, MarkerPlace::Same, arguments.pairs),
        (Kind::Triples, MarkerPlace::Other, arguments.triples),
        (Kind::Long, MarkerPlace::Same, arguments.programs),
    ];
    let row = |disk, (kind, marker, count)| {
        let programs = Programs { kind, seed: arguments.seed, count, batch: 0 };
        // A sync() of these programs would save data that another row has to lose.
        let config = Config { scope: Scope::Only, ..Config::supervised(disk, marker) };
        kept(arguments, config, Work::Random(programs))
    };
    Disk::SOUND.iter().flat_map(|disk| kinds.map(|kind| row(*disk, kind))).collect()
}

/// Rows that lose data: a disk without flushes, and a run that asks for no sync and names no
/// file system.
fn controls(arguments: &Arguments) -> Vec<Task> {
    let row = |name: &str, disk, work| Task {
        role: Role::Control,
        name: name.to_owned(),
        ..kept(arguments, same_disk(disk), work)
    };
    let bare = KINDS.map(|disk| row("tar x, not --commit-all", disk, Work::Unpack));
    let unflushed = row("no flush reaches the disk", Disk::Ext4NoBarrier, Work::Files);
    [unflushed].into_iter().chain(bare).collect()
}

fn mutants(arguments: &Arguments) -> Vec<Task> {
    let Some(program) = &arguments.mutants else { return Vec::new() };
    let row = |mutant: Mutant, config| Task {
        role: mutant.role(),
        name: mutant.name.to_owned(),
        config,
        work: mutant.work,
        tool: Tool::Mutant {
            program: program.clone(),
            mutant: mutant.name,
            shipped: arguments.synconce.clone(),
        },
        cuts: arguments.mutant_cuts,
    };
    let rows = |mutant: Mutant| mutant.configs().into_iter().map(move |config| row(mutant, config));
    MUTANTS.into_iter().flat_map(rows).collect()
}

fn rivals(arguments: &Arguments) -> Vec<Task> {
    let row = |tool: Tool, name: String, work, disk| Task {
        role: Role::Rival,
        name,
        tool,
        ..kept(arguments, same_disk(disk), work)
    };
    let rows =
        |tool: Tool| KINDS.map(|disk| row(tool.clone(), tool.name().to_owned(), Work::Files, disk));
    let tools = [Tool::Plain, Tool::Eatmydata, Tool::Nspawn, Tool::Volatile];
    let mut tasks: Vec<Task> = tools.into_iter().flat_map(rows).collect();
    if arguments.real {
        // Shows an install without any of the tools and with the best known rival, and whether
        // a file system that does not recover from a heavy load recovers without synconce.
        let pairs =
            [(Tool::Plain, Real::Apt), (Tool::Eatmydata, Real::Apt), (Tool::Plain, Real::Untar)];
        for (tool, real) in pairs {
            let name = format!("{}, {}", tool.name(), real.name());
            let row = |disk| row(tool.clone(), name.clone(), Work::Real(real), disk);
            tasks.extend(KINDS.map(row));
        }
    }
    tasks
}
