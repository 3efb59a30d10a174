//! The text of a job file: sections and their lines, with includes taken in and variables put in.
//!
//! The meaning of keys is known elsewhere. Each line keeps its file and number for later messages.

use std::path::{Path, PathBuf};
use std::rc::Rc;

use super::ParseError;

#[derive(Clone, Debug)]
pub(crate) struct Section {
    pub(crate) name: String,
    pub(crate) at: Place,
    pub(crate) entries: Vec<Entry>,
}

#[derive(Clone, Debug)]
pub(crate) struct Entry {
    pub(crate) key: String,
    /// None for a bare key.
    pub(crate) value: Option<String>,
    pub(crate) at: Place,
}

/// Where something stands.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Place {
    pub(crate) path: Rc<Path>,
    pub(crate) line: usize,
}

impl Place {
    pub(crate) fn error(&self, what: impl Into<String>) -> ParseError {
        ParseError { path: self.path.to_path_buf(), line: self.line, what: what.into() }
    }
}

/// Values of `${NAME}`.
pub(crate) type Environment<'a> = &'a dyn Fn(&str) -> Option<String>;

/// An include that includes itself would never end.
const DEEPEST: usize = 16;
/// A job file is written by hand, so a larger one is a mistake.
const MOST_BYTES: u64 = 1 << 20;

/// Takes a text apart.
pub(crate) fn sections(
    text: &str,
    path: &Path,
    environment: Environment<'_>,
) -> Result<Vec<Section>, ParseError> {
    let mut reader = Reader { sections: Vec::new(), environment };
    reader.read(text, path, 0)?;
    Ok(reader.sections)
}

struct Reader<'a> {
    sections: Vec<Section>,
    environment: Environment<'a>,
}

impl Reader<'_> {
    fn read(&mut self, text: &str, path: &Path, depth: usize) -> Result<(), ParseError> {
        let shared: Rc<Path> = path.into();
        for (index, line) in text.lines().enumerate() {
            let at = Place { path: Rc::clone(&shared), line: index + 1 };
            let line = without_comment(line).trim();
            if line.is_empty() {
                continue;
            }
            let line = self.expand(line, &at)?;
            let line = line.trim();
            if let Some(file) =
                line.strip_prefix("include ").or_else(|| line.strip_prefix("include\t"))
            {
                self.include(file.trim(), path, depth, &at)?;
            } else if let Some(rest) = line.strip_prefix('[') {
                let name = rest.strip_suffix(']').map(str::trim).filter(|name| !name.is_empty());
                let name = name.ok_or_else(|| {
                    at.error(format!("{line}: a section is a [name] on its own line"))
                })?;
                self.sections.push(Section { name: name.into(), at, entries: Vec::new() });
            } else {
                self.entry(line, at)?;
            }
        }
        Ok(())
    }

    fn entry(&mut self, line: &str, at: Place) -> Result<(), ParseError> {
        let (key, value) = match line.split_once('=') {
            Some((key, value)) => (key.trim(), Some(value.trim().to_owned())),
            None => (line, None),
        };
        let Some(section) = self.sections.last_mut() else {
            return Err(at.error(format!(
                "{key}: stands before any section; begin with [global] or a job's [name]"
            )));
        };
        if key.is_empty() {
            return Err(at.error("a value without a key"));
        }
        section.entries.push(Entry { key: key.into(), value, at });
        Ok(())
    }

    /// Relative to the file that includes.
    fn include(
        &mut self,
        file: &str,
        from: &Path,
        depth: usize,
        at: &Place,
    ) -> Result<(), ParseError> {
        if depth >= DEEPEST {
            return Err(at.error(format!(
                "include {file}: more than {DEEPEST} files deep; does it include itself?"
            )));
        }
        let path: PathBuf = from.parent().unwrap_or(Path::new("")).join(file);
        let failed = |error: std::io::Error| {
            at.error(format!("include {file}: {}: {error}", path.display()))
        };
        let found = std::fs::metadata(&path).map_err(failed)?;
        if !found.is_file() {
            // Such as a device, whose text may have no end.
            return Err(at.error(format!("include {file}: not a regular file")));
        }
        let length = found.len();
        if length > MOST_BYTES {
            return Err(at.error(format!("include {file}: {length} bytes are no job file")));
        }
        let text = std::fs::read_to_string(&path).map_err(failed)?;
        self.read(&text, &path, depth + 1)
    }

    fn expand(&self, line: &str, at: &Place) -> Result<String, ParseError> {
        let mut expanded = String::with_capacity(line.len());
        let mut rest = line;
        while let Some((before, after)) = rest.split_once("${") {
            let Some((name, after)) = after.split_once('}') else {
                return Err(at.error(format!("{line}: ${{ without a closing brace")));
            };
            let value = (self.environment)(name);
            let value =
                value.ok_or_else(|| at.error(format!("environment variable {name} is not set")))?;
            expanded.push_str(before);
            expanded.push_str(&value);
            rest = after;
        }
        expanded.push_str(rest);
        if !expanded.contains('$') {
            return Ok(expanded);
        }
        for (name, value) in machine() {
            if expanded.contains(name) {
                expanded = expanded.replace(name, &value.to_string());
            }
        }
        Ok(expanded)
    }
}

