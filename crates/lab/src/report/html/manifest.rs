//! The manifest as a table, by the names it has in the file.

use std::fmt::Write;

use serde_json::Value;

use super::svg::escape;
use crate::manifest::Manifest;

/// A line for each that is known; long ones are opened by the reader.
pub(super) fn table(manifest: &Manifest) -> String {
    let mut text = "<div class=\"wide\"><table class=\"facts\">\n<tbody>\n".to_owned();
    // It was written as JSON before, or will be.
    let value = serde_json::to_value(manifest).unwrap_or(Value::Null);
    lines(&value, "", &mut text);
    text.push_str("</tbody>\n</table></div>\n");
    text
}

fn lines(value: &Value, name: &str, text: &mut String) {
    const LONG: usize = 160;
    match value {
        Value::Object(fields) => {
            for (field, value) in fields {
                let name = if name.is_empty() { field.clone() } else { format!("{name}.{field}") };
                lines(value, &name, text);
            }
        }
        value => {
            let told = told(value);
            let told = match (told.as_str(), told.len() > LONG || told.contains('\n')) {
                ("", _) => "<td class=\"unknown\">unknown, or none</td>".to_owned(),
                (told, false) => format!("<td>{}</td>", escape(told)),
                (told, true) => {
                    let first: String =
                        told.lines().next().unwrap_or_default().chars().take(60).collect();
                    let (first, told) = (escape(&first), escape(told));
                    format!(
                        "<td><details><summary>{first} ...</summary><pre>{told}</pre></details></td>"
                    )
                }
            };
            let _ = writeln!(text, "<tr><th scope=\"row\">{}</th>{told}</tr>", escape(name));
        }
    }
}

/// Lists of words on one line each.
fn told(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::String(text) => text.trim_end().to_owned(),
        Value::Array(items) => {
            let items: Vec<String> = items.iter().map(told).collect();
            items.join(if items.iter().any(|item| item.contains(' ')) { "\n" } else { " " })
        }
        other => other.to_string(),
    }
}
