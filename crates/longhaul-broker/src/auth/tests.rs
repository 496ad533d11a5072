use super::*;
use proptest::prelude::*;
use ring::rand::SystemRandom;
use ring::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair};

pub(super) const SECRET: [u8; 32] = [7; 32];
const NOW: u64 = 1_800_000_000;

pub(super) fn config(key: TokenKey) -> AuthConfig {
    AuthConfig::new(key, BTreeSet::from(["root".to_owned()]))
}

/// Verifies tokens signed by [`token`]; `root` is a superuser.
pub(crate) fn with_secret() -> Authenticator {
    Authenticator::new(&config(TokenKey::Secret(SECRET.to_vec()))).unwrap()
}

/// Like [`with_secret`], but a namespace is open to all roles until its first grant.
pub(crate) fn with_open_namespaces() -> Authenticator {
    let config = config(TokenKey::Secret(SECRET.to_vec()));
    Authenticator::new(&AuthConfig { open_namespaces: true, ..config }).unwrap()
}

pub(super) fn signed(header: &str, claims: &str, sign: impl FnOnce(&[u8]) -> Vec<u8>) -> String {
    let encode = |bytes: &[u8]| BASE64_URL_SAFE_NO_PAD.encode(bytes);
    let text = format!("{}.{}", encode(header.as_bytes()), encode(claims.as_bytes()));
    format!("{text}.{}", encode(&sign(text.as_bytes())))
}

fn hmac(algorithm: hmac::Algorithm, secret: &[u8]) -> impl FnOnce(&[u8]) -> Vec<u8> {
    let key = hmac::Key::new(algorithm, secret);
    move |text| hmac::sign(&key, text).as_ref().to_vec()
}

