//! The node's file, mapped: a description that never changes, then what processes share.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use memmap2::{MmapOptions, MmapRaw};

use crate::description::Description;
use crate::error::{AttachError, NodeError};
use crate::layout::{DEVICES, Shared};

/// How much of the file the description has, as JSON filled up with zeros.
const DESCRIPTION: usize = 64 << 10;

/// A node's file in this process's memory.
pub(crate) struct Mapped {
    map: MmapRaw,
    /// The node's description.
    pub(crate) description: Description,
    /// Where its file is.
    pub(crate) path: PathBuf,
}

impl Mapped {
    /// Opens a node's file for reading and writing.
    pub(crate) fn open_file(path: &Path) -> Result<File, AttachError> {
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .custom_flags(libc::O_CLOEXEC)
            .open(path);
        match file {
            Ok(file) => Ok(file),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Err(AttachError::Absent),
            Err(error) => Err(NodeError::os(path, "opening the node")(error).into()),
        }
    }

    /// Maps an open file. The mapping keeps the file open, and with it what is locked through it.
    pub(crate) fn map(path: &Path, file: &File) -> Result<Mapped, NodeError> {
        let description = read_description(path, file)?;
        Mapped::of(path, file, description)
    }

    /// Makes the file's content and its mapping.
    pub(crate) fn make(
        path: &Path,
        file: &File,
        description: Description,
    ) -> Result<Mapped, NodeError> {
        let text = serde_json::to_vec(&description).map_err(|error| NodeError::Foreign {
            path: path.into(),
            why: error.to_string(),
        })?;
        if text.len() >= DESCRIPTION {
            return Err(NodeError::TooLarge("its description has more than 64 KiB"));
        }
        if description.all_devices().count() > DEVICES {
            return Err(NodeError::TooLarge("more than 32 devices"));
        }
        file.set_len((DESCRIPTION + size_of::<Shared>()) as u64)
            .map_err(NodeError::os(path, "making the node"))?;
        file.write_all_at(&text, 0)
            .map_err(NodeError::os(path, "writing the description"))?;
        let mapped = Mapped::of(path, file, description)?;
        mapped.shared().lock.make();
        Ok(mapped)
    }

    fn of(path: &Path, file: &File, description: Description) -> Result<Mapped, NodeError> {
        let map = MmapOptions::new()
            .offset(DESCRIPTION as u64)
            .len(size_of::<Shared>())
            .map_raw(file)
            .map_err(NodeError::os(path, "mapping the node"))?;
        Ok(Mapped {
            map,
            description,
            path: path.into(),
        })
    }

    /// The part of the file that processes share.
    pub(crate) fn shared(&self) -> &Shared {
        let shared = self.map.as_ptr().cast::<Shared>();
        // SAFETY: the mapping is as long as `Shared`, begins on a page, and lasts as long as `self`. Any bytes are a
        // `Shared`, since it is made of atomics and of a mutex that `make` initialized; the file is never made shorter.
        unsafe { &*shared }
    }

    /// The mapping itself, for advice about it.
    pub(crate) fn map_ref(&self) -> &MmapRaw {
        &self.map
    }

    /// The folder of the files of memory.
    pub(crate) fn blocks_dir(&self) -> PathBuf {
        blocks_dir(&self.path)
    }
}

/// `node.blocks` beside `node`.
pub(crate) fn blocks_dir(path: &Path) -> PathBuf {
    let mut name = path.file_name().unwrap_or_default().to_os_string();
    name.push(".blocks");
    path.with_file_name(name)
}

fn read_description(path: &Path, file: &File) -> Result<Description, NodeError> {
    let foreign = |why: String| NodeError::Foreign {
        path: path.into(),
        why,
    };
    let length = file
        .metadata()
        .map_err(NodeError::os(path, "reading the node"))?
        .len();
    if length != (DESCRIPTION + size_of::<Shared>()) as u64 {
        return Err(foreign(format!("it has {length} bytes")));
    }
    let mut text = vec![0; DESCRIPTION];
    file.read_exact_at(&mut text, 0)
        .map_err(NodeError::os(path, "reading the description"))?;
    let end = text.iter().position(|byte| *byte == 0).unwrap_or(0);
    text.truncate(end);
    serde_json::from_slice(&text).map_err(|error| foreign(error.to_string()))
}
