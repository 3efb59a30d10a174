//! The scheduling class of the writeback threads, with the right to change it and without.

mod support;

use std::fs;

use forebay::options::ContextPriority;
use forebay::options::Contexts;
use forebay::{Engine, ErrorKind, Options};
use support::{PAGE, how, is_root, knobs, skip};

/// Scheduling policies of the writeback threads of this process.
fn policies() -> Vec<libc::c_int> {
    let threads = fs::read_dir("/proc/self/task").unwrap().map(|thread| thread.unwrap().path());
    let is_context = |name: &str| {
        name.trim_end().strip_prefix("forebay-").is_some_and(|number| number.parse::<u32>().is_ok())
    };
    threads
        .filter(|path| fs::read_to_string(path.join("comm")).is_ok_and(|name| is_context(&name)))
        .map(|path| {
            let thread = path.file_name().unwrap().to_str().unwrap().parse().unwrap();
            // SAFETY: no memory is passed.
            unsafe { libc::sched_getscheduler(thread) & !libc::SCHED_RESET_ON_FORK }
        })
        .collect()
}

/// Runs something on a thread without the right to a real-time priority.
fn without_the_right<T: Send>(run: impl FnOnce() -> T + Send) -> T {
    let limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the pointer is to a limit that lives during the call.
    assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_RTPRIO, &raw const limit) }, 0);
    let dropped = || {
        if is_root() {
            let user = 65_534;
            // SAFETY: no memory is passed. The system call changes the calling thread alone.
            let result = unsafe { libc::syscall(libc::SYS_setresuid, user, user, user) };
            assert_eq!(result, 0, "{}", std::io::Error::last_os_error());
        }
        run()
    };
    std::thread::scope(|scope| scope.spawn(dropped).join().unwrap())
}

#[test]
fn contexts_get_a_real_time_priority_and_lose_it() {
    let options = || Options {
        cache_bytes: Some(8 << 20),
        contexts: Contexts::Fixed(2),
        ..Options::default()
    };
    let realtime = || Options { context_priority: ContextPriority::Realtime, ..options() };
    let engine = match Engine::start(realtime()) {
        Ok(engine) => engine,
        Err(error) if !is_root() && error.kind() == ErrorKind::NotPermitted => {
            return skip("contexts_get_a_real_time_priority_and_lose_it", &error.to_string());
        }
        Err(error) => panic!("{error}"),
    };
    let directory = support::directory();
    let file = engine.open(directory.path().join("file"), &how::create()).unwrap();
    // The threads take changes in order, so a sync follows the change.
    let write = |byte| {
        file.write_at(&[byte; PAGE as usize], 0).unwrap();
        file.sync_data().unwrap();
    };
    write(1);
    assert!(policies().contains(&libc::SCHED_FIFO), "{:?}", policies());
    let refused = without_the_right(|| {
        knobs::set(&engine, "context_priority", "normal").unwrap();
        knobs::set(&engine, "context_priority", "realtime").unwrap_err()
    });
    assert_eq!(refused.kind(), ErrorKind::NotPermitted);
    assert_eq!(knobs::get(&engine, "context_priority"), "normal");
    let soon = std::time::Instant::now() + std::time::Duration::from_secs(60);
    while policies() != [libc::SCHED_OTHER; 2] {
        assert!(std::time::Instant::now() < soon, "{:?}", policies());
        write(2);
    }
    file.close().unwrap();
}

#[test]
fn without_the_right_it_is_refused_with_the_remedy() {
    let refused = without_the_right(|| {
        Engine::start(Options { context_priority: ContextPriority::Realtime, ..Options::default() })
            .unwrap_err()
    });
    assert_eq!(refused.kind(), ErrorKind::NotPermitted);
    let text = refused.to_string();
    for word in ["context_priority", "RLIMIT_RTPRIO", "CAP_SYS_NICE"] {
        assert!(text.contains(word), "{text}");
    }
}