/// A token with these claims.
pub(crate) fn token(claims: &str) -> String {
    signed(r#"{"alg":"HS256"}"#, claims, hmac(hmac::HMAC_SHA256, &SECRET))
}

#[track_caller]
fn check(token: &str, expected: Result<&str, AuthError>) {
    let role = with_secret().authenticate("token", token.as_bytes(), NOW);
    assert_eq!(role.as_ref().map(|role| role.name.as_str()).map_err(|error| *error), expected);
}

#[test]
fn a_token_says_who_one_is() {
    check(&token(r#"{"sub":"tasks"}"#), Ok("tasks"));
    // As read from a file, with a line break at the end.
    check(&format!("{}\n", token(r#"{"sub":"tasks"}"#)), Ok("tasks"));
    let root = with_secret().authenticate("token", token(r#"{"sub":"root"}"#).as_bytes(), NOW);
    assert_eq!(
        root,
        Ok(AuthRole {
            name: "root".to_owned(),
            superuser: true,
            monitor: true,
            ..AuthRole::default()
        })
    );
    for (name, algorithm) in [("HS384", hmac::HMAC_SHA384), ("HS512", hmac::HMAC_SHA512)] {
        let header = format!(r#"{{"typ":"JWT","alg":"{name}"}}"#);
        check(&signed(&header, r#"{"sub":"a"}"#, hmac(algorithm, &SECRET)), Ok("a"));
    }
}

#[test]
fn time_is_honoured() {
    let ends = with_secret().authenticate(
        "token",
        token(r#"{"sub":"a","exp":1900000000.7}"#).as_bytes(),
        NOW,
    );
    assert_eq!(ends.map(|role| role.expires), Ok(Some(1_900_000_000)));
    let claim = |name: &str, time: u64| token(&format!(r#"{{"sub":"a","{name}":{time}}}"#));
    check(&claim("exp", NOW + 1), Ok("a"));
    check(&claim("exp", NOW), Err(AuthError::Expired));
    check(&token(r#"{"sub":"a","exp":1.5}"#), Err(AuthError::Expired));
    check(&token(r#"{"sub":"a","exp":-1}"#), Err(AuthError::Expired));
    check(&token(r#"{"sub":"a","exp":1e300}"#), Ok("a"));
    check(&claim("nbf", NOW), Ok("a"));
    check(&claim("nbf", NOW + 1), Err(AuthError::Early));
}

#[test]
fn what_is_wrong_is_told_apart() {
    let forged = signed(r#"{"alg":"HS256"}"#, r#"{"sub":"a"}"#, hmac(hmac::HMAC_SHA256, &[8; 32]));
    check(&forged, Err(AuthError::Signature));
    let unsigned = signed(r#"{"alg":"none"}"#, r#"{"sub":"a"}"#, |_| Vec::new());
    check(&unsigned, Err(AuthError::Algorithm));
    let confused = signed(r#"{"alg":"RS256"}"#, r#"{"sub":"a"}"#, hmac(hmac::HMAC_SHA256, &SECRET));
    check(&confused, Err(AuthError::Algorithm));
    check(&token("{}"), Err(AuthError::NoRole));
    check(&token(r#"{"sub":""}"#), Err(AuthError::NoRole));
    check(&token("[]"), Err(AuthError::Malformed));
    check(&token(r#"{"sub":"a","exp":"soon"}"#), Err(AuthError::Malformed));
    for text in ["x", "a.b", "a.b.c", "..", "é.é.é", &"x".repeat(TOKEN_BYTES_MAX + 1)] {
        check(text, Err(AuthError::Malformed));
    }
    check(" \n", Err(AuthError::Missing));
    let method = |method, data: &str| with_secret().authenticate(method, data.as_bytes(), NOW);
    assert_eq!(method("none", ""), Err(AuthError::Missing));
    assert_eq!(method("", ""), Err(AuthError::Missing));
    assert_eq!(method("basic", "a:b"), Err(AuthError::Method));
    assert_eq!(method("none", &token(r#"{"sub":"a"}"#)), Err(AuthError::Method));
}

#[test]
fn a_public_key_verifies_what_its_other_half_signed() {
    let random = SystemRandom::new();
    let algorithm = &ECDSA_P256_SHA256_FIXED_SIGNING;
    let document = EcdsaKeyPair::generate_pkcs8(algorithm, &random).unwrap();
    let pair = EcdsaKeyPair::from_pkcs8(algorithm, document.as_ref(), &random).unwrap();
    let mut der = vec![
        0x30, 0x59, 0x30, 0x13, 0x06, 0x07, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x02, 0x01, 0x06, 0x08,
        0x2a, 0x86, 0x48, 0xce, 0x3d, 0x03, 0x01, 0x07, 0x03, 0x42, 0x00,
    ];
    der.extend_from_slice(pair.public_key().as_ref());
    let pem = format!(
        "-----BEGIN PUBLIC KEY-----\n{}\n-----END PUBLIC KEY-----\n",
        BASE64_STANDARD.encode(&der)
    );
    let sign = |text: &[u8]| pair.sign(&random, text).unwrap().as_ref().to_vec();
    let token = signed(r#"{"alg":"ES256"}"#, r#"{"sub":"a"}"#, sign);
    let forged = signed(r#"{"alg":"HS256"}"#, r#"{"sub":"a"}"#, hmac(hmac::HMAC_SHA256, &der));
    for key in [der.clone(), pem.into_bytes()] {
        let authenticator = Authenticator::new(&config(TokenKey::Public(key))).unwrap();
        assert!(authenticator.authenticate("token", token.as_bytes(), NOW).is_ok());
        let refused = authenticator.authenticate("token", forged.as_bytes(), NOW);
        assert_eq!(refused, Err(AuthError::Algorithm));
    }
}

#[test]
fn keys_are_read_from_where_pulsar_reads_them() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("key");
    std::fs::write(&path, SECRET).unwrap();
    let encoded = format!("data:;base64,{}", BASE64_STANDARD.encode(SECRET));
    for location in [format!("file://{}", path.display()), path.display().to_string(), encoded] {
        let TokenKey::Secret(secret) = TokenKey::secret(&location).unwrap() else { panic!() };
        assert_eq!(secret, SECRET, "{location}");
    }
    let missing = TokenKey::public(&folder.path().join("other").display().to_string()).unwrap_err();
    assert!(missing.to_string().ends_with("other"), "{missing}");
    assert!(matches!(TokenKey::secret("data:;base64,*"), Err(AuthConfigError::Base64)));
}

#[test]
fn bad_keys_are_refused_and_never_shown() {
    let refused = |key| Authenticator::new(&config(key)).unwrap_err();
    let short = refused(TokenKey::Secret(b"secret".to_vec()));
    assert!(matches!(short, AuthConfigError::Short(6)));
    assert!(matches!(refused(TokenKey::Public(SECRET.to_vec())), AuthConfigError::Key));
    let shown = format!("{short} {:?}", config(TokenKey::Secret(b"secret-secret".to_vec())));
    assert!(!shown.contains("secret-secret") && !shown.contains("115"), "{shown}");
}

proptest! {
    #[test]
    fn random_tokens_and_keys_never_panic(data: Vec<u8>, text in "[a-zA-Z0-9._-]{0,80}") {
        drop(with_secret().authenticate("token", &data, NOW));
        prop_assert!(with_secret().authenticate("token", text.as_bytes(), NOW).is_err());
        drop(Authenticator::new(&config(TokenKey::Public(data))));
    }

    #[test]
    fn a_changed_token_opens_nothing(at in 0..1000_usize, with in "[a-zA-Z0-9_-]") {
        let whole = token(r#"{"sub":"tasks"}"#);
        let at = at % whole.len();
        let mut changed = whole.clone();
        changed.replace_range(at..=at, &with);
        // The last character of the signature has unused bits; if they are set, the decoder refuses
        // it.
        if changed != whole {
            prop_assert!(with_secret().authenticate("token", changed.as_bytes(), NOW).is_err());
        }
    }
}

#[test]
fn the_file_of_roles_on_the_page_is_one() {
    let page = include_str!("../../../../docs/broker.md");
    let (_, block) = page.split_once("<!-- test: roles -->\n  ```json\n").unwrap();
    let known = with_open_namespaces();
    read_roles(&known, block.split_once("```").unwrap().0).unwrap();
    let role = |name: &str| AuthRole { name: name.to_owned(), ..AuthRole::default() };
    assert_eq!(known.present(&role("ann")), Err(AuthError::Revoked));
    assert!(known.present(&role("ops")).unwrap().superuser);
}

/// A limit that the broker does not have must not look as if it held.
#[test]
fn a_file_of_roles_with_quotas_is_refused_by_name() {
    let refused = read_roles(&with_secret(), r#"{"quotas": {"bob": {"topics": 1}}}"#).unwrap_err();
    let source = std::error::Error::source(&refused).unwrap().to_string();
    assert!(source.contains("unknown field `quotas`"), "{source}");
}

fn read_roles(known: &Authenticator, json: &str) -> Result<(), AuthConfigError> {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), json).unwrap();
    known.read_roles(file.path())
}
