//! Whether what a page names exists: paths, links, commands, options, knobs, metrics, examples,
//! tests.

use regex::Regex;

use crate::facts::Facts;
use crate::tree::Tree;

/// A page of prose.
pub(crate) struct Page<'a> {
    pub(crate) path: &'a str,
    pub(crate) text: &'a str,
}

/// A piece of a page that names something, and its line.
struct Span<'a> {
    line: usize,
    text: &'a str,
}

/// Everything that a page names and that does not exist.
pub(crate) fn broken(page: &Page<'_>, tree: &Tree, facts: &Facts) -> Vec<String> {
    let mut findings = Vec::new();
    let mut add =
        |line: usize, what: String| findings.push(format!("{}:{line}: {what}", page.path));
    for span in links(page) {
        if let Some(what) = broken_link(page, span.text, tree) {
            add(span.line, what);
        }
    }
    for span in spans(page) {
        let text = span.text.trim();
        if let Some(path) = as_path(text)
            && let Some(missing) = alternatives(path).iter().find(|path| !exists(page, path, tree))
        {
            add(span.line, format!("no file {missing}"));
        }
        if let Some(what) = broken_test(text, tree) {
            add(span.line, what);
        }
        if text.starts_with("--") {
            let option = text.split([' ', '=', '[']).next().unwrap_or(text);
            let is_known = facts.has_option(None, option) || is_of_a_tool(tree, option);
            if !is_known {
                add(span.line, format!("no option {option}"));
            }
        }
        if let Some(what) = broken_metric(text, tree, facts) {
            add(span.line, what);
        }
        if let Some(what) = broken_command(text, tree, facts) {
            add(span.line, what);
        }
    }
    for (line, name) in knobs(page) {
        if !facts.knobs.contains(name) {
            add(line, format!("no knob {name}"));
        }
    }
    findings
}

/// Whether the README has each marked command once and CI takes them from there.
pub(crate) fn commands_of_ci(readme: &str, ci: &str) -> Vec<String> {
    let mut findings = Vec::new();
    for marker in ["<!-- main -->", "<!-- tests -->"] {
        let block = readme.split_once(marker).map_or("", |(_, below)| below);
        let block = block.split("```").nth(1).unwrap_or_default();
        let commands = block.lines().filter(|line| line.starts_with("cargo ")).count();
        if commands != 1 {
            findings.push(format!("README.md: {commands} commands below {marker}"));
        }
        if !ci.contains(marker) {
            findings.push(format!(".ci/run does not take the command below {marker}"));
        }
    }
    findings
}

/// Code in a page: what stands between backticks, and the lines of blocks of commands.
fn spans<'a>(page: &Page<'a>) -> Vec<Span<'a>> {
    let mut found = Vec::new();
    let mut fence: Option<&str> = None;
    for (line, text) in (1..).zip(page.text.lines()) {
        if let Some(language) = text.trim_start().strip_prefix("```") {
            fence = if fence.is_some() { None } else { Some(language) };
        } else if let Some(language) = fence {
            // Elsewhere than in a script a prompt tells commands from their output.
            let text = text.trim_start();
            let command = text.strip_prefix("$ ").or((language == "sh").then_some(text));
            found.extend(command.map(|text| Span { line, text }));
        } else if !text.starts_with("    ") {
            found.extend(text.split('`').skip(1).step_by(2).map(|text| Span { line, text }));
        }
    }
    found
}

fn links<'a>(page: &Page<'a>) -> Vec<Span<'a>> {
    let mut found = Vec::new();
    for (line, text) in (1..).zip(page.text.lines()) {
        for part in text.split("](").skip(1) {
            let target = part.split(')').next().unwrap_or_default();
            found.push(Span { line, text: target });
        }
    }
    found
}

fn broken_link(page: &Page<'_>, target: &str, tree: &Tree) -> Option<String> {
    if target.contains("://") || target.starts_with("mailto:") {
        return None;
    }
    let (file, heading) = target.split_once('#').map_or((target, None), |(f, h)| (f, Some(h)));
    let path =
        if file.is_empty() { page.path.to_owned() } else { normal(&beside(page.path, file)) };
    if !tree.has(&path) {
        return Some(format!("dead link {target}"));
    }
    let heading = heading.filter(|_| path.ends_with(".md"))?;
    let has = tree.text(&path).lines().any(|line| {
        line.starts_with('#') && anchor(line.trim_start_matches('#').trim()) == heading
    });
    (!has).then(|| format!("dead link {target}: no such heading"))
}

/// As the forges make anchors of headings.
fn anchor(heading: &str) -> String {
    let kept = heading.to_lowercase();
    let kept = kept.chars().filter(|c| c.is_alphanumeric() || [' ', '-', '_'].contains(c));
    kept.map(|c| if c == ' ' { '-' } else { c }).collect()
}

fn beside(page: &str, file: &str) -> String {
    page.rsplit_once('/').map_or(file.to_owned(), |(directory, _)| format!("{directory}/{file}"))
}

