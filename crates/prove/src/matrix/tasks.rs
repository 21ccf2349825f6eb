//! What rows there are.

use crate::Arguments;
use crate::mutants::{MUTANTS, Mutant};
use crate::row::Role;
use crate::scene::{Disk, MarkerPlace, Mode, Scene};
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
        let row = |disk, real| kept(arguments, beside(disk), Work::Real(real));
        tasks.extend(Real::ALL.iter().flat_map(|real| KINDS.map(|disk| row(disk, *real))));
    }
    tasks.push(control(arguments));
    tasks.extend(mutants(arguments));
    if !arguments.no_rivals {
        tasks.extend(rivals(arguments));
    }
    tasks
}

/// Supervised, with the marker on the same file system.
fn beside(disk: Disk) -> Scene {
    Scene { disk, marker: MarkerPlace::Same, mode: Mode::Supervised }
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
        _ => &[Work::Files][..],
    };
    let row = |scene| works(scene).iter().map(move |work| kept(arguments, scene, *work));
    Scene::all().into_iter().flat_map(row).collect()
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
        kept(arguments, Scene { marker, ..beside(disk) }, Work::Random(programs))
    };
    Disk::SOUND.iter().flat_map(|disk| kinds.map(|kind| row(*disk, kind))).collect()
}

fn control(arguments: &Arguments) -> Task {
    Task {
        role: Role::Control,
        name: "no flush reaches the disk".to_owned(),
        ..kept(arguments, beside(Disk::Ext4NoBarrier), Work::Files)
    }
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