/// Words that stand for a property of the machine.
fn machine() -> [(&'static str, usize); 3] {
    let memory = rustix::system::sysinfo();
    let memory_bytes = u128::from(memory.totalram) * u128::from(memory.mem_unit);
    [
        ("$ncpus", std::thread::available_parallelism().map_or(1, std::num::NonZero::get)),
        ("$pagesize", rustix::param::page_size()),
        ("$mb_memory", (memory_bytes >> 20) as usize),
    ]
}

fn without_comment(line: &str) -> &str {
    line.find([';', '#']).map_or(line, |at| &line[..at])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Vec<Section>, ParseError> {
        let environment = |name: &str| (name == "DIR").then(|| "/data".to_owned());
        sections(text, Path::new("a.fio"), &environment)
    }

    #[test]
    fn sections_lines_comments_and_variables() {
        let text = "; head\n[global]\nbs = 4k # trailing\n\n[one]\n directory=${DIR}/x\ntime_based\nnumjobs=$ncpus\n";
        let sections = parse(text).unwrap();
        assert_eq!(sections.len(), 2);
        assert_eq!(sections[0].entries[0].key, "bs");
        assert_eq!(sections[0].entries[0].value.as_deref(), Some("4k"));
        assert_eq!(sections[1].name, "one");
        assert_eq!(sections[1].entries[0].value.as_deref(), Some("/data/x"));
        assert_eq!(sections[1].entries[0].at.line, 6);
        assert_eq!(sections[1].entries[1].value, None);
        assert!(sections[1].entries[2].value.as_deref().unwrap().parse::<u32>().unwrap() >= 1);
    }

    #[test]
    fn what_is_wrong_is_said_where_it_is() {
        for (text, line, says) in [
            ("bs=4k\n[a]\n", 1, "before any section"),
            ("[a]\n\n[b\n", 3, "a section is"),
            ("[]\n", 1, "a section is"),
            ("[a]\n=4k\n", 2, "without a key"),
            ("[a]\nx=${NOT}\n", 2, "NOT is not set"),
            ("[a]\nx=${DIR\n", 2, "closing brace"),
            ("[a]\ninclude none.fio\n", 2, "none.fio"),
            ("[a]\ninclude /dev/zero\n", 2, "not a regular file"),
        ] {
            let error = parse(text).unwrap_err();
            assert_eq!(error.line, line, "{text:?}");
            assert!(error.what.contains(says), "{error}");
        }
    }

    #[test]
    fn includes_are_relative_and_end() {
        let directory = tempfile::tempdir().unwrap();
        std::fs::create_dir(directory.path().join("sub")).unwrap();
        std::fs::write(directory.path().join("sub/b.fio"), "bs=8k\ninclude c.fio\n").unwrap();
        std::fs::write(directory.path().join("sub/c.fio"), "size=1m\n").unwrap();
        let path = directory.path().join("a.fio");
        let none = |_: &str| None;
        let read = sections("[a]\ninclude sub/b.fio\nrw=write\n", &path, &none).unwrap();
        let keys: Vec<_> = read[0].entries.iter().map(|entry| entry.key.as_str()).collect();
        assert_eq!(keys, ["bs", "size", "rw"]);
        assert_eq!(*read[0].entries[1].at.path, directory.path().join("sub/c.fio"));
        std::fs::write(&path, "include a.fio\n").unwrap();
        assert!(
            sections("[a]\ninclude a.fio\n", &path, &none)
                .unwrap_err()
                .what
                .contains("include itself")
        );
    }
}
