//! What rows there are.

use crate::Arguments;
use crate::mutants::{MUTANTS, Mutant};
use crate::row::Role;
use crate::scene::{Disk, MarkerPlace, Mode, Scene, Scope};
use crate::tool::Tool;
use crate::work::{Kind, Programs, Real, Work};

/// A row that is still to be made.
pub(super) struct Task {
    pub role: Role,
    pub name: String,
    pub scene: Scene,
    pub work: Work,
    pub tool: Tool,
    pub cuts: usize,
}

/// One mount of each kind.
const KINDS: [Disk; 3] = [Disk::Ext4, Disk::Xfs, Disk::Btrfs];

/// All rows that `arguments` ask for.
pub(super) fn tasks(arguments: &Arguments) -> Vec<Task> {
    let mut tasks = promise(arguments);
    tasks.extend(random(arguments));
    if arguments.real {
        let row = |disk, real| kept(arguments, scene_of(disk, Work::Real(real)), Work::Real(real));
        tasks.extend(Real::ALL.iter().flat_map(|real| KINDS.map(|disk| row(disk, *real))));
    }
    tasks.extend(controls(arguments));
    tasks.extend(mutants(arguments));
    if !arguments.no_rivals {
        tasks.extend(rivals(arguments));
    }
    tasks
}

/// Supervised, with the marker on the same file system.
fn beside(disk: Disk) -> Scene {
    Scene::supervised(disk, MarkerPlace::Same)
}

/// The same, where `work` may hold nothing.
fn scene_of(disk: Disk, work: Work) -> Scene {
    let scope = if work.asks_for_syncs() { Scope::Held } else { Scope::All };
    Scene { scope, ..beside(disk) }
}

/// A row of the promise.
fn kept(arguments: &Arguments, scene: Scene, work: Work) -> Task {
    Task {
        role: Role::Promise,
        name: work.name(),
        scene,
        work,
        tool: Tool::Synconce(arguments.synconce.clone()),
        cuts: arguments.cuts,
    }
}

fn promise(arguments: &Arguments) -> Vec<Task> {
    let works = |scene: Scene| match (scene.marker, scene.mode) {
        (MarkerPlace::Same, Mode::Supervised) => &[Work::Files, Work::Daemon][..],
        (MarkerPlace::Other, _) => &[Work::Files, Work::TwoDisks],
        _ => &[Work::Files][..],
    };
    let row = |scene| works(scene).iter().map(move |work| kept(arguments, scene, *work));
    let all = Scene::all().into_iter().flat_map(row);
    let unpack = |disk| kept(arguments, scene_of(disk, Work::Unpack), Work::Unpack);
    all.chain(Disk::SOUND.map(unpack)).collect()
}

/// Random programs on every sound disk. The marker is on another one where the programs are of three
/// operations: what two file systems order, one journal would hide.
fn random(arguments: &Arguments) -> Vec<Task> {
    let kinds = [
        (Kind::Pairs, MarkerPlace::Same, arguments.pairs),
        (Kind::Triples, MarkerPlace::Other, arguments.triples),
        (Kind::Long, MarkerPlace::Same, arguments.programs),
    ];
    let row = |disk, (kind, marker, count)| {
        let programs = Programs { kind, seed: arguments.seed, count, batch: 0 };
        // Their sync() would save what another row has to lose.
        let scene = Scene { scope: Scope::Only, ..Scene::supervised(disk, marker) };
        kept(arguments, scene, Work::Random(programs))
    };
    Disk::SOUND.iter().flat_map(|disk| kinds.map(|kind| row(*disk, kind))).collect()
}

/// What loses: a disk without flushes, and a run that asks for no sync and names no file system.
fn controls(arguments: &Arguments) -> Vec<Task> {
    let row = |name: &str, disk, work| Task {
        role: Role::Control,
        name: name.to_owned(),
        ..kept(arguments, beside(disk), work)
    };
    let bare = KINDS.map(|disk| row("tar x, not --commit-all", disk, Work::Unpack));
    let deaf = row("no flush reaches the disk", Disk::Ext4NoBarrier, Work::Files);
    [deaf].into_iter().chain(bare).collect()
}

fn mutants(arguments: &Arguments) -> Vec<Task> {
    let Some(program) = &arguments.mutants else { return Vec::new() };
    let row = |mutant: Mutant, scene| Task {
        role: mutant.role(),
        name: mutant.name.to_owned(),
        scene,
        work: mutant.work,
        tool: Tool::Mutant {
            program: program.clone(),
            mutant: mutant.name,
            shipped: arguments.synconce.clone(),
        },
        cuts: arguments.mutant_cuts,
    };
    let rows = |mutant: Mutant| mutant.scenes().into_iter().map(move |scene| row(mutant, scene));
    MUTANTS.into_iter().flat_map(rows).collect()
}

fn rivals(arguments: &Arguments) -> Vec<Task> {
    let row = |tool: Tool, name: String, work, disk| Task {
        role: Role::Rival,
        name,
        tool,
        ..kept(arguments, beside(disk), work)
    };
    let rows =
        |tool: Tool| KINDS.map(|disk| row(tool.clone(), tool.name().to_owned(), Work::Files, disk));
    let tools = [Tool::Plain, Tool::Eatmydata, Tool::Nspawn, Tool::Volatile];
    let mut tasks: Vec<Task> = tools.into_iter().flat_map(rows).collect();
    if arguments.real {
        // What an install is without any of them, and with the best known; and whether a file system
        // that does not recover from a heavy load recovers from it without us.
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