/// A path without `.` and `..`.
fn normal(path: &str) -> String {
    let mut parts: Vec<&str> = Vec::new();
    for part in path.split('/') {
        match part {
            "" | "." => {}
            ".." => {
                parts.pop();
            }
            part => parts.push(part),
        }
    }
    parts.join("/")
}

/// Whether code is the name of a file of this project, rather than of a user's.
fn as_path(text: &str) -> Option<&str> {
    let text = text.trim_end_matches('/');
    let allowed = |c: char| c.is_ascii_alphanumeric() || "_-./{},".contains(c);
    if !text.chars().all(allowed) || text.starts_with(['/', '.']) && !text.starts_with(".ci/") {
        return None;
    }
    let is_ours = ["crates/", "docs/", "suites/", "adapters/", ".ci/"]
        .iter()
        .any(|start| text.starts_with(start));
    let is_source = text.ends_with(".rs") || text.ends_with(".md");
    (is_ours || is_source || text.contains("/tests/") || text.contains("/src/")).then_some(text)
}

/// `a/{b,c}` is `a/b` and `a/c`.
fn alternatives(path: &str) -> Vec<String> {
    match path.split_once('{').and_then(|(head, rest)| Some((head, rest.split_once('}')?))) {
        None => vec![path.to_owned()],
        Some((head, (inside, tail))) => inside
            .split(',')
            .flat_map(|one| alternatives(&format!("{head}{}{tail}", one.trim())))
            .collect(),
    }
}

fn exists(page: &Page<'_>, path: &str, tree: &Tree) -> bool {
    let here = normal(&beside(page.path, path));
    [path, here.as_str()]
        .iter()
        .any(|path| tree.has_ending(path) || tree.has_ending(&format!("{path}.rs")))
}

/// Names of tests: those of contracts.
fn broken_test(text: &str, tree: &Tree) -> Option<String> {
    let contract = Regex::new(r"^contract_\d\d\w*$").expect("a pattern");
    let name = contract.find(text)?.as_str();
    let start = format!("fn {name}");
    let has = tree.all().any(|(path, text)| path.ends_with(".rs") && text.contains(&start));
    (!has).then(|| format!("no test {name}"))
}

/// Names of metrics: those with the library's prefix that are no crate of this project.
fn broken_metric(text: &str, tree: &Tree, facts: &Facts) -> Option<String> {
    let metric = Regex::new(r"^forebay_[a-z0-9_]+$").expect("a pattern");
    let name = metric.find(text)?.as_str();
    let krate = name.trim_start_matches("forebay_").replace('_', "-");
    let is_crate = tree.has(&format!("crates/{krate}"));
    (!is_crate && !facts.metrics.contains(name)).then(|| format!("no metric {name}"))
}

