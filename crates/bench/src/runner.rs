//! Runs a scenario: interleaves all its variants, round by round.
//!
//! The order within a round is shuffled from a seed, so that a slow drift of the machine
//! affects all variants equally.

mod caches;
mod device;

use crate::command::fill;
use crate::launcher::{CommandOutcome, Launcher};
use crate::scenario::{
    Iteration, IterationConfig, Measure, Observation, Phase, SamplePart, Scenario, Variant,
};
use crate::{Error, processes};
use device::Flushes;
use indicatif::{ProgressBar, ProgressStyle};
use serde::{Deserialize, Serialize};
use std::path::Path;

/// How to run a scenario.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Settings {
    /// Measured rounds.
    pub rounds: u32,
    /// Untimed runs before the rounds.
    pub warm_up: WarmUp,
    /// Seed of the order and of the bootstrap.
    pub seed: u64,
}

/// Which variants run once untimed before the first round.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum WarmUp {
    /// None.
    Off,
    /// The baselines.
    Baselines,
    /// All variants.
    All,
}

/// One measured run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Sample {
    /// The round, from 1.
    pub round: u32,
    /// The place within the round, from 1.
    pub position: u32,
    /// The measured number, in the unit of the variant's measure.
    pub value: f64,
    /// Wall time of all commands and repeats, in milliseconds.
    pub wall_ms: f64,
    /// User time of all processes that ended, in milliseconds.
    pub user_ms: f64,
    /// System time of the same processes, in milliseconds.
    pub system_ms: f64,
    /// Exit code of the last command.
    pub exit_code: i32,
    /// Number of flushes that the whole device completed during the run, if the kernel counts
    /// them; other processes on the same disk add to it.
    pub flushes: Option<u64>,
    /// Time of a `syncfs` right after the run, in milliseconds: it covers the data that the
    /// variant had not made durable.
    pub settle_ms: Option<f64>,
    /// The parts of the wall time, if the scenario can separate them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub parts: Vec<SamplePart>,
}

/// A variant with its samples.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Measured {
    /// The variant.
    pub variant: Variant,
    /// All samples, in the order of the rounds.
    pub samples: Vec<Sample>,
}

/// A variant that could not run here.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeftOut {
    /// The variant's name.
    pub variant: String,
    /// The reason.
    pub reason: String,
    /// The package that contains the missing program.
    pub package: Option<String>,
}

/// The complete result of a run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct BenchRecord {
    /// The measured variants, in the order of the scenario.
    pub measured: Vec<Measured>,
    /// The variants that could not run.
    pub left_out: Vec<LeftOut>,
    /// Findings that are not times.
    pub findings: Vec<Observation>,
}

/// Prepares and runs a scenario.
///
/// # Errors
/// The first failure of a variant, of a step or of the system, or an interrupt. The fixture is
/// cleared in every case.
pub fn run(
    scenario: &mut Scenario,
    settings: &Settings,
    launcher: &Launcher,
) -> Result<BenchRecord, Error> {
    let mut record = BenchRecord::default();
    let present = take_present(&scenario.variants, &mut record.left_out);
    let bar = progress(settings, present.len());
    bar.set_message("preparing");
    scenario.steps.prepare(launcher)?;
    let variants = take_usable(scenario, present, launcher, &mut record.left_out)?;
    if variants.is_empty() {
        let left_out = record.left_out.iter();
        return Err(Error::NothingToMeasure {
            left_out: left_out.map(|v| format!("{} ({})", v.variant, v.reason)).collect(),
        });
    }
    warm_up(scenario, &variants, settings, launcher, &bar)?;
    let mut samples = vec![Vec::new(); variants.len()];
    let mut random = fastrand::Rng::with_seed(settings.seed);
    for round in 1..=settings.rounds {
        let mut order: Vec<usize> = (0..variants.len()).collect();
        random.shuffle(&mut order);
        for (position, index) in (1..).zip(order) {
            let iteration = Iteration {
                phase: Phase::Round(round),
                last: round == settings.rounds,
                variant: &variants[index],
            };
            bar.set_message(format!("{} {}", iteration.phase, iteration.variant.name));
            samples[index].push(Sample {
                round,
                position,
                ..run_iteration(scenario, &iteration, launcher)?
            });
            bar.inc(1);
        }
    }
    bar.set_message("comparing");
    record.findings = scenario.steps.conclude()?;
    record.measured = variants
        .into_iter()
        .zip(samples)
        .map(|(variant, samples)| Measured { variant, samples })
        .collect();
    bar.finish_and_clear();
    Ok(record)
}

