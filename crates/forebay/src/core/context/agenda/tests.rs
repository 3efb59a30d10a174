use std::time::Duration;

use proptest::prelude::*;

use super::*;

const FILES: usize = 6;

#[derive(PartialEq, Eq, Debug)]
struct File(usize);

impl Numbered for File {
    fn number(&self) -> usize {
        self.0
    }
}

/// A step of the test, by the reason and a set of files.
#[derive(Clone, Copy, Debug)]
enum Step {
    Push(usize, usize),
    /// Removes all, enters one file meanwhile, and puts a part back.
    Serve(usize, [bool; FILES], usize),
    /// Removes some from the front, and puts a part back there.
    ServeFirst(usize, usize, [bool; FILES]),
    Retain(usize, [bool; FILES]),
    RetainAll([bool; FILES]),
    Remove(usize),
}

fn step() -> impl Strategy<Value = Step> {
    let (reason, file) = (0..AgendaReason::ALL.len(), 0..FILES);
    let part = any::<[bool; FILES]>();
    prop_oneof![
        6 => (reason.clone(), file.clone()).prop_map(|(reason, file)| Step::Push(reason, file)),
        2 => (reason.clone(), part, file.clone())
            .prop_map(|(reason, part, file)| Step::Serve(reason, part, file)),
        2 => (reason.clone(), file.clone(), part)
            .prop_map(|(reason, most, part)| Step::ServeFirst(reason, most, part)),
        1 => (reason, part).prop_map(|(reason, part)| Step::Retain(reason, part)),
        1 => part.prop_map(Step::RetainAll),
        2 => file.prop_map(Step::Remove),
    ]
}

/// The same as plain lists that are searched.
#[derive(Default)]
struct Model([Vec<usize>; AgendaReason::ALL.len()]);

impl Model {
    fn push(&mut self, reason: usize, file: usize) {
        if !self.0[reason].contains(&file) {
            self.0[reason].push(file);
        }
    }

    fn step(&mut self, step: Step) {
        match step {
            Step::Push(reason, file) => self.push(reason, file),
            Step::Serve(reason, part, came) => {
                let mut stay = std::mem::take(&mut self.0[reason]);
                stay.retain(|file| part[*file]);
                stay.push(came);
                stay.into_iter().for_each(|file| self.push(reason, file));
            }
            Step::ServeFirst(reason, most, part) => {
                let most = most.min(self.0[reason].len());
                let rest = self.0[reason].split_off(most);
                self.0[reason].retain(|file| part[*file]);
                self.0[reason].extend(rest);
            }
            Step::Retain(reason, part) => self.0[reason].retain(|file| part[*file]),
            Step::RetainAll(part) => {
                self.0.iter_mut().for_each(|list| list.retain(|file| part[*file]));
            }
            Step::Remove(gone) => {
                self.0.iter_mut().for_each(|list| list.retain(|file| *file != gone));
            }
        }
    }
}

#[test]
fn a_file_that_left_leaves_no_time_of_a_look() {
    let mut agenda = Agenda::default();
    let files: Vec<_> = (0..3).map(|number| Arc::new(File(number))).collect();
    files.iter().for_each(|file| agenda.push(AgendaReason::Breaking, file));
    let now = Instant::now();
    let later = |file: usize| now + Duration::from_millis(file as u64);
    let look = |file: &Arc<File>| GivingUp::NotBefore((file.0 > 0).then(|| later(file.0)));
    assert_eq!(agenda.look(AgendaReason::Breaking, look), Some(later(1)));
    agenda.remove(&files[1]);
    assert_eq!(agenda.look(AgendaReason::Breaking, look), Some(later(2)));
    agenda.remove(&files[2]);
    assert_eq!(agenda.look(AgendaReason::Breaking, look), None);
    assert!(!agenda.is_empty(AgendaReason::Breaking), "a file without a time stays");
    assert_eq!(agenda.look(AgendaReason::Breaking, |_| GivingUp::Done), None);
    assert!(agenda.is_empty(AgendaReason::Breaking));
    assert_eq!(agenda.look(AgendaReason::Breaking, look), None);
}

proptest! {
    #[test]
    fn each_reason_has_one_ordered_list(steps in prop::collection::vec(step(), 1..200)) {
        let files: Vec<_> = (0..FILES).map(|number| Arc::new(File(number))).collect();
        let (mut agenda, mut model) = (Agenda::default(), Model::default());
        for step in steps {
            match step {
                Step::Push(reason, file) => agenda.push(AgendaReason::ALL[reason], &files[file]),
                Step::Serve(reason, part, came) => {
                    let reason = AgendaReason::ALL[reason];
                    let mut taken = agenda.take(reason);
                    prop_assert!(agenda.is_empty(reason));
                    agenda.push(reason, &files[came]);
                    taken.retain(|file| part[file.0]);
                    agenda.put_back(reason, taken);
                }
                Step::ServeFirst(reason, most, part) => {
                    let reason = AgendaReason::ALL[reason];
                    let most = most.min(agenda.count(reason));
                    let mut first: Vec<_> = (0..most).filter_map(|_| agenda.pop(reason)).collect();
                    first.retain(|file| part[file.0]);
                    agenda.put_first(reason, first);
                }
                Step::Retain(reason, part) => {
                    agenda.retain(AgendaReason::ALL[reason], |file| part[file.0]);
                }
                Step::RetainAll(part) => agenda.retain_all(|file| part[file.0]),
                Step::Remove(file) => agenda.remove(&files[file]),
            }
            model.step(step);
            for (reason, list) in AgendaReason::ALL.into_iter().zip(&model.0) {
                let found: Vec<_> =
                    agenda.lists[reason as usize].iter().map(|file| file.0).collect();
                prop_assert_eq!(&found, list);
                prop_assert_eq!(agenda.is_empty(reason), list.is_empty());
            }
        }
    }
}
