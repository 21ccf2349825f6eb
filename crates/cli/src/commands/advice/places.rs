//! The file systems of a run, in a line.

use synconce_durable::record::RunRecord;

/// Returns " on A, B and 3 more": the mount points of the file systems of `record`.
pub(super) fn places(record: &RunRecord) -> String {
    const SHOWN: usize = 4;
    let points = record.file_systems.iter().map(|system| system.mount_point.display().to_string());
    let points: Vec<_> = points.collect();
    let (shown, more) = points.split_at(SHOWN.min(points.len()));
    match (shown, more.len()) {
        ([], _) => String::new(),
        (shown, 0) => format!(" on {}", shown.join(", ")),
        (shown, more) => format!(" on {} and {more} more", shown.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_file_systems_are_named_and_the_others_counted() {
        let record = |points: &[&str]| {
            let systems = points.iter().map(
                |point| serde_json::json!({ "mount_point": point, "type": "ext4", "source": "x" }),
            );
            let text = serde_json::json!({
                "version": 2, "id": "x", "started": "", "boot": "", "user": 0, "supervisor": 1,
                "sealed": false, "file_systems": systems.collect::<Vec<_>>(),
            });
            RunRecord::from_public(text.to_string().as_bytes()).unwrap()
        };
        assert_eq!(places(&record(&[])), "");
        assert_eq!(places(&record(&["/", "/srv"])), " on /, /srv");
        let five = record(&["/", "/a", "/b", "/c", "/d"]);
        assert_eq!(places(&five), " on /, /a, /b, /c and 1 more");
    }
}
