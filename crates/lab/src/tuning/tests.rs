use super::*;
use crate::loop_device::LoopDevice;

fn tuning(knob: &str, value: &str) -> Tuning {
    Tuning { knob: knob.parse().unwrap(), value: value.into() }
}

/// A machine of files: one sysctl of two, and a queue.
struct Machine {
    directory: tempfile::TempDir,
    places: Places,
}

impl Machine {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let (vm, queue) = (directory.path().join("sys/vm"), directory.path().join("queue"));
        fs::create_dir_all(&vm).unwrap();
        fs::create_dir_all(&queue).unwrap();
        fs::write(vm.join("swappiness"), "60\n").unwrap();
        fs::write(vm.join("dirty_bytes"), "0\n").unwrap();
        fs::write(vm.join("dirty_ratio"), "20\n").unwrap();
        fs::write(queue.join("nomerges"), "0\n").unwrap();
        fs::write(queue.join("nr_requests"), "1023\n").unwrap();
        fs::create_dir(queue.join("iosched")).unwrap();
        fs::write(queue.join("iosched/read_expire"), "100\n").unwrap();
        fs::write(queue.join("scheduler"), "none [mq-deadline] bfq\n").unwrap();
        let places = Places { sysctl: directory.path().join("sys"), queue: Some(queue) };
        Self { directory, places }
    }

    fn at(&self, file: &str) -> String {
        fs::read_to_string(self.directory.path().join(file)).unwrap().trim().to_owned()
    }

    /// As the kernel, or somebody else, sets it.
    fn becomes(&self, file: &str, value: &str) {
        fs::write(self.directory.path().join(file), value).unwrap();
    }

    fn journal(&self) -> Journal {
        Journal::of(self.directory.path())
    }
}

#[test]
fn names_lead_to_their_own_directory_alone() {
    assert_eq!("sysctl.vm.dirty_bytes".parse(), Ok(Knob::Sysctl("vm.dirty_bytes".into())));
    assert_eq!("queue.nomerges".parse(), Ok(Knob::Queue("nomerges".into())));
    for wrong in [
        "sysctl.",
        "queue.",
        "queue./etc/x",
        "queue.a/b",
        "sysctl.vm..x",
        "sysctl.vm/x",
        "vm.x",
        "queue...",
    ] {
        assert!(wrong.parse::<Knob>().is_err(), "{wrong}");
    }
}

#[test]
fn what_is_not_there_names_the_nearest_and_nothing_is_changed() {
    let machine = Machine::new();
    let refused = |knob: &str| machine.places.check(&[tuning(knob, "1")]).unwrap_err().to_string();
    assert_eq!(
        refused("queue.nomerge"),
        "queue.nomerge: no such setting on this machine; did you mean queue.nomerges?"
    );
    assert!(refused("sysctl.vm.swapiness").ends_with("did you mean sysctl.vm.swappiness?"));
    assert!(refused("queue.something-else").ends_with("no such setting on this machine"));
    let nowhere = Places { queue: None, ..machine.places.clone() };
    assert!(
        nowhere
            .check(&[tuning("queue.nomerges", "2")])
            .unwrap_err()
            .to_string()
            .contains("not on a block device")
    );
    machine
        .places
        .check(&[tuning("queue.nomerges", "2"), tuning("sysctl.vm.swappiness", "1")])
        .unwrap();
}

