//! Tests of the stores: the interface's promises, and a disk that fails at every operation in turn.

mod crash;
mod disk;

use std::{fs, io::Write as _, os::unix::fs::PermissionsExt as _, path::Path};

use super::{FORMAT, FileStore, MemoryStore, Store, StoreError, Write};

fn put(key: &str, value: &str) -> Write {
    Write { key: key.to_owned(), value: Some(value.as_bytes().to_vec()) }
}

fn delete(key: &str) -> Write {
    Write { key: key.to_owned(), value: None }
}

/// What of a store can be read as text.
fn texts(store: &dyn Store) -> Vec<(String, String)> {
    let entries = store.snapshot().expect("readable").entries;
    entries.into_iter().map(|(key, value)| (key, String::from_utf8(value).expect("text"))).collect()
}

fn keeps_the_promises_of_the_interface(store: &dyn Store) {
    let mut watch = store.watch();
    assert_eq!(store.snapshot().expect("readable").revision, 0);
    assert_eq!(store.commit(0, vec![put("a", "1"), put("b", "1")]), Ok(1));
    assert!(watch.has_changed().expect("the store lives"));
    assert_eq!(*watch.borrow_and_update(), 1);

    // Worked out for what is no more: nothing of it is written.
    let late = store.commit(0, vec![put("a", "late"), delete("b")]);
    assert_eq!(late, Err(StoreError::Conflict { base: 0, actual: 1 }));
    assert_eq!(texts(store), [("a".into(), "1".into()), ("b".into(), "1".into())]);
    assert!(!watch.has_changed().expect("the store lives"));

    assert_eq!(store.commit(1, vec![delete("b"), put("c", "2"), delete("none")]), Ok(2));
    assert_eq!(texts(store), [("a".into(), "1".into()), ("c".into(), "2".into())]);
}

#[test]
fn memory_keeps_the_promises() {
    keeps_the_promises_of_the_interface(&MemoryStore::default());
}

#[test]
fn a_file_keeps_the_promises_and_what_was_written() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("state");
    {
        let store = FileStore::open(&path).expect("a new store");
        keeps_the_promises_of_the_interface(&store);
        assert_eq!(store.place(), path.display().to_string());
    }
    let store = FileStore::open(&path).expect("the store");
    assert_eq!(texts(&store), [("a".into(), "1".into()), ("c".into(), "2".into())]);
    assert_eq!(*store.watch().borrow(), 2);
    // Nothing else was left in the directory, and nobody else may read it.
    let names: Vec<_> =
        fs::read_dir(dir.path()).expect("readable").flatten().map(|it| it.file_name()).collect();
    assert_eq!(names, ["state"]);
    assert_eq!(fs::metadata(&path).expect("there").permissions().mode() & 0o777, 0o600);
}

fn refusal(path: &Path) -> String {
    match FileStore::open(path) {
        Err(StoreError::Open { place, reason }) => {
            assert_eq!(place, path.display().to_string());
            reason
        }
        Err(error) => panic!("{error}"),
        Ok(_) => panic!("it was opened"),
    }
}

#[test]
fn a_store_that_is_open_already_is_refused_until_it_is_closed() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("state");
    let store = FileStore::open(&path).expect("a new store");
    let reason = refusal(&path);
    assert!(reason.contains("another process has it open"), "{reason}");
    drop(store);
    FileStore::open(&path).expect("free again");
}

#[test]
fn a_directory_that_is_missing_is_named() {
    let dir = tempfile::tempdir().expect("a directory");
    let reason = refusal(&dir.path().join("none/state"));
    assert!(reason.contains("make its directory first"), "{reason}");
    let reason = refusal(dir.path());
    assert!(reason.contains("directory"), "{reason}");
}

#[test]
fn a_file_of_something_else_is_refused_and_left_as_it_is() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("notes.txt");
    for text in ["# Notes\n".to_owned(), "x".repeat(100_000)] {
        fs::write(&path, &text).expect("written");
        let reason = refusal(&path);
        assert!(reason.contains("something else"), "{reason}");
        assert_eq!(fs::read_to_string(&path).expect("there"), text);
    }
}

#[test]
fn a_store_of_a_newer_format_is_refused_and_left_as_it_is() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("state");
    drop(FileStore::open(&path).expect("a new store"));
    {
        let database = redb::Database::open(&path).expect("the database");
        let transaction = database.begin_write().expect("a transaction");
        let about = redb::TableDefinition::<&str, u64>::new("about");
        transaction
            .open_table(about)
            .expect("the table")
            .insert("format", FORMAT + 1)
            .expect("written");
        transaction.commit().expect("committed");
    }
    for _ in 0..2 {
        let reason = refusal(&path);
        assert!(reason.contains(&format!("format {}", FORMAT + 1)), "{reason}");
        assert!(reason.contains("use the version that wrote it"), "{reason}");
    }
}

#[test]
fn a_file_that_lost_its_end_or_its_bytes_is_refused_or_read_as_it_was() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("state");
    keeps_the_promises_of_the_interface(&FileStore::open(&path).expect("a new store"));
    let whole = fs::read(&path).expect("readable");
    for part in [1, 8, 9, 64, 320, 4096, 5000, whole.len() / 2, whole.len() - 1] {
        fs::write(&path, &whole[..part]).expect("written");
        refusal(&path);
    }
    let mut grown = fs::File::options().append(true).open(&path).expect("the file");
    grown.write_all(&vec![0; whole.len()]).expect("written");
    refusal(&path);
}

/// A disk that fails under a file in use is there again, and the file is not: nothing is made in its place.
#[test]
fn a_file_that_somebody_removed_is_not_made_anew_behind_the_back() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("state");
    let store = FileStore::open(&path).expect("a new store");
    assert_eq!(store.commit(0, vec![put("a", "1")]), Ok(1));
    fs::remove_file(&path).expect("removed");
    // It is still open, and has everything.
    assert_eq!(store.commit(1, vec![put("b", "1")]), Ok(2));
    store.fail_once();
    let error = store.snapshot().expect_err("it is gone");
    assert!(matches!(error, StoreError::Open { .. }), "{error}");
    assert!(!path.exists());
}
