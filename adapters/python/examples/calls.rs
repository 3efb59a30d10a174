//! The work of `calls.py` in Rust: reads `WORK DIRECTORY` lines, and prints the seconds of each.

use std::io::BufRead as _;
use std::path::Path;
use std::time::Instant;

use forebay::{Engine, File, OpenOptions};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let engine = Engine::new()?;
    for line in std::io::stdin().lock().lines() {
        let line = line?;
        let (work, directory) = line.split_once(' ').ok_or("WORK DIRECTORY")?;
        let new = |name: &str| {
            let path = Path::new(directory).join(name);
            engine.open(path, OpenOptions::new().write(true).create(true).truncate(true))
        };
        let seconds = match work {
            "writes" => writes(new("file")?)?,
            "appends" => appends(new("file")?)?,
            "tasks" => {
                tasks((0..100).map(|task| new(&task.to_string())).collect::<Result<_, _>>()?)?
            }
            _ => return Err("writes, appends or tasks".into()),
        };
        println!("{seconds}");
    }
    Ok(())
}

fn writes(file: File) -> forebay::Result<f64> {
    let piece = vec![7; 1 << 20];
    let start = Instant::now();
    for index in 0..512 {
        file.write_at(&piece, index << 20)?;
    }
    file.sync_all()?;
    file.close()?;
    Ok(start.elapsed().as_secs_f64())
}

fn appends(file: File) -> forebay::Result<f64> {
    let start = Instant::now();
    for _ in 0..200_000 {
        file.append(b"x")?;
    }
    let seconds = start.elapsed().as_secs_f64();
    file.close()?;
    Ok(seconds)
}

fn tasks(files: Vec<File>) -> Result<f64, Box<dyn std::error::Error>> {
    let runtime = tokio::runtime::Builder::new_current_thread().build()?;
    let start = Instant::now();
    runtime.block_on(async {
        let tasks: Vec<_> = files.into_iter().map(|file| tokio::spawn(bursts(file))).collect();
        for task in tasks {
            task.await??;
        }
        Ok(start.elapsed().as_secs_f64())
    })
}

async fn bursts(file: File) -> forebay::Result<()> {
    let piece = vec![7; 16 << 10];
    for index in 0..20 {
        file.asynchronous().write_at(&piece, index * (16 << 10)).await?;
        file.asynchronous().sync_data().await?;
    }
    forebay::AsyncFile::close(file).await
}