#[test]
fn it_is_set_as_long_as_it_is_held_and_in_a_panic_too() {
    let machine = Machine::new();
    let tunings = [tuning("sysctl.vm.swappiness", "1"), tuning("queue.nomerges", "2")];
    let held = Held::new(&tunings, &machine.places, &machine.journal(), &Claim::none()).unwrap();
    assert_eq!(
        (machine.at("sys/vm/swappiness"), machine.at("queue/nomerges")),
        ("1".into(), "2".into())
    );
    let busy = Held::new(
        &tunings[1..],
        &machine.places,
        &Journal::of(&machine.directory.path().join("sys")),
        &Claim::none(),
    );
    assert!(busy.unwrap_err().to_string().contains("another comparison uses this setting"));
    held.release().unwrap();
    assert_eq!(
        (machine.at("sys/vm/swappiness"), machine.at("queue/nomerges")),
        ("60".into(), "0".into())
    );
    assert!(!machine.directory.path().join("settings.json").exists());

    let (places, journal) = (machine.places.clone(), machine.journal());
    let panicked = std::thread::spawn(move || {
        let _held = Held::new(&tunings, &places, &journal, &Claim::none()).unwrap();
        panic!("on purpose");
    });
    assert!(panicked.join().is_err());
    assert_eq!(
        (machine.at("sys/vm/swappiness"), machine.at("queue/nomerges")),
        ("60".into(), "0".into())
    );
}

#[test]
fn what_a_killed_run_has_left_is_put_back_but_not_what_was_set_since() {
    let machine = Machine::new();
    let tunings = [tuning("sysctl.vm.swappiness", "1"), tuning("queue.nomerges", "2")];
    std::mem::forget(
        Held::new(&tunings, &machine.places, &machine.journal(), &Claim::none()).unwrap(),
    );
    fs::write(machine.directory.path().join("sys/vm/swappiness"), "30\n").unwrap();
    let recovered = recover(machine.directory.path()).unwrap();
    assert_eq!(
        (machine.at("sys/vm/swappiness"), machine.at("queue/nomerges")),
        ("30".into(), "0".into())
    );
    let [back, since] = recovered.as_slice() else { panic!("{recovered:?}") };
    assert!(matches!(back, Recovered::PutBack { value, .. } if value == "0"), "{back:?}");
    assert!(matches!(since, Recovered::SetSince { before, .. } if before == "60"), "{since:?}");
    assert_eq!(recover(machine.directory.path()).unwrap(), [], "once is enough");
}

#[test]
fn what_a_switch_of_the_scheduler_sets_anew_is_put_back_too() {
    for killed in [false, true] {
        let machine = Machine::new();
        let held = Held::new(
            &[tuning("queue.scheduler", "none")],
            &machine.places,
            &machine.journal(),
            &Claim::none(),
        )
        .unwrap();
        machine.becomes("queue/nr_requests", "256");
        machine.becomes("queue/iosched/read_expire", "500");
        if killed {
            std::mem::forget(held);
            assert_eq!(recover(machine.directory.path()).unwrap().len(), 1);
        } else {
            held.release().unwrap();
        }
        assert_eq!(machine.at("queue/scheduler"), "mq-deadline");
        assert_eq!(machine.at("queue/nr_requests"), "1023");
        assert_eq!(machine.at("queue/iosched/read_expire"), "100");
    }
}

/// Two comparisons, each with one of a pair: the second would take what the first has set for what
/// was there.
#[test]
fn the_other_of_a_pair_is_held_as_well() {
    let machine = Machine::new();
    let [bytes, ratio] =
        [tuning("sysctl.vm.dirty_bytes", "64000000"), tuning("sysctl.vm.dirty_ratio", "5")];
    let other = Journal::of(&machine.directory.path().join("sys"));
    let held = Held::new(
        std::slice::from_ref(&bytes),
        &machine.places,
        &machine.journal(),
        &Claim::none(),
    )
    .unwrap();
    let busy = Held::new(std::slice::from_ref(&ratio), &machine.places, &other, &Claim::none())
        .unwrap_err()
        .to_string();
    assert_eq!(
        busy,
        "sysctl.vm.dirty_ratio: another comparison uses this setting; wait until it ends"
    );
    machine.becomes("sys/vm/dirty_ratio", "0");
    machine.becomes("sys/vm/dirty_bytes", "0");
    held.release().unwrap();
    assert_eq!(machine.at("sys/vm/dirty_ratio"), "20");
    let both = Held::new(&[bytes, ratio], &machine.places, &machine.journal(), &Claim::none());
    assert!(both.is_ok(), "one's own is no other's: {both:?}");
    machine.becomes("sys/vm/dirty_bytes", "0");
}

