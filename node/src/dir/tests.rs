use super::*;
use std::os::unix::fs::{PermissionsExt, symlink};

fn own() -> (tempfile::TempDir, Dir) {
    let folder = tempfile::tempdir().unwrap();
    let owner = rustix::process::getuid().as_raw();
    let dir = Dir::make(&folder.path().join("run"), owner).unwrap();
    (folder, dir)
}

#[test]
fn a_link_or_a_file_is_no_folder() {
    let (_folder, dir) = own();
    symlink("/tmp", dir.path().join("link")).unwrap();
    dir.create("file", 0o644, b"").unwrap();
    for name in ["link", "file"] {
        assert!(matches!(dir.child(name), Err(DirError::Untrusted { .. })));
        assert!(matches!(
            dir.make_child(name),
            Err(DirError::Untrusted { .. })
        ));
    }
}

#[test]
fn a_folder_that_others_can_write_to_is_refused() {
    let (_folder, dir) = own();
    dir.make_child("open").unwrap();
    for mode in [0o775, 0o757] {
        let mode = std::fs::Permissions::from_mode(mode);
        std::fs::set_permissions(dir.path().join("open"), mode).unwrap();
        let refused = dir.child("open").unwrap_err().to_string();
        assert!(
            refused.ends_with("it can be written to by others"),
            "{refused}"
        );
    }
}

#[test]
fn a_folder_of_another_user_is_refused() {
    let (folder, dir) = own();
    let other = Dir::open(&folder.path().join("run"), dir.owner() + 1);
    assert!(
        other
            .unwrap_err()
            .to_string()
            .ends_with("belongs to another user")
    );
}

#[test]
fn a_folder_in_a_missing_one_cannot_be_made() {
    let (folder, dir) = own();
    let path = folder.path().join("no/run");
    assert!(Dir::open(&path, dir.owner()).unwrap().is_none());
    assert!(Dir::make(&path, dir.owner()).is_err());
}

#[test]
fn removing_follows_no_link() {
    let (folder, dir) = own();
    let outside = folder.path().join("outside");
    std::fs::create_dir(&outside).unwrap();
    std::fs::write(outside.join("kept"), "").unwrap();
    let inside = dir.path().join("a/b/c");
    std::fs::create_dir_all(&inside).unwrap();
    symlink(&outside, inside.join("link")).unwrap();
    symlink(&outside, dir.path().join("link")).unwrap();
    assert!(dir.remove("a").unwrap());
    assert!(dir.remove("link").unwrap());
    assert!(!dir.remove("link").unwrap());
    assert!(outside.join("kept").exists());
    assert_eq!(dir.names().unwrap(), Vec::<String>::new());
}

#[test]
fn removing_a_file_spares_a_folder_of_its_name() {
    let (folder, dir) = own();
    let outside = folder.path().join("outside");
    std::fs::write(&outside, "").unwrap();
    std::fs::write(dir.path().join("file"), "").unwrap();
    symlink(&outside, dir.path().join("link")).unwrap();
    std::fs::create_dir_all(dir.path().join("a/b")).unwrap();
    assert!(dir.remove_file("file").unwrap());
    assert!(!dir.remove_file("file").unwrap());
    assert!(dir.remove_file("link").unwrap());
    assert!(outside.exists());
    assert!(dir.remove_file("a").is_err());
    assert_eq!(dir.names().unwrap(), ["a"]);
}

#[test]
fn only_a_plain_file_is_read() {
    let (_folder, dir) = own();
    let path = |name: &str| dir.path().join(name);
    symlink("/etc/passwd", path("link")).unwrap();
    fs::mknodat(fs::CWD, path("pipe"), FileType::Fifo, Mode::RUSR, 0).unwrap();
    for name in ["link", "pipe"] {
        assert!(dir.read(name, 10).is_err(), "{name}");
    }
    assert!(dir.read("missing", 10).unwrap().is_none());
    dir.create("file", 0o644, b"0123456789abc").unwrap();
    assert_eq!(dir.read("file", 10).unwrap().unwrap(), b"0123456789");
    assert!(dir.create("file", 0o644, b"").is_err());
}
