//! Which roles are superusers or monitors, and which roles and tokens are revoked. The settings name
//! the first two; a file, which is read again when it changes, has more of them, and the rest.

use super::{AuthConfig, AuthConfigError, AuthError, AuthRole, read_up_to};
use serde::Deserialize;
use std::collections::BTreeSet;
use std::path::Path;
use std::sync::{PoisonError, RwLock};

/// Largest file of roles, in bytes: some ten thousand names.
const ROLES_BYTES_MAX: u64 = 1 << 20;

/// The content of [`AuthConfig::roles_file`].
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct RolesFile {
    superusers: BTreeSet<String>,
    monitors: BTreeSet<String>,
    /// Roles, and tokens by their claim `jti`.
    revoked: BTreeSet<String>,
}

#[derive(Debug)]
pub(super) struct RoleRights {
    superusers: BTreeSet<String>,
    monitors: BTreeSet<String>,
    file: RwLock<RolesFile>,
}

impl RoleRights {
    pub(super) fn new(config: &AuthConfig) -> Result<Self, AuthConfigError> {
        let rights = Self {
            superusers: config.superusers.clone(),
            monitors: config.monitors.clone(),
            file: RwLock::default(),
        };
        config.roles_file.iter().try_for_each(|file| rights.read(file))?;
        Ok(rights)
    }

    pub(super) fn read(&self, file: &Path) -> Result<(), AuthConfigError> {
        let path = || file.to_owned();
        let bytes = read_up_to(file, ROLES_BYTES_MAX)
            .map_err(|source| AuthConfigError::RolesFile { path: path(), source })?;
        let roles = serde_json::from_slice(&bytes)
            .map_err(|source| AuthConfigError::Roles { path: path(), source })?;
        *self.file.write().unwrap_or_else(PoisonError::into_inner) = roles;
        Ok(())
    }

    /// The role with its present rights. A role of this process cannot be revoked.
    pub(super) fn of(&self, role: AuthRole) -> Result<AuthRole, AuthError> {
        let file = self.file.read().unwrap_or_else(PoisonError::into_inner);
        let is_revoked = |name: &String| !role.is_own && file.revoked.contains(name);
        if is_revoked(&role.name) || role.token_id.as_ref().is_some_and(is_revoked) {
            return Err(AuthError::Revoked);
        }
        let superuser =
            self.superusers.contains(&role.name) || file.superusers.contains(&role.name);
        let monitor =
            superuser || self.monitors.contains(&role.name) || file.monitors.contains(&role.name);
        Ok(AuthRole { superuser, monitor, ..role })
    }
}
