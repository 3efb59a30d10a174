use std::path::Path;

use super::*;
use crate::refusal::Refusal;

fn chosen(suite: &str, own: &[&str], kept: Option<&[&str]>) -> Result<Vec<Suite>, String> {
    let own: Result<Vec<OwnArm>, _> = own.iter().map(|text| text.parse()).collect();
    let own = own.map_err(|error: Refusal| error.to_string())?;
    let kept: Option<Vec<String>> =
        kept.map(|kept| kept.iter().map(|name| (*name).to_owned()).collect());
    let suites = vec![super::super::find(Path::new(suite)).unwrap()];
    let choice = Choice { own: &own, kept: kept.as_deref(), ..Choice::default() };
    choose(suites, Form::Quick, choice).map_err(|error| error.to_string())
}

#[test]
fn an_arm_goes_into_each_part_that_knows_it() {
    let suites =
        chosen("plug", &["mine=forebay,plug=never,queue.nomerges=2", "two=fio,batch=2"], None)
            .unwrap();
    let part = |name: &str| suites[0].parts.iter().find(|part| part.name == name).unwrap();
    let cut = part("file").cut(Form::Quick).unwrap();
    let mine = cut.arms.iter().find(|arm| arm.name == "mine").unwrap();
    assert_eq!(mine.way.word, "queue");
    assert_eq!((mine.knobs.len(), mine.tunings.len()), (1, 1));
    assert_eq!(cut.arms.last().unwrap().batch, Some(2));
    assert!(!part("ladder").cut(Form::Quick).unwrap().names().contains(&"mine".to_owned()));
    assert!(
        matches!(&part("file").base, Base::BestOf(best) if best.len() == 8),
        "the suite's base stays"
    );
}

#[test]
fn in_place_of_the_suite_s_the_first_is_the_base_and_runs_twice() {
    let own = ["a=kernel-buffered", "b=forebay,flight=8"];
    let suites = chosen("layout", &own, Some(&["none"])).unwrap();
    let part = &suites[0].parts[0];
    assert_eq!((&part.base, part.again.as_str()), (&Base::Arm("a".into()), "a"));
    assert_eq!(part.cut(Form::Quick).unwrap().names(), ["a", "b"]);
    assert!(part.cut(Form::Quick).unwrap().also.is_empty());
    let some = chosen("layout", &[], Some(&["forebay", "kernel-bounded"])).unwrap();
    assert_eq!(some[0].parts[0].cut(Form::Quick).unwrap().names(), ["kernel-bounded", "forebay"]);
    assert!(matches!(&some[0].parts[0].base, Base::BestOf(_)));
    assert_eq!(chosen("layout", &[], Some(&["none"])).unwrap(), []);
    let ladder = chosen("plug", &[], Some(&["batch-1", "batch-8", "always"])).unwrap();
    let ladder = ladder[0].parts.iter().find(|part| part.name == "ladder").unwrap();
    assert_eq!(ladder.cut(Form::Quick).unwrap().names(), ["batch-1", "batch-8"]);
}

#[test]
fn jobs_and_the_bytes_of_a_cell_are_chosen() {
    let suites = || vec![super::super::find(Path::new("writeback")).unwrap()];
    let of = |jobs: &[&str], cell_bytes| {
        let jobs: Vec<String> = jobs.iter().map(|name| (*name).to_owned()).collect();
        let choice = Choice { jobs: Some(&jobs), cell_bytes, ..Choice::default() };
        choose(suites(), Form::Full, choice).map_err(|error| error.to_string())
    };
    let chosen = of(&["B-6x6"], Some(2 << 30)).unwrap();
    let parts: Vec<&str> = chosen[0].parts.iter().map(|part| part.name.as_str()).collect();
    assert_eq!(parts, ["ways", "factors"], "parts without the job are left out");
    for part in &chosen[0].parts {
        let cut = part.cut(Form::Full).unwrap();
        assert_eq!((cut.workloads.len(), cut.cell_bytes), (1, Some(2 << 30)));
    }
    assert!(of(&["B-6x7"], None).unwrap_err().contains("did you mean B-6x6?"));
    assert!(of(&["B-6x6"], Some(1 << 20)).unwrap_err().contains("of 9216k or more"));
    let choice = Choice { cell_bytes: Some(1 << 30), ..Choice::default() };
    let plug = vec![super::super::find(Path::new("plug")).unwrap()];
    assert!(choose(plug, Form::Full, choice).is_err());
}

#[test]
fn what_cannot_be_meant_names_the_nearest() {
    for (suite, own, expected) in [
        ("layout", "mine", "mine: not NAME=ENGINE"),
        ("layout", "Mine=forebay", "Mine is no name of an arm"),
        ("layout", "mine=forebay,flight", "flight: not key=value"),
        (
            "layout",
            "mine=kernel-bufered",
            "kernel-bufered: no such engine; did you mean kernel-buffered?",
        ),
        ("layout", "mine=zfs", "zfs: no such engine (there are: copy-forebay,"),
        ("layout", "mine=fio", "no part of this suite has work for fio; it has for forebay,"),
        ("layout", "mine=forebay,flihgt=8", "flihgt=8: no such key; did you mean flight?"),
        (
            "layout",
            "mine=kernel-direct,flight=8",
            "flight=8: no such key (there are: sysctl.NAME, queue.NAME)",
        ),
        ("layout", "mine=forebay,queue.a/b=8", "queue.a/b=8: not the name of a setting"),
        ("layout", "forebay=forebay", "there is an arm of that name"),
        ("plug", "mine=forebay,plug=often", "plug=often: allowed: never, always, adaptive"),
        ("plug", "mine=uring,batch=0", "batch=0: not a number from 1"),
    ] {
        let refused = chosen(suite, &[own], None).unwrap_err();
        assert!(refused.contains(expected), "{refused}");
    }
    let refused = chosen("layout", &[], Some(&["kernel-bouned"])).unwrap_err();
    assert!(refused.contains("did you mean kernel-bounded?"), "{refused}");
    assert!(chosen("layout", &["a=null", "a=null"], None).is_err());
}
