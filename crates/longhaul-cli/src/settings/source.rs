//! The source of a setting's value.

use std::fmt;
use std::path::PathBuf;

/// The source of a value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum SettingSource {
    /// The command line.
    Flag,
    /// An environment variable.
    Environment(String),
    /// A file named by an environment variable.
    SecretFile(String, PathBuf),
    /// A context of the file.
    Context(String),
    /// The top of the file.
    File(PathBuf),
    /// The default.
    Default,
}

impl SettingSource {
    /// Smaller is more specific.
    pub(crate) const fn rank(&self) -> u8 {
        match self {
            Self::Flag => 0,
            Self::Environment(_) | Self::SecretFile(..) => 1,
            Self::Context(_) => 2,
            Self::File(_) => 3,
            Self::Default => 4,
        }
    }
}

impl fmt::Display for SettingSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Flag => f.write_str("the command line"),
            Self::Environment(variable) => write!(f, "{variable}"),
            Self::SecretFile(variable, path) => write!(f, "{} ({variable})", path.display()),
            Self::Context(name) => write!(f, "the context {name}"),
            Self::File(path) => write!(f, "{}", path.display()),
            Self::Default => f.write_str("the default"),
        }
    }
}
