//! The list of rows.

use crate::ProveArguments;
use crate::config::{DiskKind, MarkerPlace, Mode, RunConfig, Scope};
use crate::mutants::{MUTANTS, Mutant};
use crate::row::Role;
use crate::tool::Tool;
use crate::work::{ProgramKind, Programs, Real, Work};

/// A row that has not been made yet.
pub(super) struct Task {
    pub role: Role,
    pub name: String,
    pub config: RunConfig,
    pub work: Work,
    pub tool: Tool,
    pub cuts: usize,
}

/// One mount of each kind of file system.
const KINDS: [DiskKind; 3] = [DiskKind::Ext4, DiskKind::Xfs, DiskKind::Btrfs];

/// Returns all rows that `arguments` select.
pub(super) fn tasks(arguments: &ProveArguments) -> Vec<Task> {
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
fn same_disk(disk: DiskKind) -> RunConfig {
    RunConfig::supervised(disk, MarkerPlace::Same)
}

/// Like `same_disk`, for a `work` that may hold nothing.
fn config_of(disk: DiskKind, work: Work) -> RunConfig {
    let scope = if work.asks_for_syncs() { Scope::Held } else { Scope::All };
    RunConfig { scope, ..same_disk(disk) }
}

/// Returns a row of the promise.
fn kept(arguments: &ProveArguments, config: RunConfig, work: Work) -> Task {
    Task {
        role: Role::Promise,
        name: work.name(),
        config,
        work,
        tool: arguments.shipped(),
        cuts: arguments.cuts,
    }
}

fn promise(arguments: &ProveArguments) -> Vec<Task> {
    let works = |config: RunConfig| match (config.marker, config.mode) {
        (MarkerPlace::Same, Mode::Supervised) => {
            &[Work::Files, Work::Daemon, Work::Checkpoint, Work::Excepted, Work::OtherUser][..]
        }
        (MarkerPlace::Same, Mode::Sealed) => &[Work::Files, Work::Checkpoint],
        (MarkerPlace::Other, _) => &[Work::Files, Work::TwoDisks],
        _ => &[Work::Files][..],
    };
    let row = |config| works(config).iter().map(move |work| kept(arguments, config, *work));
    let all = RunConfig::all().into_iter().flat_map(row);
    let unpack = |disk| kept(arguments, config_of(disk, Work::Unpack), Work::Unpack);
    all.chain(DiskKind::SOUND.map(unpack)).collect()
}

/// Random programs on every sound disk. For programs of three operations the marker is on
/// another disk, because the journal of a shared disk would hide a wrong order between the
/// two.
fn random(arguments: &ProveArguments) -> Vec<Task> {
    let kinds = [
        (ProgramKind::Pairs, MarkerPlace::Same, arguments.pairs),
        (ProgramKind::Triples, MarkerPlace::Other, arguments.triples),
        (ProgramKind::Long, MarkerPlace::Same, arguments.programs),
    ];
    let row = |disk, (kind, marker, count)| {
        let programs = Programs { kind, seed: arguments.seed, count, batch: 0 };
        // A sync() of these programs would save data that another row has to lose.
        let config = RunConfig { scope: Scope::Only, ..RunConfig::supervised(disk, marker) };
        kept(arguments, config, Work::Random(programs))
    };
    DiskKind::SOUND.iter().flat_map(|disk| kinds.map(|kind| row(*disk, kind))).collect()
}

/// Rows that lose data: a disk without flushes, and a run that asks for no sync and names no
/// file system.
fn controls(arguments: &ProveArguments) -> Vec<Task> {
    let row = |name: &str, disk, work| Task {
        role: Role::Control,
        name: name.to_owned(),
        ..kept(arguments, same_disk(disk), work)
    };
    let bare = KINDS.map(|disk| row("tar x, not --commit-all", disk, Work::Unpack));
    let unflushed = row("no flush reaches the disk", DiskKind::Ext4NoBarrier, Work::Files);
    [unflushed].into_iter().chain(bare).collect()
}

fn mutants(arguments: &ProveArguments) -> Vec<Task> {
    let tools = |mutant: Mutant| Some((mutant, arguments.mutant(mutant.name)?));
    let rows = |(mutant, tool): (Mutant, Tool)| {
        mutant.configs().into_iter().map(move |config| Task {
            role: mutant.role(),
            name: mutant.name.to_owned(),
            config,
            work: mutant.work,
            tool: tool.clone(),
            cuts: arguments.mutant_cuts,
        })
    };
    MUTANTS.into_iter().filter_map(tools).flat_map(rows).collect()
}

fn rivals(arguments: &ProveArguments) -> Vec<Task> {
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
