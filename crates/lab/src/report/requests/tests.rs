use super::*;
use crate::cell::CellResult;
use crate::compare::Measured;
use crate::compare::judge::{Judging, judge};
use crate::manifest::{ArmLeftOut, Machine, Manifest, Storage};
use crate::report::table::{assert_fits, assert_heads_fit};
use crate::report::{comparison, reading};
use crate::suite::{Base, Pair, TableKind};

/// Rates of arms in one job, each with its twin if it is the one.
struct Made<'a> {
    place: (&'a str, u32),
    arms: &'a [(&'a str, f64)],
}

fn typical_us(arm: &str, rate: f64) -> f64 {
    if arm == "never" { 6e6 / rate } else { 32e6 / rate }
}

/// Five rounds around a mean; every arm with a ripple of its own.
fn measured(job: &str, arm: &str, rate: f64) -> Measured {
    let ripples = [0.98, 1.01, 1.0, 1.02, 0.99];
    let round = |round: usize| {
        let ripple = ripples[(round * 2 + arm.len()) % ripples.len()];
        let metrics = [
            ("iops", rate * ripple),
            ("ns_per_io", 1e9 / (rate * ripple)),
            ("latency_p50_us", typical_us(arm, rate) / ripple),
            ("latency_p99_us", 90e6 / (rate * ripple)),
            ("cpu_us_per_io", 2.5),
            (
                "doorbells_per_io",
                if arm == "never" || arm == "kernel-uring-1" { 1.0 } else { 0.25 },
            ),
        ];
        let metrics = metrics.map(|(name, value)| (name.to_owned(), value)).into();
        CellResult { metrics, ..CellResult::default() }
    };
    Measured { job: job.into(), arm: arm.into(), rounds: (0..ripples.len()).map(round).collect() }
}

struct Asked<'a> {
    table: TableKind,
    metric: &'static str,
    base: Base,
    again: &'a str,
}

fn document(asked: &Asked<'_>, made: &[Made<'_>]) -> Document {
    let mut cells = Vec::new();
    let mut jobs = Vec::new();
    for Made { place: (device, depth), arms } in made {
        let name = format!("part/random-4k/{device}/{depth}");
        for (arm, rate) in *arms {
            cells.push(measured(&name, arm, *rate));
            if *arm == asked.again {
                cells.push(measured(&name, &again(arm), *rate * 1.004));
            }
        }
        jobs.push(PartJob {
            title: format!("random-4k, depth {depth}, {device}"),
            name,
            workload: "random-4k".into(),
            device: Some((*device).to_owned()),
            depth: Some(*depth),
            ..PartJob::default()
        });
    }
    let also = ["never", "always"].map(|base| Pair { arm: "adaptive".into(), base: base.into() });
    let judging =
        Judging { base: &asked.base, metric: asked.metric, again: asked.again, also: &also };
    let judged = judge(&cells, judging, 0x7f3a);
    for job in &mut jobs {
        job.base =
            judged.bases.iter().find(|(name, _)| *name == job.name).map(|(_, base)| base.clone());
        job.best = judged.best_of(&job.name);
    }
    let manifest = Manifest {
        machine: Machine { release: "6.18.44".into(), cpus: 8, ..Machine::default() },
        storage: Storage {
            file_system: "ext4".into(),
            device: "/dev/nvme0n1".into(),
            ..Storage::default()
        },
        seed: "7f3a".into(),
        ..Manifest::default()
    };
    let mut document = Document::new(manifest, "plug", judged.rows, judged.comparisons);
    document.differences = judged.differences;
    document.parts = vec![Part {
        name: "part".into(),
        question: Some("Why?".into()),
        title: "What was asked".into(),
        table: asked.table,
        metric: asked.metric.into(),
        again: asked.again.into(),
        rounds: 5,
        jobs,
        ..Part::default()
    }];
    document
}

fn text(asked: &Asked<'_>, made: &[Made<'_>]) -> String {
    let document = document(asked, made);
    let read = serde_json::from_str(&serde_json::to_string(&document).unwrap()).unwrap();
    let text = comparison(&read);
    assert!(text.lines().all(|line| line.len() <= 72), "\n{text}");
    text
}

const HEADING: &str = "ext4 on /dev/nvme0n1 with large folios, Linux 6.18, 8 cores
Why?
What was asked                                       5 rounds, seed 7f3a
";

