//! Tokens signed with an RSA key, as by `pulsar tokens create --private-key`. OpenSSL made the key
//! pair and the signatures; the private key was discarded.

use super::tests::{config, signed};
use super::*;
use ring::hmac;

const KEY: &str = "\
-----BEGIN PUBLIC KEY-----\n\
MIIBIjANBgkqhkiG9w0BAQEFAAOCAQ8AMIIBCgKCAQEAm9SS71qXmu96ZqVX/Ddr\n\
WH9fufA49J0QiYuj+13Y9Vy7eJ2dynLHrOBhmzYhNhcSkVJ0tTrZHZpikDjypCnh\n\
lLnpX8QfvhghI1YCdDZ/v8S+l05XqNgZJpiUvazdHA4N5MqH/gDGy8U5DNQEgLDA\n\
nIrVbaPmG5bHn72AkQUwWiySu74Vk0TrHVXI/aep4ciBqVP0BzAHa9WefZyE3+y/\n\
ums1VjQd4Qmz4NLgpNqzwlWWWCWUIagDHf6XfpDz/fELDeWD3KZzTNPnhNakILud\n\
0JMmda08VEOGrD6LapBP8WEXSvSsLX397v2cjRl8Yto9i2I+oKBuDr25pbXkFyh1\n\
DwIDAQAB\n\
-----END PUBLIC KEY-----\n\
";

/// Signatures of the claims `{"sub":"a"}`, by algorithm.
const SIGNATURES: [(&str, &str); 3] = [
    (
        "RS256",
        "dtBiqBmzXBDGG_WUns52Y2yU74vni9aeCiiaSEj6k03vFPaAjOvv4Jt-2eqD2GE8m9GHmmmEEMikU43OCDFoFK4Q-y9qmQxWX-ge\
         0IyoKcIOrUn3Cp-vq4xOpsdQFIksG9E7YXJgZO7nkvih4tetBdlGNZia_pi4o-E9b6GNESNWxSjIWqD7GV-rElUhU6OjOti_ns00\
         _mXxmsIBzT7HmEnEVuhKFe2L8rlgtNA-46Z3Xk9DUw_0QuVTII6JDm_S1I0RfCnjFER7Jp1ruwe8sbvEANSDDrJpY7k872X4m8fY\
         HKZNitrQrj6kRBRoNg5ONbuhDXh7Av4X94aW2ELA2A",
    ),
    (
        "RS384",
        "V0stQ_IwcLG6A9pPuMVAq6cfHMTLTIImg7UWikF3CsEEIAaLvwsSmxsk4aezEFTHnyJusY4pRU82J2gXg3RNIzXqxF4_J8nX0Y0l\
         16sbtVTS_f-K47oBK3IOmwDCwK41PkLuZZ_IFn_Q5xcPyXLsdN3BmRwdlGyAnbtqLqzjofhWHxxkU4u_f8zGvKPUlDFSjlZEMUFN\
         7_jWbwW0axlJWMktkmQMPHJr_VVnQJOHJ8QOZQXtXK1HFMR87y3ebDM_viyoOZYSd7T6-5IEQM6dAzBRBa6GekBCiF8vNVnHJCaA\
         rNJzvJxqVt32vp2W9504rrJCJX6wbptaA-Bww5z_cg",
    ),
    (
        "RS512",
        "lkZENXlS8ypgWBq6nFqAzlaD1aiBohAzF4q0-ePhXT3Ey3hpdiIF2SceR4LD4iVITncaspXMT-5AdkGlgQJmLvuV1pEkWpAfNVYn\
         krjIFEwEzvT95-2-yEirxJTUpK3h37chOvlZrlUcvlioIKMPdc2mvVHIRhwoI67N_cZUe-JWL9JE0nXhERrGfoucF31SCJ_wCh1q\
         YLowa1OiFo2LD6q5w6hFFXTlu_LZDO9skXw9eRGlYE29aAXVYu0FsGv8S-OsSaFcpt3o3FXdOWqPh6mZSwcKLL_6mifvf9dUcCy-\
         KHdvFc1LKsvJ9QCkFS3D0YJh-kquwTx62Jhgx5EX2w",
    ),
];

fn authenticator(key: &[u8]) -> Authenticator {
    Authenticator::new(&config(TokenKey::Public(key.to_vec()))).unwrap()
}