/// Returns a progress line on standard error, if that is a terminal.
fn progress(settings: &Settings, variants: usize) -> ProgressBar {
    let bar = ProgressBar::new(u64::from(settings.rounds) * variants as u64);
    if let Ok(style) = ProgressStyle::with_template("{elapsed_precise} {pos}/{len} {msg}") {
        bar.set_style(style);
    }
    bar.enable_steady_tick(std::time::Duration::from_secs(1));
    bar
}

fn take_present(variants: &[Variant], left_out: &mut Vec<LeftOut>) -> Vec<Variant> {
    let mut present = Vec::new();
    for variant in variants {
        match variant.needs.iter().find(|need| !need.is_met()) {
            None => present.push(variant.clone()),
            Some(need) => left_out.push(LeftOut {
                variant: variant.name.clone(),
                reason: format!("{} is not installed", need.program),
                package: Some(need.package.clone()),
            }),
        }
    }
    present
}

/// Leaves out the variants whose trial command fails, with the command's error line as the
/// reason.
fn take_usable(
    scenario: &mut Scenario,
    present: Vec<Variant>,
    launcher: &Launcher,
    left_out: &mut Vec<LeftOut>,
) -> Result<Vec<Variant>, Error> {
    let mut usable = Vec::new();
    for variant in present {
        let Some(trial) = variant.trial.clone() else {
            usable.push(variant);
            continue;
        };
        let iteration = Iteration { phase: Phase::Trial, last: false, variant: &variant };
        let log = iteration.log(launcher);
        let outcome = with_fixture(scenario, &iteration, launcher, |_, config| {
            launcher.run_in(config.dir.as_deref(), &fill(&trial, &config.values), &log, None)
        })?;
        if outcome.status.success() {
            usable.push(variant);
        } else {
            left_out.push(LeftOut {
                reason: format!("trial ended with {}: {}", outcome.status, reason(&log)),
                package: None,
                variant: variant.name,
            });
        }
    }
    Ok(usable)
}

fn warm_up(
    scenario: &mut Scenario,
    variants: &[Variant],
    settings: &Settings,
    launcher: &Launcher,
    bar: &ProgressBar,
) -> Result<(), Error> {
    let wanted = |variant: &&Variant| match settings.warm_up {
        WarmUp::Off => false,
        WarmUp::Baselines => variant.is_baseline(),
        WarmUp::All => true,
    };
    for variant in variants.iter().filter(wanted) {
        let iteration = Iteration { phase: Phase::WarmUp, last: false, variant };
        bar.set_message(format!("{} {}", iteration.phase, variant.name));
        run_iteration(scenario, &iteration, launcher)?;
    }
    Ok(())
}

/// Makes the fixture, runs the action, and clears the fixture however the action ended.
fn with_fixture<T>(
    scenario: &mut Scenario,
    iteration: &Iteration<'_>,
    launcher: &Launcher,
    action: impl FnOnce(&mut Scenario, &IterationConfig) -> Result<T, Error>,
) -> Result<T, Error> {
    let made = scenario.steps.reset(iteration, launcher).and_then(|config| {
        // Write-back of the fixture must not fall into the measured time.
        config.settle.as_deref().map(caches::write_back).transpose()?;
        Ok(config)
    });
    let result = made.and_then(|config| action(scenario, &config));
    let cleared = scenario.steps.clear(iteration, launcher);
    let value = result?;
    cleared.map(|()| value)
}

