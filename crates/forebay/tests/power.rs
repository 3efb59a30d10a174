//! The power goes under load: the file system is shut down at a random moment with its journal
//! unwritten, unmounted and mounted again. All synced data is there; any other sector holds one of
//! the versions accepted since, or zeroes.
//!
//! And before the power comes back: a dead file system makes calls fail, in time; it stops no
//! thread of the engine and does no harm to files elsewhere.

mod support;

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use forebay::{AsyncFile, Engine, ErrorKind, File};
use support::load::{
    Syncs, count_engine_panics, elsewhere_all_is_well, engine, lose_power_under_load,
    no_engine_panics,
};
use support::mount::{FileSystem, Mount};
use support::{MIB, how, within};

#[test]
fn contract_03_and_01_power_lost_on_xfs() {
    if let Some(mut mount) = Mount::new("power_lost_on_xfs", FileSystem::Xfs, 2048 * MIB) {
        lose_power_under_load(&mut mount, Syncs::InPlace, 6);
    }
}

#[test]
fn contract_03_and_01_power_lost_on_ext4() {
    if let Some(mut mount) = Mount::new("power_lost_on_ext4", FileSystem::Ext4, 512 * MIB) {
        lose_power_under_load(&mut mount, Syncs::InPlace, 6);
    }
}

#[test]
fn contract_23_and_24_logged_syncs_and_power_lost_on_xfs() {
    if let Some(mut mount) = Mount::new("logged_power_xfs", FileSystem::Xfs, 2048 * MIB) {
        lose_power_under_load(&mut mount, Syncs::Logged, 6);
    }
}

#[test]
fn contract_23_and_24_logged_syncs_and_power_lost_on_ext4() {
    if let Some(mut mount) = Mount::new("logged_power_ext4", FileSystem::Ext4, 512 * MIB) {
        lose_power_under_load(&mut mount, Syncs::Logged, 6);
    }
}

/// A program that never syncs has to hear of it too, and not be kept waiting for room that never
/// comes.
#[test]
fn contract_02_a_writer_that_never_syncs_hears_of_a_dead_device() {
    let Some(mount) = Mount::new("writer_that_never_syncs", FileSystem::Ext4, 256 * MIB) else {
        return;
    };
    count_engine_panics();
    let errors = Arc::default();
    let engine = engine(&errors);
    let file = engine.open(mount.path().join("file"), &how::create()).unwrap();
    file.write_at(&[1; 4096], 0).unwrap();
    mount.cut_off();
    let error = within(Duration::from_secs(10), "a writer on a dead file system", move || {
        let error =
            (0..).find_map(|at: u64| file.write_at(&[2; 65536], at % 1024 * 65536).err()).unwrap();
        file.close().expect_err("what was accepted could not be written");
        error
    });
    assert_eq!(error.kind(), ErrorKind::Io, "{error}");
    no_engine_panics();
    elsewhere_all_is_well(&engine);
}

/// A close that was given up when it had failed already tells the callback.
#[test]
fn contract_02_a_close_given_up_calls_the_callback() {
    let Some(mount) = Mount::new("close_given_up", FileSystem::Ext4, 64 * MIB) else { return };
    let errors: Arc<Mutex<Vec<String>>> = Arc::default();
    let engine = engine(&errors);
    let files = files(&engine, &mount);
    mount.cut_off();
    let closing = files.into_iter().find_map(begin_to_close).expect("no close was waited for");
    std::thread::sleep(Duration::from_secs(1));
    assert!(errors.lock().unwrap().is_empty(), "the close has the error");
    drop(closing);
    let reported = errors.lock().unwrap();
    assert!(reported.len() == 1 && reported[0].contains("mounted/file"), "{reported:?}");
}

/// So does one that is given up at any other moment, also while it has its error already and waits
/// only for the file to be closed.
#[test]
fn contract_02_a_close_given_up_at_any_moment_calls_the_callback_once() {
    let Some(mount) = Mount::new("close_given_up_any", FileSystem::Ext4, 64 * MIB) else { return };
    let errors: Arc<Mutex<Vec<String>>> = Arc::default();
    let engine = engine(&errors);
    let files = files(&engine, &mount);
    mount.cut_off();
    let mut given_up = 0;
    for (n, file) in files.into_iter().enumerate() {
        let Some(mut closing) = begin_to_close(file) else { continue };
        let until = Instant::now() + Duration::from_micros(10) * n as u32;
        while Instant::now() < until {
            std::hint::spin_loop();
        }
        match closing.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Pending => given_up += 1,
            Poll::Ready(result) => assert_eq!(result.unwrap_err().kind(), ErrorKind::Io),
        }
        drop(closing);
        let are_reported = || errors.lock().unwrap().len() == given_up;
        assert!(
            support::eventually(Duration::from_secs(5), are_reported),
            "{given_up} closes were given up: {:?}",
            errors.lock().unwrap()
        );
    }
    assert!(given_up > 0, "no close was given up");
}

fn files(engine: &Engine, mount: &Mount) -> Vec<File> {
    let open = |n| engine.open(mount.path().join(format!("file{n}")), &how::create()).unwrap();
    (0..64).map(open).collect()
}

/// Polls the close of a file with dirty pages once. Returns none if a context was faster than this
/// thread.
fn begin_to_close(file: File) -> Option<Pin<Box<impl Future<Output = forebay::Result<()>>>>> {
    file.write_at(&[1; 40960], 0).unwrap();
    let mut closing = Box::pin(AsyncFile::close(file));
    match closing.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Pending => Some(closing),
        Poll::Ready(result) => {
            assert_eq!(result.unwrap_err().kind(), ErrorKind::Io);
            None
        }
    }
}

/// The last handle dropped with pages that cannot be written tells the engine's callback, for
/// nobody else is there.
#[test]
fn contract_02_and_05_a_dropped_file_calls_the_callback() {
    let Some(mount) = Mount::new("dropped_file_reports", FileSystem::Ext4, 64 * MIB) else {
        return;
    };
    count_engine_panics();
    let errors: Arc<Mutex<Vec<String>>> = Arc::default();
    let engine = engine(&errors);
    let file = engine.open(mount.path().join("file"), &how::create()).unwrap();
    mount.cut_off();
    file.write_at(&[1; 40960], 0).unwrap();
    drop(file);
    let reported = || errors.lock().unwrap().iter().any(|error| error.contains("mounted/file"));
    assert!(
        support::eventually(Duration::from_secs(5), reported),
        "nothing was reported: {:?}",
        errors.lock().unwrap()
    );
    no_engine_panics();
    elsewhere_all_is_well(&engine);
}
