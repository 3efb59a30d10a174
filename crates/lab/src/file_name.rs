//! Names of files that are made from other names.

/// Most bytes of such a part of a name. Two of them and an extension fit every file system.
const MOST: usize = 100;

/// Makes a text a part of a file's name. Letters and digits of ASCII stay, and `others`; the rest
/// becomes `_`. Of a long text the end stays, because names differ there.
pub(crate) fn plain(text: &str, others: &str) -> String {
    let is_plain = |letter: char| letter.is_ascii_alphanumeric() || others.contains(letter);
    let letters = text.chars().map(|letter| if is_plain(letter) { letter } else { '_' });
    let name: String = letters.collect();
    name[name.len().saturating_sub(MOST)..].to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_part_of_a_name_leads_elsewhere_or_is_too_long() {
        assert_eq!(plain("../a b/c.d", "-"), "___a_b_c_d");
        assert_eq!(plain("../a-b\u{e9}", "-."), ".._a-b_");
        let long = plain(&format!("{}1", "é".repeat(300)), "");
        assert_eq!((long.len(), &long[99..]), (MOST, "1"));
    }
}
