//! Objects in a directory or in S3.

use crate::catalog::{Catalog, ObjectName};
use crate::error::BackupError;
use bytes::Bytes;
use futures::StreamExt as _;
use object_store::aws::AmazonS3Builder;
use object_store::buffered::BufWriter;
use object_store::local::LocalFileSystem;
use object_store::path::Path as ObjectPath;
use object_store::{GetResultPayload, ObjectStore, ObjectStoreExt as _};
use std::error::Error;
use std::fmt;
use std::fs::{self, File};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tokio::io::AsyncWriteExt as _;
use url::Url;

/// Bytes per part of a large object, and per piece of a segment.
pub(crate) const PART_BYTES: u32 = 8 * 1024 * 1024;

/// Bytes of an object that have the header of a file.
const HEAD_BYTES: u64 = 64;

/// A folder of a store.
#[derive(Clone, Debug)]
pub(crate) struct BackupFolder {
    store: Arc<dyn ObjectStore>,
    /// The directory of the store; `None` for S3.
    pub(crate) directory: Option<PathBuf>,
    folder: ObjectPath,
    /// The store, as it was given.
    pub(crate) place: String,
}

impl BackupFolder {
    /// Opens a directory, which is made if it `is_new`, or a folder of a bucket. S3 is told of the
    /// region, the keys and the endpoint by the usual variables of the environment.
    pub(crate) fn open(place: &str, is_new: bool) -> Result<Self, BackupError> {
        let refused = |reason: String| BackupError::Place { url: place.to_owned(), reason };
        // Ignored if the process has one already.
        rustls::crypto::ring::default_provider().install_default().ok();
        let url = Url::parse(place).ok().filter(|url| url.scheme().len() > 1);
        let path = match url {
            Some(url) if matches!(url.scheme(), "s3" | "s3a") => {
                let folder = ObjectPath::from_url_path(url.path());
                let folder = folder.map_err(|error| refused(error.to_string()))?;
                let bucket = AmazonS3Builder::from_env().with_url(url.as_str()).build();
                let store = Arc::new(bucket.map_err(|error| refused(error.to_string()))?);
                return Ok(Self { store, directory: None, folder, place: place.to_owned() });
            }
            Some(url) if url.scheme() == "file" => {
                url.to_file_path().map_err(|()| refused("it has no path".to_owned()))?
            }
            Some(url) => {
                return Err(refused(format!("the kind `{}` is not supported", url.scheme())));
            }
            None => PathBuf::from(place),
        };
        let store = local(&path, is_new).map_err(|error| refused(error.to_string()))?;
        let (directory, folder) = (Some(path), ObjectPath::default());
        Ok(Self { store, directory, folder, place: place.to_owned() })
    }

    /// A folder within it.
    pub(crate) fn within(&self, name: &str) -> Self {
        Self { folder: self.folder.clone().join(name), ..self.clone() }
    }

    /// An object with the whole content; `None` if it is no longer there.
    pub(crate) async fn get(&self, name: &ObjectName) -> Result<Option<Bytes>, BackupError> {
        let path = self.path(name);
        self.unless_gone(&path, async { self.store.get(&path).await?.bytes().await }.await)
    }

    /// The folders of data directories: those within it, and itself if it is one.
    pub(crate) async fn folders(&self) -> Result<Vec<Self>, BackupError> {
        let listed = self.store.list_with_delimiter(Some(&self.folder)).await;
        let listed = listed.map_err(|source| self.failed("list", &self.folder, &source))?;
        let names: Vec<_> =
            listed.common_prefixes.iter().filter_map(ObjectPath::filename).collect();
        let own = names.contains(&"log").then(|| self.clone());
        Ok(own.into_iter().chain(names.into_iter().map(|name| self.within(name))).collect())
    }

    /// Removes the files `NAME#1` of puts that did not end since their process was killed. Only the
    /// process that stores objects in the folder may do this.
    pub(crate) fn remove_unfinished(&self) {
        if let Some(directory) = &self.directory {
            // One that stays takes room and nothing else: no listing has it.
            remove_unfinished(&directory.join(self.folder.as_ref())).ok();
        }
    }

    /// What it has.
    pub(crate) async fn catalog(&self) -> Result<Catalog, BackupError> {
        self.measured().await.map(|(catalog, _)| catalog)
    }

    /// What it has, and the bytes of all that.
    pub(crate) async fn measured(&self) -> Result<(Catalog, u64), BackupError> {
        let (mut catalog, mut bytes) = (Catalog::default(), 0);
        let mut objects = self.store.list(Some(&self.folder));
        while let Some(object) = objects.next().await {
            let object = object.map_err(|source| self.failed("list", &self.folder, &source))?;
            let Some(parts) = object.location.prefix_match(&self.folder) else { continue };
            let name = parts.map(|part| part.as_ref().to_owned()).collect::<Vec<_>>().join("/");
            if let Some(name) = ObjectName::parse(&name) {
                catalog.add(name);
                bytes += object.size;
            }
        }
        Ok((catalog, bytes))
    }

    /// Stores an object at once.
    pub(crate) async fn put(&self, name: &ObjectName, bytes: Bytes) -> Result<(), BackupError> {
        let path = self.path(name);
        let put = self.store.put(&path, bytes.into()).await;
        put.map(drop).map_err(|source| self.failed("store", &path, &source))
    }

