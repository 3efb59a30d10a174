//! A bundle: a directory with all that another reader needs. It holds the result, the manifest, the
//! suites and job files, and the command that repeats it.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use crate::doctor::quoted;
use crate::file_name::plain;
use crate::manifest::{JobFile, Manifest};
use crate::refusal::Refusal;
use crate::report;
use crate::schema::Document;
use crate::whole_file;

/// The document, as `--json` writes it.
pub const RESULT: &str = "result.json";

/// Where the files are that say what was asked.
const JOB_FILES: &str = "job-files";

/// Refuses a directory that a bundle cannot go to: it has to be new, or empty. It is not made
/// before there is something to put in it.
pub fn check(directory: &Path) -> Result<(), Refusal> {
    let refused = |why| {
        let path = directory.display();
        Err(Refusal(format!("{path}: {why}; give a new or an empty directory")))
    };
    match fs::read_dir(directory).map(|mut entries| entries.next().is_none()) {
        Ok(true) => Ok(()),
        Ok(false) => refused("not empty"),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let parent = whole_file::directory_of(directory);
            fs::metadata(parent).map(drop).map_err(|error| {
                let path = parent.display();
                Refusal(format!("{path}: {error}; give a directory inside an existing one"))
            })
        }
        Err(_) => refused("not a directory"),
    }
}

/// Writes a bundle into a directory. After a failure the files written so far stay.
pub fn write(directory: &Path, document: &Document) -> io::Result<()> {
    let (manifest, job_files) = (&document.manifest, directory.join(JOB_FILES));
    fs::create_dir_all(directory)?;
    document.write(&directory.join(RESULT))?;
    let texts = [
        ("README.md", readme(document)),
        ("manifest.json", serde_json::to_string_pretty(manifest)? + "\n"),
        ("result.txt", report::any(document)),
        ("result.html", report::html(document)),
    ];
    for (name, text) in texts {
        write_new(&directory.join(name), &text)?;
    }
    fs::create_dir(&job_files)?;
    named(&manifest.job_files)
        .try_for_each(|(name, job_file)| write_new(&job_files.join(name), &job_file.text))
}

/// Returns the path of the document that a path names: itself, or that of a bundle.
pub fn document_in(path: &Path) -> PathBuf {
    if path.is_dir() { path.join(RESULT) } else { path.to_owned() }
}

/// Returns the suites and job files of a bundle in the order of the command line.
pub fn job_files_in(directory: &Path) -> io::Result<Vec<PathBuf>> {
    let entries = fs::read_dir(directory.join(JOB_FILES))?;
    let mut paths =
        entries.map(|entry| entry.map(|entry| entry.path())).collect::<io::Result<Vec<_>>>()?;
    // By their names, which begin with their numbers.
    paths.sort();
    Ok(paths)
}

/// Writes a file that must not exist yet.
fn write_new(path: &Path, text: &str) -> io::Result<()> {
    let mut file = File::options().write(true).create_new(true).open(path)?;
    file.write_all(text.as_bytes())?;
    file.sync_data()
}

/// Returns each file with a name of its number and its own name, so that no two are alike.
fn named(job_files: &[JobFile]) -> impl Iterator<Item = (String, &JobFile)> {
    (1..).zip(job_files).map(|(number, job_file)| {
        (format!("{number:02}-{}", plain(&job_file.name, "-_.+")), job_file)
    })
}

