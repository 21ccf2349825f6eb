use super::*;

#[test]
fn the_major_version_is_read_from_what_dockerd_prints() {
    assert_eq!(major("Docker version 20.10.24+dfsg1, build 5d6db84"), Some(20));
    assert_eq!(major("Docker version 28.3.0, build 265f709647"), Some(28));
    assert_eq!(major("Docker version 26.0.0-rc1, build 0"), Some(26));
    assert_eq!(major("Docker version dev, build HEAD"), None);
    assert_eq!(major(""), None);
}
