//! Reads pages of a file at random places, past every cache, many at once: `direct FILE [READS]`.
//!
//! Thirty-two reads are held in a plug and submitted with one system call. Buffers come from the
//! engine's pool and go from read to read. The calls that it counts are also those that wait for
//! reads to end.

use std::time::Instant;

use forebay::{Engine, OpenOptions};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let path = arguments.next().ok_or("which file? direct FILE [READS]")?;
    let reads: u64 = arguments.next().map_or(Ok(100_000), |reads| reads.parse())?;
    let engine = Engine::new()?;
    let file = engine.open_direct(&path, OpenOptions::new().read(true))?;
    let pages = (file.len() / 4096).max(1);
    let (mut buffers, mut place, mut done) = (Vec::new(), 1u64, 0);
    for _ in 0..32 {
        buffers.push(engine.buffer(4096)?);
    }
    let start = Instant::now();
    while done < reads {
        let plug = engine.plug();
        let mut batch = Vec::new();
        for buffer in buffers.drain(..) {
            // Knuth's MMIX generator; its upper bits are good enough for places.
            place = place
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            batch.push(file.read_at(buffer, (place >> 33) % pages * 4096));
        }
        drop(plug);
        for read in batch {
            let (result, buffer) = read.wait();
            result?;
            buffers.push(buffer);
            done += 1;
        }
    }
    let stats = engine.stats();
    println!("{:.0} reads a second", done as f64 / start.elapsed().as_secs_f64());
    println!("{:.1} reads for each system call", stats.bios as f64 / stats.doorbells as f64);
    file.close().wait()?;
    Ok(())
}