fn readme(document: &Document) -> String {
    let manifest = &document.manifest;
    let files: Vec<String> =
        named(&manifest.job_files).map(|(name, _)| format!("`{name}`")).collect();
    let files = if files.is_empty() { "none".to_owned() } else { files.join(", ") };
    let typed: Vec<String> = manifest.command_line.iter().map(quoted).collect();
    let text = report::any(document);
    format!(
        "# {title}\n\n\
         Recorded {date} with forebay {version}. The full text is below and in `result.txt`.\n\n\
         | file | content |\n|---|---|\n\
         | `result.txt` | the tables, for a mail |\n\
         | `result.html` | the same with charts; needs no network |\n\
         | `result.json` | every figure of every round and run; schema {schema} |\n\
         | `manifest.json` | machine, disk and program (also in `result.json`) |\n\
         | `{JOB_FILES}/` | the suites or job files: {files} |\n\n\
         ## To repeat it\n\n\
         The command was:\n\n```sh\n{typed}\n```\n\n\
         The same questions, arms, seed, order and sizes, in a directory on the disk to compare:\n\n\
         ```sh\nforebay compare --from THIS_DIRECTORY --dir DIRECTORY --bundle NEW_DIRECTORY\n```\n\n\
         Both results side by side:\n\n```sh\nforebay report THIS_DIRECTORY NEW_DIRECTORY\n```\n\n\
         ## The program\n\n{build}\n\n\
         ## The result\n\n```\n{text}```\n",
        title = if manifest.title.is_empty() { &document.suite } else { &manifest.title },
        date = manifest.date,
        version = manifest.version,
        schema = document.schema,
        typed = typed.join(" "),
        build = build(manifest),
    )
}

/// Describes the build and how to get the same one.
fn build(manifest: &Manifest) -> String {
    let known = manifest.commit.as_deref();
    let checkout = known.map_or("COMMIT", |commit| commit.trim_end_matches('+'));
    let commit = match known {
        Some(commit) if commit.ends_with('+') => {
            format!("commit {checkout} with uncommitted changes")
        }
        Some(_) => format!("commit {checkout}"),
        None => "an unknown commit".to_owned(),
    };
    let how = manifest.build.as_deref().map(|how| format!(" ({how})")).unwrap_or_default();
    format!(
        "forebay {}, {commit}{how}. From its source:\n\n```sh\ngit checkout {checkout}\ncargo build --release\n\
         target/release/forebay --version\n```",
        manifest.version
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn document() -> Document {
        let file = |name: &str, text: &str| JobFile { name: name.into(), text: text.into() };
        let manifest = Manifest {
            version: "0.1.0".into(),
            commit: Some("abc123+".into()),
            command_line: vec!["forebay".into(), "compare".into(), "a b".into()],
            job_files: vec![file("layout.toml", "one\n"), file("../x y.toml", "two\n")],
            ..Manifest::default()
        };
        Document::new(manifest, "layout", Vec::new(), Vec::new())
    }

    #[test]
    fn everything_is_in_it_and_is_found_again() {
        let parent = tempfile::tempdir().unwrap();
        let directory = parent.path().join("bundle");
        check(&directory).unwrap();
        assert!(!directory.exists(), "nothing is made beforehand");
        write(&directory, &document()).unwrap();
        let mut names: Vec<_> = fs::read_dir(&directory)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        let expected =
            ["README.md", "job-files", "manifest.json", "result.html", "result.json", "result.txt"];
        assert_eq!(names, expected);
        assert_eq!(Document::read(&document_in(&directory)).unwrap(), document());
        assert_eq!(document_in(&directory.join("other.json")), directory.join("other.json"));
        let files = job_files_in(&directory).unwrap();
        let names: Vec<_> =
            files.iter().map(|path| path.file_name().unwrap().to_str().unwrap()).collect();
        assert_eq!(names, ["01-layout.toml", "02-.._x_y.toml"]);
        assert_eq!(fs::read_to_string(&files[1]).unwrap(), "two\n");
        let readme = fs::read_to_string(directory.join("README.md")).unwrap();
        for words in [
            "forebay compare 'a b'",
            "git checkout abc123\n",
            "uncommitted changes",
            "--from THIS_DIRECTORY",
        ] {
            assert!(readme.contains(words), "{words}: {readme}");
        }
    }

    #[test]
    fn what_is_there_already_is_left_alone() {
        let parent = tempfile::tempdir().unwrap();
        assert!(check(parent.path()).is_ok(), "an empty one will do");
        fs::write(parent.path().join("file"), "").unwrap();
        let refused = |path: &Path| check(path).unwrap_err().to_string();
        assert!(refused(parent.path()).contains(": not empty; "));
        assert!(refused(&parent.path().join("file")).contains(": not a directory; "));
        assert!(refused(&parent.path().join("a/b")).contains("inside an existing one"));
    }
}
