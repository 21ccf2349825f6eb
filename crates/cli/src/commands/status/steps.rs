//! The held build steps of engines, after the runs.

use super::Shown;
use crate::table::fit;
use crate::text::{printable, whole};
use synconce_durable::record::time;
use synconce_oci::held_steps::HeldSteps;

/// Returns the steps with the fields of a run.
pub(super) fn shown(steps: HeldSteps) -> Shown {
    Shown {
        id: steps.engine.to_owned(),
        state: "counted",
        owner: rustix::process::geteuid().as_raw(),
        steps: Some(steps),
        ..Shown::default()
    }
}

/// Returns a line for each engine, broken where it is wider than `width`; `owner` is added to the
/// engine's name.
pub(super) fn render(steps: &[HeldSteps], owner: &str, width: Option<usize>) -> String {
    let render = |steps: &HeldSteps| {
        let noun = if steps.count == 1 { "build step" } else { "build steps" };
        let count = whole(steps.count);
        let mut line = format!("{}{owner}: {count} {noun} held since the boot", steps.engine);
        if steps.volatile > 0 {
            line += &format!(", {} with a volatile root", whole(steps.volatile));
        }
        if steps.as_mounted > 0 {
            let why = steps.as_mounted_reason.iter().map(|why| format!(" (last reason: {why})"));
            let why: String = why.collect();
            line += &format!(", {} with the root as mounted{why}", whole(steps.as_mounted));
        }
        if let Some(last) = &steps.last {
            let image = last.image.as_ref().map(|image| format!(" from {}", shortened(image)));
            line += &format!(", the last {}{}", time(last.time), image.unwrap_or_default());
        }
        fit(&printable(&line), width) + "\n"
    };
    steps.iter().map(render).collect()
}

/// Returns the ID of an image as Docker shows it, and other names whole.
fn shortened(image: &str) -> &str {
    let id = image.strip_prefix("sha256:").filter(|id| id.is_ascii());
    id.and_then(|id| id.get(..12)).unwrap_or(image)
}

#[cfg(test)]
mod tests {
    use super::*;
    use synconce_oci::held_steps::LastStep;

    #[test]
    fn the_id_of_an_image_is_that_of_docker_images() {
        let id = format!("sha256:0123456789ab{}", "f".repeat(52));
        for (image, shown) in [(id.as_str(), "0123456789ab"), ("docker.io/a:1", "docker.io/a:1")] {
            let last = Some(LastStep { time: 0, image: Some(image.to_owned()) });
            let (engine, as_mounted_reason) = ("docker", None);
            let steps =
                HeldSteps { engine, count: 1, volatile: 0, as_mounted: 0, as_mounted_reason, last };
            let line =
                "docker: 1 build step held since the boot, the last 1970-01-01T00:00:00Z from";
            assert_eq!(render(std::slice::from_ref(&steps), "", None), format!("{line} {shown}\n"));
            let narrow = render(&[steps], "", Some(80));
            assert_eq!(narrow, format!("{line}\n  {shown}\n"));
        }
    }
}
