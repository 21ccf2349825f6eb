//! `synconce bench`

use crate::arguments::{Base, Bench, Build, Clones, Compile, Cost, Install, Loop, Scenario};
use crate::exit;
use crate::text::say;
use std::io;
use std::path::Path;
use std::process::ExitCode;
use synconce_bench::runner::WarmUp;
use synconce_bench::{
    Error, LoopKind, base, build, compile, cost, image, install, measure_loop, tree,
};

/// The binary under test: this one.
const OURSELVES: &str = "/proc/self/exe";

/// Runs a benchmark.
pub fn bench(arguments: Bench) -> ExitCode {
    let out = &mut io::stdout().lock();
    let result = match arguments.scenario {
        Scenario::Install(arguments) => {
            let json = arguments.json;
            install(&install_options(arguments), Path::new(OURSELVES), out, json)
        }
        Scenario::Build(arguments) => {
            let json = arguments.json;
            build(&build_options(arguments), Path::new(OURSELVES), out, json)
        }
        Scenario::Compile(arguments) => {
            let json = arguments.json;
            compile(&compile_options(arguments), Path::new(OURSELVES), out, json)
        }
        Scenario::Cost(arguments) => {
            let json = arguments.json;
            cost(&cost_options(arguments), Path::new(OURSELVES), out, json)
        }
        Scenario::Tree(arguments) => {
            let json = arguments.json;
            tree(&tree_options(arguments), Path::new(OURSELVES), out, json)
        }
        Scenario::Loop(arguments) => return print_loop(&arguments),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => fail(&error),
    }
}

fn fail(error: &Error) -> ExitCode {
    say(&error.to_string());
    match error {
        // Cleanup is done: end by the signal, as the caller of an interrupted program expects.
        Error::Interrupted { signal } => exit::by_signal(*signal),
        _ => exit::FAILED.into(),
    }
}

fn base_options(arguments: Base, defaults: base::Options) -> base::Options {
    let Base { packages, suite, mirror, cache } = arguments;
    let packages = if packages.is_empty() { defaults.packages.clone() } else { packages };
    let cache = cache.unwrap_or(defaults.cache.clone());
    base::Options { packages, suite, mirror, cache, ..defaults }
}

fn install_options(arguments: Install) -> install::Options {
    let defaults = install::Options::new(&arguments.dir);
    install::Options {
        base: base_options(arguments.base, base::Options::default()),
        rounds: arguments.rounds,
        // A single round cannot measure how much two plain installs differ.
        warm_up: if arguments.rounds > 1 { defaults.warm_up } else { WarmUp::Off },
        identity: arguments.rounds > 1,
        variants: arguments.variants,
        keep: arguments.keep,
        ..defaults
    }
}

fn build_options(arguments: Build) -> image::Options {
    let defaults = image::Options::new(&arguments.dir);
    image::Options {
        base: base_options(arguments.base, base::Options::default()),
        rounds: arguments.rounds,
        variants: arguments.variants,
        ..defaults
    }
}

fn compile_options(arguments: Compile) -> compile::Options {
    let defaults = compile::Options::new(&arguments.source, &arguments.dir);
    compile::Options {
        jobs: arguments.jobs,
        command: arguments.command,
        prepare: arguments.prepare,
        rounds: arguments.rounds,
        variants: arguments.variants,
        ..defaults
    }
}

fn cost_options(arguments: Cost) -> cost::Options {
    let defaults = cost::Options::new(&arguments.dir);
    cost::Options { rounds: arguments.rounds, variants: arguments.variants, ..defaults }
}

fn tree_options(arguments: Clones) -> tree::Options {
    let defaults = tree::Options::new(&arguments.dir);
    let Clones { packages, suite, mirror, cache, .. } = arguments;
    let base = Base { packages, suite, mirror, cache };
    tree::Options {
        source: arguments.source,
        base: base_options(base, defaults.base.clone()),
        cold: arguments.cold,
        rounds: arguments.rounds,
        variants: arguments.variants,
        ..defaults
    }
}

fn print_loop(arguments: &Loop) -> ExitCode {
    let kind = arguments.call.parse::<LoopKind>();
    let measured = kind.and_then(|kind| {
        measure_loop(kind, arguments.count, arguments.file.as_deref())
            .map_err(|error| error.to_string())
    });
    match measured {
        Ok(nanoseconds) => {
            println!("{nanoseconds}");
            ExitCode::SUCCESS
        }
        Err(error) => {
            say(&error);
            exit::FAILED.into()
        }
    }
}
