//! The sample workers of `examples/python`, `examples/go` and `examples/typescript`, each against a
//! gateway on the embedded broker. All run the same rounds, since they do the same. Also the
//! packages of `clients/`: their own tests and their contents. `integration-tests/conformance` tests
//! their workers from outside.

mod language;
mod packages;
mod rounds;
mod stage;
