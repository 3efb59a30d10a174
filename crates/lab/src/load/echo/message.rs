//! The content of a message: bytes computed from its number, so that an answer can be checked
//! without a copy.

/// The byte at a place of a message.
fn byte(number: u64, place: usize) -> u8 {
    match number.to_le_bytes().get(place) {
        Some(byte) => *byte,
        None => (number as u8).wrapping_add(place as u8),
    }
}

pub(super) fn write(number: u64, message_bytes: usize, into: &mut Vec<u8>) {
    into.extend((0..message_bytes).map(|place| byte(number, place)));
}

/// Whether these are the bytes of a message from a place on.
pub(super) fn is(number: u64, from: usize, bytes: &[u8]) -> bool {
    bytes.iter().enumerate().all(|(place, found)| *found == byte(number, from + place))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_is_known_in_pieces_and_from_its_neighbours() {
        for message_bytes in [1, 7, 8, 9, 300] {
            let mut written = Vec::new();
            write(0x0102_0304, message_bytes, &mut written);
            assert_eq!(written.len(), message_bytes);
            let (front, rest) = written.split_at(message_bytes / 2);
            assert!(is(0x0102_0304, 0, front) && is(0x0102_0304, front.len(), rest));
            assert!(!is(0x0102_0305, 0, &written));
        }
    }
}
