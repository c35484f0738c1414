//! FNV-1a hashes, which give texts short names that are the same in every version and on every machine. The hash is
//! not cryptographic: texts with equal hashes are easy to construct.

/// Returns the 64-bit FNV-1a hash of bytes.
///
/// ```
/// use weftrun_core::text::fnv1a;
///
/// assert_eq!(fnv1a(b"foobar"), 0x8594_4171_f739_67e8);
/// ```
pub fn fnv1a(bytes: &[u8]) -> u64 {
    bytes
        .iter()
        .fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3))
}

/// Returns the 32-bit FNV-1a hash of bytes.
pub fn fnv1a_32(bytes: &[u8]) -> u32 {
    bytes.iter().fold(0x811c_9dc5, |hash, byte| (hash ^ u32::from(*byte)).wrapping_mul(0x0100_0193))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Names of files and ports of running jobs depend on the hashes. The values are those of the reference
    /// implementation (<http://www.isthe.com/chongo/tech/comp/fnv/>).
    #[test]
    fn hashes_are_those_of_the_reference_implementation() {
        assert_eq!(fnv1a(b""), 0xcbf2_9ce4_8422_2325);
        assert_eq!(fnv1a(b"foobar"), 0x8594_4171_f739_67e8);
        assert_eq!(fnv1a_32(b""), 0x811c_9dc5);
        assert_eq!(fnv1a_32(b"foobar"), 0xbf9c_f968);
    }
}
