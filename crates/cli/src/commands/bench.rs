//! `synconce bench`

use crate::arguments::bench::{
    BaseArguments, BenchArguments, BenchScenario, BuildArguments, Clones, CommonArguments, Compile,
    Db, Import, Install, Loop,
};
use crate::commands::error::CommandError;
use crate::commands::output::{Output, Stream, print};
use crate::table;
use std::io;
use std::path::Path;
use std::process::ExitCode;
use synconce_bench::base::{BaseContent, BaseOptions, default_cache};
use synconce_bench::compile::{self, CompileOptions};
use synconce_bench::db::{self, DatabaseOptions};
use synconce_bench::image::{self, ImageOptions, MeasuredStep};
use synconce_bench::import::{self, ImportOptions};
use synconce_bench::install::{self, InstallOptions};
use synconce_bench::runner::WarmUp;
use synconce_bench::tree::{self, CloneOptions, PACKAGES};
use synconce_bench::{Common, Error, LoopKind, cost, measure_loop};
use synconce_durable::text::quote;

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
        BenchScenario::Cost(it) => cost::measure(&it.common.options(WarmUp::All), ours),
        BenchScenario::Tree(it) => tree::measure(&tree_options(it), ours),
        BenchScenario::Loop(arguments) => return print_loop(&arguments),
    };
    let report = report.map_err(|error| {
        let signal = if let Error::Interrupted { signal } = error { Some(signal) } else { None };
        let remedy = match &error {
            Error::Foreign { path, .. } => Some(format!("rm -r -- {}", quote(path))),
            Error::Exposed(path) => Some(format!("chmod o-w -- {}", quote(path))),
            _ => None,
        };
        let remedy = remedy.map(|act| format!("{act}, or name another directory by --dir"));
        CommandError::in_lines(&error.to_string()).with_remedy(remedy).ended_by(signal)
    })?;
    output.write_or(&report, || print(report.text(table::width_of(io::stdout()))))?;
    Ok(ExitCode::SUCCESS)
}

impl CommonArguments {
    fn options(self, warm_up: WarmUp) -> Common {
        Common { variants: self.variants, ..Common::new(self.dir, self.rounds, warm_up) }
    }
}

impl BaseArguments {
    fn options(self, content: BaseContent) -> BaseOptions {
        let Self { packages, suite, mirror, cache } = self;
        let cache = cache.unwrap_or_else(default_cache);
        BaseOptions { packages, content, suite, mirror, cache }
    }
}

fn install_options(Install { common, base, keep }: Install) -> InstallOptions {
    // A single round cannot measure how much two plain installs differ.
    let identity = common.rounds > 1;
    let common = common.options(if identity { WarmUp::Baselines } else { WarmUp::Off });
    InstallOptions { common, base: base.options(BaseContent::Downloaded), identity, keep }
}

fn build_options(arguments: BuildArguments) -> ImageOptions {
    let BuildArguments { common, base, chown, copy_up, upgrade } = arguments;
    let step = match (chown, copy_up) {
        (Some(files), _) => MeasuredStep::Chown(files),
        (None, Some(size)) => MeasuredStep::CopyUp(size),
        (None, None) if upgrade => MeasuredStep::Upgrade,
        (None, None) => MeasuredStep::Install,
    };
    let content = if upgrade { BaseContent::Upgradable } else { BaseContent::Downloaded };
    let (common, base) = (common.options(WarmUp::Baselines), base.options(content));
    ImageOptions { common, base, step }
}

fn db_options(Db { common, transactions, etcd, redb }: Db) -> DatabaseOptions {
    DatabaseOptions { common: common.options(WarmUp::Baselines), transactions, etcd, redb }
}

fn import_options(Import { common, containerd, layers, files }: Import) -> ImportOptions {
    ImportOptions { common: common.options(WarmUp::Baselines), containerd, layers, files }
}

fn compile_options(arguments: Compile) -> CompileOptions {
    let Compile { source, common, jobs, command, prepare } = arguments;
    let common = common.options(WarmUp::Baselines);
    CompileOptions { common, jobs, command, prepare, source }
}

fn tree_options(Clones { common, source, cold, mut base }: Clones) -> CloneOptions {
    if base.packages.is_empty() {
        base.packages = PACKAGES.map(str::to_owned).to_vec();
    }
    let base = base.options(BaseContent::Installed);
    CloneOptions { common: common.options(WarmUp::All), source, base, cold }
}

fn print_loop(arguments: &Loop) -> Result<ExitCode, CommandError> {
    let kind = arguments.call.parse::<LoopKind>()?;
    let measured = measure_loop(kind, arguments.count, arguments.file.as_deref());
    print(format!("{}\n", measured.map_err(|error| error.to_string())?))?;
    Ok(ExitCode::SUCCESS)
}
