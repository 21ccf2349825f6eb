//! Walks over whole trees by more than one thread: by descriptors of directories and
//! names in them, never by paths.
