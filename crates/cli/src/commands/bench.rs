//! `synconce bench`

use crate::arguments::bench::{
    BaseArguments, BenchArguments, BenchScenario, BuildArguments, Clones, Compile, Cost, Db,
    Import, Install, Loop,
};
use crate::commands::error::CommandError;
use crate::commands::output::{Output, Stream, print};
use crate::table;
use std::io;
use std::path::Path;
use std::process::ExitCode;
use synconce_bench::runner::WarmUp;
use synconce_bench::{
    Common, Error, LoopKind, base, compile, cost, db, image, import, install, measure_loop, tree,
};

/// Runs a benchmark of this binary.
///
/// # Errors
/// Why there is no report.
pub fn bench(arguments: BenchArguments) -> Result<ExitCode, CommandError> {
    let ours = Path::new("/proc/self/exe");
    let output = Output::open(arguments.scenario.json(), Stream::Output)?;
    let report = match arguments.scenario {
        BenchScenario::Install(it) => install::measure(&install_options(it), ours),
        BenchScenario::Build(it) => image::measure(&build_options(it), ours),
        BenchScenario::Db(it) => db::measure(&db_options(it), ours),
        BenchScenario::Import(it) => import::measure(&import_options(it), ours),
        BenchScenario::Compile(it) => compile::measure(&compile_options(it), ours),
        BenchScenario::Cost(it) => cost::measure(&cost_options(it), ours),
        BenchScenario::Tree(it) => tree::measure(&tree_options(it), ours),
        BenchScenario::Loop(arguments) => return print_loop(&arguments),
    };
    let report = report.map_err(|error| {
        let signal = if let Error::Interrupted { signal } = error { Some(signal) } else { None };
        CommandError::in_lines(&error.to_string()).ended_by(signal)
    })?;
    output.write_or(&report, || print(report.text(table::width_of(io::stdout()))))?;
    Ok(ExitCode::SUCCESS)
}

fn base_options(arguments: BaseArguments, defaults: base::BaseOptions) -> base::BaseOptions {
    let BaseArguments { packages, suite, mirror, cache } = arguments;
    let packages = if packages.is_empty() { defaults.packages.clone() } else { packages };
    let cache = cache.unwrap_or(defaults.cache.clone());
    base::BaseOptions { packages, suite, mirror, cache, ..defaults }
}

/// Returns the defaults of a scenario with the given rounds and variants.
fn common(mut defaults: Common, rounds: u32, variants: Vec<String>) -> Common {
    defaults.settings.rounds = rounds;
    Common { variants, ..defaults }
}

fn install_options(arguments: Install) -> install::InstallOptions {
    let Install { dir, rounds, variants, keep, .. } = arguments;
    let mut common = common(install::InstallOptions::new(dir).common, rounds, variants);
    // A single round cannot measure how much two plain installs differ.
    let identity = rounds > 1;
    if !identity {
        common.settings.warm_up = WarmUp::Off;
    }
    install::InstallOptions {
        common,
        base: base_options(arguments.base, base::BaseOptions::default()),
        identity,
        keep,
    }
}

fn build_options(arguments: BuildArguments) -> image::ImageOptions {
    let BuildArguments { dir, rounds, variants, base, chown, .. } = arguments;
    let common = common(image::ImageOptions::new(dir).common, rounds, variants);
    image::ImageOptions { common, base: base_options(base, base::BaseOptions::default()), chown }
}

fn db_options(arguments: Db) -> db::DatabaseOptions {
    let Db { dir, rounds, variants, transactions, etcd, redb, .. } = arguments;
    let common = common(db::DatabaseOptions::new(dir).common, rounds, variants);
    db::DatabaseOptions { common, transactions, etcd, redb }
}

fn import_options(arguments: Import) -> import::ImportOptions {
    let Import { dir, rounds, variants, containerd, layers, files, .. } = arguments;
    let common = common(import::ImportOptions::new(dir).common, rounds, variants);
    import::ImportOptions { common, containerd, layers, files }
}

fn compile_options(arguments: Compile) -> compile::CompileOptions {
    let Compile { source, dir, rounds, variants, jobs, command, prepare, .. } = arguments;
    let defaults = compile::CompileOptions::new(source, dir);
    let common = common(defaults.common, rounds, variants);
    compile::CompileOptions { common, jobs, command, prepare, source: defaults.source }
}

fn cost_options(arguments: Cost) -> cost::CostOptions {
    let defaults = cost::CostOptions::new(arguments.dir);
    let common = common(defaults.common.clone(), arguments.rounds, arguments.variants);
    cost::CostOptions { common, ..defaults }
}

fn tree_options(arguments: Clones) -> tree::CloneOptions {
    let Clones { dir, rounds, variants, source, cold, .. } = arguments;
    let Clones { packages, suite, mirror, cache, .. } = arguments;
    let defaults = tree::CloneOptions::new(dir);
    let base = base_options(BaseArguments { packages, suite, mirror, cache }, defaults.base);
    tree::CloneOptions { common: common(defaults.common, rounds, variants), source, base, cold }
}

fn print_loop(arguments: &Loop) -> Result<ExitCode, CommandError> {
    let kind = arguments.call.parse::<LoopKind>()?;
    let measured = measure_loop(kind, arguments.count, arguments.file.as_deref());
    println!("{}", measured.map_err(|error| error.to_string())?);
    Ok(ExitCode::SUCCESS)
}
