//! The reason of a failed call, in words.

use std::io;

/// Returns the kernel's words for `error`, without the number that [`io::Error`] appends: a
/// message for a user names an act, an object and a reason.
pub fn reason(error: &io::Error) -> String {
    let text = error.to_string();
    let Some(errno) = error.raw_os_error() else { return text };
    match text.strip_suffix(&format!(" (os error {errno})")) {
        Some(words) => words.to_owned(),
        None => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_of_the_kernel_is_said_without_its_number_and_others_unchanged() {
        assert_eq!(reason(&io::Error::from_raw_os_error(2)), "No such file or directory");
        assert_eq!(reason(&rustix::io::Errno::EXIST.into()), "File exists");
        assert_eq!(reason(&io::Error::other("it (os error 2)")), "it (os error 2)");
    }
}
