//! A store in a file of this host, by redb: transactions that survive a crash at any moment.

use std::{
    fs::{self, File, OpenOptions},
    io,
    os::unix::fs::OpenOptionsExt,
    panic::{AssertUnwindSafe, catch_unwind},
    path::{Path, PathBuf},
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
};

use redb::{
    Builder, Database, DatabaseError, ReadableDatabase, ReadableTable, StorageError,
    TableDefinition, WriteTransaction,
};
use tokio::sync::watch;

use super::{FORMAT, Snapshot, Store, StoreError, Write};

/// Resources by key.
const RESOURCES: TableDefinition<'_, &str, &[u8]> = TableDefinition::new("resources");
/// Numbers about the store itself.
const ABOUT: TableDefinition<'_, &str, u64> = TableDefinition::new("about");
const FORMAT_KEY: &str = "format";
const REVISION_KEY: &str = "revision";

/// What to do with a damaged file.
const DAMAGED: &str = "put back a copy of it, or begin with a new file";

/// Pages that are kept in memory, in bytes: resources are few and small, and read once.
const CACHE: usize = 4 << 20;

/// Opens the database anew after a failure.
type Open = Box<dyn Fn() -> Result<Database, StoreError> + Send + Sync>;

/// Keeps values in a file, which is locked for as long as it is open.
pub struct FileStore {
    /// Absent after a failure, until it has been opened anew: redb takes nothing more by a database whose
    /// file could not be written, and a disk that was full has room again some day.
    database: Mutex<Option<Database>>,
    /// Another process is about to open it.
    released: AtomicBool,
    open: Open,
    path: PathBuf,
    revision: watch::Sender<u64>,
}

impl FileStore {
    /// Opens the file, or makes it with an empty store. Its directory has to be there.
    ///
    /// # Errors
    ///
    /// [`StoreError::Open`] when it cannot be opened, is open in another process, is no such file, or is of a
    /// newer [format](FORMAT).
    pub fn open(path: &Path) -> Result<Self, StoreError> {
        let failed = |reason: String| not_open(path, reason);
        let there = path.try_exists().map_err(|error| failed(error.to_string()))?;
        if !there {
            make(path).map_err(&failed)?;
        }
        let file = path.to_owned();
        // What is opened anew is not made anew: a file that somebody removed holds nothing.
        Self::with_database(Box::new(move || open_file(&file)), path.to_owned())
    }

    /// Works on a database that is opened so; `path` is what people call it.
    pub(super) fn with_database(open: Open, path: PathBuf) -> Result<Self, StoreError> {
        let (database, released) = Default::default();
        let store = Self { database, released, open, path, revision: watch::Sender::new(0) };
        store.with(|_| Ok(()))?;
        Ok(store)
    }

    /// Does something with the database, which is opened first where that is due.
    fn with<T>(
        &self,
        work: impl FnOnce(&Database) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        let mut held = self.database.lock().unwrap_or_else(PoisonError::into_inner);
        if self.released.load(Relaxed) {
            let reason = "another gateway is taking it over: ask again in a moment".to_owned();
            return Err(StoreError::Failed { reason });
        }
        let database = match held.take() {
            Some(database) => database,
            None => {
                let database = (self.open)()?;
                let revision = self.check(&database)?;
                // A transaction that failed may have been made nevertheless.
                self.revision.send_if_modified(|known| {
                    let news = *known != revision;
                    *known = revision;
                    news
                });
                database
            }
        };
        let done = work(&database);
        if !matches!(done, Err(StoreError::Failed { .. })) {
            *held = Some(database);
        }
        done
    }

    /// As after a failure: the next use opens the database anew.
    #[cfg(test)]
    pub(super) fn fail_once(&self) {
        let failed = StoreError::Failed { reason: "a test".to_owned() };
        let _ = self.with(|_| Err::<(), _>(failed));
    }

    /// The store's revision, if this version can read it.
    fn check(&self, database: &Database) -> Result<u64, StoreError> {
        let format = prepare(database).map_err(|error| not_open(&self.path, error.to_string()))?;
        if format > FORMAT {
            let reason = format!(
                "it has format {format}, and this version of the gateway knows {FORMAT} at most: use the \
                 version that wrote it, or a new file"
            );
            return Err(not_open(&self.path, reason));
        }
        read(database).map(|snapshot| snapshot.revision).map_err(failed)
    }
}

fn open_file(path: &Path) -> Result<Database, StoreError> {
    let file = OpenOptions::new().read(true).write(true).open(path);
    let file = file.map_err(|error| not_open(path, error.to_string()))?;
    // redb asserts that a file has the length that its header says, for one: such a file is refused as other
    // damaged ones are.
    let opened = catch_unwind(AssertUnwindSafe(|| builder().create_file(file)));
    match opened {
        Ok(opened) => opened.map_err(|error| not_open(path, explain(&error))),
        Err(_) => Err(not_open(path, format!("it is damaged: {DAMAGED}"))),
    }
}

fn not_open(path: &Path, reason: String) -> StoreError {
    StoreError::Open { place: path.display().to_string(), reason }
}

impl Store for FileStore {
    fn snapshot(&self) -> Result<Snapshot, StoreError> {
        self.with(|database| read(database).map_err(failed))
    }

