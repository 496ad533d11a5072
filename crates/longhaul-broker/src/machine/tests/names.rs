//! Names chosen by clients.

use super::support::refusal;
use super::*;
use longhaul_wire::messages::SubType;

/// A subscription name of 4 MB was stored in each checkpoint, and newlines appeared in `/metrics`.
#[test]
fn names_of_subscriptions_and_consumers_are_short_and_can_be_shown() {
    let mut rig = Rig::new();
    let long = "n".repeat(256);
    let names = [(&long[1..], true), (&long, false), ("a\nb", false), ("é b/c", true)];
    for (id, (name, is_taken)) in (1..).zip(names) {
        let shared = |consumer_id| CommandSubscribe {
            sub_type: SubType::Shared.into(),
            request_id: 3,
            ..consumer(consumer_id)
        };
        let subscription = CommandSubscribe { subscription: name.to_owned(), ..shared(id) };
        let consumer = CommandSubscribe { consumer_name: Some(name.to_owned()), ..shared(id + 10) };
        for command in [subscription, consumer] {
            let refused = refusal(&rig.ask(1, command));
            let expected = if is_taken { None } else { Some(ServerError::NotAllowedError.into()) };
            assert_eq!(refused, expected, "{name:?}");
        }
    }
    let kept =
        rig.topic().subscriptions.values().map(|subscription| subscription.name.chars().count());
    assert_eq!(kept.collect::<BTreeSet<_>>(), [1, 5, 255].into());
}
