//! Whatever the moment at which it ends, a store comes back with all that it acknowledged.

use redb::Builder;

use super::{super::Snapshot, FileStore, Store, StoreError, Write, disk::Disk};

fn store(disk: Disk) -> FileStore {
    let open = move || {
        let opened = Builder::new().create_with_backend(disk.clone());
        opened.map_err(|error| StoreError::Open { place: "disk".into(), reason: error.to_string() })
    };
    FileStore::with_database(Box::new(open), "disk".into()).expect("a store")
}

/// Transactions as the control plane makes them: new values, changed ones, deleted ones; some of them large.
fn transaction(number: u64) -> Vec<Write> {
    let value = |size: u64| {
        Some(vec![
            u8::try_from(number % 251).expect("a byte");
            usize::try_from(size).expect("small")
        ])
    };
    vec![
        Write { key: format!("endpoint/{}", number % 5), value: value(10 + number) },
        Write {
            key: format!("model/{number}"),
            value: value(if number.is_multiple_of(4) { 20_000 } else { 300 }),
        },
        Write { key: format!("model/{}", number.wrapping_sub(3)), value: None },
    ]
}

/// Goes on until the disk fails or all is done; what was acknowledged last, and what would have come next.
fn work(store: &FileStore, transactions: u64) -> (Snapshot, Snapshot) {
    let mut acknowledged = store.snapshot().expect("readable");
    for _ in 0..transactions {
        let writes = transaction(acknowledged.revision);
        let mut next = acknowledged.clone();
        next.revision += 1;
        for Write { key, value } in writes.clone() {
            match value {
                Some(value) => drop(next.entries.insert(key, value)),
                None => drop(next.entries.remove(&key)),
            }
        }
        if store.commit(acknowledged.revision, writes).is_err() {
            return (acknowledged, next);
        }
        acknowledged = next;
    }
    (acknowledged.clone(), acknowledged)
}

#[test]
fn nothing_acknowledged_is_lost_whichever_write_is_the_last() {
    const TRANSACTIONS: u64 = 12;
    let empty = Disk::default();
    drop(store(empty.clone()));
    let empty = empty.killed();

    let undisturbed = Disk::with(empty.clone());
    let before = undisturbed.operations();
    drop(work(&store(undisturbed.clone()), TRANSACTIONS));
    let operations = undisturbed.operations() - before;
    assert!(operations > 50, "only {operations} operations");

    let mut random = fastrand::Rng::with_seed(7);
    for last in 0..operations {
        let disk = Disk::with(empty.clone());
        let opened = store(disk.clone());
        disk.fail_after(last);
        let (acknowledged, next) = work(&opened, TRANSACTIONS);
        let remains = [
            disk.killed(),
            disk.power_lost(|| false),
            disk.power_lost(|| random.bool()),
            disk.power_lost(|| random.u8(..) > 200),
        ];
        drop(opened);
        for (way, bytes) in remains.into_iter().enumerate() {
            let again = store(Disk::with(bytes));
            let found = again.snapshot().expect("readable");
            assert!(
                found == acknowledged || found == next,
                "after {last} operations, way {way}: revision {} was acknowledged, {} found",
                acknowledged.revision,
                found.revision
            );
            // And it goes on from there.
            let (after, _) = work(&again, 2);
            assert_eq!(after.revision, found.revision + 2);
        }
    }
}

/// As when a disk was full for a while.
#[test]
fn it_goes_on_once_the_disk_does() {
    for last in 0..30 {
        let disk = Disk::default();
        let store = store(disk.clone());
        let (before, _) = work(&store, 2);
        disk.fail_after(last);
        let (acknowledged, next) = work(&store, 12);
        let failed = store.commit(acknowledged.revision, transaction(acknowledged.revision));
        assert!(failed.is_err(), "the disk is gone");
        disk.heal();
        let found = store.snapshot().expect("readable again");
        assert!(acknowledged.revision >= before.revision);
        assert!(found == acknowledged || found == next, "after {last} operations");
        assert_eq!(*store.watch().borrow(), found.revision);
        let (after, _) = work(&store, 3);
        assert_eq!(after.revision, found.revision + 3);
    }
}
