//! Effects of fio itself outside the directory it runs in, by options that do nothing here. A user
//! who gives an unchanged job file to fio has to know them.

use std::path::{Component, Path};

use super::text::Entry;
use super::value::{KbBase, Value};

/// Returns the effect of an option in fio outside its directory. `name` is the option's first one.
pub(super) fn of(name: &str, entry: &Entry) -> Option<&'static str> {
    let value = entry.value.as_deref().map_or("", str::trim);
    match name {
        "ioscheduler" => Some("fio would switch the device's scheduler, and leave it so"),
        "exec_prerun" | "exec_postrun" => Some("fio would run the command"),
        "cgroup" => Some("fio would make a control group"),
        "unlink_each_loop" => {
            let value = Value { text: entry.value.as_deref(), kb_base: KbBase::default() };
            value.boolean().unwrap_or(true).then_some("fio would remove files between two loops")
        }
        "write_iolog" | "write_bw_log" | "write_lat_log" | "write_iops_log" | "write_hist_log" => {
            leads_out(value).then_some("fio would write its log there")
        }
        // A file it maps is made, cut and removed.
        "mem" => {
            let file = value.split_once(':').map(|(_, file)| file);
            file.is_some_and(leads_out).then_some("fio would write over that file")
        }
        _ => None,
    }
}

fn leads_out(path: &str) -> bool {
    Path::new(path)
        .components()
        .any(|part| matches!(part, Component::RootDir | Component::ParentDir))
}