#[test]
fn arms_beside_each_other() {
    let asked = Asked {
        table: TableKind::Arms,
        metric: "iops",
        base: Base::Arm("kernel-uring-1".into()),
        again: "adaptive",
    };
    let arms =
        [("kernel-uring-1", 1e5), ("kernel-uring-nomerges-longer", 101e3), ("adaptive", 15e4)];
    let expected = "
random-4k, depth 32, file:
                                                                CPU bell
arm                        IOPS      ratio [95 %]   p50   p99 us/IO / IO
kernel-uring-1        100k+-2k           1 (base) 320us 900us  2.50 1.00
kernel-uring-nomerges 101k+-2k  ~1.01 [0.99-1.03] 317us 891us  2.50 0.25
adaptive              150k+-2k   1.50 [1.47-1.53] 213us 600us  2.50 0.25
adaptive-again        151k+-2k   1.51 [1.51-1.51] 213us 598us  2.50 0.25
noise floor 2.5 %.  ~ = not shown
bell = a call that hands over or waits; - = not told

Reading: random-4k, depth 32, file: adaptive makes 1.50x the IOPS of
kernel-uring-1; doorbells per I/O: 0.25 against 1.00.
";
    let text = text(&asked, &[Made { place: ("file", 32), arms: &arms }]);
    assert_eq!(text, format!("{HEADING}{expected}"), "\n{text}");
}

fn reading_of(arms: &[(&str, f64)]) -> String {
    let asked = Asked {
        table: TableKind::Arms,
        metric: "iops",
        base: Base::BestOf(vec!["kernel-uring".into(), "kernel-uring-1".into()]),
        again: "adaptive",
    };
    let document = document(&asked, &[Made { place: ("file", 32), arms }]);
    reading::reading(&document, &document.parts[0]).join("\n")
}

const TITLE: &str = "Reading: random-4k, depth 32, file: ";

#[test]
fn deciding_as_it_goes_is_read_against_the_kernel_and_the_fixed_policies() {
    let arms = |adaptive: f64| {
        let kernel = [("kernel-uring", 1e5), ("kernel-uring-1", 12e4)];
        [&kernel[..], &[("never", 1e5), ("always", 14e4), ("adaptive", adaptive)]].concat()
    };
    let better = "adaptive makes 1.50x the IOPS of the best kernel arm (kernel-uring-1); doorbells per I/O: 0.25 \
                  against 1.00. Against the better fixed policy (always) it makes 1.29x the IOPS.";
    assert_eq!(reading_of(&arms(18e4)), format!("{TITLE}{better}"));
    let worse = reading_of(&arms(9e4));
    assert!(worse.contains("adaptive makes only 0.75x the IOPS of the best kernel arm"), "{worse}");
    assert!(
        worse.ends_with("Against the better fixed policy (always) it makes only 0.64x the IOPS."),
        "{worse}"
    );
    let same = reading_of(&arms(121e3));
    let kernel = "no difference in IOPS between adaptive and the best kernel arm (kernel-uring-1) is shown: 1.01 [";
    assert!(same.starts_with(&format!("{TITLE}{kernel}")), "{same}");
    assert!(
        same.contains("which includes 1; doorbells per I/O: 0.25 against 1.00. Against"),
        "{same}"
    );
    let same = reading_of(&arms(141e3));
    assert!(
        same.contains("Against the better fixed policy (always) no difference is shown: 1.01 ["),
        "{same}"
    );
}

#[test]
fn what_did_not_run_is_not_read_of() {
    let text = reading_of(&[("kernel-uring", 1e5), ("never", 1e5), ("adaptive", 15e4)]);
    let expected = "adaptive makes 1.50x the IOPS of the best kernel arm (kernel-uring). Against the one fixed policy \
                    (never) it makes 1.50x the IOPS.";
    assert_eq!(text, format!("{TITLE}{expected}"), "of doorbells there is no difference");
    let text = reading_of(&[("adaptive", 15e4)]);
    assert_eq!(text, format!("{TITLE}no kernel arm ran here to compare adaptive with."));
    assert_eq!(reading_of(&[("kernel-uring", 1e5), ("always", 1e5)]), "");
}

#[test]
fn a_policy_that_was_left_out_is_said_to_be_and_a_fixed_base_is_not_read_of() {
    let arms = [("never", 1e5), ("always", 14e4)];
    let base = || Base::Arm("never".into());
    let asked = Asked { table: TableKind::Arms, metric: "iops", base: base(), again: "adaptive" };
    let mut failed = document(&asked, &[Made { place: ("file", 32), arms: &arms }]);
    let reason = "it died".to_owned();
    failed.manifest.left_out = vec![ArmLeftOut { arm: "adaptive".into(), reason, failed: true }];
    let text = reading::reading(&failed, &failed.parts[0]).join("\n");
    assert_eq!(text, format!("{TITLE}adaptive did not run here: it died."));
    let arms = [&arms[..], &[("adaptive", 14e4)]].concat();
    let fixed = document(&asked, &[Made { place: ("file", 32), arms: &arms }]);
    assert!(reading::reading(&fixed, &fixed.parts[0]).is_empty());
}