fn der() -> Vec<u8> {
    SubjectPublicKeyInfoDer::from_pem_slice(KEY.as_bytes()).unwrap().to_vec()
}

fn token(algorithm: &str, claims: &str, signature: &[u8]) -> String {
    signed(&format!(r#"{{"alg":"{algorithm}"}}"#), claims, |_| signature.to_vec())
}

#[track_caller]
fn check(token: &str, expected: Result<&str, AuthError>) {
    for key in [KEY.as_bytes(), &der()] {
        let role = authenticator(key).authenticate("token", token.as_bytes(), 0);
        assert_eq!(role.as_ref().map(|role| role.name.as_str()).map_err(|error| *error), expected);
    }
}

fn signature(text: &str) -> Vec<u8> {
    BASE64_URL_SAFE_NO_PAD.decode(text).unwrap()
}

#[test]
fn what_an_rsa_key_has_signed_is_taken() {
    for (algorithm, text) in SIGNATURES {
        check(&token(algorithm, r#"{"sub":"a"}"#, &signature(text)), Ok("a"));
    }
}

#[test]
fn a_signature_is_good_for_what_was_signed_alone() {
    let wrong = Err(AuthError::Signature);
    for (number, (algorithm, text)) in SIGNATURES.into_iter().enumerate() {
        let good = signature(text);
        check(&token(algorithm, r#"{"sub":"root"}"#, &good), wrong);
        let mut changed = good.clone();
        changed[100] ^= 1;
        check(&token(algorithm, r#"{"sub":"a"}"#, &changed), wrong);
        check(&token(algorithm, r#"{"sub":"a"}"#, &good[..255]), wrong);
        check(&token(algorithm, r#"{"sub":"a"}"#, b""), wrong);
        let (other, _) = SIGNATURES[(number + 1) % SIGNATURES.len()];
        check(&token(other, r#"{"sub":"a"}"#, &good), wrong);
    }
}

/// A classic attack: the public key, which everybody may have, is used as the secret of an HMAC.
#[test]
fn a_public_key_is_no_secret() {
    for key in [KEY.as_bytes(), &der()] {
        let forge = |text: &[u8]| {
            let key = hmac::Key::new(hmac::HMAC_SHA256, key);
            hmac::sign(&key, text).as_ref().to_vec()
        };
        check(&signed(r#"{"alg":"HS256"}"#, r#"{"sub":"a"}"#, forge), Err(AuthError::Algorithm));
    }
    for algorithm in ["none", "ES256", "PS256", "rs256", ""] {
        check(&token(algorithm, r#"{"sub":"a"}"#, b"x"), Err(AuthError::Algorithm));
    }
}

const COMPRESSED_KEY_OF_P256: &str = "\
-----BEGIN PUBLIC KEY-----\n\
MDkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDIgACeqNt0FM4zyOZmnI5PsFsq14DTi5t\n\
NUvAQsZj0zoaofo=\n\
-----END PUBLIC KEY-----\n\
";

const KEY_OF_1024_BITS: &str = "\
-----BEGIN PUBLIC KEY-----\n\
MIGfMA0GCSqGSIb3DQEBAQUAA4GNADCBiQKBgQDA38Sf5DJFujdHZSl3S4frTAws\n\
MbgXLJVrwxJsXk1uJtUm7xCZZ7yP9vrXnIYDo1XxoRExnI2gdTmc1RcuQJF0Qz1J\n\
0KTvGLT5if5AfpqkreVpXijTsOYT4H8np8xcbBSPcVvuWnVcDUdmyjOEe3NFNP/m\n\
G51B0IlKiM6LtxoWpwIDAQAB\n\
-----END PUBLIC KEY-----\n\
";

/// A broker with one of these keys started without an error, and then refused every correctly
/// signed token for a wrong signature.
#[test]
fn a_key_that_verifies_nothing_is_refused_at_the_start() {
    let start = |key: &str| Authenticator::new(&config(TokenKey::Public(key.as_bytes().to_vec())));
    let refused = start(KEY_OF_1024_BITS).unwrap_err();
    assert!(matches!(refused, AuthConfigError::RsaBits(1024)), "{refused}");
    assert!(refused.to_string().contains("1024 bits: expected 2048 to 8192"), "{refused}");
    assert!(start(KEY).is_ok());
    let refused = start(COMPRESSED_KEY_OF_P256).unwrap_err();
    assert!(refused.to_string().contains("P-256 (uncompressed)"), "{refused}");
}