/// The knobs that a page names as such: "the knob `a`", "knobs `a`, `b` and `c`", "`a` knob".
fn knobs<'a>(page: &Page<'a>) -> Vec<(usize, &'a str)> {
    let before = Regex::new(r"\bknobs? ((?:`[a-z_]+`(?:, | and | or )?)+)").expect("a pattern");
    let after = Regex::new(r"(`[a-z_]+`) knob\b").expect("a pattern");
    let set = Regex::new(r#"\bset\("([a-z_]+)""#).expect("a pattern");
    let mut found = Vec::new();
    for (line, text) in (1..).zip(page.text.lines()) {
        for one in before.captures_iter(text).chain(after.captures_iter(text)) {
            let names = one.get(1).expect("a group").as_str();
            found.extend(names.split('`').skip(1).step_by(2).map(|name| (line, name)));
        }
        found.extend(
            set.captures_iter(text).map(|one| (line, one.get(1).expect("a group").as_str())),
        );
    }
    found
}

/// Whether a script of the directory `tools` has a case for an option, or a judge a line of help.
fn is_of_a_tool(tree: &Tree, option: &str) -> bool {
    let (case, help) = (format!("{option})"), format!("{option} "));
    let has = |text: &str, start: &str| text.lines().any(|line| line.trim().starts_with(start));
    tree.all().any(|(path, text)| {
        path.starts_with("tools/") && has(text, &case)
            || path.starts_with("tests/judges/") && has(text, &help)
    })
}

fn broken_command(text: &str, tree: &Tree, facts: &Facts) -> Option<String> {
    let end = text.find([';', '|', '>', '#', '&']).unwrap_or(text.len());
    let words: Vec<&str> = text[..end].split_whitespace().collect();
    let is_set = |word: &&&str| word.contains('=') || **word == "sudo";
    let words = &words[words.iter().take_while(is_set).count()..];
    match words {
        ["forebay" | "./forebay", rest @ ..] => broken_call(rest, facts),
        ["cargo", rest @ ..] => broken_cargo(rest, tree, facts),
        _ => None,
    }
}

fn broken_call(words: &[&str], facts: &Facts) -> Option<String> {
    let is_name = |word: &str| word.chars().all(|c| c.is_ascii_lowercase() || c == '-');
    let command = words.first().filter(|word| is_name(word) && !word.starts_with('-'));
    if let Some(command) = command
        && !facts.has_command(command)
    {
        return Some(format!("no command forebay {command}"));
    }
    let bare = |word: &str| {
        let word = word.trim_matches(|c: char| !(c.is_ascii_alphanumeric() || c == '-'));
        word.split('=').next().unwrap_or_default().to_owned()
    };
    let mut options = words.iter().map(|word| bare(word)).filter(|word| word.starts_with("--"));
    // Behind a bare `--` stand another program's words.
    let options = options.by_ref().take_while(|word| word != "--");
    let missing = |option: &String| !facts.has_option(Some(command.copied().unwrap_or("")), option);
    options.into_iter().find(missing).map(|option| match command {
        Some(command) => format!("no option {option} of forebay {command}"),
        None => format!("no option {option} of forebay"),
    })
}

fn broken_cargo(words: &[&str], tree: &Tree, facts: &Facts) -> Option<String> {
    let end = words.iter().position(|word| *word == "--").unwrap_or(words.len());
    let (own, rest) = (&words[..end], words.get(end + 1..).unwrap_or_default());
    let value = |option: &str| own.iter().skip_while(|word| **word != option).nth(1).copied();
    let manifests = || tree.all().filter(|(path, _)| path.ends_with("Cargo.toml"));
    if let Some(name) = value("-p").filter(|name| *name != "forebay")
        && !manifests().any(|(_, text)| text.contains(&format!("name = \"{name}\"")))
    {
        return Some(format!("no package {name}"));
    }
    for (option, directory) in [("--example", "examples"), ("--test", "tests")] {
        if let Some(name) = value(option)
            && !tree.has_ending(&format!("{directory}/{name}.rs"))
            && !tree.has_ending(&format!("{directory}/{name}/main.rs"))
        {
            return Some(format!("no {directory}/{name}.rs"));
        }
    }
    let is_other = value("--example").is_some() || value("-p").is_some_and(|p| p != "forebay-cli");
    if own.first() == Some(&"run") && !is_other { broken_call(rest, facts) } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;

    const COMPARE: &str = "Options:\n  -v, --verbose  Print all\n      --rounds <N>  Rounds";

    fn findings(text: &str) -> Vec<String> {
        let tree = Tree::of(&[
            ("docs/survive.md", "# Survive a crash\n"),
            ("crates/forebay/examples/log.rs", ""),
            ("crates/forebay/tests/kill.rs", "fn contract_04_a_kill() {}"),
            ("crates/forebay/Cargo.toml", "name = \"forebay\""),
        ]);
        let facts = Facts::of(
            &[("", ""), ("compare", COMPARE)],
            &["plug", "contexts"],
            &["forebay_dirty_bytes"],
        );
        broken(&Page { path: "README.md", text }, &tree, &facts)
    }

    #[test]
    fn true_claims_pass() {
        let page = "See [survive](docs/survive.md#survive-a-crash), `forebay/tests/{kill}`, \
            `contract_04`, the knob `plug`.\n\n```sh\ncargo run --release -- compare --rounds 1\n\
            cargo run -p forebay --example log -- --depth 3\nforebay compare -v --verbose\n```\n";
        assert_eq!(findings(page), Vec::<String>::new());
    }

    #[test]
    fn a_renamed_option_is_found() {
        assert_eq!(findings("Type `forebay compare --repeat 3`.").len(), 1);
        assert_eq!(findings("Type `cargo run -- compare --repeat 3`.").len(), 1);
        assert_eq!(findings("With `--repeat` it goes on.").len(), 1);
    }

    #[test]
    fn a_missing_example_test_or_command_is_found() {
        assert_eq!(findings("`crates/forebay/examples/copy.rs`").len(), 1);
        assert_eq!(findings("`cargo run --example copy`").len(), 1);
        assert_eq!(findings("`forebay/tests/{kill,power}`").len(), 1);
        assert_eq!(findings("`contract_17`").len(), 1);
        assert_eq!(findings("`forebay measure`").len(), 1);
    }

    #[test]
    fn a_dead_link_is_found() {
        assert_eq!(findings("[gone](docs/gone.md)").len(), 1);
        assert_eq!(findings("[moved](docs/survive.md#moved)").len(), 1);
    }

    #[test]
    fn a_knob_that_is_gone_is_found() {
        assert_eq!(findings("The knobs `plug` and `turbo`.").len(), 1);
        assert_eq!(findings("`engine.set(\"turbo\", \"on\")` and the `turbo` knob").len(), 2);
    }

    #[test]
    fn a_metric_that_is_gone_is_found() {
        assert_eq!(findings("`forebay_dirty_bytes`"), Vec::<String>::new());
        assert_eq!(findings("`forebay_dirty_pages`").len(), 1);
    }

    #[test]
    fn a_command_that_ci_does_not_take_is_found() {
        let readme = "<!-- main -->\n```sh\ncargo run\n```\n<!-- tests -->\n```sh\n```\n";
        assert_eq!(commands_of_ci(readme, "<!-- main -->").len(), 2);
    }
}
