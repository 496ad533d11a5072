//! The sample workers of `examples/python`, `examples/go` and `examples/typescript`, each against a
//! gateway on the embedded broker: the same rounds for all, since they do the same. And the
//! packages of `clients/`: their own tests, the conformance suite, and what they consist of.

mod conformance;
mod language;
mod packages;
mod rounds;
mod stage;
