//! `forebay report`: a result shown again, or two side by side. Runs nothing.

use std::path::Path;

use forebay_lab::bundle::document_in;
use forebay_lab::report;
use forebay_lab::schema::Document;

use crate::args::ReportArgs;
use crate::failure::Failure;
use crate::kept;
use crate::output::print;
use crate::outputs::Outputs;

/// A result to show, and the files to write.
#[derive(Debug)]
pub(crate) struct ReportRequest {
    result: Document,
    /// To be set beside it.
    other: Option<Document>,
    outputs: Outputs,
}

/// Reads the results that the command line names. Fails if one cannot be read.
pub(crate) fn meant(typed: ReportArgs) -> Result<ReportRequest, Failure> {
    if typed.other.is_some() && typed.html.is_some() {
        return Err(Failure::usage("--html: the page shows one result; leave the second one out"));
    }
    let result = match typed.result {
        Some(path) => read(&path)?,
        None => kept::last()?,
    };
    Ok(ReportRequest {
        result,
        other: typed.other.as_deref().map(read).transpose()?,
        outputs: Outputs::meant(typed.html, None)?,
    })
}

/// The file of a result, or that of a bundle.
pub(crate) fn read(path: &Path) -> Result<Document, Failure> {
    Document::read(&document_in(path)).map_err(Failure::usage)
}

/// Shows it.
pub(crate) fn report(request: &ReportRequest) -> Result<(), Failure> {
    request.outputs.write(&request.result)?;
    let text = match &request.other {
        Some(other) => report::side_by_side(&request.result, other),
        None => report::any(&request.result),
    };
    print(&text)
}
