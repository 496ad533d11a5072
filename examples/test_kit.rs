//! How to test a processor: a worker and a client in a plain test, without a broker and in
//! simulated time. Here the test is a program, so that you can see its output; in your project it
//! is a function under `#[test]`.

#![expect(clippy::print_stdout, reason = "an example talks to its reader")]

use longhaul::testing::TestEngine;
use longhaul::{TaskContext, TaskError, Text, processor_fn};
use std::time::Duration;

const DAY: Duration = Duration::from_secs(24 * 3600);

/// The processor under test: collects a payment, and retries a week later if the bank is closed.
async fn collect(order: Text, context: TaskContext) -> Result<Text, TaskError> {
    match (order.0.as_str(), context.attempt()) {
        ("stolen card", _) => Err(TaskError::fatal("the card is stolen")),
        (_, 1) => Err(TaskError::retry_after(7 * DAY, "the bank is closed")),
        (order, _) => Ok(Text(format!("{order} is paid"))),
    }
}

fn main() -> anyhow::Result<()> {
    let engine = TestEngine::new();
    let _worker = engine.start(engine.worker("orders", processor_fn(collect)));

    let order = engine.submit("orders", &Text("4711".to_owned()));
    println!("{}", engine.wait::<Text>(&order)?.0);
    engine.assert_transitions(&order, ["PROCESSING 1", "FAILED 1", "PROCESSING 2", "COMPLETED 2"]);
    println!("{} days have passed", engine.time_passed().as_secs() / DAY.as_secs());

    let stolen = engine.submit("orders", &Text("stolen card".to_owned()));
    if let Err(error) = engine.wait::<Text>(&stolen) {
        println!("{error}");
    }
    let steps = engine.transitions(&stolen);
    println!("{}", steps.iter().map(ToString::to_string).collect::<Vec<_>>().join(", "));

    // A task for next month, which its customer cancels.
    let client = engine.client();
    let letter = Text("a letter".to_owned());
    let later = client.submission("orders", &letter).delay(30 * DAY);
    let later = engine.run(later.send())?;
    engine.advance(DAY);
    engine.run(client.cancel(&later))?;
    if let Err(error) = engine.wait::<Text>(&later) {
        println!("{error}");
    }
    Ok(())
}
