//! The part of DER that is needed to read public keys. Pure.
//!
//! ```text
//! SEQUENCE { SEQUENCE { OID of the algorithm, parameters }, BIT STRING with the key }
//! ```

const SEQUENCE: u8 = 0x30;
const INTEGER: u8 = 0x02;
const OID: u8 = 0x06;
const BIT_STRING: u8 = 0x03;

/// 1.2.840.113549.1.1.1
const RSA: &[u8] = &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x01, 0x01];
/// 1.2.840.10045.2.1
const ELLIPTIC: &[u8] = &[0x2a, 0x86, 0x48, 0xce, 0x3d, 0x02, 0x01];
/// 1.2.840.10045.3.1.7
const CURVE_P256: &[u8] = &[0x2a, 0x86, 0x48, 0xce, 0x3d, 0x03, 0x01, 0x07];

/// Tag of an uncompressed P-256 point. Only uncompressed points are supported.
const UNCOMPRESSED: u8 = 0x04;
const POINT_BYTES: usize = 65;

/// Kind of a public key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PublicKeyKind {
    /// The key is a DER sequence of modulus and exponent.
    Rsa,
    /// The key is a point.
    P256,
}

/// The key within a `SubjectPublicKeyInfo`.
pub(super) fn public_key(der: &[u8]) -> Option<(PublicKeyKind, &[u8])> {
    let (info, rest) = take(SEQUENCE, der)?;
    if !rest.is_empty() {
        return None;
    }
    let (algorithm, rest) = take(SEQUENCE, info)?;
    let (key, rest) = take(BIT_STRING, rest)?;
    let (oid, parameters) = take(OID, algorithm)?;
    // A key fills whole bytes, so no bits of the last byte are unused.
    let key = key.strip_prefix(&[0])?;
    if !rest.is_empty() {
        return None;
    }
    if oid == RSA {
        return Some((PublicKeyKind::Rsa, key));
    }
    let (curve, _) = take(OID, parameters)?;
    let is_point = key.len() == POINT_BYTES && key.first() == Some(&UNCOMPRESSED);
    (oid == ELLIPTIC && curve == CURVE_P256 && is_point).then_some((PublicKeyKind::P256, key))
}

/// Bits of an RSA modulus, counted in whole bytes.
pub(super) fn rsa_bits(key: &[u8]) -> Option<usize> {
    let (numbers, _) = take(SEQUENCE, key)?;
    let (modulus, _) = take(INTEGER, numbers)?;
    let zeros = modulus.iter().take_while(|byte| **byte == 0).count();
    Some((modulus.len() - zeros) * 8)
}

/// The content of an element, and the bytes after it.
fn take(tag: u8, der: &[u8]) -> Option<(&[u8], &[u8])> {
    let (&found, rest) = der.split_first()?;
    let (&first, rest) = rest.split_first()?;
    let (size, rest) = match first {
        0..=0x7f => (usize::from(first), rest),
        0x81 | 0x82 => {
            let (size, rest) = rest.split_at_checked(usize::from(first & 0x7f))?;
            (size.iter().fold(0, |size, byte| size << 8 | usize::from(*byte)), rest)
        }
        _ => return None,
    };
    if found == tag { rest.split_at_checked(size) } else { None }
}
