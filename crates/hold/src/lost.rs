//! Held files whose marker is lost: it was in memory, or in the layer of a container that was made
//! anew, or in another state directory.

use crate::config::Config;
use crate::overlay::Place;
use crate::record::Record;
use std::io::ErrorKind;
use synconce_durable::error::Error;

/// Whether a crash has ended the hold of `config`, which has no marker, as the kernel's mark beside
/// a held path says. A stop removes the mark durably before the marker.
///
/// # Errors
/// Names the path that cannot be looked at.
pub(crate) fn is_lost(config: &Config) -> Result<bool, Error> {
    for held in &config.hold {
        let place = match Place::of(held) {
            Err(error) if error.io().kind() == ErrorKind::NotFound => continue,
            place => place?,
        };
        // Another container may hold the files now, with a marker of its own.
        if place.is_marked()? && place.is_in_use()? != Some(true) && !has_marker(&place)? {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Whether the marker of a hold of another name has `place`.
fn has_marker(place: &Place) -> Result<bool, Error> {
    // A damaged marker may have any path. Its hold is to be recovered first.
    let has = |name: &String| {
        let record = Record::read(name).ok().flatten();
        let places = record.and_then(|record| record.places().ok());
        places.is_none_or(|places| places.iter().any(|other| other.path() == place.path()))
    };
    Ok(Record::names()?.iter().any(has))
}