    /// Stores a file, in parts if it is large. There is no object before all parts are stored.
    pub(crate) async fn put_file(
        &self,
        name: &ObjectName,
        mut file: &File,
    ) -> Result<(), BackupError> {
        let path = self.path(name);
        let capacity = PART_BYTES as usize;
        let mut writer = BufWriter::with_capacity(Arc::clone(&self.store), path.clone(), capacity);
        let read_failed = |source| BackupError::Io { what: format!("read {name}"), source };
        let failed = |source: &dyn Error| self.failed("store", &path, source);
        let copied = async {
            io::Seek::rewind(&mut file).map_err(read_failed)?;
            loop {
                let mut part = Vec::with_capacity(capacity);
                let mut rest = io::Read::take(&mut file, u64::from(PART_BYTES));
                rest.read_to_end(&mut part).map_err(read_failed)?;
                if part.is_empty() {
                    return Ok(());
                }
                writer.put(part.into()).await.map_err(|source| failed(&source))?;
            }
        };
        if let Err(error) = copied.await {
            // The store may keep the parts; that costs room and nothing else.
            writer.abort().await.ok();
            return Err(error);
        }
        // If this fails, it has removed the parts. An `abort` after it would panic.
        writer.shutdown().await.map_err(|source| failed(&source))
    }

    /// Appends an object to a file.
    pub(crate) async fn fetch(&self, name: &ObjectName, mut to: &File) -> Result<(), BackupError> {
        let path = self.path(name);
        let fetched = self.store.get(&path).await;
        let fetched = fetched.map_err(|source| self.failed("fetch", &path, &source))?;
        let failed = |source| BackupError::Io { what: format!("write {name}"), source };
        if let GetResultPayload::File(mut from, _) = fetched.payload {
            return io::copy(&mut from, &mut to).map(drop).map_err(failed);
        }
        let mut parts = fetched.into_stream();
        while let Some(part) = parts.next().await {
            let part = part.map_err(|source| self.failed("fetch", &path, &source))?;
            to.write_all(&part).map_err(failed)?;
        }
        Ok(())
    }

    /// The first bytes of an object, enough for the header of a file; `None` if it is no longer
    /// there.
    pub(crate) async fn head(&self, name: &ObjectName) -> Result<Option<Bytes>, BackupError> {
        let path = self.path(name);
        self.unless_gone(&path, self.store.get_range(&path, 0..HEAD_BYTES).await)
    }

    fn unless_gone(
        &self,
        path: &ObjectPath,
        fetched: object_store::Result<Bytes>,
    ) -> Result<Option<Bytes>, BackupError> {
        match fetched {
            Err(object_store::Error::NotFound { .. }) => Ok(None),
            fetched => fetched.map(Some).map_err(|source| self.failed("fetch", path, &source)),
        }
    }

    /// Removes an object.
    pub(crate) async fn remove(&self, name: &ObjectName) -> Result<(), BackupError> {
        let path = self.path(name);
        match self.store.delete(&path).await {
            Ok(()) | Err(object_store::Error::NotFound { .. }) => Ok(()),
            Err(source) => Err(self.failed("remove", &path, &source)),
        }
    }

    fn path(&self, name: &ObjectName) -> ObjectPath {
        let name = name.to_string();
        name.split('/').fold(self.folder.clone(), |folder, part| folder.join(part))
    }

    fn failed(&self, what: &str, path: &ObjectPath, source: &dyn Error) -> BackupError {
        // The text has the texts of its causes.
        let mut reason = source.to_string().replace('\n', " ");
        // Without keys, they are fetched from the metadata service of a machine at Amazon.
        if ["/latest/api/token", "/latest/meta-data/"].iter().any(|path| reason.contains(path)) {
            "there are no keys: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"
                .clone_into(&mut reason);
        }
        BackupError::Store { what: format!("{what} {path} in {}", self.place), reason }
    }
}

impl fmt::Display for BackupFolder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = self.folder.filename().unwrap_or_default();
        if self.place.trim_end_matches('/').ends_with(name) {
            return f.write_str(&self.place);
        }
        write!(f, "{}/{name}", self.place.trim_end_matches('/'))
    }
}

fn remove_unfinished(folder: &Path) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            remove_unfinished(&entry.path())?;
        } else if entry.file_name().to_string_lossy().contains('#') {
            fs::remove_file(entry.path())?;
        }
    }
    Ok(())
}

fn local(path: &Path, is_new: bool) -> io::Result<Arc<dyn ObjectStore>> {
    if is_new {
        // It has the payloads of tasks.
        fs::DirBuilder::new().recursive(true).mode(0o700).create(path)?;
        // A directory that exists may belong to somebody else: better told at the start than later.
        let probe = path.join(".write-test");
        File::create(&probe)?;
        fs::remove_file(&probe)?;
    } else if !path.is_dir() {
        return Err(io::Error::other("there is no such directory"));
    }
    let store = LocalFileSystem::new_with_prefix(path).map_err(io::Error::other)?;
    Ok(Arc::new(store.with_fsync(true).with_automatic_cleanup(true)))
}
