//! An interrupt; alone in its process, because a signal affects the whole process.

use std::cell::Cell;
use std::rc::Rc;
use std::time::{Duration, Instant};
use synconce_bench::Error;
use synconce_bench::launcher::Launcher;
use synconce_bench::runner::{Settings, WarmUp, run};
use synconce_bench::scenario::{Iteration, IterationConfig, Scenario, Steps, Variant};

struct Fixture(Rc<Cell<bool>>);

impl Steps for Fixture {
    fn reset(&mut self, _: &Iteration<'_>, _: &Launcher) -> Result<IterationConfig, Error> {
        Ok(IterationConfig::default())
    }

    fn clear(&mut self, _: &Iteration<'_>, _: &Launcher) -> Result<(), Error> {
        self.0.set(true);
        Ok(())
    }
}

#[test]
fn an_interrupt_ends_the_command_with_its_children_and_clears_the_fixture() {
    let dir = tempfile::tempdir().expect("a directory can be made");
    let pids = dir.path().join("pids");
    let cleared = Rc::new(Cell::new(false));
    let script = format!("sleep 1000 & echo $! $$ > {}; wait", pids.display());
    let mut scenario = Scenario {
        name: "endless".to_owned(),
        about: String::new(),
        variants: vec![Variant::new("endless", ["sh", "-c", &script])],
        tools: Vec::new(),
        steps: Box::new(Fixture(Rc::clone(&cleared))),
    };
    let settings = Settings { rounds: 1, warm_up: WarmUp::Off, seed: 1 };
    let launcher = Launcher::new().expect("the launcher starts");
    let written = pids.clone();
    let interrupter = std::thread::spawn(move || {
        let start = Instant::now();
        while std::fs::read_to_string(&written).map_or(0, |t| t.len()) < 3 {
            assert!(start.elapsed() < Duration::from_secs(20), "it never started");
            std::thread::sleep(Duration::from_millis(5));
        }
        let own = rustix::process::getpid();
        rustix::process::kill_process(own, rustix::process::Signal::INT)
    });
    let error = run(&mut scenario, &settings, &launcher).expect_err("it is interrupted");
    let sent = interrupter.join().expect("it does not panic");
    sent.expect("the signal is sent");
    assert!(matches!(error, Error::Interrupted { signal: 2 }), "{error}");
    assert!(cleared.get());
    let text = std::fs::read_to_string(&pids).expect("it was written");
    for pid in text.split_whitespace() {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        assert!(stat.is_empty() || stat.contains(") Z "), "alive: {stat}");
    }
}
