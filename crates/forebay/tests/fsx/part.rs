//! Operations of one of several threads that use a file at the same time.

use forebay_block::random::Random;

use crate::operation::difference;
use crate::support::handle::Handle;
use crate::support::pattern;

/// Bytes of a file that one thread may use.
pub(crate) struct Part<'a> {
    pub(crate) model: &'a mut [u8],
    pub(crate) start: u64,
    pub(crate) handle: &'a Handle,
    pub(crate) random: Random,
}

impl Part<'_> {
    pub(crate) fn run(mut self, operations: u64) -> Result<(), String> {
        for _ in 0..operations {
            let length = self.model.len();
            let (from, to) = (self.random.below(length as u64), self.random.below(length as u64));
            let (from, to) = (from as usize, to as usize);
            let most = length - from.max(to);
            let wanted = [200, 9000, 64 << 10][self.random.below(3) as usize];
            let size = self.random.below(wanted) as usize % (most + 1);
            match self.random.below(40) {
                0 => self.handle.sync_data().map_err(|error| error.to_string())?,
                1..16 => drop(self.read(from, size)?),
                16..20 => {
                    let data = self.read(from, size)?;
                    self.write(to, &data)?;
                }
                _ => {
                    let data = pattern(self.random.draw(), size);
                    self.write(from, &data)?;
                }
            }
        }
        Ok(())
    }

    fn read(&self, from: usize, size: usize) -> Result<Vec<u8>, String> {
        let at = self.start + from as u64;
        let found = self.handle.read(at, size).map_err(|error| error.to_string())?;
        match difference(at, &found, &self.model[from..from + size]) {
            None => Ok(found),
            Some(wrong) => Err(wrong),
        }
    }

    fn write(&mut self, to: usize, data: &[u8]) -> Result<(), String> {
        self.handle.write(data, self.start + to as u64).map_err(|error| error.to_string())?;
        self.model[to..to + data.len()].copy_from_slice(data);
        Ok(())
    }
}
