//! An upload in parts, which may be written in any order and at the same time.

use std::sync::Arc;

use async_trait::async_trait;
use futures_util::FutureExt as _;
use object_store::{MultipartUpload, PutPayload, PutResult, Result, UploadPart};

use crate::blocking;
use crate::staged::{Publish, Staged};

/// Upload in parts. Dropping it removes what was uploaded, unless it is complete.
#[derive(Debug)]
pub(crate) struct Upload {
    staged: Arc<Staged>,
    /// Offset of the next part.
    offset: u64,
}

impl Upload {
    pub(crate) fn new(staged: Staged) -> Self {
        Self { staged: Arc::new(staged), offset: 0 }
    }
}

#[async_trait]
impl MultipartUpload for Upload {
    fn put_part(&mut self, data: PutPayload) -> UploadPart {
        let (staged, offset) = (Arc::clone(&self.staged), self.offset);
        self.offset += data.content_length() as u64;
        // Here: the future may be dropped before it is polled.
        staged.begin_part();
        blocking(move || staged.write_part(&data, offset)).boxed()
    }

    async fn complete(&mut self) -> Result<PutResult> {
        let staged = Arc::clone(&self.staged);
        blocking(move || staged.publish(Publish::Replace)).await
    }

    async fn abort(&mut self) -> Result<()> {
        let staged = Arc::clone(&self.staged);
        blocking(move || {
            staged.give_up();
            Ok(())
        })
        .await
    }
}
