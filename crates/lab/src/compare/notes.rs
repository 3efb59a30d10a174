//! Notes of cells, each once, with its arms.

use crate::load::verified_bytes;

use super::outcome::Measured;

pub(super) fn of_arms(measured: &[Measured]) -> Vec<String> {
    let mut all: Vec<&str> = Vec::new();
    let mut noted: Vec<(String, Vec<&str>)> = Vec::new();
    let verified = verified(measured);
    for Measured { arm, rounds, .. } in measured {
        if !all.contains(&arm.as_str()) {
            all.push(arm);
        }
        for note in rounds.iter().flat_map(|result| &result.notes) {
            let note = match (&verified, verified_bytes(note)) {
                (Some(verified), Some(_)) => verified.clone(),
                _ => note.clone(),
            };
            match noted.iter_mut().find(|(known, _)| *known == note) {
                Some((_, arms)) if arms.contains(&arm.as_str()) => {}
                Some((_, arms)) => arms.push(arm),
                None => noted.push((note, vec![arm])),
            }
        }
    }
    let said = |(note, arms): (String, Vec<&str>)| match arms.len() {
        count if count > 1 && count == all.len() => format!("every arm: {note}"),
        _ => format!("{}: {note}", arms.join(", ")),
    };
    noted.into_iter().map(said).collect()
}

/// Returns the note on verified bytes: one, also if arms that run for a time wrote more or less.
fn verified(measured: &[Measured]) -> Option<String> {
    let notes = measured.iter().flat_map(|one| &one.rounds).flat_map(|result| &result.notes);
    let bytes: Vec<u64> = notes.filter_map(|note| verified_bytes(note)).collect();
    let (least, most) = (bytes.iter().min()?, bytes.iter().max()?);
    (least != most).then(|| format!("verified {least} to {most} bytes in each job"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cell::CellResult;

    fn measured(arm: &str, notes: &[&str]) -> Measured {
        let notes = notes.iter().map(|note| (*note).to_owned()).collect();
        Measured {
            job: "job".into(),
            arm: arm.into(),
            rounds: vec![CellResult { notes, ..CellResult::default() }],
        }
    }

    #[test]
    fn what_was_verified_is_one_note() {
        let same = [measured("a", &["verified 7 bytes"]), measured("b", &["verified 7 bytes"])];
        assert_eq!(of_arms(&same), ["every arm: verified 7 bytes"]);
        let other =
            [measured("a", &["verified 7 bytes", "x"]), measured("b", &["verified 9 bytes"])];
        assert_eq!(of_arms(&other), ["every arm: verified 7 to 9 bytes in each job", "a: x"]);
        let one = [measured("a", &["verified 7 bytes"]), measured("b", &[])];
        assert_eq!(
            of_arms(&one),
            ["a: verified 7 bytes"],
            "an arm that was not verified is not counted"
        );
    }
}