    fn commit(&self, base: u64, writes: Vec<Write>) -> Result<u64, StoreError> {
        self.with(|database| {
            let transaction = database.begin_write().map_err(|error| failed(error.into()))?;
            let actual = revision(&transaction).map_err(failed)?;
            if actual != base {
                return Err(StoreError::Conflict { base, actual });
            }
            // A transaction that is not committed is undone when it is dropped. A commit is on the disk when
            // it returns: that is redb's default durability.
            write(&transaction, base + 1, writes).map_err(failed)?;
            transaction.commit().map_err(|error| failed(error.into()))
        })?;
        self.revision.send_replace(base + 1);
        Ok(base + 1)
    }

    fn watch(&self) -> watch::Receiver<u64> {
        self.revision.subscribe()
    }

    fn release(&self) {
        let mut held = self.database.lock().unwrap_or_else(PoisonError::into_inner);
        self.released.store(true, Relaxed);
        // What was committed is on the disk.
        *held = None;
    }

    fn regain(&self) {
        self.released.store(false, Relaxed);
    }

    fn place(&self) -> String {
        self.path.display().to_string()
    }
}

fn builder() -> Builder {
    let mut builder = Builder::new();
    builder.set_cache_size(CACHE);
    builder
}

/// Makes the file whole under another name first: whoever is killed meanwhile leaves nothing under this one.
fn make(path: &Path) -> Result<(), String> {
    let mut name = path.file_name().ok_or("it is no name of a file")?.to_owned();
    name.push(format!(".{}.new", std::process::id()));
    let new = path.with_file_name(name);
    let made = fill(&new).and_then(|()| match fs::hard_link(&new, path) {
        // Another process was faster: that file is as good.
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        linked => linked.map_err(|error| error.to_string()),
    });
    let removed = fs::remove_file(&new);
    made?;
    removed.map_err(|error| error.to_string())?;
    let parent =
        path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    File::open(parent).and_then(|dir| dir.sync_all()).map_err(|error| error.to_string())
}

/// An empty store. Nobody but its owner may read it: what people put into environments of models may be
/// secret.
fn fill(path: &Path) -> Result<(), String> {
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(path);
    let file = file.map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => format!("{error}: make its directory first"),
        io::ErrorKind::PermissionDenied => {
            format!("{error}: let the gateway's user write to its directory, or name another one")
        }
        _ => error.to_string(),
    })?;
    let database = builder().create_file(file).map_err(|error| explain(&error))?;
    prepare(&database).map(drop).map_err(|error| error.to_string())
}

/// Makes the tables if they are not there, and says which format the store has.
fn prepare(database: &Database) -> Result<u64, redb::Error> {
    let transaction = database.begin_write()?;
    let stored = transaction.open_table(ABOUT)?.get(FORMAT_KEY)?.map(|format| format.value());
    if let Some(format) = stored {
        transaction.abort()?;
        return Ok(format);
    }
    transaction.open_table(ABOUT)?.insert(FORMAT_KEY, FORMAT)?;
    transaction.open_table(RESOURCES)?;
    transaction.commit()?;
    Ok(FORMAT)
}

fn read(database: &Database) -> Result<Snapshot, redb::Error> {
    let transaction = database.begin_read()?;
    let revision =
        transaction.open_table(ABOUT)?.get(REVISION_KEY)?.map_or(0, |revision| revision.value());
    let mut snapshot = Snapshot { revision, ..Snapshot::default() };
    for entry in transaction.open_table(RESOURCES)?.iter()? {
        let (key, value) = entry?;
        snapshot.entries.insert(key.value().to_owned(), value.value().to_owned());
    }
    Ok(snapshot)
}

fn revision(transaction: &WriteTransaction) -> Result<u64, redb::Error> {
    Ok(transaction.open_table(ABOUT)?.get(REVISION_KEY)?.map_or(0, |revision| revision.value()))
}

fn write(
    transaction: &WriteTransaction,
    revision: u64,
    writes: Vec<Write>,
) -> Result<(), redb::Error> {
    transaction.open_table(ABOUT)?.insert(REVISION_KEY, revision)?;
    let mut resources = transaction.open_table(RESOURCES)?;
    for Write { key, value } in writes {
        match value {
            Some(value) => drop(resources.insert(&*key, &*value)?),
            None => drop(resources.remove(&*key)?),
        }
    }
    Ok(())
}

/// Why it cannot be opened, and what to do.
fn explain(error: &DatabaseError) -> String {
    match error {
        DatabaseError::DatabaseAlreadyOpen => {
            "another process has it open: stop that gateway first, or give this one a file of its own".to_owned()
        }
        DatabaseError::UpgradeRequired(version) => {
            format!("it is of redb's file format {version}, which this version does not read: use the version of the gateway that wrote it, or a new file")
        }
        DatabaseError::Storage(StorageError::Io(error)) if error.kind() == io::ErrorKind::InvalidData => {
            "it is a file of something else: name another one".to_owned()
        }
        DatabaseError::Storage(StorageError::Corrupted(what)) => {
            format!("it is damaged ({what}): {DAMAGED}")
        }
        error => error.to_string(),
    }
}

fn failed(error: redb::Error) -> StoreError {
    StoreError::Failed { reason: error.to_string() }
}