#[test]
fn the_other_of_a_pair_goes_back_with_its_own_alone() {
    let machine = Machine::new();
    let tunings =
        [tuning("sysctl.vm.dirty_bytes", "64000000"), tuning("sysctl.vm.swappiness", "1")];
    std::mem::forget(
        Held::new(&tunings, &machine.places, &machine.journal(), &Claim::none()).unwrap(),
    );
    machine.becomes("sys/vm/dirty_ratio", "0");
    machine.becomes("sys/vm/dirty_bytes", "1000000000");
    let recovered = recover(machine.directory.path()).unwrap();
    assert_eq!(recovered.len(), 2, "{recovered:?}");
    assert_eq!(machine.at("sys/vm/swappiness"), "60");
    let pair = ["sys/vm/dirty_bytes", "sys/vm/dirty_ratio"].map(|file| machine.at(file));
    assert_eq!(pair, ["1000000000", "0"], "writing the ratio would make 0 of the bytes");
}

#[test]
fn a_journal_of_another_start_or_cut_short_is_no_order() {
    let machine = Machine::new();
    std::mem::forget(
        Held::new(
            &[tuning("queue.nomerges", "2")],
            &machine.places,
            &machine.journal(),
            &Claim::none(),
        )
        .unwrap(),
    );
    let path = machine.directory.path().join("settings.json");
    let text = fs::read_to_string(&path).unwrap();
    fs::write(&path, &text[..text.len() / 2]).unwrap();
    assert_eq!(recover(machine.directory.path()).unwrap(), []);
    let mut other: serde_json::Value = serde_json::from_str(&text).unwrap();
    other["boot"] = "another".into();
    fs::write(&path, other.to_string()).unwrap();
    assert_eq!(recover(machine.directory.path()).unwrap(), []);
    assert_eq!(machine.at("queue/nomerges"), "2");
}

#[test]
fn a_value_the_kernel_does_not_take_leaves_all_as_it_was() {
    let Some((_file, device)) = device() else { return };
    let directory = tempfile::tempdir().unwrap();
    let (places, journal) = (Places::under(device.path()), Journal::of(directory.path()));
    let queue = places.queue.clone().unwrap();
    let (before, other) = match read(&queue.join("iostats")).unwrap().as_str() {
        "0" => ("0", "1"),
        _ => ("1", "0"),
    };
    // Settings made before are restored.
    let tunings = [tuning("queue.iostats", other), tuning("queue.scheduler", "no-such-scheduler")];
    let refused = Held::new(&tunings, &places, &journal, &Claim::none()).unwrap_err().to_string();
    assert!(refused.starts_with("queue.scheduler=no-such-scheduler: "), "{refused}");
    assert_eq!(read(&queue.join("iostats")).unwrap(), before);
    assert!(!directory.path().join("settings.json").exists());
    assert!(
        places
            .check(&[tuning("queue.nr_request", "1")])
            .unwrap_err()
            .to_string()
            .contains("queue.nr_requests?")
    );
}

