//! Errors: every request ends as the rules, applied one by one, say.

use forebay_block::layers::{Errors, Fraction, Occasion, Rule, Side};
use forebay_block::random::Random;
use forebay_block::{Bio, Completion, Device, Errno, Operation, Tag, Target, Wait};
use proptest::prelude::*;

use crate::timed::{Timed, bio, operation};

fn rule() -> impl Strategy<Value = Rule> {
    let occasion = prop_oneof![
        (0..6u64).prop_map(Occasion::Every),
        (0..100u32, any::<u64>()).prop_map(|(percent, seed)| Occasion::Chance {
            rate: Fraction::percent(percent),
            seed
        }),
    ];
    let range = (0..2u32, 0..64u64, 0..32u64)
        .prop_map(|(target, start, length)| (Target(target), start * 512..(start + length) * 512));
    let side = prop_oneof![Just(Side::Before), Just(Side::After)];
    let operations = prop::collection::vec(operation(), 0..4);
    (operations, prop::option::of(range), occasion, 1..100i32, side).prop_map(
        |(operations, range, occasion, errno, side)| Rule {
            operations,
            range,
            occasion,
            errno: Errno(errno),
            side,
        },
    )
}

fn asked() -> impl Strategy<Value = Bio> {
    (operation(), 0..2u32, 0..64u64, 1..32u64).prop_map(|(operation, target, offset, length)| {
        let is_whole = matches!(
            operation,
            Operation::FlushData
                | Operation::FlushAll
                | Operation::FlushDirectory
                | Operation::SetLength
        );
        let length = if is_whole { 0 } else { length * 512 };
        Bio { target: Target(target), ..bio(operation, offset * 512, length) }
    })
}

/// Returns whether the rule selects the bio, compared byte by byte.
fn is_about(rule: &Rule, bio: &Bio) -> bool {
    let operation = rule.operations.is_empty() || rule.operations.contains(&bio.operation);
    let touches = rule.range.as_ref().is_none_or(|(target, range)| {
        let mut bytes = (bio.offset..bio.end().max(bio.offset + 1)).step_by(512);
        *target == bio.target && bytes.any(|byte| range.contains(&byte))
    });
    operation && touches
}

/// The rules, each with its count and its random numbers.
struct Model {
    rules: Vec<(Rule, u64, Random)>,
}

impl Model {
    fn new(rules: &[Rule]) -> Self {
        let seed = |rule: &Rule| match rule.occasion {
            Occasion::Chance { seed, .. } => seed,
            Occasion::Every(_) => 0,
        };
        Self {
            rules: rules.iter().map(|rule| (rule.clone(), 0, Random::new(seed(rule)))).collect(),
        }
    }

    fn fired(&mut self, bio: &Bio) -> Option<(Side, Errno)> {
        let mut fired = None;
        for (rule, count, random) in &mut self.rules {
            if !is_about(rule, bio) {
                continue;
            }
            *count += 1;
            let fires = match rule.occasion {
                Occasion::Every(nth) => nth > 0 && *count % nth == 0,
                Occasion::Chance { rate, .. } => random.happens(rate),
            };
            if fires && fired.is_none() {
                fired = Some((rule.side, rule.errno));
            }
        }
        fired
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, ..ProptestConfig::default() })]

    #[test]
    fn requests_fail_as_the_rules_say(
        first in prop::collection::vec(rule(), 0..5),
        second in prop::collection::vec(rule(), 0..5),
        asked in prop::collection::vec(asked(), 1..150),
        change_at in 0..150usize,
        capacity in 1..20usize,
    ) {
        let mut device = Errors::new(Timed::default().with_capacity(capacity));
        device.set_rules(first.clone());
        let mut model = Model::new(&first);
        let (mut expected, mut reaching, mut completions) = (Vec::new(), Vec::new(), Vec::new());
        for (number, bio) in asked.iter().enumerate() {
            if number == change_at {
                device.set_rules(second.clone());
                model = Model::new(&second);
            }
            let tag = Tag(number as u16);
            // A refused request is prepared again and counted once.
            if device.prepare(tag, bio).is_err() {
                prop_assert_eq!(device.inner().unfinished(), capacity);
                device.doorbell(Wait::Not).unwrap();
                device.reap(&mut completions);
                prop_assert!(device.prepare(tag, bio).is_ok());
            }
            let fired = model.fired(bio);
            if !matches!(fired, Some((Side::Before, _))) {
                reaching.push(tag);
            }
            let result = fired.map_or(Ok(bio.bytes()), |(_, errno)| Err(errno));
            expected.push(Completion { tag, result });
        }
        device.doorbell(Wait::Not).unwrap();
        device.reap(&mut completions);
        completions.sort_by_key(|completion| completion.tag);
        prop_assert_eq!(completions, expected);
        let taken: Vec<Tag> = device.inner().taken.iter().map(|(tag, _)| *tag).collect();
        prop_assert_eq!(taken, reaching);
    }
}

#[test]
fn a_request_that_fails_before_the_device_completes_with_the_doorbell_and_ends_its_wait() {
    let mut device = Errors::new(Timed::with_latencies(&[1000]));
    device.prepare(Tag(0), &bio(Operation::Read, 0, 512)).expect("no limit");
    device.set_rules([Rule::always(Errno::IO)]);
    device.prepare(Tag(1), &bio(Operation::Read, 0, 512)).expect("no limit");
    let mut completions = Vec::new();
    device.reap(&mut completions);
    assert_eq!(completions, [], "no request completes before the doorbell");
    device.doorbell(Wait::Something(None)).unwrap();
    device.reap(&mut completions);
    assert_eq!(completions, [Completion { tag: Tag(1), result: Err(Errno::IO) }]);
    assert_eq!(
        device.inner().moment().nanoseconds(),
        0,
        "a request had completed already, so the doorbell does not wait"
    );
    device.doorbell(Wait::Something(None)).unwrap();
    device.reap(&mut completions);
    assert_eq!(completions[1], Completion { tag: Tag(0), result: Ok(512) });
}
