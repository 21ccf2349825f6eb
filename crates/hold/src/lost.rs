//! Held files whose marker is lost: it was in memory, or in the layer of a container that was made
//! anew, or in another state directory.

use crate::aside::Journal;
use crate::config::Config;
use crate::error::Unclean;
use crate::note;
use crate::record::HoldRecord;
use crate::resolved_path::ResolvedPath;
use crate::safe_directory::if_there;
use synconce_durable::error::Error;

/// Returns why the hold of `config`, which has no marker, needs a recovery: the kernel's mark
/// beside a held path says that the hold was not stopped. A stop removes the mark durably before
/// the marker. While the file system stays mounted, the kernel has every write.
///
/// A recovery removes the mark, too: a recovery that was cut short has its journal.
pub(crate) fn unclean(config: &Config) -> Result<Option<Unclean>, Error> {
    if Journal::read(&config.name)?.is_setting_aside() {
        return Ok(Some(Unclean::Marker));
    }
    let mut why = None;
    for held in &config.hold {
        let Some(place) = if_there(ResolvedPath::find(held))? else { continue };
        // Another container may hold the files now, with a marker of its own.
        if place.is_marked()? && place.is_in_use()? != Some(true) && !has_marker(&place)? {
            match note::was_mounted(&place) {
                Some(true) => {}
                Some(false) => return Ok(Some(Unclean::Marker)),
                None => why = Some(Unclean::UnknownMarker),
            }
        }
    }
    Ok(why)
}

/// Whether the marker of a hold of another name has `place`. A damaged marker has no place: the
/// mark beside `place` says, whatever the name of its hold was, that the hold was not stopped.
fn has_marker(place: &ResolvedPath) -> Result<bool, Error> {
    for name in HoldRecord::names()? {
        let record = match HoldRecord::read(&name) {
            Err(error) if HoldRecord::is_damage(&error) => None,
            record => record?,
        };
        let places = record.map(|record| record.known_places()).unwrap_or_default();
        if places.iter().any(|other| other.path() == place.path()) {
            return Ok(true);
        }
    }
    Ok(false)
}