fn run_iteration(
    scenario: &mut Scenario,
    iteration: &Iteration<'_>,
    launcher: &Launcher,
) -> Result<Sample, Error> {
    with_fixture(scenario, iteration, launcher, |scenario, config| {
        let sample = measure(iteration, config, launcher)?;
        let log = iteration.log(launcher);
        let parts = scenario.steps.parts(iteration, sample.parts.clone(), &log)?;
        scenario.steps.check(iteration, launcher)?;
        Ok(Sample { parts, ..sample })
    })
}

fn measure(
    iteration: &Iteration<'_>,
    config: &IterationConfig,
    launcher: &Launcher,
) -> Result<Sample, Error> {
    let variant = iteration.variant;
    let commands: Vec<_> = variant.commands.iter().map(|c| fill(c, &config.values)).collect();
    let log = iteration.log(launcher);
    let printed = log.with_extension("out");
    let stdout = (variant.measure == Measure::Printed).then_some(printed.as_path());
    let flushes = Flushes::find(config.settle.as_deref());
    let served = config.server.map(processes::times).transpose()?;
    let mut total = CommandOutcome::default();
    let mut parts = Vec::new();
    for _ in 0..variant.repeat {
        for (index, command) in commands.iter().enumerate() {
            let part = variant.parts.get(index);
            if part.is_some_and(|name| config.cold.contains(name)) {
                caches::empty(config.settle.as_deref())?;
            }
            let outcome = launcher.run_in(config.dir.as_deref(), command, &log, stdout)?;
            if !outcome.status.success() {
                return Err(iteration.error(command, outcome.status.to_string(), &log));
            }
            total = total.plus(&outcome);
            if let Some(name) = part {
                let ms = outcome.wall.as_secs_f64() * 1e3 / f64::from(variant.repeat);
                add(&mut parts, name, ms);
            }
        }
    }
    let flushes = flushes.and_then(|before| before.since());
    if let (Some(server), Some((user, system))) = (config.server, served) {
        let after = processes::times(server)?;
        total.user += after.0.saturating_sub(user);
        total.system += after.1.saturating_sub(system);
    }
    let wall_ms = total.wall.as_secs_f64() * 1e3;
    let value = match variant.measure {
        Measure::Wall => wall_ms / f64::from(variant.repeat),
        Measure::Printed => last_line(&printed)
            .split_whitespace()
            .next_back()
            .and_then(|word| word.parse().ok())
            .ok_or_else(|| iteration.error(&commands.concat(), "it printed no number", &log))?,
    };
    let settled = config.settle.as_deref().map(caches::write_back).transpose()?;
    Ok(Sample {
        round: 0,
        position: 0,
        value,
        wall_ms,
        user_ms: total.user.as_secs_f64() * 1e3,
        system_ms: total.system.as_secs_f64() * 1e3,
        exit_code: total.status.code().unwrap_or(-1),
        flushes,
        settle_ms: settled.map(|time| time.as_secs_f64() * 1e3),
        parts,
    })
}

/// Adds a time to the part of that name, which is created if necessary.
fn add(parts: &mut Vec<SamplePart>, name: &str, ms: f64) {
    match parts.iter_mut().find(|part| part.name == name) {
        Some(part) => part.ms += ms,
        None => parts.push(SamplePart::new(name, ms)),
    }
}

/// Returns the line of a log that contains the error. That is the first line that begins with the
/// error word, because a usage text may follow. If there is none, it is the last line of synconce
/// that is no hint, because notices may precede. Otherwise it is the last line.
fn reason(log: &Path) -> String {
    let bytes = std::fs::read(log).unwrap_or_default();
    let text = String::from_utf8_lossy(&bytes);
    let error = text.lines().find(|line| line.starts_with("error: ") || line.starts_with("E: "));
    let is_own =
        |line: &&str| line.starts_with("synconce: ") && !line.starts_with("synconce: hint:");
    let error = error.or_else(|| text.lines().rev().find(is_own));
    error.map_or_else(|| last_line(log), |line| line.trim().to_owned())
}

fn last_line(log: &Path) -> String {
    let bytes = std::fs::read(log).unwrap_or_default();
    let text = String::from_utf8_lossy(&bytes);
    let last = text.lines().rev().find(|line| !line.trim().is_empty());
    last.unwrap_or("no output").trim().to_owned()
}
