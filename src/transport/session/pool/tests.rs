use super::*;

/// Whoever had asked for a connection gave up before it was refused. The next one to ask, an hour later, was told of that refusal.
#[test]
fn what_nobody_waited_for_to_the_end_is_over_all_the_same() {
    let refused = error::unreachable("there", "refused");
    let opening: Opening = async { Err(refused) }.boxed().shared();
    assert!(is_over(&opening));
    let under_way: Opening = futures::future::pending().boxed().shared();
    assert!(!is_over(&under_way));
}

fn lookup(url: &str, proxied: bool) -> Lookup {
    Lookup {
        url: url.to_owned(),
        url_tls: String::new(),
        redirect: false,
        authoritative: true,
        proxied,
    }
}

#[test]
fn a_lookup_names_a_broker_or_one_behind_the_proxy() {
    let service = endpoints("pulsar://proxy").unwrap().swap_remove(0);
    let to = |proxied| {
        let (endpoint, behind) = next(&lookup("pulsar://broker:1", proxied), &service).unwrap();
        (endpoint.to_string(), behind)
    };
    assert_eq!(to(false), ("pulsar://broker:1".to_owned(), None));
    let behind = Some("broker:1".to_owned());
    assert_eq!(to(true), ("pulsar://proxy:6650".to_owned(), behind));
}

#[test]
fn a_broker_without_the_port_we_need_is_named() {
    let service = endpoints("pulsar+ssl://broker").unwrap().swap_remove(0);
    let error = next(&lookup("pulsar://broker:1", false), &service).unwrap_err();
    assert!(error.cause.contains("with TLS"), "{error}");
}
