use super::*;
use crate::transport::TransportErrorKind;

/// Whoever had asked for a connection gave up before it was refused. The next one to ask, an hour later, was told of that refusal.
#[test]
fn what_nobody_waited_for_to_the_end_is_over_all_the_same() {
    let refused = error::unreachable("there", "refused");
    let opening: Opening = async { Err(refused) }.boxed().shared();
    assert!(is_over(&opening));
    let under_way: Opening = futures::future::pending().boxed().shared();
    assert!(!is_over(&under_way));
}

fn lookup(url: &str, url_tls: &str, proxied: bool) -> Lookup {
    let (url, url_tls) = (url.to_owned(), url_tls.to_owned());
    Lookup { url, url_tls, redirect: false, authoritative: true, proxied }
}

#[test]
fn a_lookup_names_a_broker_or_one_behind_the_proxy() {
    let service = endpoints("pulsar://proxy").unwrap().swap_remove(0);
    let to = |proxied| {
        let (endpoint, behind) = next(&lookup("pulsar://broker:1", "", proxied), &service).unwrap();
        (endpoint.to_string(), behind)
    };
    assert_eq!(to(false), ("pulsar://broker:1".to_owned(), None));
    let behind = Some("broker:1".to_owned());
    assert_eq!(to(true), ("pulsar://proxy:6650".to_owned(), behind));
}

#[test]
fn a_broker_without_the_port_we_need_is_named() {
    let service = endpoints("pulsar+ssl://broker").unwrap().swap_remove(0);
    let error = next(&lookup("pulsar://broker:1", "", false), &service).unwrap_err();
    assert!(error.cause.contains("with TLS"), "{error}");
}

/// A broker named its plain port where the one with TLS belongs, by a wrong setting or because somebody wanted to listen. The user had
/// written `pulsar+ssl://`, and the token went there for all to read.
#[test]
fn a_lookup_leads_nobody_from_tls_to_plain_text() {
    let (plain, encrypted) = ("pulsar://broker:1", "pulsar+ssl://broker:2");
    for (service, url, url_tls, words) in [
        ("pulsar+ssl://service", plain, plain, "is pulsar://broker:1, and not with TLS"),
        ("pulsar://service", encrypted, encrypted, "is pulsar+ssl://broker:2, and not without TLS"),
    ] {
        let service = endpoints(service).unwrap().swap_remove(0);
        let error = next(&lookup(url, url_tls, false), &service).unwrap_err();
        assert_eq!(error.kind, TransportErrorKind::Refused);
        assert!(error.cause.contains(words), "{error}");
        // A proxy names the broker as the proxy reaches it, with TLS or without, and we go to the proxy as before.
        let (endpoint, behind) = next(&lookup(url, url_tls, true), &service).unwrap();
        assert_eq!(endpoint, service);
        assert!(behind.is_some_and(|broker| broker.starts_with("broker:")));
    }
}