#[test]
fn the_ladder_has_a_line_for_each_batch_and_a_column_for_each_device() {
    let asked = Asked {
        table: TableKind::Ladder,
        metric: "iops",
        base: Base::Arm("batch-1".into()),
        again: "batch-1",
    };
    let steps = [("batch-1", 1e5), ("batch-8", 3e5), ("batch-32", 4e5)];
    let devices = ["null", "free:200", "gen4", "gen5", "optane"];
    let mut made: Vec<_> =
        devices.iter().map(|name| Made { place: (name, 32), arms: &steps }).collect();
    made.push(Made { place: ("gen4", 4), arms: &steps[..1] });
    let expected = "
random-4k, depth 32, IOPS against batch-1:
batch               null          free:200              gen4
1               1 (base)          1 (base)          1 (base)
8       3.00 [3.00-3.00]  3.00 [3.00-3.00]  3.00 [3.00-3.00]
32      4.00 [3.93-4.08]  4.00 [3.93-4.08]  4.00 [3.93-4.08]
batch               gen5            optane
1               1 (base)          1 (base)
8       3.00 [3.00-3.00]  3.00 [3.00-3.00]
32      4.00 [3.93-4.08]  4.00 [3.93-4.08]

random-4k, depth 4, IOPS against batch-1:
batch               gen4
1               1 (base)
~ = not shown
";
    let text = text(&asked, &made);
    assert_eq!(text, format!("{HEADING}{expected}"), "\n{text}");
}

#[test]
fn what_each_saving_is_worth() {
    let asked = Asked {
        table: TableKind::Worth,
        metric: "ns_per_io",
        base: Base::Arm("all-on".into()),
        again: "all-on",
    };
    let arms = [("all-on", 4e6), ("clock-each", 2e6), ("tags-single", 3.99e6)];
    let made =
        [Made { place: ("null", 32), arms: &arms }, Made { place: ("file", 32), arms: &arms[..2] }];
    let expected = "
arm                                        null              random-4k
all-on                              250+-4.0 ns            250+-4.0 ns
clock-each                    +250 [+238..+263]      +250 [+238..+263]
tags-single                  ~+0.6 [+0.6..+0.6]                      -
ns more than the base: medians, paired by round, 95 %.  ~ = not shown
";
    let text = text(&asked, &made);
    assert_eq!(text, format!("{HEADING}{expected}"), "\n{text}");
}

#[test]
fn deciding_as_it_goes_against_the_best_fixed_policy() {
    let asked = Asked {
        table: TableKind::Policies,
        metric: "iops",
        base: Base::BestOf(vec!["never".into(), "always".into()]),
        again: "adaptive",
    };
    let made = [
        Made { place: ("null", 1), arms: &[("never", 1e5), ("always", 5e4), ("adaptive", 1e5)] },
        Made { place: ("null", 32), arms: &[("never", 1e5), ("always", 4e5), ("adaptive", 3e5)] },
        Made { place: ("gen4", 32), arms: &[("never", 1e5), ("always", 4e5), ("adaptive", 5e5)] },
    ];
    let expected = "
IOPS, adaptive against the best fixed policy:
depth           1     32
null       ~1.00n !0.75a
gen4            -  1.25a

p50, adaptive against the best fixed policy:
depth           1     32
null       !5.33n !1.78n
gen4            - !1.07n
the letter names the fixed policy that was best.  ~ = not shown  ! =
worse
adaptive is worse by more than 2 % and the noise floor: 1 of 3 in IOPS
(floors 2.5 % to 2.5 %), 3 of 3 in p50 (floors 2.5 % to 2.5 %).
";
    let text = text(&asked, &made);
    assert_eq!(text, format!("{HEADING}{expected}"), "\n{text}");
}

#[test]
fn the_columns_fit_the_width() {
    assert_fits(ARMS);
    let wide = |first: usize, columns: usize, width: usize| {
        let mut all = vec![head(first, "", "arm")];
        all.extend((0..columns).map(|_| named_head(width, "a-device-with-a-very-long-name")));
        assert_heads_fit(&all);
    };
    wide(6, RATIOS_IN_A_TABLE, 17);
    wide(24, DIFFERENCES_IN_A_TABLE, 22);
    wide(10, POLICIES_IN_A_TABLE, 6);
}
