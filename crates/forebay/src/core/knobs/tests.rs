use super::*;

#[test]
fn values_are_read_with_their_units() {
    assert_eq!(bytes("64m"), Some(64 << 20));
    assert_eq!(bytes("1GiB"), Some(1 << 30));
    assert_eq!(bytes("4096"), Some(4096));
    assert!(bytes("12x").is_none() && bytes("").is_none() && bytes("99999999t").is_none());
    assert_eq!(age("500ms"), Some(Duration::from_millis(500)));
    assert_eq!(age("2s"), Some(Duration::from_secs(2)));
    assert!(age("2").is_none() && age("s").is_none());
    for reported in ["1us", "1500us", "500ms", "1s", "90s"] {
        assert_eq!(format_age(age(reported).unwrap()), reported);
    }
}

#[test]
fn a_flight_is_a_depth_or_a_time() {
    assert_eq!(bound("7"), Some(Flight::Depth(7)));
    assert_eq!(bound("112"), Some(Flight::Depth(FLIGHT)));
    assert_eq!(bound("time=2000"), Some(Flight::Time(Duration::from_millis(2))));
    for value in
        ["0", "113", "", "time", "time=", "time=99", "time=1000001", "time=2ms", "-1", "2 ms"]
    {
        assert_eq!(bound(value), None, "{value}");
    }
    for edge in ["time=100", "time=1000000"] {
        assert!(bound(edge).is_some(), "{edge}");
    }
    assert!(FLIGHTS.contains(&FLIGHT.to_string()));
}

#[test]
fn contract_18_a_number_of_contexts_is_read_within_its_bounds() {
    assert_eq!(contexts("1"), Some(Contexts::Fixed(1)));
    assert_eq!(contexts("64"), Some(Contexts::Fixed(CONTEXTS)));
    assert_eq!(contexts("adaptive"), Some(Contexts::Adaptive));
    for value in ["0", "65", "10000", "", "-1", "all", "auto", "1.5", "99999999999999999999"] {
        assert_eq!(contexts(value), None, "{value}");
    }
}

#[test]
fn space_ahead_is_a_word_or_a_number() {
    let reported = [("adaptive", "adaptive"), ("off", "off"), ("64m", "67108864"), ("0", "0")];
    for (value, again) in reported {
        assert_eq!(format_prealloc(prealloc(value).unwrap()), again);
        assert_eq!(prealloc(again), prealloc(value));
    }
    for value in ["extsize=1m", "-1", "", "on"] {
        assert_eq!(prealloc(value), None, "{value}");
    }
}

#[test]
fn a_delay_of_a_jiffy_is_that_of_this_kernel() {
    let mut settings = Options::default();
    set(&mut settings, "completion", "delay=jiffy").unwrap();
    let expected = format!("delay={}", jiffy().as_micros());
    assert_eq!(get(&settings, "completion").unwrap(), expected);
    assert_ne!(expected, "delay=0");
    for bad in ["jiffy", "delay=jiffies", "delay=2jiffy"] {
        assert!(set(&mut settings, "completion", bad).is_err(), "{bad}");
    }
    assert!(set(&mut settings, "plug", "delay=jiffy").is_err());
    let queue = forebay_block::Knobs::ALL.iter().find(|knob| knob.name == "completion");
    assert!(HOLDS.starts_with(queue.unwrap().choices), "{HOLDS}");
}

#[test]
fn the_page_of_knobs_is_made_from_the_table() {
    let mut page = "| knob | values | default | meaning |\n|---|---|---|---|\n".to_owned();
    for knob in list(&Options::default()) {
        let Knob { name, choices, default, help, change, .. } = knob;
        let fixed = match change {
            Change::Live => "",
            Change::Fixed => " Fixed once the engine is built.",
        };
        page += &format!("| `{name}` | {choices} | {default} | {help}{fixed} |\n");
    }
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/src/core/knobs.md");
    if std::env::var_os("FOREBAY_WRITE_PAGES").is_some() {
        std::fs::write(path, &page).unwrap();
    }
    let found = std::fs::read_to_string(path).unwrap();
    assert_eq!(found, page, "run this test with FOREBAY_WRITE_PAGES=1 to write the page");
}

#[test]
fn defaults_match_the_table() {
    let settings = Options::default();
    for Knob { name, value, default, .. } in list(&settings) {
        // The defaults of three depend on the machine, or on another knob.
        if !default.contains(" of ") {
            assert_eq!(value, default, "{name}");
        }
    }
}

#[test]
fn names_are_words_and_unique() {
    let settings = Options::default();
    let knobs = list(&settings);
    for (at, knob) in knobs.iter().enumerate() {
        let is_word = knob.name.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_');
        assert!(
            is_word && knobs[..at].iter().all(|other| other.name != knob.name),
            "{}",
            knob.name
        );
        assert!(!knob.value.is_empty() && !knob.value.contains([' ', '\n']), "{knob:?}");
        assert!(!knob.choices.is_empty() && !knob.choices.contains('\n'), "{knob:?}");
    }
}

#[test]
fn the_value_of_a_knob_can_be_set_again() {
    let mut settings = Options::default();
    for Knob { name, value, choices, .. } in list(&settings) {
        set(&mut settings, &name, &value).unwrap();
        assert_eq!(get(&settings, &name).unwrap(), value);
        // If the choices are words, each of them can be set.
        for choice in choices.split(", ").filter(|choice| !choice.contains([' ', '='])) {
            set(&mut settings, &name, choice).unwrap();
            assert_eq!(get(&settings, &name).unwrap(), choice);
        }
    }
}

#[test]
fn an_invalid_value_is_refused_with_the_valid_ones() {
    let mut settings = Options::default();
    for Knob { name, choices, .. } in list(&settings) {
        for value in ["", " ", "nothing", "-1", "0x10", "18446744073709551616", "time=", "1\n2"] {
            let error = set(&mut settings, &name, value).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidInput);
            assert!(error.to_string().contains(&choices), "{error}");
        }
    }
    let unknown = set(&mut settings, "cash_bytes", "1g").unwrap_err().to_string();
    assert!(unknown.contains("cash_bytes") && unknown.contains("cache_bytes"), "{unknown}");
    assert!(get(&settings, "").is_err());
}

#[test]
fn a_running_engine_takes_other_values_of_live_knobs_alone() {
    let before = Options { cache_bytes: Some(64 << 20), ..Options::default() };
    check_change(&before, &before).unwrap();
    let other = [
        ("cache_bytes", "32m"),
        ("buffer_bytes", "8192"),
        ("backend", "threads"),
        ("dirty_age", "2s"),
        ("close_timeout", "none"),
        ("uncached", "on"),
    ];
    for (name, value) in other {
        let mut after = before.clone();
        set(&mut after, name, value).unwrap();
        let changed = check_change(&before, &after);
        let knob = list(&after).into_iter().find(|knob| knob.name == name).unwrap();
        assert_eq!(changed.is_ok(), knob.change == Change::Live, "{name}");
        if let Err(error) = changed {
            assert!(error.to_string().contains("while the engine runs: "), "{error}");
        }
    }
}

#[test]
fn a_timeout_is_a_time_or_none() {
    assert_eq!(timeout("none"), Some(Duration::MAX));
    assert_eq!(format_timeout(Duration::MAX), "none");
    assert_eq!(timeout("60s"), Some(Duration::from_secs(60)));
    assert!(timeout("never").is_none() && timeout("").is_none());
}
