//! The oldest compiler: one version for manifests, pages and dependencies. Clippy takes it from the
//! manifests, and denies what the standard library did not have then (`incompatible_msrv`).

use regex::Regex;

use crate::tree::Tree;

/// Pages that name the version, and manifests of no workspace that do.
const PLACES: [&str; 3] = ["README.md", "CONTRIBUTING.md", "bench/order/Cargo.toml"];

/// Places that name another version than the manifest of the workspace.
pub(crate) fn disagreeing(tree: &Tree) -> Vec<String> {
    let named = Regex::new(r#"(?:\bRust |rust-version = ")(\d+\.\d+)"#).expect("a pattern");
    let found = |path: &str| named.captures(tree.text(path)).map(|found| found[1].to_owned());
    let Some(ours) = found("Cargo.toml") else {
        return vec!["Cargo.toml has no rust-version".to_owned()];
    };
    let others = PLACES.iter().filter(|path| found(path).as_ref() != Some(&ours));
    others.map(|path| format!("{path} does not say {ours}, as Cargo.toml does")).collect()
}

/// Dependencies that need a younger compiler than the manifest says, from `cargo metadata`.
pub(crate) fn too_young(metadata: &serde_json::Value) -> Vec<String> {
    let packages = metadata["packages"].as_array().expect("a list of packages");
    let version = |package: &serde_json::Value| {
        let mut parts = package["rust_version"].as_str()?.split('.').map(str::parse::<u32>);
        Some((parts.next()?.ok()?, parts.next()?.ok()?))
    };
    let is_ours = |package: &serde_json::Value| package["source"].is_null();
    let ours = packages.iter().filter(|package| is_ours(package)).filter_map(version).min();
    let ours = ours.expect("a package of the workspace has a version");
    let young = packages.iter().filter(|package| version(package).is_some_and(|of| of > ours));
    young.map(|package| format!("{} {}", package["name"], package["rust_version"])).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_with_another_version_is_found() {
        let tree = |page: &str| {
            Tree::of(&[
                ("Cargo.toml", "rust-version = \"1.89\""),
                ("README.md", page),
                ("CONTRIBUTING.md", "Rust 1.89 or newer"),
                ("bench/order/Cargo.toml", "rust-version = \"1.89\""),
            ])
        };
        assert_eq!(disagreeing(&tree("64-bit, Rust 1.89.")), Vec::<String>::new());
        assert_eq!(disagreeing(&tree("64-bit, Rust 1.88.")).len(), 1);
        assert_eq!(disagreeing(&tree("64-bit.")).len(), 1);
    }

    #[test]
    fn a_dependency_for_a_younger_compiler_is_found() {
        let package = |source: &str, version: &str| {
            format!("{{\"name\": \"x\", \"source\": {source}, \"rust_version\": {version}}}")
        };
        let with = |version: &str| {
            let all = [package("null", "\"1.89\""), package("\"registry\"", version)].join(",");
            serde_json::from_str(&format!("{{\"packages\": [{all}]}}")).unwrap()
        };
        assert!(too_young(&with("\"1.100.1\"")).len() == 1);
        assert!(too_young(&with("\"1.89.0\"")).is_empty() && too_young(&with("null")).is_empty());
    }
}
