//! `synconce bench`

use crate::arguments::bench::{
    BaseArguments, BenchArguments, BenchScenario, BuildArguments, Clones, CommonArguments, Compile,
    Cost, Db, Import, Install, Loop,
};
use crate::commands::error::CommandError;
use crate::commands::output::{Output, Stream, print};
use crate::table;
use std::io;
use std::path::Path;
use std::process::ExitCode;
use synconce_bench::image::MeasuredStep;
use synconce_bench::runner::WarmUp;
use synconce_bench::{
    Common, Error, LoopKind, base, compile, cost, db, image, import, install, measure_loop, tree,
};

/// Runs a benchmark of this binary.
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
fn common(mut defaults: Common, given: CommonArguments) -> Common {
    defaults.settings.rounds = given.rounds;
    Common { variants: given.variants, ..defaults }
}

fn install_options(arguments: Install) -> install::InstallOptions {
    let Install { common: given, base, keep } = arguments;
    let mut common = common(install::InstallOptions::new(&given.dir).common, given);
    // A single round cannot measure how much two plain installs differ.
    let identity = common.settings.rounds > 1;
    if !identity {
        common.settings.warm_up = WarmUp::Off;
    }
    let base = base_options(base, base::BaseOptions::default());
    install::InstallOptions { common, base, identity, keep }
}

fn build_options(arguments: BuildArguments) -> image::ImageOptions {
    let BuildArguments { common: given, base, chown, copy_up, upgrade } = arguments;
    let common = common(image::ImageOptions::new(&given.dir).common, given);
    let mut base = base_options(base, base::BaseOptions::default());
    let step = match (chown, copy_up) {
        (Some(files), _) => MeasuredStep::Chown(files),
        (None, Some(size)) => MeasuredStep::CopyUp(size),
        (None, None) if upgrade => MeasuredStep::Upgrade,
        (None, None) => MeasuredStep::Install,
    };
    if upgrade {
        base.content = base::BaseContent::Upgradable;
    }
    image::ImageOptions { common, base, step }
}

fn db_options(arguments: Db) -> db::DatabaseOptions {
    let Db { common: given, transactions, etcd, redb } = arguments;
    let common = common(db::DatabaseOptions::new(&given.dir).common, given);
    db::DatabaseOptions { common, transactions, etcd, redb }
}

fn import_options(arguments: Import) -> import::ImportOptions {
    let Import { common: given, containerd, layers, files } = arguments;
    let common = common(import::ImportOptions::new(&given.dir).common, given);
    import::ImportOptions { common, containerd, layers, files }
}

fn compile_options(arguments: Compile) -> compile::CompileOptions {
    let Compile { source, common: given, jobs, command, prepare } = arguments;
    let common = common(compile::CompileOptions::new(&source, &given.dir).common, given);
    compile::CompileOptions { common, jobs, command, prepare, source }
}

fn cost_options(Cost { common: given }: Cost) -> cost::CostOptions {
    let defaults = cost::CostOptions::new(&given.dir);
    cost::CostOptions { common: common(defaults.common.clone(), given), ..defaults }
}

fn tree_options(arguments: Clones) -> tree::CloneOptions {
    let Clones { common: given, source, cold, base } = arguments;
    let defaults = tree::CloneOptions::new(&given.dir);
    let base = base_options(base, defaults.base);
    tree::CloneOptions { common: common(defaults.common, given), source, base, cold }
}

fn print_loop(arguments: &Loop) -> Result<ExitCode, CommandError> {
    let kind = arguments.call.parse::<LoopKind>()?;
    let measured = measure_loop(kind, arguments.count, arguments.file.as_deref());
    print(format!("{}\n", measured.map_err(|error| error.to_string())?))?;
    Ok(ExitCode::SUCCESS)
}
