//! Kinds of work: which table shows which, through which arms.

use super::{TableKind, WorkloadKind};
use crate::through::Family;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    Files,
    Requests,
    /// Jobs on files or on a device, for a time.
    Jobs,
    Copies,
    /// Threads that write files of their own once.
    Writers,
    Echoes,
    Programs,
}

impl Kind {
    pub fn name(self) -> &'static str {
        match self {
            Kind::Jobs => "jobs",
            Kind::Writers => "writers",
            kind => kind.family().name(),
        }
    }

    /// The noun for a workload of this kind, and the key that a suite has for it.
    pub(super) fn key(self) -> (&'static str, &'static str) {
        match self {
            Kind::Files => ("new files", "new_files"),
            Kind::Requests => ("requests", "pattern and operation"),
            Kind::Jobs => ("job", "a job"),
            Kind::Copies => ("copy", "a copy"),
            Kind::Writers => ("writers", "writers"),
            Kind::Echoes => ("echo", "an echo"),
            Kind::Programs => ("program", "a program"),
        }
    }

    /// The arms that can run it.
    pub fn family(self) -> Family {
        match self {
            Kind::Files | Kind::Jobs | Kind::Writers => Family::Files,
            Kind::Requests => Family::Requests,
            Kind::Copies => Family::Copies,
            Kind::Echoes => Family::Echoes,
            Kind::Programs => Family::Programs,
        }
    }
}

impl TableKind {
    pub fn kind(self) -> Kind {
        match self {
            TableKind::Files => Kind::Files,
            TableKind::Arms | TableKind::Ladder | TableKind::Worth | TableKind::Policies => {
                Kind::Requests
            }
            TableKind::Completion | TableKind::Beside => Kind::Jobs,
            TableKind::Copies => Kind::Copies,
            TableKind::Writers | TableKind::Contexts | TableKind::Factors => Kind::Writers,
            TableKind::Echo => Kind::Echoes,
            TableKind::Programs => Kind::Programs,
        }
    }
}

impl WorkloadKind {
    /// The kind of work it is. Job files are shown as requests.
    pub fn kind(&self) -> Kind {
        match self {
            WorkloadKind::NewFiles(_) => Kind::Files,
            WorkloadKind::Requests { .. } | WorkloadKind::JobFile(_) => Kind::Requests,
            WorkloadKind::Jobs(_) => Kind::Jobs,
            WorkloadKind::Copies(_) => Kind::Copies,
            WorkloadKind::Writers(_) => Kind::Writers,
            WorkloadKind::Echo(_) => Kind::Echoes,
            WorkloadKind::Program(_) => Kind::Programs,
        }
    }
}