#[test]
fn the_queue_of_a_real_device_is_set_and_put_back() {
    let Some((_file, device)) = device() else { return };
    let directory = tempfile::tempdir().unwrap();
    let (places, journal) = (Places::under(device.path()), Journal::of(directory.path()));
    let queue = places.queue.clone().unwrap();
    let all =
        ["nomerges", "read_ahead_kb", "scheduler", "nr_requests"].map(|name| queue.join(name));
    let at_first = [2, 3].map(|which| read(&all[which]).unwrap());
    // Without a scheduler a loop device takes 128 requests at most, so the depth goes back after
    // the scheduler alone.
    for (scheduler, depth, other) in [("none", "64", "mq-deadline"), ("mq-deadline", "200", "none")]
    {
        fs::write(&all[2], scheduler).unwrap();
        fs::write(&all[3], depth).unwrap();
        let before = all.each_ref().map(|file| read(file).unwrap());
        // The depth is set anew with the scheduler, and has to be as it was asked for nevertheless.
        let tunings = [
            tuning("queue.nomerges", "2"),
            tuning("queue.read_ahead_kb", "64"),
            tuning("queue.nr_requests", "32"),
            tuning("queue.scheduler", other),
        ];
        let held = Held::new(&tunings, &places, &journal, &Claim::none()).unwrap();
        assert_eq!(all.each_ref().map(|file| read(file).unwrap()), ["2", "64", other, "32"]);
        held.release().unwrap();
        assert_eq!(all.each_ref().map(|file| read(file).unwrap()), before);
        if scheduler == "none" {
            continue;
        }
        // And after a killed run; forgotten settings stay locked.
        std::mem::forget(Held::new(&tunings, &places, &journal, &Claim::none()).unwrap());
        assert_eq!(recover(directory.path()).unwrap().len(), 4);
        assert_eq!(all.each_ref().map(|file| read(file).unwrap()), before);
    }
    // Leaves the device as it was.
    fs::write(&all[2], &at_first[0]).unwrap();
    fs::write(&all[3], &at_first[1]).unwrap();
}

/// Setting one of the two makes 0 of the other, which takes no 0.
#[test]
fn a_pair_of_sysctls_is_put_back_by_the_one_that_was_set() {
    if !rustix::process::geteuid().is_root() {
        eprintln!("skipped: sysctls are root's");
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let places = Places::under(directory.path());
    let files = ["dirty_background_bytes", "dirty_background_ratio"]
        .map(|name| places.sysctl.join("vm").join(name));
    let before = files.each_ref().map(|file| read(file).unwrap());
    let tunings = [tuning("sysctl.vm.dirty_background_bytes", "1073741824")];
    let held = match Held::new(&tunings, &places, &Journal::of(directory.path()), &Claim::none()) {
        Ok(held) => held,
        Err(error) => {
            eprintln!("skipped: {error}");
            return;
        }
    };
    assert_eq!(read(&files[0]).unwrap(), "1073741824");
    held.release().unwrap();
    assert_eq!(files.each_ref().map(|file| read(file).unwrap()), before);
}

/// A loop device; none without root.
fn device() -> Option<(tempfile::NamedTempFile, LoopDevice)> {
    let file = tempfile::NamedTempFile::new().unwrap();
    file.as_file().set_len(16 << 20).unwrap();
    match LoopDevice::over(file.path()) {
        Ok(device) => Some((file, device)),
        Err(error) => {
            eprintln!("skipped: no loop device: {error}");
            None
        }
    }
}

#[test]
fn a_claim_finds_what_cannot_be_set_before_the_first_cell() {
    let machine = Machine::new();
    let merges = [tuning("queue.nomerges", "2")];
    let mut claim = Claim::none();
    claim.add(&merges, &machine.places, &machine.journal()).unwrap();
    assert_eq!(machine.at("queue/nomerges"), "0", "the trial restores the value");
    assert!(!machine.directory.path().join("settings.json").exists());
    // Another comparison is refused at its start, also while no cell of the first one runs.
    let other = Journal::of(&machine.directory.path().join("sys"));
    let busy = Claim::none().add(&merges, &machine.places, &other).unwrap_err();
    assert!(busy.to_string().contains("another comparison uses this setting"), "{busy}");
    // Cells of the first comparison may set it.
    let held = Held::new(&merges, &machine.places, &machine.journal(), &claim).unwrap();
    assert_eq!(machine.at("queue/nomerges"), "2");
    held.release().unwrap();
    drop(claim);
    Claim::none().add(&merges, &machine.places, &other).unwrap();
}

#[test]
fn a_value_that_reads_back_as_another_is_refused_by_the_claim() {
    let machine = Machine::new();
    // A file whose content is not what was written: the word in brackets is what is set.
    let value = tuning("queue.scheduler", "none [bfq]");
    let refused = Claim::none().add(&[value], &machine.places, &machine.journal()).unwrap_err();
    assert!(refused.to_string().contains("the kernel changes this to bfq"), "{refused}");
}
