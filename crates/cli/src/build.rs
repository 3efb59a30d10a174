//! Of what this program was built.

use std::sync::LazyLock;
use std::time::UNIX_EPOCH;

use forebay_lab::manifest::Manifest;

/// The commit, where the build knew it; one that ends in `+` had changes besides.
const COMMIT: Option<&str> = option_env!("FOREBAY_COMMIT");

/// The version and, where known, the commit.
pub(crate) fn version() -> &'static str {
    static LINE: LazyLock<String> = LazyLock::new(|| match COMMIT {
        Some(commit) => format!("{} ({commit})", env!("CARGO_PKG_VERSION")),
        None => env!("CARGO_PKG_VERSION").to_owned(),
    });
    &LINE
}

/// Identity of this program. Two programs that may behave differently have different identities: if
/// the commit is unknown or had changes, the build time is part of it.
pub(crate) fn identity() -> String {
    let says_all = COMMIT.is_some_and(|commit| !commit.ends_with('+'));
    let built =
        std::env::current_exe().and_then(std::fs::metadata).and_then(|data| data.modified());
    let since =
        built.ok().and_then(|built| built.duration_since(UNIX_EPOCH).ok()).filter(|_| !says_all);
    let built =
        since.map(|since| format!(", built {}.{:09}", since.as_secs(), since.subsec_nanos()));
    format!("{}{}", version(), built.unwrap_or_default())
}

/// Tells a manifest.
pub(crate) fn report(manifest: &mut Manifest) {
    manifest.commit = COMMIT.map(str::to_owned);
    let known = [
        option_env!("FOREBAY_PROFILE").map(str::to_owned),
        option_env!("FOREBAY_OPT_LEVEL").map(|level| format!("optimization {level}")),
        cfg!(debug_assertions).then(|| "assertions".to_owned()),
        option_env!("FOREBAY_COMPILER").map(str::to_owned),
    ];
    let known: Vec<String> = known.into_iter().flatten().collect();
    manifest.build = (!known.is_empty()).then(|| known.join(", "));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_build_in_a_checkout_knows_its_commit() {
        let mut manifest = Manifest::default();
        report(&mut manifest);
        assert!(version().starts_with(env!("CARGO_PKG_VERSION")));
        assert!(manifest.build.is_some_and(|build| build.contains("rustc")));
        if let Some(commit) = manifest.commit {
            assert!(version().contains(&commit), "{commit}");
        }
    }
}
