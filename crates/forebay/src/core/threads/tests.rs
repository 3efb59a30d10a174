use std::sync::mpsc;
use std::time::Duration;

use super::*;
use crate::core::limits::CALL_THREADS;
use crate::core::wait;

#[test]
fn contract_15_jobs_run_in_order_on_another_thread() {
    let aside = Arc::new(Workers::default());
    let (go_on, wait) = mpsc::channel::<()>();
    let (reported, report) = mpsc::channel();
    aside.run(move || wait.recv().unwrap());
    for number in 0..100 {
        let reported = reported.clone();
        aside.run(move || reported.send((number, thread::is_ours())).unwrap());
    }
    assert!(!aside.settle(Some(clock::instant() + Duration::from_millis(20))));
    assert_eq!(report.try_recv(), Err(mpsc::TryRecvError::Empty));
    go_on.send(()).unwrap();
    assert!(aside.settle(None));
    assert!(report.try_iter().eq((0..100).map(|number| (number, true))));
}

#[test]
fn contract_15_jobs_run_one_by_one_if_no_thread_can_be_started() {
    let fails: StartThread = |_, _| Err(io::Error::from_raw_os_error(libc::EAGAIN));
    let aside = Arc::new(Workers::default());
    let (go_on, wait) = mpsc::channel::<()>();
    let (reported, report) = mpsc::channel();
    let (first, second) = (reported.clone(), reported.clone());
    let of_first = Arc::clone(&aside);
    let running = std::thread::spawn(move || {
        let job = move || {
            first.send("begin").unwrap();
            wait.recv().unwrap();
            first.send("end").unwrap();
        };
        of_first.run_by(fails, Box::new(job));
    });
    assert_eq!(report.recv(), Ok("begin"));
    aside.run_by(fails, Box::new(move || second.send("second").unwrap()));
    aside.run(move || reported.send("third").unwrap());
    assert!(!aside.settle(Some(clock::instant() + Duration::from_millis(20))));
    assert_eq!(report.try_recv(), Err(mpsc::TryRecvError::Empty));
    go_on.send(()).unwrap();
    running.join().unwrap();
    assert!(aside.settle(None));
    assert!(report.try_iter().eq(["end", "second", "third"]));
    aside.run(|| {});
    assert!(aside.settle(None));
}

#[test]
fn contract_16_the_thread_of_an_aside_ends_without_jobs() {
    let aside = Arc::new(Workers::default());
    for _ in 0..2 {
        aside.run(|| panic!("a job that fails; the next one runs all the same"));
        aside.run(|| {});
        assert!(aside.settle(None));
        assert_eq!(aside.state.lock().threads, 1);
        let deadline = clock::instant() + Duration::from_secs(20);
        while Arc::strong_count(&aside) > 1 {
            assert!(clock::instant() < deadline, "the thread did not end");
            thread::sleep(Duration::from_millis(20));
        }
        assert_eq!(aside.state.lock().threads, 0);
    }
}

#[test]
fn a_call_that_blocks_does_not_keep_the_next_waiting() {
    let workers = Arc::new(Workers::for_calls(CALL_THREADS));
    let (go_on, wait_for_it) = mpsc::channel::<()>();
    let blocked = workers.call(move || {
        wait_for_it.recv().unwrap();
        Ok(1)
    });
    assert_eq!(wait::block_on(workers.call(|| Ok(2))).unwrap(), 2);
    go_on.send(()).unwrap();
    assert_eq!(wait::block_on(blocked).unwrap(), 1);
}

#[test]
fn contract_18_no_more_threads_start_than_allowed_and_every_call_is_made() {
    let workers = Arc::new(Workers::for_calls(CALL_THREADS));
    let (go_on, wait_for_it) = mpsc::channel::<()>();
    let wait_for_it = Arc::new(std::sync::Mutex::new(wait_for_it));
    let calls: Vec<_> = (0..3 * CALL_THREADS)
        .map(|number| {
            let wait_for_it = Arc::clone(&wait_for_it);
            workers.call(move || {
                wait_for_it.lock().unwrap().recv().unwrap();
                Ok(number)
            })
        })
        .collect();
    assert!(workers.state.lock().threads <= CALL_THREADS);
    (0..calls.len()).for_each(|_| go_on.send(()).unwrap());
    let results = calls.into_iter().map(|call| wait::block_on(call).unwrap());
    assert!(results.eq(0..3 * CALL_THREADS));
}

#[test]
fn a_call_that_panics_or_is_not_awaited_harms_no_other() {
    let workers = Arc::new(Workers::for_calls(CALL_THREADS));
    let panicked = workers.call(|| -> Result<()> { panic!("a call that fails") });
    assert_eq!(wait::block_on(panicked).unwrap_err().kind(), ErrorKind::Io);
    let (reported, report) = mpsc::channel();
    drop(workers.call(move || {
        reported.send(thread::is_ours()).unwrap();
        Ok(())
    }));
    assert!(!report.recv().unwrap(), "it may wait for the engine");
}

#[test]
fn contract_16_the_threads_end_without_calls() {
    let workers = Arc::new(Workers::for_calls(CALL_THREADS));
    wait::block_on(workers.call(|| Ok(()))).unwrap();
    let deadline = clock::instant() + Duration::from_secs(20);
    while Arc::strong_count(&workers) > 1 {
        assert!(clock::instant() < deadline, "the thread did not end");
        thread::sleep(Duration::from_millis(20));
    }
    assert_eq!(workers.state.lock().threads, 0);
}

#[test]
fn a_wait_ends_with_the_last_guard_or_at_the_deadline() {
    let (ended, running) = ThreadsEnd::new();
    let other = running.clone();
    drop(running);
    assert!(!ended.wait(Some(clock::instant() + Duration::from_millis(5))));
    thread::spawn("drops", move || {
        thread::sleep(Duration::from_millis(5));
        drop(other);
    })
    .unwrap();
    assert!(ended.wait(None));
}
