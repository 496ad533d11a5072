//! Takes the broker's deduplication of the ledger away. Then nothing hides a client that sends by
//! itself what it has sent before: the entry lies on the ledger twice, and the checkers find it.

use crate::sandbox::{Admin as SandboxAdmin, Sandbox};
use crate::wait::until;
use anyhow::{Context, Result, bail};
use longhaul::topics::{
    Admin, FindingKind, Severity, TopicFinding, TopicNames, TopicSettings, check,
};
use serde_json::{Value, json};
use std::time::Duration;

const POLICY: &str = "deduplicationEnabled";
/// How long the broker may take to put the policy in force.
const LIMIT: Duration = Duration::from_secs(30);

/// Switches deduplication of the ledger off and makes sure that it is, and that this is all the
/// library misses.
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

/// By the policy in force and by what the topic itself says it does.
async fn is_off(admin: &SandboxAdmin, ledger: &str) -> Result<bool> {
    let policy = admin.policy(ledger, POLICY).await?;
    let stats = admin.stats(ledger).await?;
    let status = stats.get("deduplicationStatus").and_then(Value::as_str);
    Ok(policy == json!(false) && status.context("no status of deduplication")? == "Disabled")
}
