//! The walk on a device in memory, in virtual time: the same lines every time.

use std::time::Duration;

use super::*;
use crate::walk::lines;

/// A device that keeps only the length of its one file. Its clock moves when the caller waits, by
/// 80 us.
#[derive(Default)]
pub(crate) struct Timed {
    length: u64,
    staged: Vec<Completion>,
    completed: Vec<Completion>,
    now: Moment,
}

impl Device for Timed {
    fn now(&mut self) -> Moment {
        self.now
    }

    fn prepare(&mut self, tag: Tag, request: &Bio) -> Result<(), Refused> {
        let bytes = match request.operation {
            Operation::Read => request.end().min(self.length) - request.offset.min(self.length),
            Operation::SetLength => {
                self.length = request.offset;
                0
            }
            Operation::Write => {
                self.length = self.length.max(request.end());
                request.bytes()
            }
            Operation::FlushData => 0,
            other => panic!("no walk makes a request of {other:?}"),
        };
        self.staged.push(Completion { tag, result: Ok(bytes) });
        Ok(())
    }

    fn doorbell(&mut self, wait: Wait) -> Result<(), Errno> {
        if wait != Wait::Not {
            self.now = self.now + Duration::from_micros(80);
        }
        self.completed.append(&mut self.staged);
        Ok(())
    }

    fn reap(&mut self, completions: &mut Vec<Completion>) {
        completions.append(&mut self.completed);
    }
}

/// Expected output without the legend.
const EXPECTED: &str = "\
One context, memory

       us  step        bio  tag operation      file      offset   length how many of what

           -- set the size of the file to 9 pages: no data moves
      0.0  submitted     0      set-length        0       36864        0
      0.0  plugged       0                                                      1 held
      0.0  tagged                                                               1 tag
      0.0  dispatched    0    0 set-length        0       36864        0        1 bio
      0.0  rung                                                                 1 request
     80.0  completed     0    0                                                 0 bytes
     80.0  ended         0                                                      0 bytes
     80.0  run                                                                  1 bio ended

           -- four writes at once; three are adjacent, and the plug merges them into one request
     80.0  submitted     1      write             0           0     4096
     80.0  plugged       1                                                      1 held
     80.0  submitted     2      write             0       32768     4096
     80.0  plugged       2                                                      2 held
     80.0  submitted     3      write             0        4096     4096
     80.0  plugged       3                                                      3 held
     80.0  submitted     4      write             0        8192     4096
     80.0  plugged       4                                                      4 held
     80.0  merged        3                                                      1 takes it in
     80.0  merged        4                                                      1 takes it in
     80.0  tagged                                                               2 tags
     80.0  dispatched    1    0 write             0           0    12288        3 bios
     80.0  dispatched    2    1 write             0       32768     4096        1 bio
     80.0  rung                                                                 2 requests
    160.0  completed     1    0                                             12288 bytes
    160.0  completed     2    1                                              4096 bytes
    160.0  ended         1                                                   4096 bytes
    160.0  ended         3                                                   4096 bytes
    160.0  ended         4                                                   4096 bytes
    160.0  ended         2                                                   4096 bytes
    160.0  run                                                                  4 bios ended

           -- a flush: it covers the writes that have ended
    160.0  submitted     5      flush-data        0           0        0
    160.0  plugged       5                                                      1 held
    160.0  tagged                                                               1 tag
    160.0  dispatched    5    0 flush-data        0           0        0        1 bio
    160.0  rung                                                                 1 request
    240.0  completed     5    0                                                 0 bytes
    240.0  ended         5                                                      0 bytes
    240.0  run                                                                  1 bio ended

           -- read pages 7 to 10 of a file that ends after page 8: the read is short, so the rest is read again
    240.0  submitted     6      read              0       28672    16384
    240.0  plugged       6                                                      1 held
    240.0  tagged                                                               1 tag
    240.0  dispatched    6    0 read              0       28672    16384        1 bio
    240.0  rung                                                                 1 request
    320.0  completed     6    0                                              8192 bytes
    320.0  again         6      read              0       36864     8192
    320.0  tagged                                                               1 tag
    320.0  dispatched    6    0 read              0       36864     8192        1 bio
    320.0  rung                                                                 1 request
    400.0  completed     6    0                                                 0 bytes
    400.0  ended         6                                                   8192 bytes
    400.0  run                                                                  1 bio ended
";

#[test]
fn a_walk_shows_plug_merge_sweep_doorbell_run_short_read_and_flush() {
    let text = lines::text("memory", &walk(Timed::default()).unwrap());
    assert!(text.starts_with(EXPECTED), "\n{text}");
    // The legend explains what came up, and nothing else.
    let legend = &text[EXPECTED.len()..];
    assert!(legend.contains("\nagain ") && !legend.contains("\napart "), "{legend}");
}
