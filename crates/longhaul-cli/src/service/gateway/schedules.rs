//! Schedules.

use super::address::QueueAddress;
use super::{GatewayClient, found};
use longhaul_api::action::ReasonBody;
use longhaul_api::schedule::{NewSchedule, ScheduleBody, ScheduleList, ScheduleVersion};

/// Names the last task as people do.
fn named(of: &QueueAddress, mut schedule: ScheduleBody) -> ScheduleBody {
    if let Some(last) = &mut schedule.last {
        of.rename(&mut last.task);
    }
    schedule
}

impl GatewayClient {
    pub(crate) async fn create_schedule(
        &self,
        queue: &str,
        name: &str,
        schedule: NewSchedule,
    ) -> anyhow::Result<u64> {
        let to = QueueAddress::of(queue)?.below(&["schedules", name]);
        Ok(self.post::<ScheduleVersion>(&to, &schedule).await?.version)
    }

    pub(crate) async fn schedules(&self, queue: &str) -> anyhow::Result<Vec<ScheduleBody>> {
        let of = QueueAddress::of(queue)?;
        let told: ScheduleList = self.get(&of.below(&["schedules"])).await?;
        Ok(told.schedules.into_iter().map(|it| named(&of, it)).collect())
    }

    pub(crate) async fn schedule(
        &self,
        queue: &str,
        name: &str,
    ) -> anyhow::Result<Option<ScheduleBody>> {
        let of = QueueAddress::of(queue)?;
        let told = found(self.get(&of.below(&["schedules", name])).await)?;
        Ok(told.map(|it| named(&of, it)))
    }

    /// Runs an action on a schedule: `pause`, `resume`, `trigger` or `delete`.
    pub(crate) async fn act_on_schedule(
        &self,
        queue: &str,
        name: &str,
        verb: &str,
        reason: &str,
    ) -> anyhow::Result<()> {
        let to = QueueAddress::of(queue)?.below(&["schedules", name]);
        if verb == "delete" {
            return self.delete(&to, reason).await;
        }
        self.tell(&to.verb(verb), &ReasonBody::of(reason)).await
    }
}
