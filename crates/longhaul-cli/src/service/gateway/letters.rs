//! Dead letters.

use super::address::QueueAddress;
use super::{GatewayClient, early_end, found, query_of};
use longhaul::TaskRef;
use longhaul_api::dead::{
    DeadLetterBody, DeadLetterList, DeadSelection, PurgedLetters, ReplayBody, ReplayChangesBody,
    ReplayList,
};
use std::collections::BTreeMap;

/// Letters per page.
const PAGE: usize = 1_000;

/// Names the tasks of a letter as people do.
fn renamed(of: &QueueAddress, mut letter: DeadLetterBody) -> DeadLetterBody {
    of.rename(&mut letter.task);
    letter.replay_of.iter_mut().for_each(|task| of.rename(task));
    letter
}

/// Names the tasks of an outcome as people do.
fn replayed(of: &QueueAddress, mut told: ReplayBody) -> ReplayBody {
    of.rename(&mut told.task);
    told.other.iter_mut().for_each(|task| of.rename(task));
    told
}

/// All letters that a selection means, and why something is done with them.
fn selected(mut selection: DeadSelection, reason: &str) -> DeadSelection {
    selection.all = selection == DeadSelection::default();
    selection.reason = reason.to_owned();
    selection
}

/// One letter by its task.
fn one(task: String, reason: &str) -> DeadSelection {
    DeadSelection { tasks: vec![task], reason: reason.to_owned(), ..DeadSelection::default() }
}

impl GatewayClient {
    /// Letters that a selection means, and whether there are more.
    pub(crate) async fn letters(
        &self,
        queue: &str,
        selection: &DeadSelection,
        limit: usize,
    ) -> anyhow::Result<(Vec<DeadLetterBody>, bool)> {
        let of = QueueAddress::of(queue)?;
        let mut asked = query_of(selection)?;
        // The reason of a selection says why something is done, and that of a query is a letter's.
        for (name, _) in &mut asked {
            if *name == "failed_with" {
                "reason".clone_into(name);
            }
        }
        let (mut letters, mut next) = (Vec::new(), None);
        loop {
            let mut page = asked.clone();
            page.extend(next.map(|after| ("after".to_owned(), after)));
            page.push(("limit".to_owned(), (limit - letters.len()).clamp(1, PAGE).to_string()));
            let told: DeadLetterList = self.query(&of.below(&["dead"]), &page).await?;
            // Properties are for who looks at one letter.
            let listed = |it| DeadLetterBody { properties: BTreeMap::new(), ..renamed(&of, it) };
            letters.extend(told.dead_letters.into_iter().map(listed));
            next = told.next;
            if next.is_none() || letters.len() >= limit {
                return Ok((letters, next.is_some()));
            }
        }
    }

    pub(crate) async fn letter(&self, task: &TaskRef) -> anyhow::Result<Option<DeadLetterBody>> {
        let (of, name) = QueueAddress::of_task(task)?;
        let from = of.whole(&["dead", &name.to_string()]);
        let told = found(self.get(&from).await)?;
        Ok(told.map(|it| renamed(&of, it)))
    }

    pub(crate) async fn replay(
        &self,
        task: &TaskRef,
        reason: &str,
        changes: Option<ReplayChangesBody>,
    ) -> anyhow::Result<ReplayBody> {
        let (of, name) = QueueAddress::of_task(task)?;
        let to = of.whole(&["dead:replay"]);
        let asked = DeadSelection { changes, ..one(name.to_string(), reason) };
        let told: ReplayList = self.work(&to, &asked).await?;
        let why = told.stopped.unwrap_or_else(|| "no outcome was told".to_owned());
        let told = told.outcomes.into_iter().next().ok_or_else(|| early_end(&why))?;
        Ok(replayed(&of, told))
    }

    pub(crate) async fn replay_all(
        &self,
        queue: &str,
        selection: DeadSelection,
        reason: &str,
        changes: Option<ReplayChangesBody>,
    ) -> anyhow::Result<ReplayList> {
        let of = QueueAddress::of(queue)?;
        let to = of.below(&["dead:replay"]);
        let asked = DeadSelection { changes, ..selected(selection, reason) };
        let told: ReplayList = self.work(&to, &asked).await?;
        let outcomes = told.outcomes.into_iter().map(|it| replayed(&of, it)).collect();
        Ok(ReplayList { outcomes, ..told })
    }

    pub(crate) async fn purge_letter(&self, task: &TaskRef, reason: &str) -> anyhow::Result<bool> {
        let (of, name) = QueueAddress::of_task(task)?;
        let to = of.whole(&["dead:purge"]);
        let told: PurgedLetters = self.work(&to, &one(name.to_string(), reason)).await?;
        Ok(told.purged > 0)
    }

    pub(crate) async fn purge_letters(
        &self,
        queue: &str,
        selection: DeadSelection,
        reason: &str,
    ) -> anyhow::Result<PurgedLetters> {
        let to = QueueAddress::of(queue)?.below(&["dead:purge"]);
        self.work(&to, &selected(selection, reason)).await
    }
}
