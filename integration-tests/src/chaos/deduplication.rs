//! Disables the broker's deduplication of the ledger. Then a client that resends by itself cannot
//! hide: the entry is on the ledger twice, and the checkers find it.

use crate::sandbox::{Admin as SandboxAdmin, Sandbox};
use crate::wait::until;
use anyhow::{Context, Result, bail};
use longhaul::topics::{
    Admin, FindingKind, Severity, TopicFinding, TopicNames, TopicSettings, check,
};
use serde_json::{Value, json};
use std::time::Duration;

const POLICY: &str = "deduplicationEnabled";
/// The time limit until the policy is in force.
const LIMIT: Duration = Duration::from_secs(30);

/// Disables deduplication of the ledger, and checks that it is off and that the library reports
/// nothing else missing.
pub(super) async fn switch_off(sandbox: &Sandbox, admin: &Admin, names: &TopicNames) -> Result<()> {
    let ledger = &names.ledger;
    sandbox.admin().set_policy(ledger, POLICY, &json!(false)).await?;
    until(&format!("deduplication off on {ledger}"), LIMIT, async || {
        Ok(is_off(sandbox.admin(), ledger).await?.then_some(()))
    })
    .await?;
    let findings = check(admin, names, &TopicSettings::default()).await?;
    let matters = |finding: &&TopicFinding| {
        finding.severity == Severity::Error || finding.kind == FindingKind::DeduplicationOff
    };
    match findings.iter().filter(matters).collect::<Vec<_>>().as_slice() {
        [only] if only.kind == FindingKind::DeduplicationOff => Ok(()),
        found => bail!("expected deduplication to be off and no error, found {found:#?}"),
    }
}

/// By the effective policy and by the topic's own statistics.
async fn is_off(admin: &SandboxAdmin, ledger: &str) -> Result<bool> {
    let policy = admin.policy(ledger, POLICY).await?;
    let stats = admin.stats(ledger).await?;
    let status = stats.get("deduplicationStatus").and_then(Value::as_str);
    Ok(policy == json!(false) && status.context("no status of deduplication")? == "Disabled")
}
